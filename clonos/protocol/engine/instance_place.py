"""Where in the query an instance is: what an error says of its place."""

from __future__ import annotations

from collections.abc import Sequence

from clonos.errors import Where
from clonos.protocol.frontier import Column
from clonos.protocol.ids import NO_EPOCH, Origin
from clonos.protocol.recovery.causal.determinant import Run


class InstancePlace:
    """The instance, its epoch, and the records of the step that it executes."""

    def __init__(self, name: str, origin: Origin) -> None:
        self.epoch = NO_EPOCH
        self._name = name
        self.origin = origin
        self._runs: Sequence[Run] = ()
        self._positions: Column = ()

    def where(self, channel: int | None = None, position: int | None = None) -> Where:
        return Where(self._name, self.origin.instance, self.epoch, channel, position)

    def enter(self, runs: Sequence[Run], positions: Column) -> None:
        """The operator is about to be given these records."""
        self._runs, self._positions = runs, positions

    def leave(self) -> None:
        """The operator has processed them."""
        self._runs = self._positions = ()

    def of_row(self, row: int | None) -> Where:
        """The place of a record that the operator has in hand, by its index. A record that is alone needs none."""
        if row is None and len(self._positions) == 1:
            row = 0
        at = 0
        for channel, count in self._runs:
            at += count
            if row is not None and row < at:
                return self.where(channel, int(self._positions[row]))
        return self.where()
