"""An input set: the records that contribute to an entry of an instance's state, and to the rows that are made of it.

An entry is what an operator keeps by itself: a window, the sum of a key, a row that waits for its partner, a timer. Its
input set only grows, and begins anew with another entry. So what a row was made of is a range of an input set, and
costs no copy, however many rows are made of one that grows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from clonos.protocol.ids import RecordId


class InputSet:
    """Records in the order in which they were kept. Of some it may not be known which they are: they were kept before
    the repetition began."""

    __slots__ = ("_followed", "_known", "_records", "_rows", "_unknown")

    def __init__(self) -> None:
        self._records: list[RecordId | None] = []
        self._rows: list[Any] = []  # what the records said; None where that is not wanted
        self._unknown: list[int] = []  # which elements are not known
        self._followed: list[int] = []  # which elements are records that are looked for
        self._known: set[RecordId] | None = None  # all records, once that was asked

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: RecordId, row: Any = None, *, is_followed: bool = False) -> None:
        if is_followed:
            self._followed.append(len(self._records))
        self._records.append(record)
        self._rows.append(row)
        if self._known is not None:
            self._known.add(record)

    def add_unknown(self) -> None:
        """Something that was kept before the repetition began."""
        self._unknown.append(len(self._records))
        self._records.append(None)
        self._rows.append(None)

    def extend(self, parts: Iterable[Kept]) -> None:
        """What these have, in their order. It is none of them itself."""
        for part in parts:
            for at in range(part.begin, part.end):
                self._take(part.of, at)

    def extend_once(self, parts: Iterable[Kept]) -> None:
        """The same without the records that it has."""
        for part in parts:
            for at in range(part.begin, part.end):
                if self._known is None:
                    self._known = {record for record in self._records if record is not None}
                if part.of._records[at] not in self._known:
                    self._take(part.of, at)

    def _take(self, other: InputSet, at: int) -> None:
        record = other._records[at]
        if record is None:
            self.add_unknown()
        else:
            self.add(record, other._rows[at], is_followed=_is_any_in(other._followed, at, at + 1))

    def all(self, *, is_bound: bool = False) -> Kept:
        """All that there is so far."""
        return Kept(self, 0, len(self._records), is_bound)

    @property
    def follows(self) -> bool:
        """Whether it has any of the records that are looked for."""
        return bool(self._followed)

    def records(self, begin: int, end: int) -> Iterator[tuple[RecordId, Any]]:
        """Those of a range that are known, with what they said."""
        for at in range(begin, end):
            if (record := self._records[at]) is not None:
                yield record, self._rows[at]

    def lacks(self, begin: int, end: int) -> bool:
        """Whether some of a range are not known."""
        return _is_any_in(self._unknown, begin, end)

    def followed(self, begin: int, end: int) -> Iterator[RecordId]:
        """Of a range, those that are looked for."""
        for at in self._followed[bisect_left(self._followed, begin) : bisect_left(self._followed, end)]:
            record = self._records[at]
            assert record is not None
            yield record


@dataclass(frozen=True, slots=True)
class Kept:
    """Of an input set, the elements from `begin` to before `end`: what rows were made of that state had kept.

    `is_bound`: each row may be of any of these, and is of no others. That is what can be said of state that a user's
    function keeps by itself.
    """

    of: InputSet
    begin: int
    end: int
    is_bound: bool = False

    def __iter__(self) -> Iterator[RecordId]:
        return (record for record, _ in self.of.records(self.begin, self.end))

    def __len__(self) -> int:
        """With those that are not known."""
        return self.end - self.begin

    @property
    def lacks(self) -> bool:
        """Whether it is not known of some which records they are."""
        return self.of.lacks(self.begin, self.end)

    def with_rows(self) -> Iterator[tuple[RecordId, Any]]:
        """The records, each with what it said, where that was kept."""
        return self.of.records(self.begin, self.end)

    def as_bound(self) -> Kept:
        """The same where it is not known of which of them rows are."""
        return Kept(self.of, self.begin, self.end, is_bound=True)

    def behind(self, reached: int) -> Kept:
        """Without the elements before one."""
        return Kept(self.of, max(self.begin, reached), self.end, self.is_bound)

    def begins_as(self, other: Kept) -> bool:
        """Whether both are the same as far as the shorter one goes."""
        return self.of is other.of and (self.begin, self.is_bound) == (other.begin, other.is_bound)

    def followed(self) -> Kept | None:
        """Only the records that are looked for, if there are any."""
        found = InputSet()
        for record in self.of.followed(self.begin, self.end):
            found.add(record, is_followed=True)
        return found.all(is_bound=self.is_bound) if found.follows else None


def united(parts: Iterable[Kept]) -> tuple[Kept, ...]:
    """The same, where what is all that an input set had up to some element is there once."""
    found: list[Kept] = []
    for part in parts:
        at = next((at for at, each in enumerate(found) if each.begins_as(part)), None)
        if at is None:
            found.append(part)
        elif part.end > found[at].end:
            found[at] = part
    return tuple(found)


def _is_any_in(numbers: list[int], begin: int, end: int) -> bool:
    at = bisect_left(numbers, begin)
    return at < len(numbers) and numbers[at] < end
