"""The life of one process as an instance of an operator: what it restores, whose log it believes, where its own begins.

It begins when a conduit connects. The order is the rule:

1. The snapshots are claimed under the new fence. A predecessor that has not noticed is stopped by that, or has written
   what is read from now on; an effect of it was announced in a log that is read later, or does not happen.
2. A snapshot is chosen: where the conduit keeps what follows, the newest that stands for what it has taken over
   (`protocol.recovery.causal.replacement`); for a new task attempt where the recovery line begins
   (`protocol.line.recovery_line`), else the end of the epoch before.
3. The own log from there on is put together from whoever may know it (`protocol.recovery.causal.retrieval`), and where
   the attempt resumes inside an epoch, it is looked whether everything that the state depends on is held here
   (`protocol.recovery.causal.resumption`).
4. Only now there is an instance, and from the end of what was recovered on, the log is what this incarnation writes.

A standby is restored like a replacement, claims nothing, and follows; promoted, it claims, and its own log begins where
the conduit's knowledge of its primary's ends. A process that stood at the end of an epoch goes on from what it has in
memory, if nobody has run an epoch in between.

Runtimes are subclasses: what is done here by steps they carry out, at once or with time passing in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from clonos.errors import ReplicaLost, SnapshotCorrupt, Where
from clonos.protocol.engine.bundle_gap_detector import BundleGapDetector
from clonos.protocol.engine.instance import Action, Emit, Instance, InstanceSnapshot
from clonos.protocol.fence import generation_of
from clonos.protocol.ids import Origin
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.line.recovery_line import RecoveryLine, Resume
from clonos.protocol.line.snapshot_name import Since, SnapshotName
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.dependencies import missing_logs, recovered_deltas
from clonos.protocol.recovery.causal.longest_prefix import HolderReply, cut_short
from clonos.protocol.recovery.causal.own_log import Writer
from clonos.protocol.recovery.causal.replacement import ConduitProgress, Move
from clonos.protocol.recovery.causal.resumption import (
    check_dependencies,
    check_resumable,
    check_same_history,
    resume_failed,
)
from clonos.protocol.recovery.causal.retrieval import OpenedLog, Recovered, retrieve
from clonos.protocol.roles.snapshot_candidate import Candidate, Snapshots

Steps: TypeAlias = Generator[Any, None, Any]
"""What it yields is the runtime's own; the core passes it on."""
S = TypeVar("S")
T = TypeVar("T")


def carry_out(steps: Generator[Any, None, T]) -> T:
    """All steps at once, for a runtime in which time passes by itself."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """What a conduit says when it connects.

    `fresh`: the first incarnation of a task attempt. `again`: not the epoch's first attempt. `passed`: the last output
    row that the conduit has taken over, `log` what it keeps of the instance's log, from `log_start` on. `moves`: where
    the instance went on on another server. `recovered`: as far as a replica of this attempt has recovered its log.
    `realtime`: Spark runs no task of the epoch again in this start of the query.
    """

    origin: Origin
    epoch: int
    fence: int
    fresh: bool
    again: bool
    passed: int
    log_start: int
    log: bytes
    standby: bool = False
    moves: tuple[Move, ...] = ()
    recovered: int = 0
    realtime: bool = False

    @property
    def generation(self) -> int:
        return generation_of(self.fence)

    @property
    def known(self) -> ConduitProgress:
        return ConduitProgress(
            self.fence, self.passed, self.log_start, self.log_start + len(self.log), self.moves
        )


class Reached(Enum):
    """How far a restoration has come."""

    STATE = "has restored its state"
    LOG = "knows its log"
    BEGINNING = "has begun where it resumes"
    FUNCTION = "is there again"


class Incarnation(ABC, Generic[S]):
    """See the module. An instance whose operator has no standbys is `alone`. Output is numbered beyond `numbers_from`.
    With `damage_accepted` the user has chosen to go on over what is damaged."""

    def __init__(
        self,
        name: str,
        origin: Origin,
        *,
        alone: bool,
        numbers_from: int = 0,
        damage_accepted: bool = False,
    ) -> None:
        self._name = name
        self._origin = origin
        self._alone = alone
        self._numbers_from = numbers_from
        self._damage_accepted = damage_accepted
        self._instance: Instance | None = None
        self._hello: AttachRequest
        self._taken = 0
        self._covered = BundleGapDetector()
        self._sequence = 0
        self._ended: SnapshotName | None = None
        self._drawn: RecoveryLine | None = None
        self._since = 0  # the log offset from which on this incarnation goes its own way

    # ------------------------------------------------- what a runtime provides

    @property
    @abstractmethod
    def snapshots(self) -> Snapshots[S]:
        """As they were opened last."""

    @abstractmethod
    def open_snapshots(self) -> None:
        """As the last greeting has it: a standby only looks."""

    @abstractmethod
    def claim(self) -> None:
        """The snapshots, under the last greeting's fence. Raises Fenced."""

    @abstractmethod
    def discard_from(self, epoch: int) -> None:
        """Whatever others left of an epoch that is run again (`snapshot_name.overtaken`)."""

    @abstractmethod
    def line(self, generation: int) -> RecoveryLine:
        """Where this start of the query resumes."""

    @abstractmethod
    def commit_record(self) -> CommitRecord | None:
        """The newest in the checkpoint."""

    @abstractmethod
    def await_commit(self) -> Steps:
        """A newer one may come. Raises RecoveryTimeout."""

    @abstractmethod
    def keep_plan(self, epoch: int) -> Steps:
        """What Spark has written down of an epoch before it began, where it ends in the sources, is durable."""

    @abstractmethod
    def candidate(self, found: S) -> Candidate: ...

    @abstractmethod
    def restore_state(self, found: S | None) -> InstanceSnapshot | None:
        """Keyed state and timers, and the rest. Raises SnapshotCorrupt."""

    @abstractmethod
    def resume(self, found: S, owed: Resume) -> Steps:
        """Keep it as this attempt's own; the snapshot under its new name."""

    @abstractmethod
    def open_log(self) -> OpenedLog:
        """What this host has kept. A damaged store is set aside, and what can be read of it is in its place."""

    @abstractmethod
    def rewrite_log(self, at: int, pieces: Sequence[Segment]) -> None:
        """From an offset on the log store holds these."""

    @abstractmethod
    def log_is_whole(self, since: int) -> None:
        """From this offset on the store lacks nothing that the instance wrote, whatever was damaged before. To be kept
        with it, durably."""

    @property
    @abstractmethod
    def log_end(self) -> int:
        """Of the log store."""

    @abstractmethod
    def begin_log(self, writer: Writer) -> None:
        """From its offset on the log store holds what that incarnation writes, or a copy of it."""

    @abstractmethod
    def ask(self, origin: Origin, base: int) -> Steps:
        """Every other holder about an instance; a list of replies. Raises RecoveryTimeout."""

    @property
    @abstractmethod
    def effects_are_used(self) -> bool:
        """Whether an instance of the query has acted on the outside, by the checkpoint."""

    @abstractmethod
    def keep_that_effects_are_used(self) -> None:
        """In the checkpoint, durably. Raises StorageUnavailable."""

    @abstractmethod
    def send_ahead(self, due: Sequence[Emit]) -> None:
        """Rows of the steps before the one that acts."""

    @abstractmethod
    def show_log(self, log_start: int, log: bytes) -> None:
        """To the conduit, which shows it to the standby; until it has answered. Raises ProtocolError."""

    @abstractmethod
    def check_claim(self) -> None:
        """That nobody has claimed the snapshots since. Raises Fenced."""

    @abstractmethod
    def make_instance(self) -> Instance: ...

    @abstractmethod
    def let_go(self) -> None:
        """Of what is in memory, if anything is."""

    @abstractmethod
    def perform(self, actions: Iterable[Action]) -> Steps: ...

    def reached(self, how_far: Reached) -> Steps:
        """A restoration has come so far."""
        yield from ()

    def restored(self, found: S | None, recovered: Recovered) -> None:
        """There is an instance, which is about to return to this."""

    def goes_on(self) -> None:
        """It begins an epoch as it stands in memory."""

    def promoted(self, known: int) -> None:
        """It is the replica, and its own log begins at what was known."""

    def log_too_short(self) -> None:
        """The log store lacks what the conduit has seen."""

    # ------------------------------------------------------------------- life

    @property
    def live(self) -> Instance:
        assert self._instance is not None
        return self._instance

    @property
    def recovered_end(self) -> int:
        return self.live.log_offset + len(self.live.recorded)

    @property
    def where(self) -> Where:
        return Where(self._name, self._origin.instance, self._hello.epoch)

    def serve(self, hello: AttachRequest) -> Steps:
        """As the replica. What was recovered is not repeated before `open_epoch`."""
        self._greeted(hello)
        if self._instance is None:
            yield from self._restore()
        else:
            self.claim()
            self._check_newest()
            self.goes_on()
            self._lead(self.recovered_end if self.live.following else self._since)
        self._has_read_log()

    def open_epoch(self) -> Steps:
        """In micro-batch Spark writes down what the epoch reads, and does not sync it. Nothing that is made of it may
        outlive that: the epoch would come out with other records, perhaps fewer than instances have had."""
        hello = self._hello
        if not hello.realtime:
            yield from self.keep_plan(hello.epoch)
        yield from self.perform(self.live.open_epoch(hello.epoch, passed=hello.passed, ends_at=self._ends_at))
        # An epoch may be over before the conduit's first tick.
        yield from self.perform(self.live.tick(self.live.clock()))

    def stand_by(self, hello: AttachRequest) -> Steps:
        """Restored like a replacement, or, where it stands at the end of an epoch, as it is in memory; from then on it
        follows. In the middle of one it is told to begin again, from a newer snapshot."""
        self._greeted(hello)
        if self._instance is not None and self._ended is not None:
            self._check_newest()
        else:
            self.let_go()
            yield from self._restore()
        self._ended = None
        self.begin_log(Writer(self._hello.fence, self.log_end, copy=True))
        self.live.begin_following()
        yield from self.perform(self.live.open_epoch(hello.epoch, ends_at=self._ends_at))
        yield from self.perform(self.live.follow(hello.log_start, hello.log))
        self._has_read_log()

    def take_over(self, hello: AttachRequest) -> Steps:
        """The primary is lost, and this is the replica. What that did beyond the log that it had recovered, and that
        the conduit knows, never happened."""
        self._hello = hello
        self.claim()
        known = max(self.live.followed, hello.recovered)
        self._lead(known)
        self.promoted(known)
        yield from self.perform(self.live.go_live(hello.passed))

    def flush_log(self, due: Sequence[Emit], log_start: int, log: bytes) -> None:
        """What an effect depends on is where whoever takes over will find it, and that there are effects is known
        wherever the query goes on (`protocol.recovery.causal.needed_log`)."""
        self.send_ahead(due)
        if self._alone:
            return  # the store here is where whoever takes over looks
        self.keep_that_effects_are_used()
        self.show_log(log_start, log)
        # Whoever has claimed the instance since then has asked this store, and knows of the effect.
        self.check_claim()

    def epoch_end(self) -> InstanceSnapshot:
        """The instance at the end of an epoch, after `Instance.end_epoch`.

        This host may be lost, and with it the end of the log, if the standby is not there. In micro-batch another
        attempt may have to end alike then (`protocol.recovery.causal.replacement: binds`), so the snapshot holds the
        log of the epoch. In real time the instance goes on elsewhere from this snapshot, perhaps before the commit,
        so it holds what has come since rows left: what was before, whoever got them was sent. An instance that is
        alone leaves it on the driver's host.
        """
        if self._alone:
            return self.live.snapshot()
        snapshot = self.live.snapshot(log_since=self.live.handed_on if self._hello.realtime else 0)
        return replace(snapshot, live_since=self._since)

    def end_standby(self, last: int) -> None:
        """The replica has ended the epoch after bundle `last`, and so has its standby, if it has come as far; else it
        restores in the next one."""
        newest = self.snapshots.final(self._hello.epoch, self.begun)
        ended = self.candidate(newest) if newest is not None else None
        if ended is None or self._covered.upto < last or ended.log_offset != self.live.log_offset:
            self.let_go()
        else:
            self._ended = ended.name

    @property
    def begun(self) -> Since | None:
        """Which snapshots count in this start of the query."""
        return self._line(self._hello.generation).since(self._origin)

    def _line(self, generation: int) -> RecoveryLine:
        """It does not change once it is written."""
        if self._drawn is None or self._drawn.generation != generation:
            self._drawn = self.line(generation)
        return self._drawn

    def _greeted(self, hello: AttachRequest) -> None:
        self._hello = hello
        self._taken = 0
        self._covered = BundleGapDetector()

    def _has_read_log(self) -> None:
        """What the conduit keeps of it may be long, and is not asked for again."""
        hello = self._hello
        self._hello = replace(hello, log_start=hello.log_start + len(hello.log), log=b"")

    def _lead(self, since: int) -> None:
        """From this offset on the log is what this incarnation writes."""
        self.live.lead()
        self._since = since
        if not self._alone:
            self.begin_log(Writer(self._hello.fence, since))

    def _check_newest(self) -> None:
        """An instance may not have run for some epochs; what it holds in memory must still be the newest there is."""
        before = self._hello.epoch - 1
        if self._ended is None or self._ended.epoch == before:
            return
        newest = self.snapshots.final(before, self.begun)
        if newest is None or self.candidate(newest).name != self._ended:
            raise ReplicaLost(
                "this process has missed an epoch that another one ran",
                where=self.where,
                hint="A new one starts from the snapshot",
            )

    @property
    def _bound_by(self) -> Candidate | None:
        """How an earlier attempt has ended the epoch, where this one has to end alike."""
        hello = self._hello
        ended = self.snapshots.binding(hello.epoch, hello.fence) if hello.again else None
        return self.candidate(ended) if ended is not None else None

    @property
    def _ends_at(self) -> int | None:
        """The log offset at which it has to end the epoch."""
        bound = self._bound_by
        return bound.log_offset if bound is not None else None

    # -------------------------------------------------------------- restoring

    def _restore(self) -> Steps:
        hello = self._hello
        self.open_snapshots()
        line = self._line(hello.generation)
        line.check_epoch(hello.epoch, self.where)
        resume = self._claim_and_clear(line)
        found = self._choose(resume)
        yield from self._check_beginning(line, found)
        snapshot = self._return_to(found, resume)
        yield from self.reached(Reached.STATE)
        opened = self.open_log()
        held = opened.held
        recovered = yield from self._recover(snapshot, opened, found)
        yield from self.reached(Reached.LOG)
        received = recovered.received
        behind = found is not None and self._is_behind(opened, found)
        may_lack = not hello.standby and (not self._alone or behind)  # what the snapshot depends on
        if snapshot is not None and may_lack:
            received += yield from self._ask_for_others(snapshot, [*held, *received])
        if resume is not None and found is not None and snapshot is not None:
            check_resumable(snapshot, recovered.before, [*held, *received], line.stable, where=self.where)
            snapshot.resume(resume.owed)
            found = yield from self.resume(found, resume)
            self.discard_from(hello.epoch)
        elif snapshot is not None and may_lack and self._may_be_asked_for(snapshot):
            settled, stable = self._settled()
            begins = settled.log_offset if settled is not None else 0
            everything = [*held, *received]
            if behind:
                check_resumable(
                    snapshot, recovered.before, everything, stable, where=self.where, begins=begins
                )
            else:
                check_dependencies(snapshot, everything, stable, where=self.where)
        self._instance = self.make_instance()
        self.restored(found, recovered)
        self._instance.restore(
            snapshot,
            own_before=recovered.before,
            recorded=recovered.recorded,
            held=held,
            received=received,
            output_number_floor=self._numbers_from,
        )
        if not hello.standby:
            self._lead(self.recovered_end)
            begins = snapshot.log_offset if snapshot is not None else 0
            if opened.whole_since is None or opened.whole_since > begins:
                self.log_is_whole(begins)
        yield from self.reached(Reached.FUNCTION)

    def _claim_and_clear(self, line: RecoveryLine) -> Resume | None:
        """Whether a new attempt resumes; what others left of an epoch that it runs from the beginning goes.

        It claims the instance either way: should it fail to resume, its predecessor's snapshots do not count again.
        """
        hello = self._hello
        if hello.standby:
            return None
        self.claim()
        if not hello.fresh:
            return None
        resume = line.resume(self._origin, generation=hello.generation, epoch=hello.epoch)
        if resume is None:
            self.discard_from(hello.epoch)
        return resume

    def _check_beginning(self, line: RecoveryLine, found: S | None) -> Steps:
        """Nothing begins before the last commit, and nothing from nothing but what is proven to be new: what it would
        have to repeat is gone, and what it has consumed does not come again.

        The line says so of the epoch with which the start of the query began. After that all instances have run in real
        time; in micro-batch, those that had input, and the driver records the epoch before as soon as it has committed.
        """
        hello = self._hello
        line.check_beginning(
            self._origin, self.candidate(found).log_offset if found is not None else None, self.where
        )
        if found is not None or hello.epoch == line.epoch:
            return
        if hello.realtime:
            raise self._lost(f"epoch {hello.epoch - 1}, as all instances have in real time")
        while (record := self.commit_record()) is None or record.epoch < hello.epoch - 1:
            yield from self.await_commit()
        if self._origin in record.ends:
            raise self._lost(f"epoch {record.epoch} with {record.ends[self._origin].snapshot}")

    def _lost(self, ended: str) -> SnapshotCorrupt:
        return SnapshotCorrupt(
            f"no snapshot is there, and the instance has ended {ended}",
            where=self.where,
            hint="Restore the checkpoint as it was after that epoch",
        )

    def _choose(self, resume: Resume | None) -> S | None:
        hello, known = self._hello, self._hello.known
        if resume is not None:
            return self._where_it_resumes(resume)

        def usable(found: S) -> bool:
            candidate = self.candidate(found)
            return known.allows(
                fence=candidate.name.fence,
                log_offset=candidate.log_offset,
                emitted=candidate.emitted,
                before=self._emitted_before,
            )

        return self.snapshots.latest(
            epoch=hello.epoch, fence=hello.fence, since=self.begun, final_only=hello.fresh, usable=usable
        )

    def _where_it_resumes(self, resume: Resume) -> S:
        """An attempt that lost its first replica before it was welcomed may have begun already. Raises ResumeFailed."""
        hello = self._hello
        try:
            found = self.snapshots.resumed(hello.epoch, hello.fence) or self.snapshots.named(resume.name)
        except SnapshotCorrupt as error:
            raise resume_failed(error.message, self.where) from error
        if found is None:
            raise resume_failed("it is not there any more", self.where)
        return found

    def _emitted_before(self) -> int:
        """The number of the last row of the epochs before."""
        began = self._beginning()
        return max(self._numbers_from, began.emitted if began is not None else 0)

    def _committed(self) -> int:
        """The last epoch that is recorded to have committed, -1 before the first: Spark's own commit may be lost. What
        this start began behind has committed, too, and its record may not be written yet."""
        record = self.commit_record()
        begun_behind = self._line(self._hello.generation).epoch - 1
        return max(record.epoch if record is not None else -1, begun_behind)

    def _may_be_asked_for(self, snapshot: InstanceSnapshot) -> bool:
        """Whether an epoch up to which it depends on logs may still be run again."""
        return snapshot.epoch > (self._committed() if self._hello.realtime else self._hello.epoch - 1)

    def _settled(self) -> tuple[Candidate | None, Mapping[Origin, int]]:
        """How it stood at the end of the last epoch that nobody runs again, and how far others' logs are not asked for
        any more: as far as it had been sent them by then.

        In micro-batch the epochs before this one have committed. In real time an epoch is committed while the next one
        runs, and where one is not, the query may begin it again.
        """
        hello = self._hello
        if not hello.realtime:
            began = self._beginning()
            return began, began.received if began is not None else {}
        found = self.snapshots.final(self._committed(), self.begun)
        settled = self.candidate(found) if found is not None else None
        stable = dict(self._line(hello.generation).stable)
        for origin, upto in settled.received.items() if settled is not None else ():
            stable[origin] = max(upto, stable.get(origin, 0))
        return settled, stable

    def _beginning(self) -> Candidate | None:
        found = self.snapshots.beginning(self._hello.epoch, self._hello.fence, self.begun)
        return self.candidate(found) if found is not None else None

    def _return_to(self, found: S | None, resume: Resume | None) -> InstanceSnapshot | None:
        """Without a snapshot inside an epoch it can be run again from its beginning; nothing stands in for that one."""
        if found is None:
            return self.restore_state(None)
        candidate = self.candidate(found)
        inside = candidate.name.epoch == self._hello.epoch
        try:
            snapshot = self.restore_state(found)
        except SnapshotCorrupt as error:
            if not inside:
                raise
            raise resume_failed(error.message, self.where) from error
        if inside and resume is None:
            self._covered = BundleGapDetector(candidate.taken)
        self._sequence = candidate.name.sequence + 1
        return snapshot

    def _is_behind(self, opened: OpenedLog, found: S) -> bool:
        """Whether the store at hand is damaged, or not of the incarnation that took the snapshot, or a later one: its
        own log need not be what the snapshot was taken in. Where there are standbys, it need not hold what the snapshot
        depends on either way: a later incarnation may have been promoted, and lost before it was sent that again."""
        elsewhere = not self._alone and opened.own.fence < self.candidate(found).name.fence
        return elsewhere or bool(opened.damaged)

    def _ask_for_others(self, snapshot: InstanceSnapshot, held: list[bytes]) -> Steps:
        """What the snapshot depends on, from whomever (`protocol.recovery.causal.dependencies`), where no store of
        this instance has it.

        What was sent in epochs that are settled nobody asks for.
        """
        _, stable = self._settled()
        found: list[bytes] = []
        for origin in missing_logs(snapshot.received, stable, held):
            start, upto = stable.get(origin, 0), snapshot.received[origin]
            answers = yield from self.ask(origin, start)
            found += recovered_deltas(origin, start, upto, answers)
        return found

    def _log_wanted_from(self, snapshot: InstanceSnapshot | None, opened: OpenedLog) -> int | None:
        if snapshot is None or not (opened.damaged or snapshot.epoch == self._hello.epoch):
            return None
        settled, _ = self._settled() if opened.damaged else (None, {})
        return min(
            snapshot.epoch_log_offset, settled.log_offset if settled is not None else snapshot.log_offset
        )

    def _repeats_all(self, bound: Candidate | None) -> bool:
        """Whether nothing of the log is done anew. The checkpoint, which may be far away, is asked only where a task
        attempt begins: a failover inside it does not wait for that."""
        may_begin_anew = self._hello.fresh and not self._alone and bound is None
        return not may_begin_anew or self.effects_are_used

    def _recover(self, snapshot: InstanceSnapshot | None, opened: OpenedLog, found: S | None) -> Steps:
        """The own log from the snapshot on, from whoever may know it."""
        hello, bound = self._hello, self._bound_by
        begins = snapshot.log_offset if snapshot is not None else 0
        if self._alone and snapshot is not None and not opened.damaged:
            check_same_history(snapshot, opened.own.segments, where=self.where)
        settled, _ = self._settled()
        retrieval = retrieve(
            self._origin,
            begins,
            opened,
            hello.log,
            known=hello.known,
            fresh=hello.fresh,
            where=self.where,
            alone=self._alone,
            since=self._log_wanted_from(snapshot, opened),
            recovered=hello.recovered,
            settled=settled.log_offset if settled is not None else 0,
            repeats_all=self._repeats_all(bound),
            history=snapshot.history if snapshot is not None else None,
        )
        if hello.standby or self._damage_accepted:  # what a standby takes for complete its primary has shown
            retrieval = replace(retrieval, whole=True)
        if retrieval.too_early and not hello.fresh:
            self.log_too_short()
        answers: list[HolderReply] = []
        if retrieval.ask_others or hello.standby:
            answers += yield from self.ask(self._origin, retrieval.base)
        if bound is not None:
            answers.append(HolderReply("the snapshot of the epoch's end", own=(bound.own_log,)))
        if found is not None and (ended := self.candidate(found).own_log).segments:
            answers.append(HolderReply("the snapshot that it returns to", own=(ended,)))
        recovered = retrieval.put_together(answers, where=self.where)
        reached = begins + len(recovered.recorded)
        if bound is not None and not hello.standby and reached < bound.log_offset:
            raise cut_short(bound.log_offset, reached, self.where)
        at, pieces = recovered.missing(opened.own)
        if pieces and not self._alone:
            self.begin_log(Writer(hello.fence, at, copy=True))
        if pieces or at < self.log_end:
            self.rewrite_log(at, pieces)
        return recovered
