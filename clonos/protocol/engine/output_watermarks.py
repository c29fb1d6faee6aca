"""What an instance tells the instances that read it of event time.

Rows take along how far event time has come behind them. Destinations that no rows go to are told now and then, and at
the end of an epoch: without that, an instance whose keys do not occur would never see time pass. Nothing is told that
has not changed in the epoch: to its reader, a channel that says nothing in a batch is idle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from clonos.protocol.destination import Destinations, Reader, Routing
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.event_time import later
from clonos.protocol.ports import Encoded


@dataclass(slots=True)
class _Told:
    """One reader, and what its instances were told in this attempt. Times are in microseconds."""

    reader: Reader
    destinations: range
    services: CausalServices
    of_rows: int | None = None
    of_rows_before: int | None = None  # when the epoch began
    told: dict[int, int] = field(default_factory=dict)  # by destination

    @property
    def reached(self) -> int | None:
        """Of the rows, where the reader goes by them, else the operator's own."""
        return self.services.watermark if self.reader.watermark_of is None else self.of_rows

    def is_news(self, destination: int, reached: int) -> bool:
        inherits = self.reader.watermark_of is None
        before = self.services.epoch_watermark if inherits else self.of_rows_before
        known = self.told.get(destination, before)
        return known is None or reached > known

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
                each.of_rows = later(each.of_rows, each.reader.watermark_of(rows))

    def with_rows(self, destinations: Destinations) -> dict[int, int]:
        """What is told with rows that go to these destinations now."""
        said: dict[int, int] = {}
        if self._readers:
            targets = set(chain.from_iterable(destinations))
            for each in self._readers:
                said |= each.tell(target for target in targets if target in each.destinations)
        return said

    def due(self) -> dict[int, int]:
        """What destinations have not been told yet."""
        said: dict[int, int] = {}
        for each in self._readers:
            reached = each.reached
            if reached is not None:
                said |= each.tell(to for to in each.destinations if each.is_news(to, reached))
        return said
