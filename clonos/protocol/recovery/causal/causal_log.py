"""A causal log as bytes at absolute offsets, merged from pieces.

The log of an instance is append-only, so its bytes at an offset never change, and any set of pieces of it can be
merged in any order, twice, late or split. What is contiguous from a known offset is a prefix, and a prefix is always
meaningful (invariant I4). Two pieces that differ where they overlap mean two histories: `LogConflict`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from clonos.errors import LogConflict
from clonos.protocol.ids import LOG_BEGIN, LogOffset, log_after

Segment = tuple[LogOffset, bytes]
"""(offset of the first byte, bytes)."""

Extent = tuple[LogOffset, LogOffset]
"""(offset of the first byte, offset behind the last one)."""


def pieces_before(pieces: Iterable[Segment], end: LogOffset) -> list[Segment]:
    """What of the pieces lies before an offset."""
    return [(start, data[: end - start]) for start, data in pieces if start < end]


def pieces_from(pieces: Iterable[Segment], begin: LogOffset) -> list[Segment]:
    """What of the pieces lies from an offset on."""
    return [
        (max(start, begin), data[max(begin - start, 0) :])
        for start, data in pieces
        if start + len(data) > begin
    ]


def pieces_between(pieces: Iterable[Segment], begin: LogOffset, end: LogOffset) -> list[Segment]:
    """What of the pieces lies from one offset to another."""
    return pieces_from(pieces_before(pieces, end), begin)


class CausalLog:
    """Disjoint segments in order of offset."""

    def __init__(self) -> None:
        self._starts: list[LogOffset] = []
        self._data: list[bytes] = []

    def __iter__(self) -> Iterator[Segment]:
        return iter(zip(self._starts, self._data, strict=True))

    @property
    def end(self) -> LogOffset:
        """One past the highest byte known, `LOG_BEGIN` where nothing is."""
        return log_after(self._starts[-1], self._data[-1]) if self._starts else LOG_BEGIN

    def merge(self, start: LogOffset, data: bytes) -> list[Segment]:
        """Add a piece; return the parts of it that were not known, in order.

        Raises LogConflict where known bytes differ.
        """
        if not data:
            return []
        if not self._starts or start >= self.end:
            self._starts.append(start)
            self._data.append(data)
            return [(start, data)]
        added: list[Segment] = []
        at, stop = start, log_after(start, data)
        index = max(bisect_right(self._starts, start) - 1, 0)
        while at < stop:
            if index == len(self._starts) or self._starts[index] >= stop:
                added.append((at, data[at - start :]))
                break
            known_start = self._starts[index]
            known_end = log_after(known_start, self._data[index])
            if at < known_start:
                added.append((at, data[at - start : known_start - start]))
                at = known_start
            if at < known_end:
                upto = min(known_end, stop)
                if (
                    self._data[index][at - known_start : upto - known_start]
                    != data[at - start : upto - start]
                ):
                    raise LogConflict(f"two histories between log offsets {at} and {upto}")
                at = upto
            index += 1
        for piece in added:
            index = bisect_right(self._starts, piece[0])
            self._starts.insert(index, piece[0])
            self._data.insert(index, piece[1])
        return added

    def merge_agreeing(self, pieces: Iterable[Segment]) -> LogOffset:
        """Add pieces in order, up to where one differs from what is known; nothing from there on. The offset up to
        which that went, `LOG_BEGIN` where there is no piece."""
        end = LOG_BEGIN
        for start, data in pieces:
            agreed = self._agreement(start, data, unknown=True)
            self.merge(start, data[:agreed])
            end = max(end, LogOffset(start + agreed))
            if agreed < len(data):
                break
        return end

    def agreement(self, start: LogOffset, data: bytes) -> int:
        """How many bytes of a piece are known here, from its first on."""
        return self._agreement(start, data, unknown=False)

    def _agreement(self, start: LogOffset, data: bytes, *, unknown: bool) -> int:
        at, stop = start, log_after(start, data)
        for known_start, known in self:
            if known_start + len(known) <= at:
                continue
            if known_start >= stop or (known_start > at and not unknown):
                break
            low, high = max(at, known_start), min(stop, log_after(known_start, known))
            mine, theirs = data[low - start : high - start], known[low - known_start : high - known_start]
            if mine != theirs:
                return (
                    low - start + next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
                )
            at = high
        return len(data) if unknown else at - start

    def contiguous_end(self, start: LogOffset) -> LogOffset:
        """How far the log is known without a hole from `start` on; `start` where nothing is."""
        at = start
        for known_start, data in self:
            if known_start > at:
                break
            at = max(at, log_after(known_start, data))
        return at

    def prefix(self, start: LogOffset) -> bytes:
        """The longest known piece that begins exactly at `start`."""
        parts: list[bytes] = []
        at = start
        for known_start, data in self:
            if known_start > at:
                break
            if known_start + len(data) > at:
                parts.append(data[at - known_start :])
                at = log_after(known_start, data)
        return b"".join(parts)


class Coverage:
    """Which bytes of a log have been seen, without the bytes.

    A receiver of deltas needs to know what is new to it; the bytes themselves are in its journal and its log store.
    """

    def __init__(self) -> None:
        self._ranges: list[Extent] = []

    def add(self, start: LogOffset, end: LogOffset) -> list[Extent]:
        """Mark [start, end) as seen; return the parts that were not, in order."""
        if start >= end:
            return []
        ranges = self._ranges
        if not ranges or start > ranges[-1][1]:
            ranges.append((start, end))
            return [(start, end)]
        if start == ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], end)
            return [(start, end)]
        new: list[Extent] = []
        at = start
        merged_start, merged_end = start, end
        rest: list[Extent] = []
        for known_start, known_end in ranges:
            if known_end < start or known_start > end:
                rest.append((known_start, known_end))
                continue
            if at < known_start:
                new.append((at, known_start))
            at = max(at, known_end)
            merged_start, merged_end = min(merged_start, known_start), max(merged_end, known_end)
        if at < end:
            new.append((at, end))
        rest.append((merged_start, merged_end))
        self._ranges = sorted(rest)
        return new

    def copy(self) -> Coverage:
        made = Coverage()
        made._ranges = list(self._ranges)
        return made

    @property
    def end(self) -> LogOffset:
        return self._ranges[-1][1] if self._ranges else LOG_BEGIN

    def covers(self, start: LogOffset, end: LogOffset) -> bool:
        return start >= end or any(low <= start and end <= high for low, high in self._ranges)
