"""One instance of a causal operator: the protocol's centre.

Normal operation (design: *Normal*). A bundle's deltas are taken into the journal and queued for the log store before
its records are processed; the order determinant is appended; the operator runs; the rows it returns are numbered,
routed and stamped, the first row per destination carrying the delta that the destination lacks. The log store is
written before any row leaves (`Persist` precedes `Emit`), so nobody ever depends on an event that only a dead process
knew (invariant I1).

Recovery. Restored to a snapshot, with its own log from there on as far as anybody knows it, the instance repeats the
recorded steps: records wait per channel until the recorded order asks for them, outcomes come from the log, rows
already passed on are suppressed by number, and the rebuilt log must equal the recorded one byte for byte
(invariant I2). Where the log ends it goes live with whatever is waiting.

Following. A hot standby is restored like a replacement and then held in that state: it takes the records that its
primary takes, and repeats the steps whose log the conduit has learnt of; nothing of it leaves. The log comes to the
conduit in the frame that brings the rows that depend on it, so whatever has been repeated has been passed on. Gone
live, it repeats what else is recorded, suppresses by number, and is the primary.

The end of a replayed epoch may fall before the end of the recorded log, because a real-time batch that is executed
again may be shorter. Then the rest of the log, and the records that wait for their turn, go into the snapshot, and
the replay goes on in the next epoch.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np

from clonos.errors import DivergenceError, GapError, Where
from clonos.protocol.counters import LAST_LONG, used_up
from clonos.protocol.destination import Router
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot as InstanceSnapshot, still_owed
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.engine.waiting import Waiting
from clonos.protocol.event_time import fire, later
from clonos.protocol.frontier import Arrivals, Column, Frontier, channels_of, numbers_of, runs_of
from clonos.protocol.ids import Origin, channel_origin
from clonos.protocol.ports import (
    Action as Action,
    Bundle as Bundle,
    Emit as Emit,
    Encoded as Encoded,
    InstancePorts as InstancePorts,
    Persist as Persist,
    Row as Row,
)
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.delta_journal import FOLD_FROM, FULL, DeltaJournal
from clonos.protocol.recovery.causal.determinant import Kind, Run, Step, first_of
from clonos.protocol.recovery.causal.longest_prefix import RecoveryState, cut_short
from clonos.protocol.recovery.causal.recorder import StepRecorder, UnrecordedStep, digest_of_sent
from clonos.protocol.recovery.causal.recording import Recording
from clonos.protocol.recovery.causal.replayer import HINT, StepReplayer
from clonos.protocol.recovery.causal.resumption import resume_failed
from clonos.protocol.recovery.quarantine import CandidateRecord, Care
from clonos.protocol.versions.programs import Programs


@dataclass(frozen=True, slots=True)
class InstanceConfig:
    """What an instance is."""

    name: str
    origin: Origin
    router: Router
    keys_of: Callable[[list[Row]], list[Row]]
    depth: int = FULL
    fold_from: int = FOLD_FROM
    recording: bool = True  # off only to measure what recording costs
    record_at_a_time: bool = False  # a bundle may be given to the operator in pieces, and nobody notices
    per_epoch: bool = (
        False  # the operator gathers an epoch's records; they and timers are processed at its end
    )
    watermark_of: Callable[[list[Row]], int | None] | None = (
        None  # latest event time less the delay, microseconds
    )
    programs: Programs | None = None  # the operator, where its function may change from one epoch to another


class Instance:
    """The sans-IO instance. Methods return what to do, in order."""

    def __init__(
        self, config: InstanceConfig, operator: Any, services: CausalServices, ports: InstancePorts
    ) -> None:
        self._config = config
        self._operator = operator
        self._services = services
        self._ports = ports
        self._programs = config.programs
        self._journal = DeltaJournal(config.depth, fold_from=config.fold_from)
        self._frontier = Frontier()
        self._began: dict[int, int] = {}  # by channel the last position of the epochs before
        self._epoch = -1
        self._boundary = -1
        self._arrivals = Arrivals(Where(config.name, config.origin.instance))
        self._waiting = Waiting()
        self._emitted = 0
        self._passed = 0
        self._processed = 0
        self._log_end = 0
        self._epoch_log_offset = 0
        self._log_digest = 0
        self._handed_on = 0  # the log offset up to which somebody downstream has been sent the log
        self._sent: dict[int, int] = {}
        self._owed: dict[int, int] = {}
        self._unsaved_deltas: list[bytes] = []
        self._unsaved_own: list[bytes] = []
        self._unsaved_start = 0
        self._unsent: list[bytes] = []
        self._unsent_start = 0
        self._due: list[Emit] = []
        self._recording = Recording()
        self._services.where = lambda row: self._where()
        self._following = False
        self._followed = 0  # log offset up to which a standby may repeat
        self.holds = self._gathered = (
            False  # records that no snapshot has; the end of this epoch was processed
        )
        self._ends_at: int | None = None
        self.state = RecoveryState.LIVE
        self.care: Care | None = None

    # ---------------------------------------------------------------- life

    def restore(
        self,
        snapshot: InstanceSnapshot | None,
        *,
        own_before: Iterable[Segment] = (),
        recorded: bytes = b"",
        held: Iterable[bytes] = (),
        received: Iterable[bytes] = (),
        numbers_from: int = 0,
    ) -> None:
        """Return to a snapshot (or to the beginning), to repeat `recorded`, the own log from there on.

        `own_before` are pieces of the own log before the snapshot that may still be asked for, `held` the deltas
        received and not yet truncated, `received` those that it received on another host. Output is numbered beyond
        `numbers_from`: what was handed on up to there belongs to a history that nobody can repeat any more.
        """
        if snapshot is not None:
            if snapshot.holds:
                self._refuse_held()
            self._frontier = Frontier(dict(snapshot.covered))
            self._began = dict(snapshot.began)
            self._arrivals = Arrivals(self._where(), snapshot.began, snapshot.arrived)
            self._emitted = snapshot.emitted
            self._log_end = snapshot.log_offset
            self._epoch_log_offset, self._log_digest = snapshot.epoch_log_offset, snapshot.log_digest
            self._sent, self._owed = dict(snapshot.sent), dict(snapshot.owed)
            self._boundary = snapshot.boundary
            self._epoch = snapshot.epoch
            self._services.random.setstate(snapshot.random_state)
            self._services.watermark = snapshot.watermark
            if self._programs is not None:
                self._programs.stands(snapshot.program)
            self._services.epoch_watermark, self._gathered = snapshot.epoch_watermark, snapshot.gathered
            self._waiting = Waiting(snapshot.pending)
        self._emitted = max(self._emitted, numbers_from)
        self._unsaved_start = self._unsent_start = self._log_end
        for raw in held:
            self._journal.receive(raw)
        self._unsaved_deltas += [raw for raw in received if self._journal.receive(raw)]
        for start, data in own_before:
            self._journal.append_own(self._config.origin, start, data)
        self._recording = Recording(self._log_end, recorded)
        # Others may have handed it back, and whoever replaces this replica before it has repeated it asks nobody.
        if recorded:
            self._unsaved_own = [recorded]
        if recorded or self._unsaved_deltas:
            self._ports.persist(self._unsaved(), durable=False)
        self.state = RecoveryState.REPLAYING if self._recording.steps else RecoveryState.LIVE

    def begin_following(self) -> None:
        """From now on repeat what the primary is known to have done, and no more."""
        if self.state is RecoveryState.LIVE:
            self._recording = Recording(self._log_end)
        self._following, self._followed = True, self._log_end
        self.state = RecoveryState.REPLAYING

    def follow(self, start: int, log: bytes) -> list[Action]:
        """The conduit knows the primary's log up to the end of this.

        Raises ReplicaLost where something in between is missing: the standby must start again from a snapshot.
        """
        fresh = self._recording.extend(start, log, self._log_end, self._where)
        if fresh:
            self._unsaved_own.append(fresh)
        self._followed = max(self._followed, start + len(log))
        self._advance()
        return self._saved_first()

    def go_live(self, passed: int) -> list[Action]:
        """The primary is lost. Rows numbered up to `passed` have been handed on."""
        self.lead()
        self._passed = passed
        self._advance()
        return self._saved_first()

    def lead(self) -> None:
        """No longer follow; what is left to repeat is repeated when there is more to do."""
        self._following = False

    def open_epoch(self, epoch: int, *, passed: int = 0, ends_at: int | None = None) -> list[Action]:
        """A task attempt of `epoch` begins. Rows numbered up to `passed` have been handed on already.

        Where an earlier attempt has come to the end of the epoch, its log ends at `ends_at`, and so does this one's:
        some of those who were to read its output may have read it, and are not there to read more.
        """
        self._ends_at = ends_at
        if ends_at is not None and self.state is RecoveryState.LIVE:
            self.state, self._recording = RecoveryState.REPLAYING, Recording(self._log_end)
        arrived = self._arrivals.arrived
        if epoch != self._epoch:
            self._epoch_log_offset, self._log_digest = self._log_end, 0
            self._began = arrived
        self._epoch = epoch
        self._passed = passed
        self._arrivals = Arrivals(self._where(), self._began, arrived)
        self._advance()
        return self._saved_first()

    def take(self, bundle: Bundle) -> list[Action]:
        """Records have arrived."""
        for raw in bundle.deltas:
            if self._journal.receive(raw):
                self._unsaved_deltas.append(raw)
        runs, positions, rows = self._uncovered(bundle)
        if self._owed:
            self._owed = still_owed(self._owed, self._arrivals.last)
        if self.state is RecoveryState.LIVE:
            if rows:
                self._consume(runs, positions, rows)
            return self._saved_first()
        self._waiting.put(runs, positions, rows)
        self._advance()
        return self._saved_first()

    def tick(self, now: int) -> list[Action]:
        """Time has passed; `now` in microseconds. Fires processing-time timers when live."""
        if self.state is not RecoveryState.LIVE or self._config.per_epoch:
            return []
        due = self._services.timers.next_due()
        if due is None or due > now:
            return []
        self._fire_in(self._recorder(), now)
        return self._saved_first()

    def flush(self) -> list[Action]:
        """What has not been saved or handed on yet. Must be carried out before a snapshot is taken."""
        if self._unsent:
            self._release(None, [], [])
        return self._saved_first()

    def snapshot(self, *, log_since: int | None = None) -> InstanceSnapshot:
        """The instance between two steps, with its log of this epoch from an offset on, if that is wanted and held."""
        start = self._log_end if log_since is None else max(log_since, self._epoch_log_offset)
        log = self._journal.own_since(self._config.origin, start) if start < self._log_end else b""
        return InstanceSnapshot(
            epoch=self._epoch,
            covered=dict(self._frontier.covered),
            emitted=self._emitted,
            log_offset=self._log_end,
            epoch_log_offset=self._epoch_log_offset,
            boundary=self._boundary,
            random_state=self._services.random.getstate(),
            watermark=self._services.watermark,
            epoch_watermark=self._services.epoch_watermark,
            gathered=self._gathered,
            holds=self.holds,
            pending=self._waiting.records,
            sent=dict(self._sent),
            received=self._journal.received,
            log_digest=self._log_digest,
            owed=dict(self._owed),
            program=self._programs.written if self._programs is not None else "",
            log=log if len(log) == self._log_end - start else b"",
            began=dict(self._began),
            arrived=self._arrivals.arrived,
        )

    def end_epoch(self) -> list[Action]:
        """All input has come. What has not been saved or handed on yet, as before a snapshot.

        Raises ResumeFailed where the epoch ends before what it was resumed from: its last snapshot would depend on what
        others do in the next one.
        """
        if self._owed:
            channel, upto = next(iter(self._owed.items()))
            sender = channel_origin(channel)
            raise resume_failed(
                f"it has record {upto} of {sender}, which the epoch ends before", self._where()
            )
        if self._config.per_epoch and self.state is RecoveryState.LIVE and (self.holds or not self._gathered):
            self._fire_in(self._recorder(), self._ports.clock())
        return self.flush()

    def truncate(self, stable: Mapping[Origin, int]) -> None:
        """An epoch has committed: forget the logs before these offsets."""
        self._journal.truncate(stable)

    @property
    def passed(self) -> int:
        return max(self._emitted, self._passed)

    @property
    def processed(self) -> int:
        """Records consumed so far by this incarnation."""
        return self._processed

    @property
    def log_offset(self) -> int:
        return self._log_end

    @property
    def handed_on(self) -> int:
        """The log offset up to which rows that have left carried the log to somebody."""
        return self._handed_on

    @property
    def following(self) -> bool:
        return self._following

    @property
    def followed(self) -> int:
        """The log offset up to which the primary's log is known to have been handed on."""
        return self._followed

    @property
    def recorded(self) -> bytes:
        """What is left to repeat of the log."""
        return self._recording.since(self._log_end)

    # ------------------------------------------------- StepPorts, for recorders

    def clock(self) -> int:
        return self._ports.clock()

    def stabilise(self, chunk: bytes) -> None:
        self._append_own(chunk)
        self._ports.persist(self._unsaved(), durable=True)
        # Whoever repeats a step in advance takes it that its rows have left. This one has none yet.
        due, self._due = self._due, []
        self._ports.secure(due, self._unsent_start, b"".join(self._unsent))

    def rebuilt(self, chunk: bytes) -> None:
        self._append_own(chunk)

    # -------------------------------------------------------------- input

    def _uncovered(self, bundle: Bundle) -> tuple[list[Run], Column, list[Row]]:
        """Check FIFO; drop records that the frontier covers or that already wait."""
        runs = runs_of(bundle.channels)
        if isinstance(bundle.channels, np.ndarray) and isinstance(bundle.positions, np.ndarray):
            first = self._arrivals.check_columns(bundle.channels, bundle.positions)
            if not self._waiting and self._frontier.is_before(first):
                return runs, bundle.positions, bundle.rows
            return self._waiting.fresh(self._frontier, runs, bundle.positions.tolist(), bundle.rows)
        positions = list(bundle.positions)
        at = 0
        for channel, count in runs:
            self._arrivals.check(channel, positions[at : at + count])
            at += count
        return self._waiting.fresh(self._frontier, runs, positions, bundle.rows)

    # ------------------------------------------------------------ execution

    def _recorder(self) -> StepRecorder:
        return StepRecorder(self) if self._config.recording else UnrecordedStep(self)

    def _consume(self, runs: list[Run], positions: Column, rows: list[Row]) -> None:
        if self.care is not None:
            return self._consume_singly(runs, positions, rows)
        recorder = self._recorder()
        recorder.open_order(runs)
        return self._execute(recorder, lambda: self._process(runs, positions, rows))

    def _process(self, runs: list[Run], positions: Column, rows: list[Row]) -> list[Row]:
        self._services.where = lambda row: self._where_of(row, runs, positions)
        produced: list[Row] = self._operator.bundle(self._config.keys_of(rows), rows)
        fired = self._end_processing(runs, positions, rows)
        return produced + fired if fired else produced

    def _end_processing(self, runs: list[Run], positions: Column, rows: list[Row]) -> list[Row]:
        self._services.where = lambda row: self._where()
        self._frontier.cover(runs, positions)
        self._processed += len(rows)
        self._note_event_time(rows)
        self.holds = self._config.per_epoch
        return [] if self.holds else self._fire_event_timers()

    # ------------------------------------------------------------ with care

    def _consume_singly(self, runs: list[Run], positions: Column, rows: list[Row]) -> None:
        """A step for each record."""
        for channel, position, row in zip(channels_of(runs), numbers_of(positions), rows, strict=True):
            recorder = self._recorder()
            recorder.open_order([(channel, 1)])
            self._with_care(recorder, [(channel, 1)], [position], [row])

    def _with_care(
        self, recorder: StepRecorder, runs: list[Run], positions: list[int], rows: list[Row]
    ) -> None:
        """A step whose records are run one by one as far as they may; what follows one that may not waits again."""
        if len(rows) > 1 and not self._config.record_at_a_time:
            self._ask(
                CandidateRecord(runs[0][0], positions[0], rows[0], recorder.alone(runs[0][0]), alone=False)
            )
            return self._execute(recorder, lambda: self._process(runs, positions, rows))
        return self._execute(recorder, lambda: self._process_singly(recorder, runs, positions, rows))

    def _ask(self, doubt: CandidateRecord) -> bool:
        return self.care is None or self.care.may_run(doubt)

    def _process_singly(
        self, recorder: StepRecorder, runs: list[Run], positions: list[int], rows: list[Row]
    ) -> list[Row]:
        produced: list[Row] = []
        places = channels_of(runs)
        with self._operator.pieces() if len(rows) > 1 else nullcontext():
            for ran, (channel, position, row) in enumerate(zip(places, positions, rows, strict=True)):
                if not self._ask(CandidateRecord(channel, position, row, recorder.alone(channel))):
                    done = ran + 1
                    self._waiting.put_back(places[done:], positions[done:], rows[done:])
                    self._keep_recorded(recorder, self._recording.end)
                    recorder.skip(ran)
                    self._end_skipping(first_of(runs, done), positions[:done], rows[:done])
                    return produced
                self._services.where = partial(lambda here, row: here, self._where(channel, position))
                produced += self._operator.bundle(self._config.keys_of([row]), [row])
        return produced + self._end_processing(runs, positions, rows)

    def _process_but_last(
        self, replayer: StepReplayer, step: Step, runs: list[Run], positions: list[int], rows: list[Row]
    ) -> list[Row]:
        """Repeat a step that ends with a record that was passed over."""
        self._services.where = lambda row: self._where_of(row, runs, positions)
        before = rows[:-1]
        produced: list[Row] = self._operator.bundle(self._config.keys_of(before), before) if before else []
        self._end_skipping(runs, positions, rows)
        self._keep_recorded(replayer, step.stop)
        return produced

    def _end_skipping(self, runs: list[Run], positions: list[int], rows: list[Row]) -> None:
        """The last record leaves no trace but that it is covered. Timers wait for the next step: what an earlier life
        has recorded for the record is not for them."""
        self._services.where = lambda row: self._where()
        self._frontier.cover(runs, positions)
        self._processed += len(rows)
        self._note_event_time(rows[:-1])

    def _keep_recorded(self, recorder: StepRecorder, upto: int) -> None:
        """Append what the log holds of the step up to an offset as it stands, for nobody will ask for it."""
        rest = self._recording.between(self._log_end, upto)
        if rest and isinstance(recorder, StepReplayer):
            recorder.keep()
            self._append_own(rest)

    def _fire_in(self, recorder: StepRecorder, now: int) -> None:
        recorder.open_timer(now)
        self._execute(recorder, partial(self._end_gathering if self._config.per_epoch else self._fire, now))

    def _note_event_time(self, rows: list[Row]) -> None:
        if self._config.watermark_of is not None and rows:
            self._services.watermark = later(self._services.watermark, self._config.watermark_of(rows))

    def _fire_event_timers(self) -> list[Row]:
        return fire(self._operator, self._services.event_timers, self._services.watermark, True)

    def _end_gathering(self, now: int) -> list[Row]:
        """Records with the watermark of the epoch's beginning, then timers with the new one, as Spark does."""
        reached, self._services.watermark = self._services.watermark, self._services.epoch_watermark
        produced: list[Row] = self._operator.gathered()
        self._services.watermark = reached
        self.holds, self._gathered = False, True
        return produced + self._fire(now) + self._fire_event_timers()

    def _fire(self, now: int) -> list[Row]:
        return fire(self._operator, self._services.timers, now, False)

    def _execute(self, recorder: StepRecorder, run: Callable[[], list[Row]]) -> None:
        self._services.step = recorder
        try:
            produced = run()
        finally:
            self._services.step = None
        encoded = self._ports.encode(produced)
        destinations = self._config.router(produced) if produced else []
        digest = digest_of_sent(encoded.digest, destinations) if recorder.digests else 0
        self._append_own(recorder.close(len(produced), digest))
        self._release(encoded, produced, destinations)

    def _append_own(self, chunk: bytes) -> None:
        if not chunk:
            return
        start = self._log_end
        known = self._recording.between(start, start + len(chunk))
        if known and known != chunk:
            raise DivergenceError(
                f"the replay differs from the recording: what was asked for before log offset {start + len(chunk)} is "
                "not what was recorded there",
                where=self._services.where(0),
                hint=HINT,
            )
        if not known:
            self._unsaved_own.append(chunk)
        self._unsent.append(chunk)
        self._log_end = start + len(chunk)
        if self._log_end > LAST_LONG:
            raise used_up("the offset in the causal log", self._where())
        self._log_digest = zlib.crc32(chunk, self._log_digest)
        self._journal.append_own(self._config.origin, start, chunk)

    def _unsaved(self) -> Persist:
        persist = Persist(tuple(self._unsaved_deltas), self._unsaved_start, tuple(self._unsaved_own))
        self._unsaved_deltas = []
        self._unsaved_own = []
        self._unsaved_start += sum(map(len, persist.own))
        return persist

    def _saved_first(self) -> list[Action]:
        """What any of the steps has recorded or received is saved before rows of any of them leave.

        One `Persist` for all: an effect in a later step must find what came before it either saved or unsaved,
        not under way.
        """
        due, self._due = self._due, []
        saved = [self._unsaved()] if self._unsaved_deltas or self._unsaved_own else []
        return [*saved, *due]

    def _release(self, encoded: Encoded | None, produced: list[Row], destinations: list[int]) -> None:
        """Number, suppress and stamp."""
        first, count = self._emitted + 1, len(produced)
        self._emitted += count
        if self._emitted > LAST_LONG:
            raise used_up("the number of the output row", self._where())
        log_start, log = self._unsent_start, b"".join(self._unsent)
        self._unsent_start, self._unsent = self._log_end, []
        covered = count if self._following else min(max(self._passed - first + 1, 0), count)
        self._sent.update(zip(destinations, range(first, first + count), strict=True))
        if covered:
            produced, destinations = produced[covered:], destinations[covered:]
            encoded = self._ports.encode(produced) if produced else None
        deltas: dict[int, bytes] = {}
        if produced:
            for target in dict.fromkeys(destinations):
                delta = self._journal.delta_for(target)
                if delta is not None:
                    deltas[destinations.index(target)] = delta
            self._handed_on = self._log_end
        emit = Emit(
            first + covered,
            len(produced),
            encoded if produced else None,
            destinations,
            deltas,
            log_start,
            log,
            self.passed,
        )
        self._due.append(emit)

    # --------------------------------------------------------------- replay
    def _advance(self) -> None:
        """Repeat every recorded step whose records have arrived; then go live."""
        steps = self._recording.steps
        while steps and self._log_end != self._ends_at:
            step = steps[0]
            if self._following and not (step.complete and step.stop <= self._followed):
                return
            if step.kind is Kind.ORDER and not self._waiting.have(step.consumed):
                return
            if self._ends_at is not None and not step.complete:
                raise cut_short(self._ends_at, self._log_end, self._where())
            steps.popleft()
            self._repeat(step)
        if self._following or self._log_end == self._ends_at:
            return
        if self._ends_at is not None:
            raise cut_short(self._ends_at, self._log_end, self._where())
        if self.state is RecoveryState.REPLAYING:
            self.state = RecoveryState.LIVE
            self._recording = Recording(self._log_end)
        if self._emitted < self._passed:
            raise GapError(
                f"rows {self._emitted + 1}..{self._passed} have been handed on, but nobody holds what they depend on",
                where=self._where(),
                hint="The log store and what the conduit kept do not reach them; restart the query from the checkpoint",
            )
        if self._boundary != self._epoch:
            program = self._programs.scheduled(self._epoch) if self._programs is not None else ""
            self._begin_epoch(self._epoch, self._ports.entropy(), program)
        if self._waiting:
            self._consume(*self._waiting.take_all())

    def _repeat(self, step: Step) -> None:
        if step.kind is Kind.BOUNDARY:
            self._begin_epoch(step.epoch, step.seed, step.program)
            return None
        if step.kind is Kind.TIMER:
            replayer = StepReplayer(self, step, self._where())
            return self._fire_in(replayer, step.fired_at)
        runs = step.consumed
        positions, rows = self._waiting.take(runs)
        replayer = StepReplayer(self, step, self._where(runs[0][0], positions[0]))
        replayer.open_order(step.runs)
        if step.skip is not None:
            repeat = self._process_but_last
            return self._execute(replayer, lambda: repeat(replayer, step, runs, positions, rows))
        if self.care is not None and not step.complete:
            return self._with_care(replayer, runs, positions, rows)
        return self._execute(replayer, lambda: self._process(runs, positions, rows))

    def _refuse_held(self) -> NoReturn:
        """An epoch ended inside what was recorded of it, while records were gathered for its end. The process that has
        them in memory goes on with them; nobody else can, and no other function."""
        raise GapError(
            "an epoch came out shorter than it was recorded, and records that were gathered for its end are gone: "
            "Spark had lost which records it was to have, and gave it others",
            where=self._where(),
            hint="Give exactness up for them with spark.clonos.onGap=at_least_once",
        )

    def _begin_epoch(self, epoch: int, seed: int, program: str) -> None:
        if self._programs is not None:
            if self.holds and program != self._programs.written:
                self._refuse_held()
            self._programs.enter(program)
        entries = bytearray()
        codec.append_boundary(entries, epoch, seed, program)
        self._append_own(codec.seal(entries))
        self._boundary = epoch
        self._gathered = False
        self._services.epoch_watermark = self._services.watermark
        self._services.random.seed(seed)

    def _where(self, channel: int | None = None, position: int | None = None) -> Where:
        return Where(self._config.name, self._config.origin.instance, self._epoch, channel, position)

    def _where_of(self, row: int | None, runs: Sequence[Run], positions: Column) -> Where:
        """The place of a row of the step, by its index."""
        at = 0
        for channel, count in runs:
            at += count
            if row is not None and row < at:
                return self._where(channel, int(positions[row]))
        return self._where()
