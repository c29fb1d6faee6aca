"""One instance of a causal operator: the protocol's centre.

An instance is an input gate, a step executor and an output stage, around one own log. What its methods return, the
runtime carries out in order.

Normal operation (design: *Normal*). A bundle's deltas are taken into the journal and queued for the log store before
its records are processed; the order determinant is appended; the operator runs; the rows it returns are numbered,
routed and stamped, the first row per destination carrying the delta that the destination lacks. The log store is
written before any row leaves (`Persist` precedes `Emit`), so no instance or sink ever depends on an event that only a
dead process knew (invariant I1).

Recovery. Restored to a snapshot, with its own log from there on as far as the holders know it, the instance repeats the
recorded steps: records wait per channel until the recorded order asks for them, outcomes come from the log, rows
already emitted are suppressed by number, and the rebuilt log must equal the recorded one byte for byte
(invariant I2). Where the log ends it goes live with whatever is waiting.

Following. A hot standby is restored like a replacement and then held in that state: it takes the records that its
primary takes, and repeats the steps whose log the conduit has learnt of; nothing of it leaves. The log comes to the
conduit in the frame that brings the rows that depend on it, so whatever has been repeated has been emitted. Gone
live, it repeats what else is recorded, suppresses by number, and is the primary.

The end of a replayed epoch may fall before the end of the recorded log, because a real-time batch that is executed
again may be shorter. Then the rest of the log, and the records that wait for their turn, go into the snapshot, and
the replay goes on in the next epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from clonos.errors import SnapshotCorrupt
from clonos.protocol.destination import Routing
from clonos.protocol.engine.channel_watermarks import ChannelWatermarks, EventInput
from clonos.protocol.engine.epoch_boundary import EpochBoundary
from clonos.protocol.engine.epoch_counts import Counted
from clonos.protocol.engine.input_gate import InputGate
from clonos.protocol.engine.instance_log import InstanceLog
from clonos.protocol.engine.instance_place import InstancePlace
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot as InstanceSnapshot
from clonos.protocol.engine.lineage_recorder import LineageRecorder
from clonos.protocol.engine.operator_runner import KeysOf, OperatorRunner, WatermarkOf
from clonos.protocol.engine.output_stage import OutputStage
from clonos.protocol.engine.output_watermarks import OutputWatermarks
from clonos.protocol.engine.recorder_ports import RecorderPorts
from clonos.protocol.engine.replay import Replay
from clonos.protocol.engine.save_queue import SaveQueue
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.engine.step_executor import StepExecutor
from clonos.protocol.event_time import later
from clonos.protocol.ids import NO_OUTPUT, Epoch, LogOffset, Origin, OutputNumber, log_after
from clonos.protocol.ports import (
    Action as Action,
    Bundle as Bundle,
    Emit as Emit,
    Encoded as Encoded,
    InstancePorts as InstancePorts,
    Persist as Persist,
    Row as Row,
    StepOperator as StepOperator,
)
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.delta_journal import FOLD_FROM, FULL, DeltaJournal
from clonos.protocol.recovery.causal.determinant import Step
from clonos.protocol.recovery.causal.longest_prefix import RecoveryState
from clonos.protocol.recovery.causal.recorder import StepRecorder, UnrecordedStep
from clonos.protocol.recovery.quarantine import Quarantine
from clonos.protocol.versions.programs import Programs


@dataclass(frozen=True, slots=True)
class InstanceConfig:
    """What an instance is."""

    name: str
    origin: Origin
    routing: Routing
    keys_of: KeysOf
    depth: int = FULL
    fold_from: int = FOLD_FROM
    recording: bool = True  # off where no step is ever repeated
    marks_checkpoints: bool = False  # its log says so where others have logs (`engine.instance_log`)
    per_epoch: bool = (
        False  # the operator gathers an epoch's records; they and timers are processed at its end
    )
    event_inputs: tuple[EventInput, ...] = ()  # those with event time
    watermark_of: WatermarkOf | None = None  # as `engine.operator_runner` says
    programs: Programs | None = None  # the operator, where its function may change from one epoch to another


class Instance:
    """The sans-IO instance. Methods return what to do, in order."""

    def __init__(
        self,
        config: InstanceConfig,
        operator: StepOperator,
        services: CausalServices,
        ports: InstancePorts,
        lineage: LineageRecorder | None = None,
    ) -> None:
        operator = operator if lineage is None else lineage.around(operator)
        place = InstancePlace(config.name, config.origin)
        journal = DeltaJournal(config.depth, fold_from=config.fold_from)
        save_queue = SaveQueue()
        log = InstanceLog(
            config.origin,
            journal,
            save_queue,
            place,
            is_kept=config.recording,
            marks_checkpoints=config.marks_checkpoints,
        )
        gate = InputGate(journal, save_queue, place, ChannelWatermarks(config.event_inputs))
        watermarks = OutputWatermarks(config.routing, services)
        output = OutputStage(ports, config.routing, log, journal, place, watermarks, services.counts)
        runner = OperatorRunner(
            operator,
            services,
            gate,
            place,
            keys_of=config.keys_of,
            watermark_of=config.watermark_of,
            has_event_time=bool(config.event_inputs),
            per_epoch=config.per_epoch,
        )
        boundary = EpochBoundary(config.programs, ports, services, runner, log, place)
        executor = StepExecutor(
            runner,
            services,
            gate,
            boundary,
            log,
            output,
            place,
            RecorderPorts(ports, log, save_queue, output),
            new_recorder=StepRecorder if config.recording else UnrecordedStep,
        )
        services.where = place.of_row
        services.has_event_time = bool(config.event_inputs)
        self._place = place
        self._journal = journal
        self._save_queue = save_queue
        self._log = log
        self._gate = gate
        self._output = output
        self._output_watermarks = watermarks
        self._runner = runner
        self._boundary = boundary
        self._executor = executor
        if lineage is not None:
            executor.lineage, boundary.on_begun = lineage, self._lineage_begins
        self._replay = Replay(gate, executor, boundary, log, output, place)
        self._services = services
        self._ports = ports
        self._realtime = False
        self._recording = config.recording

    def _lineage_begins(self) -> None:
        """Of an epoch."""
        assert self._executor.lineage is not None
        covered, emitted = self._gate.frontier.covered, self._output.numbered
        self._executor.lineage.epoch_begins(self._log.end, emitted, covered, waits=self._gate.has_left_over)

    # ---------------------------------------------------------------- life

    def restore(
        self,
        snapshot: InstanceSnapshot | None,
        *,
        own_before: Iterable[Segment] = (),
        recorded: bytes = b"",
        held: Iterable[bytes] = (),
        received: Iterable[bytes] = (),
        output_number_floor: OutputNumber = NO_OUTPUT,
    ) -> None:
        """Return to a snapshot (or to the beginning), to repeat `recorded`, the own log from there on.

        `own_before` are pieces of the own log before the snapshot that may still be asked for, `held` the deltas
        received and not yet truncated, `received` those that it received on another host. Output is numbered beyond
        `output_number_floor`: what was handed on up to there belongs to a history that cannot be repeated any more.
        """
        if snapshot is not None:
            if wrong := snapshot.wrong_place(self._place.origin):
                raise SnapshotCorrupt(f"a snapshot stands in the place of {self._place.origin}, and {wrong}")
            if snapshot.holds:
                raise self._boundary.gathered_records_lost()
            self._gate.restore(snapshot, self._event_clock())
            self._boundary.restore(snapshot)
            self._runner.restore(snapshot, self._ports.entropy)
            self._output.restore(snapshot)
            self._output_watermarks.restore(snapshot.output_watermarks)
            self._place.epoch = snapshot.epoch
        self._output.number_beyond(output_number_floor)
        self._gate.restore_deltas(held, received)
        self._log.restore(snapshot, own_before, recorded)
        if self._save_queue:
            self._ports.persist(self._save_queue.take(), durable=False)
        self._replay.restore()

    def begin_following(self) -> None:
        """From now on repeat what the primary is known to have done, and no more."""
        self._replay.begin_following()

    def watch_repeated(self, watch: Callable[[Step], None]) -> None:
        """Who looks on is told of each recorded step before it is repeated."""
        self._replay.watch = watch

    def follow(self, start: LogOffset, log: bytes) -> list[Action]:
        """The conduit knows the primary's log up to the end of this.

        Raises ReplicaLost where something in between is missing: the standby must start again from a snapshot.
        """
        self._log.extend_recording(start, log)
        self._replay.follow(log_after(start, log))
        self._replay.advance()
        return self._saved_first()

    def go_live(self, emitted_output: OutputNumber) -> list[Action]:
        """The primary is lost. Rows numbered up to `emitted_output` have been handed on."""
        self.lead()
        self._output.suppressed_upto = emitted_output
        self._replay.advance()
        return self._saved_first()

    def lead(self) -> None:
        """No longer follow; the recorded steps that remain are repeated when there is more to do."""
        self._replay.lead()

    def open_epoch(
        self,
        epoch: Epoch,
        *,
        realtime: bool,
        emitted_output: OutputNumber = NO_OUTPUT,
        ends_at: LogOffset | None = None,
    ) -> list[Action]:
        """A task attempt of `epoch` begins. Rows numbered up to `emitted_output` have been handed on already.

        Where an earlier attempt has come to the end of the epoch, its log ends at `ends_at`, and so does this one's:
        some of the tasks that were to read its output may have read it, and are not there to read more.
        """
        self._replay.open_epoch(ends_at)
        if epoch != self._place.epoch:
            self._log.begin_epoch()
            self._gate.begin_epoch(self._event_clock(), realtime=realtime)
            self._output_watermarks.begin_epoch()
            self._services.counts.begin_epoch()
            self._place.epoch = epoch
        self._realtime = realtime
        self._output.suppressed_upto = emitted_output
        self._output_watermarks.begin_attempt()
        self._gate.begin_attempt()
        self._replay.advance()
        return self._saved_first()

    def take(self, bundle: Bundle) -> list[Action]:
        """Records have arrived."""
        runs, positions, rows = self._gate.take(bundle)
        if self._replay.state is not RecoveryState.LIVE:
            self._gate.waiting.put(runs, positions, rows)
            self._replay.advance()
        elif rows:
            self._executor.consume(runs, positions, rows)
        if bundle.watermarks and self._gate.watermarks:
            self._gate.watermarks.claim(bundle.watermarks, self._ports.clock())
            self._output_watermarks.heard()
        return self._saved_first()

    def tick(self, now: int) -> list[Action]:
        """Time has passed; `now` in microseconds. Fires timers when live; in real time event time passes, too."""
        if self._replay.state is not RecoveryState.LIVE:
            return []
        due = self._runner.next_due()
        watermark = self._next_watermark(now) if self._realtime else None
        if watermark is not None or (due is not None and due <= now):
            self._executor.fire(now, watermark)
        if self._realtime:
            self._output.tell_watermarks(now, at_end=False)
        return self._saved_first()

    def _event_clock(self) -> int:
        """By which channels are idle; where there is event time."""
        return self._ports.clock() if self._gate.watermarks else 0

    def _next_watermark(self, now: int) -> int | None:
        """The one that event time has come to, where it is a later one."""
        if not self._runner.records_watermarks:
            return None
        reached = self._gate.watermarks.reached(now, realtime=self._realtime)
        return reached if later(self._services.watermark, reached) != self._services.watermark else None

    def flush(self) -> list[Action]:
        """What has not been saved or handed on yet. Must be carried out before a snapshot is taken."""
        self._output.release_log()
        return self._saved_first()

    def snapshot(self, *, log_since: LogOffset | None = None) -> InstanceSnapshot:
        """The instance between two steps, with its log of this epoch from an offset on, if that is wanted and held.
        What is sent from now on is not in it."""
        self._log.begin_checkpoint()
        return InstanceSnapshot(
            epoch=self._place.epoch,
            covered=dict(self._gate.frontier.covered),
            emitted=self._output.numbered,
            log_offset=self._log.end,
            epoch_log_offset=self._log.epoch_start,
            boundary=self._boundary.last,
            random_state=self._services.random.getstate() if self._recording else None,
            watermark=self._services.watermark,
            pending=self._gate.waiting.records,
            sent=dict(self._output.sent),
            received=self._journal.received,
            log_digest=self._log.epoch_digest,
            awaited_input=dict(self._gate.awaited_input),
            program=self._boundary.program,
            epoch_watermark=self._services.epoch_watermark,
            gathered=self._runner.gathered,
            holds=self._runner.holds,
            log=self._log.since(log_since),
            claims=self._gate.watermarks.kept,
            input_watermarks=self._gate.watermarks.kept_inputs,
            output_watermarks=self._output_watermarks.kept,
            records_watermarks=self._runner.records_watermarks,
            began=dict(self._gate.began),
            arrived=self._gate.arrived,
            counted=self.counted,
            origin=self._place.origin,
        )

    def end_epoch(self) -> list[Action]:
        """All input has come. What has not been saved or handed on yet, as before a snapshot. Raises ResumeFailed."""
        if self._recording:
            self._gate.check_complete()
        if self._replay.state is RecoveryState.LIVE:
            watermark = self._next_watermark(self._event_clock())
            if watermark is not None or self._runner.has_more_at_epoch_end:
                self._executor.fire(self._ports.clock(), watermark)
        self._output.tell_watermarks(self._event_clock(), at_end=True)
        return self.flush()

    def truncate(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        """An epoch has committed: forget the logs before these offsets."""
        self._journal.truncate(truncation_points)

    def _saved_first(self) -> list[Action]:
        """What any of the steps has recorded or received is saved before rows of any of them leave.

        One `Persist` for all: an effect in a later step must find what came before it either saved or unsaved,
        not under way.
        """
        due = self._output.take_due()
        return [self._save_queue.take(), *due] if self._save_queue else [*due]

    # -------------------------------------------------------------- how far it is

    @property
    def state(self) -> RecoveryState:
        return self._replay.state

    @property
    def awaited_by_recording(self) -> int:
        """How many records are still to come before one may be run of which it is not recorded what came of it."""
        return self._replay.awaited_by_recording

    @property
    def waiting(self) -> dict[int, int]:
        """By channel, how many records have come and wait for their turn."""
        return self._gate.waiting.counts

    @property
    def quarantine(self) -> Quarantine | None:
        """Says which records may be run, after deaths that one of them may have caused."""
        return self._executor.record_by_record.quarantine

    @quarantine.setter
    def quarantine(self, quarantine: Quarantine | None) -> None:
        self._executor.record_by_record.quarantine = quarantine

    @property
    def holds(self) -> bool:
        """Whether there are gathered records that no snapshot has."""
        return self._runner.holds

    @property
    def emitted_output(self) -> OutputNumber:
        """The output number of the last row so far, suppressed ones included."""
        return self._output.emitted_output

    @property
    def sent(self) -> Mapping[int, OutputNumber]:
        """By destination, the number of the last row for it so far."""
        return self._output.sent

    @property
    def processed(self) -> int:
        """Records consumed so far by this incarnation."""
        return self._runner.processed

    @property
    def counted(self) -> Counted:
        """What it has done in the epoch, whatever was lost meanwhile."""
        return self._services.counts.counted

    @property
    def log_offset(self) -> LogOffset:
        return self._log.end

    @property
    def handed_on(self) -> LogOffset:
        """The log offset up to which rows that have left carried the log downstream."""
        return self._log.handed_on

    @property
    def following(self) -> bool:
        return self._replay.following

    @property
    def followed(self) -> LogOffset:
        """The log offset up to which the primary's log is known to have been handed on."""
        return self._replay.followed

    @property
    def recorded(self) -> bytes:
        """The part of the recorded log that is still to be repeated."""
        return self._log.recording.since(self._log.end)

    def clock(self) -> int:
        return self._ports.clock()
