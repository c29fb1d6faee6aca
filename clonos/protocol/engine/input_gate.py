"""The input gate: which of the records that arrive the operator is given, and when.

A channel is FIFO (invariant I5), and what was consumed or already waits is dropped when it comes again. What came too
early waits until the recorded order asks for it. An attempt that resumes inside an epoch may be ahead of its senders:
what it has of them has to come again before the epoch ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from clonos.protocol.engine.channel_watermarks import ChannelWatermarks
from clonos.protocol.engine.instance_place import InstancePlace
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot, still_awaited
from clonos.protocol.engine.save_queue import SaveQueue
from clonos.protocol.engine.waiting import Waiting
from clonos.protocol.frontier import Arrivals, Column, Frontier, runs_of
from clonos.protocol.ids import channel_origin
from clonos.protocol.ports import Bundle, Row
from clonos.protocol.recovery.causal.delta_journal import DeltaJournal
from clonos.protocol.recovery.causal.determinant import Run
from clonos.protocol.recovery.causal.resumption import resume_failed


class InputGate:
    """Arrivals, the frontier of what was consumed, and the records between the two."""

    def __init__(
        self,
        journal: DeltaJournal,
        save_queue: SaveQueue,
        place: InstancePlace,
        watermarks: ChannelWatermarks,
    ) -> None:
        self.watermarks = watermarks
        self.waiting = Waiting()
        self.frontier = Frontier()
        self.awaited_input: dict[int, int] = {}  # by channel, the position up to which records come again
        self.began: dict[int, int] = {}  # by channel, the last position of the epochs before
        self._arrivals = Arrivals(place.where())
        self._journal = journal
        self._save_queue = save_queue
        self._place = place

    @property
    def arrived(self) -> dict[int, int]:
        """By channel, the last position that has come to any incarnation of the attempt."""
        return self._arrivals.arrived

    @property
    def has_left_over(self) -> bool:
        """Whether records wait that came in the epochs before."""
        return any(
            channel in self.began and position <= self.began[channel]
            for channel, position in self.waiting.first.items()
        )

    def restore(self, snapshot: InstanceSnapshot, now: int) -> None:
        self.frontier = Frontier(dict(snapshot.covered))
        self.began = dict(snapshot.began)
        self._arrivals = Arrivals(self._place.where(), snapshot.began, snapshot.arrived)
        self.awaited_input = dict(snapshot.awaited_input)
        self.waiting = Waiting(snapshot.pending)
        self.watermarks.restore(snapshot.claims, snapshot.input_watermarks, now)

    def restore_deltas(self, held: Iterable[bytes], received: Iterable[bytes]) -> None:
        """`held` are in the log store, `received` came to another host, and have to be saved here."""
        for raw in held:
            self._journal.receive(raw)
        for raw in received:
            self._receive(raw)

    def begin_epoch(self, now: int, *, realtime: bool) -> None:
        """An epoch begins that is not the one before."""
        self.watermarks.begin_epoch(now, realtime=realtime)
        self.began = self._arrivals.arrived

    def begin_attempt(self) -> None:
        """The epoch's records are sent from its beginning."""
        self._arrivals = Arrivals(self._place.where(), self.began, self._arrivals.arrived)

    def take(self, bundle: Bundle) -> tuple[list[Run], Column, list[Row]]:
        """Records have arrived; those of them that are new. Raises InputError."""
        for raw in bundle.deltas:
            self._receive(raw)
        fresh = self._uncovered(bundle)
        if self.awaited_input:
            self.awaited_input = still_awaited(self.awaited_input, self._arrivals.last)
        return fresh

    def cover(self, runs: Sequence[Run], positions: Column) -> None:
        """The operator has processed these records."""
        self.frontier.cover(runs, positions)

    def check_complete(self) -> None:
        """The epoch ends. Raises ResumeFailed where it ends before what it was resumed from: its last snapshot would
        depend on what others do in the next one. Where nothing is repeated all snapshots have what they depend on, and
        the rest comes again in the next epoch."""
        if self.awaited_input:
            channel, upto = next(iter(self.awaited_input.items()))
            sender = channel_origin(channel)
            raise resume_failed(
                f"it has record {upto} of {sender}, which the epoch ends before", self._place.where()
            )

    def _receive(self, raw: bytes) -> None:
        if self._journal.receive(raw):
            self._save_queue.add_delta(raw)

    def _uncovered(self, bundle: Bundle) -> tuple[list[Run], Column, list[Row]]:
        """Check FIFO; drop records that the frontier covers or that already wait."""
        runs = runs_of(bundle.channels)
        if isinstance(bundle.channels, np.ndarray) and isinstance(bundle.positions, np.ndarray):
            first = self._arrivals.check_columns(bundle.channels, bundle.positions)
            if not self.waiting and self.frontier.is_before(first):
                return runs, bundle.positions, bundle.rows
            return self.waiting.fresh(self.frontier, runs, bundle.positions.tolist(), bundle.rows)
        positions = list(bundle.positions)
        at = 0
        for channel, count in runs:
            self._arrivals.check(channel, positions[at : at + count])
            at += count
        return self.waiting.fresh(self.frontier, runs, positions, bundle.rows)
