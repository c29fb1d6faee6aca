"""A sink instance: output commit.

Rows become visible only together with the determinants they depend on and the new cursor, atomically. The cursor is,
per upstream channel, the last output number made visible; what it covers is dropped when it comes again, so a sink
needs no log of its own. The deltas kept with the output are the *sink log*: they let every upstream instance be
repeated as far as the outside has seen, whatever else is lost.

Alvisi and Marzullo, "Message Logging: Pessimistic, Optimistic, Causal and Optimal", 1998: the output commit problem.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from clonos.errors import Where
from clonos.protocol.frontier import Arrivals, Frontier, runs_of
from clonos.protocol.ids import Epoch, InstanceId, channel_origin
from clonos.protocol.ingestion import Ingested, within
from clonos.protocol.ports import Bundle, Row
from clonos.protocol.recovery.causal.delta_journal import Receipts


@dataclass(frozen=True, slots=True)
class Write:
    """Make visible, in one atomic step."""

    rows: list[Row]
    ids: list[str]
    cursors: dict[int, int]
    deltas: list[bytes]
    ingested: list[Ingested] = field(default_factory=list)
    """When the rows entered the query, in their order."""


class SinkInstance:
    """The sans-IO sink. A Write must have taken effect, or be repeated, before the next bundle is taken."""

    def __init__(
        self, name: str, instance: InstanceId, cursors: dict[int, int], held: Iterable[bytes] = ()
    ) -> None:
        self._name = name
        self._instance = instance
        self._frontier = Frontier(dict(cursors))
        self._receipts = Receipts()
        self._arrivals = Arrivals(Where(name, instance))
        for raw in held:
            self._receipts.take(raw)

    @property
    def covered(self) -> dict[int, int]:
        """By channel, the last position that has been taken."""
        return dict(self._frontier.covered)

    def open_epoch(self, epoch: Epoch) -> None:
        self._arrivals = Arrivals(Where(self._name, self._instance, epoch))

    def take(self, bundle: Bundle) -> Write | None:
        """Records have arrived. None where all of them, and all determinants they bring, are there already.

        A repeated record may bring determinants that are new, on which only later records depend: its sender has
        marked them as sent, so they are written although no row is.
        """
        rows: list[Row] = []
        ids: list[str] = []
        cursors: dict[int, int] = {}
        fresh: list[tuple[int, int]] = []
        at = 0
        numbers = (
            bundle.positions.tolist() if isinstance(bundle.positions, np.ndarray) else list(bundle.positions)
        )
        for channel, count in runs_of(bundle.channels):
            positions = numbers[at : at + count]
            self._arrivals.check(channel, positions)
            skip = self._frontier.uncovered_from(channel, positions)
            if skip < count:
                origin = channel_origin(channel)
                prefix = f"{origin.node}-{origin.instance}-"
                rows.extend(bundle.rows[at + skip : at + count])
                fresh.append((at + skip, at + count))
                ids.extend([prefix + str(position) for position in positions[skip:]])
                self._frontier.covered[channel] = cursors[channel] = positions[-1]
            at += count
        deltas = [raw for raw in bundle.deltas if self._receipts.take(raw)]
        ingested = list(within(bundle.ingested, fresh))
        return Write(rows, ids, cursors, deltas, ingested) if rows or deltas else None
