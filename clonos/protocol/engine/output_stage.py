"""The output stage: what becomes of the rows that a step has produced.

Rows are numbered and routed. What was handed on in an earlier life is suppressed by number; of the rest, the first row
per destination carries the delta that the destination lacks.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from clonos.errors import GapError
from clonos.protocol.counters import LAST_LONG, used_up
from clonos.protocol.destination import NOWHERE, Destinations, Routing
from clonos.protocol.engine.epoch_counts import EpochCounts
from clonos.protocol.engine.instance_log import InstanceLog
from clonos.protocol.engine.instance_place import InstancePlace
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.engine.output_watermarks import OutputWatermarks
from clonos.protocol.ids import NO_OUTPUT, OutputNumber, output_after, outputs_after
from clonos.protocol.ports import Emit, Encoded, InstancePorts, Row
from clonos.protocol.recovery.causal.delta_journal import DeltaJournal


class OutputStage:
    """Rows in, `Emit` out. With `suppresses_all` nothing leaves: it is a standby's."""

    def __init__(
        self,
        ports: InstancePorts,
        routing: Routing,
        log: InstanceLog,
        journal: DeltaJournal,
        place: InstancePlace,
        watermarks: OutputWatermarks,
        counts: EpochCounts,
    ) -> None:
        self.numbered = NO_OUTPUT  # the output number of the last row produced
        self.suppressed_upto = NO_OUTPUT  # that of the last row that an earlier life has handed on
        self.sent: dict[int, OutputNumber] = {}  # by destination, that of the last row for it
        self.suppresses_all = False
        self._due: list[Emit] = []
        self._watermarks = watermarks
        self._counts = counts
        self._ports = ports
        self._routing = routing
        self._log = log
        self._journal = journal
        self._place = place

    def restore(self, snapshot: InstanceSnapshot) -> None:
        self.numbered = snapshot.emitted
        self.sent = dict(snapshot.sent)

    def number_beyond(self, floor: OutputNumber) -> None:
        """No row gets a number up to this one."""
        self.numbered = max(self.numbered, floor)

    @property
    def emitted_output(self) -> OutputNumber:
        """The output number of the last row so far, suppressed ones included."""
        return max(self.numbered, self.suppressed_upto)

    def prepare(self, produced: list[Row]) -> tuple[Encoded, Destinations]:
        """The rows as the runtime ships them, and their destinations."""
        encoded = self._ports.encode(produced)
        return encoded, self._routing(produced) if produced else []

    def release(self, encoded: Encoded | None, produced: list[Row], destinations: Destinations) -> None:
        """Number, suppress and stamp. The rows are due once what they depend on is saved."""
        before, count = self.numbered, len(produced)
        self.numbered = output_after(before, count)
        if self.numbered > LAST_LONG:
            raise used_up("the number of the output row", self._place.where())
        if produced:
            self._log.mark_checkpoint()
        log_start, log = self._log.take_unsent()
        covered = count if self.suppresses_all else min(max(self.suppressed_upto - before, 0), count)
        for column in destinations:
            self.sent.update(zip(column, outputs_after(before, count), strict=True))
        self.sent.pop(NOWHERE, None)
        self._counts.send(destinations)
        deltas: dict[int, bytes] = {}
        said: dict[int, int] = {}
        if encoded is not None and count:
            self._watermarks.produced(encoded)
        if covered:
            produced, destinations = produced[covered:], [column[covered:] for column in destinations]
            encoded = self._ports.encode(produced) if produced else None
        if produced:
            for target in dict.fromkeys(chain.from_iterable(destinations)):
                delta = self._journal.delta_for(target) if target != NOWHERE else None
                if delta is not None:
                    deltas[target] = delta
            said = self._watermarks.with_rows(destinations)
            self._log.handed_on = self._log.end
        emit = Emit(
            output_after(before, covered + 1),
            len(produced),
            encoded if produced else None,
            destinations,
            deltas,
            log_start,
            log,
            self.emitted_output,
            said,
        )
        self._due.append(emit)

    def release_log(self) -> None:
        """What of the own log no row has been sent with."""
        if self._log.has_unsent:
            self.release(None, [], [])

    def tell_watermarks(self, now: int, *, at_end: bool) -> None:
        """What of event time no row has told. A standby tells nothing."""
        if not self.suppresses_all and (said := self._watermarks.due(now, at_end=at_end)):
            self.release(None, [], [])
            self._due[-1] = replace(self._due[-1], watermarks=said)

    def take_due(self) -> list[Emit]:
        """What is to be handed on, in order. The caller does."""
        due, self._due = self._due, []
        return due

    def check_repeated(self) -> None:
        """Nothing is left to repeat. Raises GapError where rows have been handed on that were not."""
        if self.numbered < self.suppressed_upto:
            raise GapError(
                f"rows {self.numbered + 1}..{self.suppressed_upto} have been handed on, but no holder has the "
                "determinants that they depend on",
                where=self._place.where(),
                hint="The log store and what the conduit kept do not reach them; restart the query from the checkpoint",
            )
