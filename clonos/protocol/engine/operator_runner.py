"""What the user's operator is given in a step, and what that leaves: covered input, watermarks, fired timers.

Nothing here depends on whether the step is recorded or repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from clonos.protocol.engine.input_gate import InputGate
from clonos.protocol.engine.instance_place import InstancePlace
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.event_time import fire, later
from clonos.protocol.frontier import Column
from clonos.protocol.ports import Row, StepOperator
from clonos.protocol.recovery.causal.determinant import Run

KeysOf = Callable[[list[Row]], list[Row]]
WatermarkOf = Callable[[list[Row]], int | None]


class OperatorRunner:
    """The operator, with its event time. With `per_epoch` it gathers an epoch's records; they and timers are processed
    at the epoch's end. `watermark_of` is for epochs that an older version has begun, which did not record how the
    watermark moves: it followed from the records, as their latest event time less the delay, in microseconds."""

    def __init__(
        self,
        operator: StepOperator,
        services: CausalServices,
        gate: InputGate,
        place: InstancePlace,
        *,
        keys_of: KeysOf,
        watermark_of: WatermarkOf | None,
        has_event_time: bool,
        per_epoch: bool,
    ) -> None:
        self.per_epoch = per_epoch
        self.has_event_time = has_event_time
        self.processed = 0  # records that this incarnation has consumed
        self.holds = False  # the operator has gathered records that no snapshot has
        self.gathered = False  # the end of this epoch was processed
        self._operator = operator
        self._services = services
        self._gate = gate
        self._place = place
        self._keys_of = keys_of
        self._watermark_of = watermark_of
        self.records_watermarks = False  # of this epoch

    def begin_epoch(self, *, records_watermarks: bool) -> None:
        self.gathered = False
        self.records_watermarks = records_watermarks

    def restore(self, snapshot: InstanceSnapshot, seed: Callable[[], int]) -> None:
        if snapshot.random_state is not None:
            self._services.random.setstate(snapshot.random_state)
        else:
            self._services.random.seed(seed())
        self._services.watermark = snapshot.watermark
        self._services.epoch_watermark, self.gathered = snapshot.epoch_watermark, snapshot.gathered
        self.records_watermarks = snapshot.records_watermarks
        self._services.counts.restore(snapshot.counted)

    @property
    def record_at_a_time(self) -> bool:
        """Whether a bundle may be run in pieces: the function in force sees no difference."""
        return self._operator.record_at_a_time

    @property
    def has_more_at_epoch_end(self) -> bool:
        """Whether the end of the epoch is still to be processed."""
        return self.per_epoch and (self.holds or not self.gathered)

    def next_due(self) -> int | None:
        """When the next processing-time timer is due that need not wait for the epoch's end."""
        return None if self.per_epoch else self._services.timers.next_due()

    # ---------------------------------------------------------------- records

    def run(self, runs: Sequence[Run], positions: Column, rows: list[Row]) -> list[Row]:
        """All records of a step at once."""
        produced = self.run_some(runs, positions, rows)
        fired = self.end(runs, positions, rows)
        return produced + fired if fired else produced

    def run_some(self, runs: Sequence[Run], positions: Column, rows: list[Row]) -> list[Row]:
        """`rows` are the first records of a step, or all."""
        self._place.enter(runs, positions)
        return self._operator.bundle(self._keys_of(rows), rows) if rows else []

    def pieces(self) -> AbstractContextManager[None]:
        """What is run inside are pieces of one bundle."""
        return self._operator.pieces()

    def end(self, runs: Sequence[Run], positions: Column, rows: list[Row]) -> list[Row]:
        """The records of a step have been run."""
        self._leave(runs, positions, rows, rows)
        self.holds = self.per_epoch
        return [] if self.holds else self._fire_event_timers()

    def end_skipping(self, runs: Sequence[Run], positions: Column, rows: list[Row]) -> None:
        """All but the last record have been run, which leaves no trace but that it is covered. Timers wait for the next
        step: what an earlier life has recorded for the record is not for them."""
        self._leave(runs, positions, rows, rows[:-1])

    def _leave(self, runs: Sequence[Run], positions: Column, rows: list[Row], ran: list[Row]) -> None:
        self._place.leave()
        self._gate.cover(runs, positions)
        self.processed += len(rows)
        self._services.counts.consume(len(rows))
        if not self.records_watermarks and self._watermark_of is not None and ran:
            self._services.watermark = later(self._services.watermark, self._watermark_of(ran))

    # ------------------------------------------------------------------ timers

    def fire(self, now: int, watermark: int | None) -> list[Row]:
        """Timers that are due, when the watermark has moved; with `per_epoch`, the whole end of the epoch."""
        produced = self._end_gathering() if self.per_epoch else []
        self._services.watermark = later(self._services.watermark, watermark)
        produced += fire(self._operator, self._services.timers, now, False)
        if self.per_epoch or self.records_watermarks:
            produced += self._fire_event_timers()
        return produced

    def _end_gathering(self) -> list[Row]:
        """Records with the watermark of the epoch's beginning, as Spark does."""
        reached, self._services.watermark = self._services.watermark, self._services.epoch_watermark
        produced = self._operator.gathered()
        self._services.watermark = reached
        self.holds, self.gathered = False, True
        return produced

    def _fire_event_timers(self) -> list[Row]:
        return fire(self._operator, self._services.event_timers, self._services.watermark, True)
