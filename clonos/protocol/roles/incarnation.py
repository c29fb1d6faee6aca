"""The life of one process as an instance of an operator: what it restores, whose log it believes, where its own begins.

It begins when a conduit connects. The order is the rule:

1. The snapshots are claimed under the new fence. A predecessor that has not noticed is stopped by that, or has written
   what is read from now on; an effect of it was announced in a log that is read later, or does not happen.
2. A snapshot is chosen: where the conduit keeps what follows, the newest that stands for what it has taken over
   (`protocol.recovery.causal.replacement`); for a new task attempt where the recovery line begins
   (`protocol.line.recovery_line`), else the end of the epoch before.
3. The own log from there on is put together from every holder that may know it (`protocol.recovery.causal.retrieval`),
   and where the attempt resumes inside an epoch, it is looked whether everything that the state depends on is held here
   (`protocol.recovery.causal.resumption`).
4. Only now there is an instance, and from the end of what was recovered on, the log is what this incarnation writes.

A standby is restored like a replacement, claims nothing, and follows; promoted, it claims, and its own log begins where
the conduit's knowledge of its primary's ends. A process that stood at the end of an epoch goes on from what it has in
memory, if no other process has run an epoch in between.

What the instance then does, and what it says to its conduit, is `operator_session`'s matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from clonos.errors import GapError, ReplicaLost, SnapshotCorrupt, Where
from clonos.protocol.engine.bundle_gap_detector import BundleGapDetector
from clonos.protocol.engine.instance import Instance, InstanceSnapshot
from clonos.protocol.fence import Generation
from clonos.protocol.ids import (
    LOG_BEGIN,
    NO_EPOCH,
    NO_OUTPUT,
    Epoch,
    LogOffset,
    Origin,
    OutputNumber,
    epoch_before,
    log_after,
    output_after,
)
from clonos.protocol.line.missing_end import check_log_has_no_earlier_epoch
from clonos.protocol.line.recovery_line import RecoveryLine, Resume
from clonos.protocol.line.snapshot_name import Since, SnapshotName, is_marked, marked_from
from clonos.protocol.ports import InstancePorts
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.checkpoint_marks import marks_between
from clonos.protocol.recovery.causal.dependencies import missing_logs, recovered_deltas
from clonos.protocol.recovery.causal.longest_prefix import HolderReply, cut_short
from clonos.protocol.recovery.causal.own_log import Writer
from clonos.protocol.recovery.causal.resumption import (
    check_dependencies,
    check_resumable,
    check_same_history,
    resume_failed,
)
from clonos.protocol.recovery.causal.retrieval import (
    OpenedLog,
    Recovered,
    Retrieval,
    known_between,
    retrieve,
)
from clonos.protocol.recovery.rollback.replaceable import later_checkpoint_gone
from clonos.protocol.roles.attach_request import AttachRequest as AttachRequest
from clonos.protocol.roles.incarnation_ports import IncarnationPorts, Reached
from clonos.protocol.roles.snapshot_candidate import Candidate
from clonos.protocol.roles.steps import Steps

S = TypeVar("S")


class Incarnation(Generic[S]):
    """See the module. An instance that has not moved, and cannot, leaves its log on this host alone. One that does not
    `repeats` what it did has others' logs in its snapshots, and with `keeps_sent` what it has sent. Output is numbered
    beyond `output_number_floor`. With `damage_accepted` the user has chosen to go on over what is damaged.
    `others_keep_logs`: such an instance may bring this one's."""

    def __init__(
        self,
        name: str,
        origin: Origin,
        ports: IncarnationPorts[S],
        instance_ports: InstancePorts,
        *,
        may_have_moved: bool,
        repeats: bool = True,
        keeps_sent: bool = False,
        others_keep_logs: bool = False,
        output_number_floor: OutputNumber = NO_OUTPUT,
        damage_accepted: bool = False,
    ) -> None:
        self._name = name
        self.origin = origin
        self._ports = ports
        self._instance_ports = instance_ports
        self._may_have_moved = may_have_moved
        self._repeats = repeats
        self._keeps_sent = keeps_sent
        self._others_keep_logs = others_keep_logs
        self._output_number_floor = output_number_floor
        self._damage_accepted = damage_accepted
        self._instance: Instance | None = None
        self.request: AttachRequest
        self.bundles = BundleGapDetector()
        self._sequence = 0
        self._ended: SnapshotName | None = None
        self._drawn: RecoveryLine | None = None
        self.unread: OutputNumber | None = (
            None  # of what it began with, the first row that may have to be sent again
        )
        self.kept_of_policy = b""  # of what it began with, if that is inside the epoch
        self.unkept: Mapping[int, OutputNumber] = {}  # likewise
        self._since = LOG_BEGIN  # the log offset from which on this incarnation goes its own way
        self._own_from = LOG_BEGIN

    @property
    def is_there(self) -> bool:
        """Whether an instance is in memory."""
        return self._instance is not None

    @property
    def live(self) -> Instance:
        assert self._instance is not None
        return self._instance

    @property
    def recovered_end(self) -> LogOffset:
        return log_after(self.live.log_offset, self.live.recorded)

    @property
    def own_from(self) -> LogOffset:
        """Steps behind this log offset ran here for the first time; those before it were repeated, if they ran here. A
        standby that takes over may repeat more than the conduit knows."""
        return self._own_from

    @property
    def where(self) -> Where:
        return Where(self._name, self.origin.instance, self.request.epoch)

    def serve(self, request: AttachRequest) -> Steps:
        """As the replica. What was recovered is not repeated before `open_epoch`."""
        self._attach(request)
        if self._instance is None:
            yield from self._restore()
        else:
            self._claim()
            self._check_newest()
            self._ports.goes_on()
            if self.live.following:
                self._since = self._own_from = self.recovered_end
            self._lead(self._since)
        self._has_read_log()

    def stand_by(self, request: AttachRequest) -> Steps:
        """Restored like a replacement, or, where it stands at the end of an epoch, as it is in memory; from then on it
        follows. In the middle of one it is told to begin again, from a newer snapshot."""
        self._attach(request)
        if self._instance is not None and self._ended is not None:
            self._check_newest()
        else:
            self.let_go()
            yield from self._restore()
        self._ended = None
        self._ports.begin_log(Writer(self.request.fence, self._ports.log_end, copy=True))
        self.live.begin_following()
        self._has_read_log()

    def take_over(self, request: AttachRequest) -> None:
        """The primary is lost, and this is the replica. What that did beyond the log that it had recovered, and that
        the conduit knows, never happened."""
        self.request = request
        self._claim()
        known = max(self.live.followed, request.recovered)
        self._own_from = max(known, self.recovered_end)
        self._lead(known)
        self._ports.promoted(known)

    def epoch_end(self) -> InstanceSnapshot:
        """The instance at the end of an epoch, after `Instance.end_epoch`.

        This host may be lost, and with it the end of the log, if the standby is not there. In micro-batch another
        attempt may have to end alike then (`protocol.recovery.causal.replacement: binds`), so the snapshot holds the
        log of the epoch. In real time the instance goes on elsewhere from this snapshot, perhaps before the commit,
        so it holds what has come since rows left: what was before, the receivers of the rows were sent. An instance
        that is alone leaves it on the driver's host.
        """
        if not self._may_have_moved:
            return self.live.snapshot()
        snapshot = self.live.snapshot(log_since=self.live.handed_on if self.request.realtime else LOG_BEGIN)
        return replace(snapshot, live_since=self._since)

    def end_standby(self, last: int) -> None:
        """The replica has ended the epoch after bundle `last`, and so has its standby, if it has come as far; else it
        restores in the next one."""
        newest = self._ports.snapshots.final(self.request.epoch, self.begun)
        ended = self._ports.candidate(newest) if newest is not None else None
        if ended is None or self.bundles.upto < last or ended.log_offset != self.live.log_offset:
            self.let_go()
        else:
            self._ended = ended.name

    def let_go(self) -> None:
        """Drop the instance that is in memory, if one is."""
        if self._instance is not None:
            self._ports.let_go()
            self._instance = None

    def name_snapshot(self, *, final: bool, marked: bool = False, unmarked: bool = False) -> SnapshotName:
        """The next one's name; `unmarked`: it is not taken for a marked one by chance."""
        if marked:
            self._sequence = marked_from(self._sequence)
        elif unmarked and is_marked(self._sequence):
            self._sequence += 1
        name = SnapshotName(self.request.epoch, self.request.fence, self._sequence, final)
        self._sequence += 1
        return name

    def has_ended(self, snapshot: SnapshotName) -> None:
        """It stands at the end of its epoch, and may go on from memory in the next one."""
        self._ended = snapshot

    @property
    def begun(self) -> Since | None:
        """Which snapshots count in this start of the query."""
        return self._line(self.request.generation).since(self.origin)

    def _line(self, generation: Generation) -> RecoveryLine:
        """It does not change once it is written."""
        if self._drawn is None or self._drawn.generation != generation:
            self._drawn = self._ports.line(generation)
        return self._drawn

    def _claim(self) -> None:
        self._ports.claim(self.request.fence)

    def _attach(self, request: AttachRequest) -> None:
        self.request = request
        self.unread = None
        self.kept_of_policy = b""
        self.unkept = {}
        self.bundles = BundleGapDetector()

    def _has_read_log(self) -> None:
        """What the conduit keeps of it may be long, and is not asked for again."""
        request = self.request
        self.request = replace(request, log_start=log_after(request.log_start, request.log), log=b"")

    def _lead(self, since: LogOffset) -> None:
        """From this offset on the log is what this incarnation writes."""
        self.live.lead()
        self._since = since
        self._ports.begin_log(Writer(self.request.fence, since))

    def _check_newest(self) -> None:
        """An instance may not have run for some epochs; what it holds in memory must still be the newest there is."""
        before = epoch_before(self.request.epoch)
        if self._ended is None or self._ended.epoch == before:
            return
        newest = self._ports.snapshots.final(before, self.begun)
        if newest is None or self._ports.candidate(newest).name != self._ended:
            raise ReplicaLost(
                "this process has missed an epoch that another one ran",
                where=self.where,
                hint="A new one starts from the snapshot",
            )

    @property
    def _bound_by(self) -> Candidate | None:
        """How an earlier attempt has ended the epoch, where this one has to end alike."""
        request = self.request
        ended = self._ports.snapshots.binding(request.epoch, request.fence) if request.is_retry else None
        return self._ports.candidate(ended) if ended is not None else None

    @property
    def ends_at(self) -> LogOffset | None:
        """The log offset at which it has to end the epoch."""
        bound = self._bound_by
        return bound.log_offset if bound is not None else None

    # -------------------------------------------------------------- restoring

    def _restore(self) -> Steps:
        request = self.request
        self._ports.open_snapshots(request)
        line = self._line(request.generation)
        line.check_epoch(request.epoch, self.where)
        resume = self._claim_and_clear(line)
        found = self._choose(resume)
        yield from self._check_beginning(line, found)
        snapshot = self._return_to(found, resume)
        self.unread = self._first_unread(found, resume)
        if snapshot is not None and snapshot.epoch == request.epoch:
            self.kept_of_policy, self.unkept = snapshot.kept_of_policy, snapshot.unkept
        yield from self._ports.reached(Reached.STATE)
        opened = self._ports.open_log()
        # What came to a lost process behind its last checkpoint comes again.
        held = opened.held if self._repeats else []
        if not self._may_have_moved and snapshot is not None and not opened.damaged:
            check_same_history(snapshot, opened.own.segments, resumes=resume is not None, where=self.where)
        recovered = yield from self._recover(snapshot, opened, found)
        yield from self._ports.reached(Reached.LOG)
        received = recovered.received if self._repeats else self._ports.kept_deltas.read()
        behind = found is not None and self._is_behind(opened, found)
        # What the snapshot depends on, if it does not have it itself.
        may_lack = self._repeats and not request.standby and (self._may_have_moved or behind)
        if snapshot is not None and may_lack:
            received += yield from self._ask_for_others(snapshot, [*held, *received])
        if resume is not None and found is not None and snapshot is not None:
            if self._repeats:
                check_resumable(
                    snapshot, recovered.before, [*held, *received], line.truncation_points, where=self.where
                )
            snapshot.resume(resume.awaited_input)
            found = yield from self._ports.resume(found, resume)
            self._ports.discard_from(request.epoch)
        elif snapshot is not None and may_lack and self._may_be_asked_for(snapshot):
            settled, truncation_points = self._settled()
            begins = settled.log_offset if settled is not None else LOG_BEGIN
            everything = [*held, *received]
            if behind:
                check_resumable(
                    snapshot, recovered.before, everything, truncation_points, where=self.where, begins=begins
                )
            else:
                check_dependencies(snapshot, everything, truncation_points, where=self.where)
        self._instance = self._ports.make_instance(self._instance_ports)
        self._ports.restored(found, recovered)
        self._instance.restore(
            snapshot,
            own_before=recovered.before if self._repeats else self._marks(snapshot),
            recorded=recovered.recorded,
            held=held,
            received=received,
            output_number_floor=self._output_number_floor,
        )
        if not request.standby:
            self._own_from = self.recovered_end
            self._lead(self.recovered_end)
            begins = snapshot.log_offset if snapshot is not None else LOG_BEGIN
            if opened.whole_since is None or opened.whole_since > begins:
                self._ports.log_is_whole(begins)
        yield from self._ports.reached(Reached.FUNCTION)

    def _marks(self, snapshot: InstanceSnapshot | None) -> list[Segment]:
        """Its log up to where it begins, as far as it may be asked for: no store has it."""
        if snapshot is None or not snapshot.log_offset:
            return []
        settled, _ = self._settled()
        return marks_between(settled.log_offset if settled is not None else LOG_BEGIN, snapshot.log_offset)

    def _first_unread(self, found: S | None, resume: Resume | None) -> OutputNumber | None:
        """Of what it has kept of this epoch. A conduit that has lost its process says how far it was sent rows."""
        if resume is not None:
            return resume.unread
        is_inside = found is not None and self._ports.candidate(found).name.epoch == self.request.epoch
        return output_after(self.request.emitted_output, 1) if is_inside and self._keeps_sent else None

    def _claim_and_clear(self, line: RecoveryLine) -> Resume | None:
        """Whether a new attempt resumes; what others left of an epoch that it runs from the beginning goes.

        It claims the instance either way: should it fail to resume, its predecessor's snapshots do not count again.
        """
        request = self.request
        if request.standby:
            return None
        self._claim()
        if not request.fresh:
            return None
        resume = line.resume(self.origin, generation=request.generation, epoch=request.epoch)
        if resume is None:
            self._ports.discard_from(request.epoch)
        return resume

    def _check_beginning(self, line: RecoveryLine, found: S | None) -> Steps:
        """Nothing begins before the last commit, and nothing from nothing but what is proven to be new: what it would
        have to repeat is gone, and what it has consumed does not come again.

        The line says so of the epoch with which the start of the query began. After that all instances have run in real
        time; in micro-batch, those that had input, and the driver records the epoch before as soon as it has committed.
        """
        request = self.request
        line.check_beginning(
            self.origin, self._ports.candidate(found).log_offset if found is not None else None, self.where
        )
        if found is not None or request.epoch == line.epoch:
            return
        if request.realtime:
            raise self._lost(f"epoch {request.epoch - 1}, as all instances have in real time")
        while (record := self._ports.commit_record()) is None or record.epoch < request.epoch - 1:
            self._check_record_may_come(epoch_before(request.epoch))
            yield from self._ports.await_commit()
        if self.origin in record.ends:
            raise self._lost(f"epoch {record.epoch} with {record.ends[self.origin].snapshot}")

    def has_begun_behind(self, epoch: Epoch) -> bool:
        """Whether this start of the query began with the epoch behind that one: it is not run again."""
        return epoch < self._line(self.request.generation).epoch

    def await_commit_before(self) -> Steps:
        """Until the epoch before this one is recorded to have committed."""
        before = epoch_before(self.request.epoch)
        while self._committed() < before:
            self._check_record_may_come(before)
            yield from self._ports.await_commit()

    def _check_record_may_come(self, epoch: Epoch) -> None:
        """Raises the driver's error where it has met one that keeps it from recording the commit."""
        unrecorded = self._ports.unrecorded_commit()
        if unrecorded is not None and unrecorded.is_of(epoch, generation=self.request.generation):
            raise unrecorded.cause()

    def _lost(self, ended: str) -> SnapshotCorrupt:
        return SnapshotCorrupt(
            f"no snapshot is there, and the instance has ended {ended}",
            where=self.where,
            hint="Restore the checkpoint as it was after that epoch",
        )

    def _choose(self, resume: Resume | None) -> S | None:
        request, known = self.request, self.request.progress
        if resume is not None:
            return self._where_it_resumes(resume)

        def usable(found: S) -> bool:
            candidate = self._ports.candidate(found)
            return known.allows(
                fence=candidate.name.fence,
                log_offset=candidate.log_offset,
                emitted=candidate.emitted,
                before=self._emitted_before,
                keeps_sent=self._keeps_sent,
            )

        return self._ports.snapshots.latest(
            epoch=request.epoch,
            fence=request.fence,
            since=self.begun,
            final_only=request.fresh,
            usable=usable,
        )

    def _where_it_resumes(self, resume: Resume) -> S:
        """An attempt that lost its first replica before it was welcomed may have begun already. Raises ResumeFailed."""
        request = self.request
        try:
            found = self._ports.snapshots.resumed(
                request.epoch, request.fence
            ) or self._ports.snapshots.named(resume.name)
        except SnapshotCorrupt as error:
            raise resume_failed(error.message, self.where) from error
        if found is None:
            raise resume_failed("it is not there any more", self.where)
        return found

    def _emitted_before(self) -> OutputNumber:
        """The number of the last row of the epochs before."""
        began = self._beginning()
        return max(self._output_number_floor, began.emitted if began is not None else NO_OUTPUT)

    def _committed(self) -> Epoch:
        """The last epoch that is recorded to have committed, `NO_EPOCH` before the first: Spark's own commit may be
        lost. What this start began behind has committed, too, and its record may not be written yet."""
        record = self._ports.commit_record()
        begun_behind = epoch_before(self._line(self.request.generation).epoch)
        return max(record.epoch if record is not None else NO_EPOCH, begun_behind)

    def _may_be_asked_for(self, snapshot: InstanceSnapshot) -> bool:
        """Whether an epoch up to which it depends on logs may still be run again."""
        return snapshot.epoch > (self._committed() if self.request.realtime else self.request.epoch - 1)

    def _settled(self) -> tuple[Candidate | None, Mapping[Origin, LogOffset]]:
        """How the instance stood at the end of the last epoch that is not run again, and how far others' logs are not
        asked for any more: as far as it had been sent them by then.

        In micro-batch the epochs before this one have committed. In real time an epoch is committed while the next one
        runs, and where one is not, the query may begin it again.
        """
        request = self.request
        if not request.realtime:
            began = self._beginning()
            return began, began.received if began is not None else {}
        found = self._ports.snapshots.final(self._committed(), self.begun)
        settled = self._ports.candidate(found) if found is not None else None
        truncation_points = dict(self._line(request.generation).truncation_points)
        for origin, upto in settled.received.items() if settled is not None else ():
            truncation_points[origin] = max(upto, truncation_points.get(origin, LOG_BEGIN))
        return settled, truncation_points

    def _beginning(self) -> Candidate | None:
        found = self._ports.snapshots.beginning(self.request.epoch, self.request.fence, self.begun)
        return self._ports.candidate(found) if found is not None else None

    def _return_to(self, found: S | None, resume: Resume | None) -> InstanceSnapshot | None:
        """Without a snapshot inside an epoch it can be run again from its beginning; nothing stands in for that one."""
        if found is None:
            return self._ports.restore_state(None)
        candidate = self._ports.candidate(found)
        inside = candidate.name.epoch == self.request.epoch
        try:
            snapshot = self._ports.restore_state(found)
        except SnapshotCorrupt as error:
            if not inside:
                raise
            raise resume_failed(error.message, self.where) from error
        if inside and resume is None:
            self.bundles = BundleGapDetector(candidate.acked_input)
        self._sequence = candidate.name.sequence + 1
        return snapshot

    def _is_behind(self, opened: OpenedLog, found: S) -> bool:
        """Whether the store at hand is damaged, or not of the incarnation that took the snapshot, or a later one: its
        own log need not be what the snapshot was taken in. Where there are standbys, it need not hold what the snapshot
        depends on either way: a later incarnation may have been promoted, and lost before it was sent that again."""
        elsewhere = self._may_have_moved and opened.own.fence < self._ports.candidate(found).name.fence
        return elsewhere or bool(opened.damaged)

    def _ask_for_others(self, snapshot: InstanceSnapshot, held: list[bytes]) -> Steps:
        """The logs that the snapshot depends on, from any holder (`protocol.recovery.causal.dependencies`), where no
        store of this instance has it.

        What was sent in epochs that are settled is not asked for.
        """
        _, truncation_points = self._settled()
        found: list[bytes] = []
        for origin in missing_logs(snapshot.received, truncation_points, held):
            start, upto = truncation_points.get(origin, LOG_BEGIN), snapshot.received[origin]
            answers = yield from self._ports.ask(origin, start)
            found += recovered_deltas(origin, start, upto, answers)
        return found

    def _log_wanted_from(self, snapshot: InstanceSnapshot | None, opened: OpenedLog) -> LogOffset | None:
        if snapshot is None or not (opened.damaged or snapshot.epoch == self.request.epoch):
            return None
        settled, _ = self._settled() if opened.damaged else (None, {})
        return min(
            snapshot.epoch_log_offset, settled.log_offset if settled is not None else snapshot.log_offset
        )

    def _repeats_all(self, bound: Candidate | None) -> bool:
        """Whether nothing of the log is done anew. The checkpoint, which may be far away, is asked only where a task
        attempt begins: a failover inside it does not wait for that."""
        return not self._may_begin_anew(bound) or self._ports.effects_are_used

    def _may_begin_anew(self, bound: Candidate | None) -> bool:
        return self.request.fresh and bound is None

    def _needed_by_the_line(self) -> LogOffset:
        """Up to where others depend on its log that begin inside the epoch, with a first attempt as this one."""
        request = self.request
        if request.standby or not request.fresh:
            return LOG_BEGIN
        line = self._line(request.generation)
        return line.needed(self.origin, generation=request.generation, epoch=request.epoch)

    def _brought(self, retrieval: Retrieval, answers: list[HolderReply], needed: LogOffset) -> Steps:
        """What others say when an instance that begins, too, has brought what its checkpoint has of the log."""
        brought: list[HolderReply] = []
        while self._others_keep_logs:
            replies = [*retrieval.at_hand, *answers, *brought]
            known = known_between(retrieval.snapshot, needed, replies)
            if known.contiguous_end(retrieval.snapshot) >= needed:
                break
            yield from self._ports.await_holder(self.origin)
            brought = yield from self._ports.ask(self.origin, retrieval.base)
        return brought

    def _put_together(self, retrieval: Retrieval, answers: list[HolderReply]) -> Recovered:
        """Of an instance that repeats nothing its newest checkpoint has all that others depend on."""
        if self._repeats:
            return retrieval.put_together(answers, where=self.where)
        # What is damaged elsewhere has no part of this log that counts
        whole = replace(retrieval, whole=True)
        try:
            recovered = whole.put_together(answers, where=self.where)
        except GapError as error:
            raise later_checkpoint_gone(self.where) from error
        if recovered.recorded:
            raise later_checkpoint_gone(self.where)
        return recovered

    def _recover(self, snapshot: InstanceSnapshot | None, opened: OpenedLog, found: S | None) -> Steps:
        """The own log from the snapshot on, from every holder that may know it."""
        request, bound = self.request, self._bound_by
        begins = snapshot.log_offset if snapshot is not None else LOG_BEGIN
        settled, _ = self._settled()
        needed = self._needed_by_the_line()
        retrieval = retrieve(
            self.origin,
            begins,
            opened,
            request.log,
            known=request.progress,
            fresh=request.fresh,
            where=self.where,
            may_have_moved=self._may_have_moved,
            since=self._log_wanted_from(snapshot, opened),
            recovered=request.recovered,
            settled=settled.log_offset if settled is not None else LOG_BEGIN,
            repeats_all=self._repeats_all(bound),
            history=snapshot.history if snapshot is not None else None,
            needed=needed,
            all_begin=request.realtime,
        )
        # What a standby takes for complete its primary has shown
        if request.standby or self._damage_accepted:
            retrieval = replace(retrieval, whole=True)
        if retrieval.too_early and not request.fresh:
            self._ports.log_too_short()
        answers: list[HolderReply] = []
        if retrieval.ask_others or request.standby:
            answers += yield from self._ports.ask(self.origin, retrieval.base)
        if bound is not None:
            answers.append(HolderReply("the snapshot of the epoch's end", own=(bound.own_log,)))
        if found is not None and (ended := self._ports.candidate(found).own_log).segments:
            answers.append(HolderReply("the snapshot that it returns to", own=(ended,)))
        answers += yield from self._brought(retrieval, answers, needed)
        recovered = self._put_together(retrieval, answers)
        if snapshot is None and not self._damage_accepted:
            check_log_has_no_earlier_epoch(recovered.recorded, epoch=request.epoch, where=self.where)
        reached = log_after(begins, recovered.recorded)
        if bound is not None and not request.standby and reached < bound.log_offset:
            raise cut_short(bound.log_offset, reached, self.where)
        if reached < needed:
            raise resume_failed(
                f"another instance's depends on this one's log up to {needed}, which is known up to {reached}",
                self.where,
            )
        at, pieces = recovered.missing(opened.own)
        if pieces or at < self._ports.log_end:
            self._ports.rewrite_log(at, pieces, Writer(request.fence, at, copy=True) if pieces else None)
        return recovered
