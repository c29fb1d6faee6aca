"""The numbers of the entries in a sink's log, and what a page of a truncation may remove.

A truncation reads the log, decides, and deletes in pages. A page can be repeated, when its answer was lost, and arrive
late, when much has been appended since. It must then find what it means, or nothing:

- no number is given twice, not even when every entry is gone: the highest number that was ever removed is kept, and
  moved in the same step as the removal;
- an entry is named by its number and its checksum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clonos.errors import CounterExhausted
from clonos.protocol.counters import ANEW, LAST_LONG

LAST_NUMBER: Final = LAST_LONG


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """What names one entry of a sink instance's log."""

    number: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Page:
    """Entries of one sink instance that are not needed any more."""

    entries: frozenset[Entry]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Page:
        return cls(frozenset(entries))

    def removes(self, entry: Entry) -> bool:
        return entry in self.entries

    def removed_upto(self, before: int) -> int:
        """The highest number that was ever removed, after this page; `before` it, `before`."""
        return max([before, *(entry.number for entry in self.entries)])


def next_number(last: int, removed_upto: int) -> int:
    """Of the first entry that a new writer appends; `last` is the highest that is there, 0 without any."""
    return max(last, removed_upto) + 1


def numbers(first: int, count: int) -> range:
    """Of the next `count` entries. Raises CounterExhausted where they would not fit."""
    if first + count > LAST_NUMBER:
        raise CounterExhausted(
            f"the sink's log has numbered {first - 1} entries and cannot count further",
            hint=ANEW,
        )
    return range(first, first + count)
