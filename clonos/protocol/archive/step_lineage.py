"""The lineage of steps, as it is recorded while they run: which calls each was made of, and how many rows they gave.

The causal log says which records a step consumed and how many rows it sent. What is noted here is how these go
together, run-length: *a thousand calls for one record each gave one row each*. There is one entry for each step of the
log, in its order:

    u8 0                                                                 not recorded
    u8 1 | u8 w | u32 n | u32 m | n forms of calls, u8 | n rows | n calls | m sizes | m rows, each of w bytes
    u8 2 | u64 number | u32 n | n channels, u64 | n positions, i64

The second one is of a step that ran: n times so many calls of a form that gave so many rows each; m times so many rows
of the function's, of each of which there are so many forms (m is 0 where each row is itself). The third one is of the
beginning of an epoch: the number of the last row before it, and how far it had come on each channel. So an epoch can be
read by itself. Integers are little-endian.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from clonos.errors import LogCorrupt
from clonos.protocol.frontier import Column, run_lengths
from clonos.protocol.ids import OutputNumber

_HEAD: Final = struct.Struct("<BII")
_WIDTHS: Final = {1: "<u1", 4: "<u4"}
_BEGINNING: Final = struct.Struct("<QI")


_MOST_FORMS: Final = 255
_MOST_IN_STEP: Final = 1 << 28
"""Calls, and rows: more than a frame has bytes for."""


class CallForm(enum.StrEnum):
    """What a call of the user's function was for."""

    RECORD = "record"
    BUNDLE = "bundle"
    TIMER = "timer"
    END = "end of the epoch"


_FORMS: Final = tuple(CallForm)
"""In the order of their numbers in entries: a further one comes last."""
_NUMBERS: Final = {form: bytes((number,)) for number, form in enumerate(CallForm)}


class Entry(enum.IntEnum):
    """What an entry is."""

    UNKNOWN = 0
    CALLS = 1
    BEGINNING = 2


class CallRuns(NamedTuple):
    """Calls of one form in succession: in each run so many `calls`, which gave so many `rows` each."""

    form: CallForm
    rows: Column
    calls: Column

    @property
    def made(self) -> int:
        """How many calls there are."""
        return int(sum(self.calls))

    @property
    def given(self) -> int:
        """All rows of all calls."""
        return int(np.dot(self.rows, self.calls)) if len(self.rows) > 1 else self.rows[0] * self.calls[0]

    def by_call(self) -> list[int]:
        """How many rows each call gave."""
        found: list[int] = np.repeat(self.rows, self.calls).tolist()
        return found


@dataclass(frozen=True, slots=True)
class StepCalls:
    """The calls of a step, in order; `forms` say how many of its rows, one behind the other, are forms of one row of
    the function's each: empty where each row is itself."""

    runs: Sequence[CallRuns]
    forms: bytes = b""

    def has(self, rows: int) -> bool:
        """Whether these are all calls of a step that gave so many rows."""
        is_whole = not self.forms or sum(self.forms) == rows
        return is_whole and sum(each.given for each in self.runs) == rows


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where an instance stood when an epoch began."""

    emitted: OutputNumber
    covered: Mapping[int, int]


Recorded = StepCalls | Beginning | None
"""Of a step; None where nothing was."""

UNKNOWN: Final = bytes((Entry.UNKNOWN,))
_CALLS: Final = bytes((Entry.CALLS,))


@lru_cache(maxsize=8192)
def encode_run(form: CallForm, rows: int, calls: int) -> bytes:
    """As `encode_calls`, of so many calls alone that gave so many rows each, as those of most steps have."""
    return encode_calls(StepCalls([CallRuns(form, [rows], [calls])]))


def encode_calls(found: StepCalls) -> bytes:
    runs = found.runs
    numbers = b"".join(_NUMBERS[each.form] * len(each.calls) for each in runs)
    sizes, counts = _sizes(found.forms)
    columns = [*(each.rows for each in runs), *(each.calls for each in runs), sizes, counts]
    width = 1 if max(map(_largest, columns)) < 256 else 4
    head = _CALLS + _HEAD.pack(width, len(numbers), len(sizes))
    return b"".join((head, numbers, *(_packed(column, width) for column in columns)))


def _sizes(forms: bytes) -> tuple[Column, Column]:
    """Run-length."""
    return run_lengths(np.frombuffer(forms, np.uint8)) if forms else ([], [])


def _largest(column: Column) -> int:
    return int(column.max(initial=0) if isinstance(column, np.ndarray) else max(column, default=0))


def _packed(column: Column, width: int) -> bytes:
    if isinstance(column, np.ndarray):
        return column.astype(_WIDTHS[width]).tobytes()
    return bytes(column) if width == 1 else struct.pack(f"<{len(column)}I", *column)


def encode_beginning(found: Beginning) -> bytes:
    channels = sorted(found.covered)
    positions = [found.covered[channel] for channel in channels]
    head = bytes((Entry.BEGINNING,)) + _BEGINNING.pack(found.emitted, len(channels))
    return head + np.array(channels, "<u8").tobytes() + np.array(positions, "<i8").tobytes()


def entries_of(raw: bytes) -> Iterator[bytes]:
    """One behind the other. Raises LogCorrupt."""
    at = 0
    while at < len(raw):
        end = at + _length(raw, at)
        if end > len(raw):
            raise LogCorrupt("an entry of a lineage is cut off")
        yield raw[at:end]
        at = end


def _length(raw: bytes, at: int) -> int:
    """Of the entry that begins there."""
    kind = _kind(raw[at])
    if kind is Entry.UNKNOWN:
        return 1
    try:
        if kind is Entry.CALLS:
            width, runs, sizes = _HEAD.unpack_from(raw, at + 1)
            if width not in _WIDTHS:
                raise LogCorrupt(f"numbers of {width} bytes in a lineage")
            return int(1 + _HEAD.size + runs + 2 * width * (runs + sizes))
        _, channels = _BEGINNING.unpack_from(raw, at + 1)
    except struct.error as error:
        raise LogCorrupt(f"an entry of a lineage is cut off: {error}") from error
    return 1 + _BEGINNING.size + 16 * int(channels)


def decode_entry(entry: bytes) -> Recorded:
    """A whole one (`entries_of`). Raises LogCorrupt."""
    kind = _kind(entry[0])
    if kind is Entry.UNKNOWN:
        return None
    if kind is Entry.BEGINNING:
        emitted, count = _BEGINNING.unpack_from(entry, 1)
        at = 1 + _BEGINNING.size
        channels = np.frombuffer(entry, "<u8", count, at).tolist()
        positions = np.frombuffer(entry, "<i8", count, at + 8 * count).tolist()
        return Beginning(OutputNumber(emitted), dict(zip(channels, positions, strict=True)))
    width, runs, sizes = _HEAD.unpack_from(entry, 1)
    at = 1 + _HEAD.size
    forms = entry[at : at + runs]
    numbers = np.frombuffer(entry, _WIDTHS[width], offset=at + runs).astype(np.int64)
    rows, calls, size, count = np.split(numbers, (runs, 2 * runs, 2 * runs + sizes))
    if size.max(initial=0) > _MOST_FORMS or max(calls.sum(), count.sum()) > _MOST_IN_STEP:
        raise LogCorrupt("an entry of a lineage has more calls or rows than a step may have")
    return StepCalls(list(_by_form(forms, rows, calls)), np.repeat(size.astype(np.uint8), count).tobytes())


def _by_form(forms: bytes, rows: Column, calls: Column) -> Iterator[CallRuns]:
    begin = 0
    for at, form in enumerate(forms, 1):
        if at == len(forms) or forms[at] != form:
            if form >= len(_FORMS):
                raise LogCorrupt(f"unknown form of a call {form} in a lineage")
            yield CallRuns(_FORMS[form], rows[begin:at], calls[begin:at])
            begin = at


def _kind(code: int) -> Entry:
    try:
        return Entry(code)
    except ValueError as error:
        raise LogCorrupt(f"unknown entry type {code} in a lineage") from error
