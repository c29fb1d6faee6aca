"""What a store or a sink's log holds of other instances' logs, computed from its bytes without the core's help.

The checkers ask this instead of the code they check, so delta entries are taken apart here a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from clonos.protocol.ids import LOG_BEGIN, LogOffset, Origin, log_after
from clonos.protocol.recovery.causal.causal_log import Extent
from clonos.sim.disk import Batch


class Said(NamedTuple):
    """One entry of a delta: a piece of a log, or only how far it reaches."""

    origin: Origin
    start: LogOffset
    end: LogOffset
    data: bytes | None


def entries_of(raw: bytes) -> Iterator[Said]:
    """The entries of an undamaged delta (format: `clonos.protocol.recovery.causal.delta`)."""
    at, stop = 1, len(raw) - 4

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < stop:
        origin = Origin.of(varint(), varint())
        start, flags, length = LogOffset(varint()), varint(), varint()
        data = None if flags & 1 else raw[at : at + length]
        at += len(data or b"")
        if flags & 2:  # the length and the digest of a mark
            varint()
            at += 4
        yield Said(origin, start, LogOffset(start + length), data)


class Intervals:
    """Disjoint [start, end), in order."""

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans: list[Extent] = []

    def add(self, start: LogOffset, end: LogOffset) -> None:
        spans = self.spans
        if start >= end:
            return
        if spans and spans[-1][0] <= start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            return
        merged: list[Extent] = []
        for low, high in sorted([*spans, (start, end)]):
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], high))
            else:
                merged.append((low, high))
        self.spans = merged

    def covers(self, start: LogOffset, end: LogOffset) -> bool:
        return start >= end or any(low <= start and end <= high for low, high in self.spans)

    def without(self, other: Intervals | None) -> list[Extent]:
        """What is in here and not in the other."""
        left: list[Extent] = []
        for low, high in self.spans:
            at = low
            for begin, end in other.spans if other is not None else ():
                if begin >= high or end <= at:
                    continue
                if begin > at:
                    left.append((at, begin))
                at = end
            if at < high:
                left.append((at, high))
        return left

    @property
    def end(self) -> LogOffset:
        return self.spans[-1][1] if self.spans else LOG_BEGIN

    def beyond(self, start: LogOffset) -> list[Extent]:
        return [(max(low, start), high) for low, high in self.spans if high > start]


class Held:
    """What a store or a sink's log holds of each origin's log: the bytes, and up to which offset it depends on them."""

    def __init__(self) -> None:
        self.data: dict[Origin, Intervals] = {}
        self.reach: dict[Origin, LogOffset] = {}

    def add_batch(self, owner: Origin, batch: Batch) -> None:
        """Add a batch of the store of this owner."""
        for start, data in batch.own:
            self.data.setdefault(owner, Intervals()).add(start, log_after(start, data))
        self.add_deltas(batch.deltas)

    def add_deltas(self, deltas: Iterable[bytes]) -> None:
        for raw in deltas:
            for said in entries_of(raw):
                self.reach[said.origin] = max(self.reach.get(said.origin, LOG_BEGIN), said.end)
                if said.data is not None:
                    self.data.setdefault(said.origin, Intervals()).add(said.start, said.end)

    def covers(self, origin: Origin, start: LogOffset, end: LogOffset) -> bool:
        if start >= end:
            return True
        known = self.data.get(origin)
        return known is not None and known.covers(start, end)

    def missing(self, origin: Origin, start: LogOffset, end: LogOffset) -> list[Extent]:
        """What of [start, end) is not held."""
        wanted = Intervals()
        wanted.add(start, end)
        return wanted.without(self.data.get(origin))
