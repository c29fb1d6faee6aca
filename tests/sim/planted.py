"""Planted bugs: each takes one rule of the protocol away. Small patches, applied by `test_sim_planted`.

Where the core itself would notice (a divergence), the check is switched off as well, so that the checkers alone must.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import planted_standbys as bugs
import pytest

from clonos.errors import ClonosError
from clonos.protocol.engine import instance_log
from clonos.protocol.engine.bundle_gap_detector import BundleGapDetector
from clonos.protocol.engine.epoch_boundary import EpochBoundary
from clonos.protocol.engine.input_gate import InputGate
from clonos.protocol.engine.instance import Instance, Persist
from clonos.protocol.engine.instance_log import InstanceLog
from clonos.protocol.engine.output_commit import SinkInstance
from clonos.protocol.engine.record_by_record import RecordByRecord
from clonos.protocol.engine.recorder_ports import RecorderPorts
from clonos.protocol.engine.replay import Replay
from clonos.protocol.engine.step_executor import StepExecutor
from clonos.protocol.engine.waiting import Waiting
from clonos.protocol.frontier import Frontier
from clonos.protocol.ids import Origin
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.recovery.causal import replacement, retrieval
from clonos.protocol.recovery.causal.causal_log import CausalLog, Segment
from clonos.protocol.recovery.causal.delta_journal import FULL, DeltaJournal
from clonos.protocol.recovery.causal.determinant import Kind
from clonos.protocol.recovery.causal.longest_prefix import HolderReply
from clonos.protocol.recovery.causal.own_log import OwnLog
from clonos.protocol.recovery.causal.recorder import StepRecorder
from clonos.protocol.recovery.causal.replayer import StepReplayer
from clonos.protocol.recovery.causal.retrieval import Recovered
from clonos.protocol.roles.conduit_model import Conduit
from clonos.protocol.roles.operator_ports import SnapshotStored
from clonos.protocol.roles.operator_session import OperatorSession
from clonos.protocol.roles.query_coordinator import QueryCoordinator
from clonos.sim import operator_host
from clonos.sim.checkpoint import Snapshots
from clonos.sim.plan import Fault, Plan

Patch = pytest.MonkeyPatch
Session = OperatorSession[Any, Any, Any]

# --------------------------------------------------------------------- replay


def blind(patch: Patch) -> None:
    """Switch off the core's own detection of a replay that differs (I10)."""
    patch.setattr(StepReplayer, "_diverged", lambda self, what: None)
    patch.setattr(instance_log, "DivergenceError", _Ignored)

    def append(self: InstanceLog, chunk: bytes) -> None:
        known = self.recording.between(self.end, self.end + len(chunk))
        real_append(self, known if len(known) == len(chunk) else chunk)

    real_append = InstanceLog.append
    patch.setattr(InstanceLog, "append", append)


class _Ignored(ClonosError):
    """Raised where a divergence would be."""


def clock_is_read_again(patch: Patch) -> None:
    blind(patch)
    patch.setattr(StepReplayer, "_read_clock", StepRecorder._read_clock)


def exact_clock_is_read_again(patch: Patch) -> None:
    blind(patch)
    patch.setattr(StepReplayer, "_read_instant", StepRecorder._read_instant)


def call_is_made_again(patch: Patch) -> None:
    blind(patch)
    patch.setattr(StepReplayer, "_outcome_of_call", StepRecorder._outcome_of_call)


def seed_is_drawn_again(patch: Patch) -> None:
    blind(patch)
    real = EpochBoundary.begin
    fresh = itertools.count(1)

    def begin(self: EpochBoundary, *given: Any, **named: Any) -> None:
        real(self, *given, **named)
        self._services.random.seed(next(fresh))

    patch.setattr(EpochBoundary, "begin", begin)


def order_is_forgotten(patch: Patch) -> None:
    blind(patch)
    real = StepExecutor.repeat

    def repeat(self: StepExecutor, step: Any) -> None:
        step.runs = sorted(step.runs, reverse=True)
        real(self, step)

    patch.setattr(StepExecutor, "repeat", repeat)


def timers_are_not_repeated(patch: Patch) -> None:
    blind(patch)
    real = StepExecutor.repeat
    patch.setattr(
        StepExecutor, "repeat", lambda self, step: None if step.kind is Kind.TIMER else real(self, step)
    )


def timers_fire_one_record_late(patch: Patch) -> None:
    """A recorded firing is repeated behind the step that followed it."""
    blind(patch)
    real = Replay.advance

    def advance(self: Replay) -> None:
        steps = self._log.recording.steps
        for at in range(len(steps) - 1):
            if steps[at].kind is Kind.TIMER and steps[at + 1].kind is Kind.ORDER:
                steps[at], steps[at + 1] = steps[at + 1], steps[at]
                break
        real(self)

    patch.setattr(Replay, "advance", advance)


def divergence_is_not_reported(patch: Patch) -> None:
    blind(patch)


# --------------------------------------------------------------- what is saved


def rows_leave_before_they_are_saved(patch: Patch) -> None:
    """Process before log: what is to be saved lies about until the next call, in the memory of the process."""
    real = OperatorSession.perform

    def perform(self: Session, actions: Any) -> Any:
        waiting = self.__dict__.setdefault("waiting", [])
        late = [action for action in actions if isinstance(action, Persist)]
        now = [*waiting, *(action for action in actions if not isinstance(action, Persist))]
        self.__dict__["waiting"] = late
        return real(self, now)

    patch.setattr(OperatorSession, "perform", perform)


def received_logs_are_not_saved(patch: Patch) -> None:
    real = OperatorSession.persist

    def persist(self: Session, persist: Persist, *, durable: bool) -> None:
        real(self, Persist((), persist.own_start, persist.own), durable=durable)

    patch.setattr(OperatorSession, "persist", persist)


def recovered_log_is_not_saved(patch: Patch) -> None:
    real = Instance.restore

    def restore(self: Instance, *args: Any, **kwargs: Any) -> None:
        ports, self._ports = self._ports, _Nowhere(self._ports)
        real(self, *args, **kwargs)
        self._ports = ports

    patch.setattr(Instance, "restore", restore)
    missing = Recovered.missing

    def but_for_what_is_repeated(self: Recovered, own: OwnLog | None) -> tuple[int, list[Segment]]:
        at, pieces = missing(self, own)
        end = max((start + len(data) for start, data in self.before), default=0)
        return at, [(start, data[: end - start]) for start, data in pieces if start < end]

    patch.setattr(Recovered, "missing", but_for_what_is_repeated)


class _Nowhere:
    def __init__(self, ports: Any) -> None:
        self.clock, self.entropy = ports.clock, ports.entropy

    def persist(self, persist: Persist, *, durable: bool) -> None:
        """Lost."""


def effects_do_not_wait_until_stable(patch: Patch) -> None:
    patch.setattr(RecorderPorts, "stabilise", RecorderPorts.rebuilt)


def recorded_effects_hold_back_their_chunks(patch: Patch) -> None:
    def stabilise(self: StepReplayer, chunk: bytes) -> None:
        if self._step.effects:
            self.__dict__.setdefault("held_back", []).append(chunk)
        else:
            self._ports.stabilise(chunk)

    def close(self: StepReplayer, outputs: int, digest: int) -> bytes:
        last = real(self, outputs, digest)
        for chunk in self.__dict__.get("held_back", []):
            self._ports.rebuilt(chunk)
        return last

    real = StepReplayer.close
    patch.setattr(StepReplayer, "_stabilise", stabilise)
    patch.setattr(StepReplayer, "close", close)


# ----------------------------------------------------------- what is passed over


def what_is_recorded_of_a_skipped_record_is_dropped(patch: Patch) -> None:
    patch.setattr(RecordByRecord, "_keep_recorded", lambda self, recorder, upto: None)


def records_behind_a_skipped_one_are_lost(patch: Patch) -> None:
    patch.setattr(Waiting, "put_back", lambda self, *records: None)


# --------------------------------------------------------------- what is shared


def nothing_is_stamped(patch: Patch) -> None:
    patch.setattr(DeltaJournal, "delta_for", lambda self, destination: None)


def every_third_delta_is_dropped(patch: Patch) -> None:
    real = DeltaJournal.delta_for
    count = itertools.count()

    def delta_for(self: DeltaJournal, destination: int) -> bytes | None:
        delta = real(self, destination)
        return None if next(count) % 3 == 0 else delta

    patch.setattr(DeltaJournal, "delta_for", delta_for)


def delta_goes_to_the_wrong_destination(patch: Patch) -> None:
    """The marks of two destinations are mixed up."""
    real = DeltaJournal.delta_for
    patch.setattr(
        DeltaJournal, "delta_for", lambda self, destination: real(self, destination ^ 1 if destination else 0)
    )


def received_logs_are_not_handed_on(patch: Patch) -> None:
    patch.setattr(DeltaJournal, "receive", lambda self, raw: bool(self._receipts.take(raw)))


def extents_are_not_shared(patch: Patch) -> None:
    real = DeltaJournal._push
    patch.setattr(
        DeltaJournal, "_push", lambda self, piece: None if piece.data is None else real(self, piece)
    )


def sink_drops_determinants_on_repeated_records(patch: Patch) -> None:
    real = SinkInstance.take

    def take(self: SinkInstance, bundle: Any) -> Any:
        write = real(self, bundle)
        return write if write is not None and write.rows else None

    patch.setattr(SinkInstance, "take", take)


def sink_log_is_not_kept(patch: Patch) -> None:
    real = SinkInstance.take

    def take(self: SinkInstance, bundle: Any) -> Any:
        write = real(self, bundle)
        return write and replace(write, deltas=[])

    patch.setattr(SinkInstance, "take", take)


# --------------------------------------------------------------- what is asked


def prefix_is_the_first_answer(patch: Patch) -> None:
    real = retrieval.longest_prefix

    def first(origin: Origin, start: int, replies: Any, **where: Any) -> bytes:
        said = [reply for reply in replies if reply.segments]
        return real(origin, start, [replace(reply, required=0) for reply in said[:1]], **where)

    patch.setattr(retrieval, "longest_prefix", first)


def hole_in_a_log_is_jumped_over(patch: Patch) -> None:
    def prefix(self: CausalLog, start: int) -> bytes:
        return b"".join(data for at, data in self if at >= start)

    patch.setattr(CausalLog, "prefix", prefix)
    patch.setattr(CausalLog, "contiguous_end", lambda self, start: max(self.end, start))


def only_the_own_store_is_asked(patch: Patch) -> None:
    def ask(*args: Any, **kwargs: Any) -> Any:
        yield 0
        return list[HolderReply]()

    patch.setattr(operator_host.holders, "ask", ask)


def replica_that_is_lost_while_it_recovers_has_asked_for_its_successor(patch: Patch) -> None:
    real = Conduit._on_connected

    def connected(self: Conduit, now: int) -> None:
        real(self, now)
        self._fresh = False

    patch.setattr(Conduit, "_on_connected", connected)


def _restoring(**changes: Any) -> Callable[[Patch], None]:
    def mutate(patch: Patch) -> None:
        real = Instance.restore
        patch.setattr(
            Instance, "restore", lambda self, snapshot, **given: real(self, snapshot, **{**given, **changes})
        )

    return mutate


def own_log_before_the_snapshot_is_not_asked_for(patch: Patch) -> None:
    real = retrieval.put_together
    patch.setattr(
        retrieval, "put_together", lambda *args, **where: Recovered([], real(*args, **where).recorded)
    )


# ------------------------------------------------------------------- snapshots


def _snapshots_without(field: str, value: Any) -> Callable[[Patch], None]:
    def mutate(patch: Patch) -> None:
        real = Instance.snapshot

        def snapshot(self: Instance, **how: Any) -> Any:
            made = real(self, **how)
            setattr(made, field, value)
            return made

        patch.setattr(Instance, "snapshot", snapshot)

    return mutate


def snapshot_misses_the_last_bundle(patch: Patch) -> None:
    """It says that it covers what has arrived since it was begun."""
    real = OperatorSession.snapshot_stored

    def snapshot_stored(self: Session, stored: SnapshotStored) -> None:
        assert self._storing is not None
        self._storing = self._storing._replace(acked_input=self._acked_input)
        real(self, stored)

    patch.setattr(OperatorSession, "snapshot_stored", snapshot_stored)


def snapshot_is_taken_although_its_rows_were_lost(patch: Patch) -> None:
    patch.setattr(replacement, "stands_for_known_output", lambda *args, **kwargs: True)


def hole_in_the_bundles_is_not_noticed(patch: Patch) -> None:
    patch.setattr(BundleGapDetector, "_missing", lambda self, last, where: None)


def snapshot_of_another_attempt_is_taken(patch: Patch) -> None:
    """One that a dead replica had sent to the storage appears when its successor has begun."""
    patch.setattr(replacement, "of_same_attempt", lambda fence, other: True)


# ------------------------------------------------------------------ truncation


def truncation_goes_one_epoch_too_far(patch: Patch) -> None:
    """Behind the snapshots of the epoch that is running."""
    real = QueryCoordinator.truncation_points

    def further(self: QueryCoordinator, record: CommitRecord) -> dict[Origin, int]:
        finals = self.records.final_snapshots(record.epoch + 1)
        return real(self, replace(record, ends={origin: final.ended for origin, final in finals.items()}))

    patch.setattr(QueryCoordinator, "truncation_points", further)


def truncation_goes_too_far(patch: Patch) -> None:
    real = QueryCoordinator.truncation_points

    def further(self: QueryCoordinator, record: CommitRecord) -> dict[Origin, int]:
        return {origin: offset + 20 for origin, offset in real(self, record).items()}

    patch.setattr(QueryCoordinator, "truncation_points", further)


def journal_is_truncated_too_far(patch: Patch) -> None:
    real = DeltaJournal.truncate

    def truncate(self: DeltaJournal, truncation_points: Any) -> None:
        real(self, {origin: offset + 60 for origin, offset in truncation_points.items()})

    patch.setattr(DeltaJournal, "truncate", truncate)


def conduit_forgets_one_bundle_too_many(patch: Patch) -> None:
    real = Conduit._on_checkpointed

    def checkpointed(self: Conduit, seq: int, log_offset: int, now: int) -> None:
        real(self, min(seq + 1, self._last), log_offset, now)

    patch.setattr(Conduit, "_on_checkpointed", checkpointed)


def snapshot_of_the_committed_epoch_is_dropped(patch: Patch) -> None:
    real = Snapshots.forget
    patch.setattr(
        Snapshots, "forget", lambda self, before, fence, since: real(self, before + 1, fence, since)
    )


# ------------------------------------------------------------ duplicates, order


def sink_does_not_drop_what_is_visible(patch: Patch) -> None:
    class Uncovered(Frontier):
        def uncovered_from(self, channel: int, positions: Any) -> int:
            return 0

    real = SinkInstance.__init__

    def init(self: SinkInstance, *args: Any) -> None:
        real(self, *args)
        self._frontier = Uncovered(self._frontier.covered)

    patch.setattr(SinkInstance, "__init__", init)


def sink_cursor_is_off_by_one(patch: Patch) -> None:
    real = SinkInstance.__init__

    def init(self: SinkInstance, name: str, instance: int, cursors: dict[int, int], *args: Any) -> None:
        real(self, name, instance, {channel: at - 1 for channel, at in cursors.items()}, *args)

    patch.setattr(SinkInstance, "__init__", init)


def duplicates_are_known_by_count(patch: Patch) -> None:
    """Instead of by number: a sink that begins again drops as many rows of a channel as it has shown."""

    class ByCount(Frontier):
        def uncovered_from(self, channel: int, positions: Any) -> int:
            drop = left.setdefault((id(self), channel), self.covered.get(channel, 0))
            dropped = min(drop, len(positions))
            left[id(self), channel] = drop - dropped
            return dropped

    left: dict[tuple[int, int], int] = {}
    real = SinkInstance.__init__

    def init(self: SinkInstance, *args: Any) -> None:
        real(self, *args)
        self._frontier = ByCount(self._frontier.covered)
        left.clear()

    patch.setattr(SinkInstance, "__init__", init)


def rows_passed_on_are_not_suppressed(patch: Patch) -> None:
    real = Instance.open_epoch
    patch.setattr(
        Instance, "open_epoch", lambda self, epoch, emitted_output=0, **given: real(self, epoch, **given)
    )


def one_row_too_many_is_suppressed(patch: Patch) -> None:
    real = Instance.open_epoch

    def open_epoch(self: Instance, epoch: int, *, emitted_output: int = 0, **given: Any) -> Any:
        return real(self, epoch, emitted_output=emitted_output + 1 if emitted_output else 0, **given)

    patch.setattr(Instance, "open_epoch", open_epoch)


def records_that_wait_are_taken_again(patch: Patch) -> None:
    real = InputGate.restore

    def restore(self: InputGate, snapshot: Any, now: int) -> None:
        real(self, snapshot, now)
        self.frontier.covered = {channel: at - 1 for channel, at in self.frontier.covered.items()}

    patch.setattr(InputGate, "restore", restore)


# -------------------------------------------------------------------- the list


@dataclass(frozen=True)
class Planted:
    """A bug, how many seeds may pass before it is found, and what the runs are changed to.

    `first` is where to begin: seeds that did not find it when last counted from 0 are not run each time.
    """

    plant: Callable[[Patch], None]
    seeds: int = 200
    first: int = 0
    changes: tuple[tuple[str, Any], ...] = ()
    rates: tuple[tuple[Fault, float], ...] = ()

    def plan(self, plan: Plan) -> Plan:
        rates = {**dict(plan.rates), **dict(self.rates)} if self.rates else dict(plan.rates)
        changed = {"standbys": 0, "resumes": False, **dict(self.changes)}
        ordered = tuple(sorted(rates.items(), key=lambda item: item[0].name))
        return replace(plan, **changed, rates=ordered)


def planted(
    plant: Callable[[Patch], None], *, seeds: int = 200, first: int = 0, rates: Any = (), **changes: Any
) -> Planted:
    return Planted(plant, seeds, first, tuple(changes.items()), tuple(rates.items()) if rates else ())


CRASHES = {Fault.REPLICA_CRASH: 0.02, Fault.REPLICA_STOP: 0.004}
SERVERS = {Fault.SERVER_CRASH: 0.01, Fault.LINK_BREAK: 0.01}
RESTARTS = {Fault.QUERY_RESTART: 0.01}
LOSSES = {Fault.QUERY_RESTART: 0.01, Fault.STORE_LOST: 0.6}
OTHERS = {"faults": 20, "impure": False, "executors": False}
STANDBYS = {**OTHERS, "standbys": 1, "passive": False, "effects": False, "depth": FULL}
PASSIVE = {**STANDBYS, "passive": True}
MANY_BUNDLES = {"faults": 150, "records": 300, "epoch": 150, "bundle": 1, "window": 2, "realtime": True}

PLANTED: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(bugs.standby_runs_ahead, first=59, rates=CRASHES | RESTARTS, **STANDBYS),
        planted(bugs.standby_runs_steps_that_are_not_complete, rates=CRASHES, **STANDBYS),
        planted(bugs.promoted_standby_hands_on_what_was_handed_on, first=70, rates=CRASHES, **STANDBYS),
        planted(
            bugs.log_of_what_never_happened_is_believed,
            first=1679,
            rates=CRASHES | RESTARTS,
            **{**STANDBYS, "executors": True},
        ),
        planted(bugs.instance_that_moved_asks_no_holder, first=404, rates=CRASHES | SERVERS, **STANDBYS),
        planted(bugs.what_was_received_elsewhere_is_not_held, first=834, rates=CRASHES | SERVERS, **STANDBYS),
        planted(bugs.log_before_the_snapshot_is_not_held_elsewhere, rates=CRASHES | SERVERS, **STANDBYS),
        planted(
            bugs.snapshot_is_ahead_of_what_the_standby_was_shown,
            first=208,
            rates={Fault.REPLICA_CRASH: 0.02, Fault.REPLICA_SLOW: 0.02},
            snapshot_rate=0.6,
            **{**STANDBYS, "faults": 60, "realtime": True},
        ),
        planted(bugs.log_is_not_shown_to_the_standby, rates=CRASHES, **STANDBYS),
        planted(bugs.increments_are_shown_from_the_wrong_offset, first=47, rates=CRASHES, **STANDBYS),
        planted(
            bugs.promoted_passive_standby_is_not_sent_what_came_since,
            first=213,
            rates={**CRASHES, Fault.REPLICA_SLOW: 0.02},
            **{**PASSIVE, **MANY_BUNDLES, "window": 1, "records": 150, "epoch": 80, "faults": 60},
        ),
        planted(
            bugs.promoted_standby_takes_over_what_is_checkpointed,
            first=8,
            rates={Fault.REPLICA_CRASH: 0.02, Fault.TASK_CRASH: 0.003, Fault.REPLICA_SLOW: 0.01},
            snapshot_rate=0.5,
            **{**PASSIVE, **MANY_BUNDLES, "faults": 100, "window": 1},
        ),
        planted(bugs.effects_do_not_wait_for_the_conduit, rates=CRASHES, **{**STANDBYS, "effects": True}),
        planted(
            bugs.overtaken_replica_acts,
            first=213,
            rates={Fault.TASK_ZOMBIE: 0.02},
            **{**STANDBYS, "effects": True, "executors": True, "realtime": False},
        ),
        planted(
            bugs.passive_standby_is_at_a_snapshot_that_its_primary_is_past,
            first=21,
            rates=CRASHES,
            **{**PASSIVE, "snapshot_rate": 0.3},
        ),
        planted(clock_is_read_again, first=3, rates=CRASHES, **OTHERS),
        planted(exact_clock_is_read_again, first=3, rates=CRASHES, **OTHERS),
        planted(call_is_made_again, rates=CRASHES, calls=True, **OTHERS),
        planted(seed_is_drawn_again, rates=CRASHES, **OTHERS),
        planted(order_is_forgotten, first=13, rates=CRASHES, **OTHERS),
        planted(timers_are_not_repeated, rates=CRASHES, timers=True, **OTHERS),
        planted(timers_fire_one_record_late, rates=CRASHES, timers=True, **OTHERS),
        planted(divergence_is_not_reported, rates=CRASHES, faults=20, impure=True),
        planted(rows_leave_before_they_are_saved, **OTHERS),
        planted(received_logs_are_not_saved, depth=FULL, **OTHERS),
        planted(recovered_log_is_not_saved, rates=LOSSES | CRASHES, effects=False, depth=FULL, **OTHERS),
        planted(effects_do_not_wait_until_stable, effects=True, **OTHERS),
        planted(recorded_effects_hold_back_their_chunks, first=6, rates=CRASHES, effects=True, **OTHERS),
        planted(nothing_is_stamped, **OTHERS),
        planted(every_third_delta_is_dropped, **OTHERS),
        planted(delta_goes_to_the_wrong_destination, depth=FULL, **OTHERS),
        planted(received_logs_are_not_handed_on, depth=FULL, **OTHERS),
        planted(extents_are_not_shared, depth=0, **OTHERS),
        planted(sink_drops_determinants_on_repeated_records, first=39, rates=RESTARTS, depth=FULL, **OTHERS),
        planted(sink_log_is_not_kept, depth=FULL, **OTHERS),
        planted(prefix_is_the_first_answer, first=17, rates=LOSSES, effects=False, depth=FULL, **OTHERS),
        planted(
            hole_in_a_log_is_jumped_over,
            rates={**LOSSES, Fault.STORE_PAGE: 0.3, Fault.SINK_LOG_PAGE: 0.3},
            effects=False,
            depth=1,
            **OTHERS,
        ),
        planted(only_the_own_store_is_asked, rates=LOSSES, effects=False, depth=FULL, **OTHERS),
        planted(
            replica_that_is_lost_while_it_recovers_has_asked_for_its_successor,
            rates=LOSSES | CRASHES,
            effects=False,
            depth=FULL,
            **OTHERS,
        ),
        planted(
            own_log_before_the_snapshot_is_not_asked_for,
            rates=LOSSES | CRASHES,
            depth=FULL,
            effects=False,
            **OTHERS,
        ),
        planted(snapshot_misses_the_last_bundle, rates=CRASHES, snapshot_rate=0.4, bundle=1, **OTHERS),
        planted(
            snapshot_is_taken_although_its_rows_were_lost,
            first=892,
            rates={Fault.LINK_BREAK: 0.03},
            seeds=600,
            snapshot_rate=0.9,
            realtime=True,
            faults=30,
            impure=False,
        ),
        planted(
            hole_in_the_bundles_is_not_noticed,
            first=60,
            rates={Fault.LINK_BREAK: 0.02, Fault.SNAPSHOT_PAGE: 0.5, Fault.QUERY_RESTART: 0.02},
            seeds=500,
            snapshot_rate=0.8,
            realtime=True,
            effects=False,
            faults=60,
            impure=False,
        ),
        planted(
            snapshot_of_another_attempt_is_taken,
            first=234,
            rates={Fault.QUERY_RESTART: 0.05, Fault.REPLICA_CRASH: 0.05},
            snapshot_rate=0.2,
            realtime=True,
            faults=60,
            impure=False,
        ),
        planted(truncation_goes_one_epoch_too_far, realtime=True, **OTHERS),
        planted(truncation_goes_too_far, **OTHERS),
        planted(journal_is_truncated_too_far, depth=FULL, **OTHERS),
        planted(conduit_forgets_one_bundle_too_many, snapshot_rate=0.4, bundle=1, **OTHERS),
        planted(snapshot_of_the_committed_epoch_is_dropped, **OTHERS),
        planted(sink_does_not_drop_what_is_visible, first=17, rates=RESTARTS, **OTHERS),
        planted(sink_cursor_is_off_by_one, rates=RESTARTS, **OTHERS),
        planted(duplicates_are_known_by_count, rates=RESTARTS | CRASHES, **OTHERS),
        planted(rows_passed_on_are_not_suppressed, rates=CRASHES, **OTHERS),
        planted(one_row_too_many_is_suppressed, rates=CRASHES, **OTHERS),
        planted(records_that_wait_are_taken_again, rates=RESTARTS, **OTHERS),
    )
}
MORE = {
    **{
        bug.__name__: planted(bug, poison=3, effects=True, bundle=8, **OTHERS)
        for bug in (
            what_is_recorded_of_a_skipped_record_is_dropped,
            records_behind_a_skipped_one_are_lost,
        )
    },
    "held_deltas_are_not_restored": planted(
        _restoring(held=()), first=40, rates=CRASHES, depth=FULL, **OTHERS
    ),
    "recorded_log_is_not_restored": planted(_restoring(recorded=b""), rates=CRASHES, **OTHERS),
    "snapshots_without_the_output_number": planted(_snapshots_without("emitted", 0), rates=CRASHES, **OTHERS),
    "snapshots_without_waiting_records": planted(
        _snapshots_without("pending", []), rates=RESTARTS, realtime=True, **OTHERS
    ),
    "snapshots_without_the_random_stream": planted(
        _snapshots_without("random_state", random.Random(1).getstate()),
        rates=CRASHES,
        snapshot_rate=0.4,
        **OTHERS,
    ),
}
PLANTED.update(MORE)
