"""What an instance tells the instances that read it of event time.

Rows take along how far event time has come behind them. Destinations that no rows go to are told at a tick, and at the
end of an epoch: without that, an instance whose keys do not occur would never see time pass. While something comes they
are told also that nothing has changed, for to its reader a channel that says nothing is idle. An instance that is idle
itself says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from clonos.protocol.destination import Destinations, Reader, Routing
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.event_time import later
from clonos.protocol.ports import Encoded

ALL_TOLD_EVERY: Final = 1_000_000
"""Microseconds."""


@dataclass(slots=True)
class _Told:
    """One reader, and what its instances were told in this attempt. Times are in microseconds."""

    reader: Reader
    destinations: range
    services: CausalServices
    of_rows: int | None = None
    of_rows_before: int | None = None  # when the epoch began
    told: dict[int, int] = field(default_factory=dict)  # by destination
    stirred: bool = False  # something has come since all were told
    all_told_at: int = 0

    @property
    def reached(self) -> int | None:
        """Of the rows, where the reader goes by them, else the operator's own."""
        return self._reached(self.of_rows, self.services.watermark)

    @property
    def goes_by_own(self) -> bool:
        """Whether what is told depends on the operator's own watermark."""
        return self.reader.watermark_of is None or self.reader.waits is not None

    def _reached(self, of_rows: int | None, own: int | None) -> int | None:
        reader = self.reader
        if reader.watermark_of is None:
            return None if own is None else own - reader.trails
        if reader.waits is None or of_rows is None:
            return of_rows
        return None if own is None else min(of_rows, own - reader.waits)

    def is_news(self, destination: int, reached: int) -> bool:
        before = self._reached(self.of_rows_before, self.services.epoch_watermark)
        known = self.told.get(destination, before)
        return known is None or reached > known

    def due(self, now: int, *, at_end: bool) -> dict[int, int]:
        reached = self.reached
        if reached is None:
            return {}
        if self.stirred and (at_end or now - self.all_told_at >= ALL_TOLD_EVERY):
            self.stirred, self.all_told_at = False, now
            return self.tell(to for to in self.destinations if not at_end or self.told.get(to) != reached)
        return self.tell(to for to in self.destinations if self.is_news(to, reached))

    def tell(self, destinations: Iterable[int]) -> dict[int, int]:
        reached = self.reached
        if reached is None:
            return {}
        said = dict.fromkeys(destinations, reached)
        self.told |= said
        return said


class OutputWatermarks:
    """See the module."""

    def __init__(self, routing: Routing, services: CausalServices) -> None:
        self._readers = [_Told(*each, services) for each in routing.with_event_time]

    @property
    def kept(self) -> list[tuple[int | None, int | None]]:
        """For a snapshot, by reader: how far event time had come by the rows, and when the epoch began. What readers
        were told without rows, they may lack where the snapshot is begun with."""
        return [(each.of_rows, each.of_rows_before) for each in self._readers]

    def restore(self, kept: Sequence[tuple[int | None, int | None]]) -> None:
        """Another program may have other readers: they are told with the next rows."""
        if len(kept) == len(self._readers):
            for each, (of_rows, before) in zip(self._readers, kept, strict=True):
                each.of_rows, each.of_rows_before = of_rows, before

    def begin_epoch(self) -> None:
        for each in self._readers:
            each.of_rows_before = each.of_rows

    def begin_attempt(self) -> None:
        """Readers may have to be told again what an earlier attempt has told them."""
        for each in self._readers:
            each.told.clear()

    def produced(self, rows: Encoded) -> None:
        """A step has produced rows, whether or not they leave."""
        for each in self._readers:
            if each.reader.watermark_of is not None:
                reached = each.reader.watermark_of(rows)
                each.stirred = each.stirred or reached is not None
                each.of_rows = later(each.of_rows, reached)

    def heard(self) -> None:
        """The instance has heard of event time itself."""
        for each in self._readers:
            each.stirred = each.stirred or each.goes_by_own

    def with_rows(self, destinations: Destinations) -> dict[int, int]:
        """What is told with rows that go to these destinations now."""
        said: dict[int, int] = {}
        if self._readers:
            targets = set(chain.from_iterable(destinations))
            for each in self._readers:
                said |= each.tell(target for target in targets if target in each.destinations)
        return said

    def due(self, now: int, *, at_end: bool) -> dict[int, int]:
        """What destinations are to be told without rows; `at_end` of an epoch."""
        said: dict[int, int] = {}
        for each in self._readers:
            said |= each.due(now, at_end=at_end)
        return said
