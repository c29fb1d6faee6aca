"""Checkpoint storage: what survives everything. Spark's offsets and commits, the generation, and snapshots.

Snapshots follow `clonos.storage.snapshots`: a snapshot exists when its manifest does; incarnations claim an instance
under their fence before they change anything; names hold the fence, so a successor's snapshot of the same epoch wins
over one that a predecessor was still writing.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Final, Generic, Protocol, TypeVar

from clonos.errors import Fenced, ResumeFailed, SnapshotCorrupt
from clonos.protocol.channel_numbering import Page
from clonos.protocol.engine.instance import InstanceSnapshot
from clonos.protocol.fence import LOWEST_FENCE, Fence, Generation
from clonos.protocol.ids import LOG_BEGIN, NO_EPOCH, Epoch, LogOffset, Origin, epoch_before
from clonos.protocol.line import snapshot_name
from clonos.protocol.line.recovery_line import Point, RecoveryLine, Resume, since_of
from clonos.protocol.line.snapshot_name import Since, SnapshotName
from clonos.protocol.line.unrecorded_commit import UnrecordedCommit
from clonos.protocol.recovery.event_log.logged_checkpoints import LoggedCheckpoints, LogName
from clonos.protocol.recovery.rollback.held_output import SinkCheckpoint
from clonos.protocol.recovery.rollback.sink_progress import SinkEnd
from clonos.protocol.roles.leadership import Claim, Lease
from clonos.protocol.source_channels import Numbered
from clonos.sim.archive_storage import ArchiveStorage
from clonos.sim.frames import OutputFrame
from clonos.sim.row_history import RowHistory

_IN_ONE_LOG: Final = 4


@dataclass(slots=True)
class Snapshot:
    """One instance at one moment. `depends` is the simulator's own knowledge, never used by a recovery."""

    name: SnapshotName
    instance: InstanceSnapshot
    content: bytes  # keyed state, timers, what was sent, others' logs
    acked_input: int  # the last bundle of its task attempt that it covers
    depends: Mapping[Origin, LogOffset]
    reached: Mapping[int, int]  # last position consumed per channel, as the checkers saw it
    rows: RowHistory = field(default_factory=RowHistory)  # that it had sent, as the checkers saw it
    shown: int | None = None  # of event time, with its rows
    checkpoints: Mapping[Origin, int] = field(default_factory=dict)  # that it depends on, by their number
    damaged: bool = False

    @property
    def sent(self) -> list[OutputFrame]:
        """The log of what was sent."""
        *_, sent, _ = pickle.loads(self.content)
        return list(sent)

    @property
    def kept_deltas(self) -> list[bytes]:
        """Others' logs in the state."""
        *_, kept = pickle.loads(self.content)
        return list(kept.values())

    @property
    def point(self) -> Point:
        of = self.instance
        return Point(str(self.name), of.log_offset, of.sent, of.reached, of.received, of.unkept)

    def resumed_under(self, fence: Fence, resume: Resume) -> Snapshot:
        """The same, as where an attempt begins."""
        instance = replace(self.instance)
        instance.resume(resume.awaited_input)
        return replace(
            self, name=replace(self.name, fence=fence, resumed=True), instance=instance, acked_input=0
        )


@dataclass(slots=True)
class SinkSnapshot:
    """A checkpoint of a sink's instance that holds output."""

    name: SnapshotName
    content: bytes
    damaged: bool = False

    @property
    def checkpoint(self) -> SinkCheckpoint:
        checkpoint: SinkCheckpoint = pickle.loads(self.content)
        return checkpoint

    @property
    def point(self) -> Point:
        held = self.checkpoint
        return Point(str(self.name), LOG_BEGIN, {}, held.covered, shown=held.shown)

    @property
    def end(self) -> SinkEnd:
        return SinkEnd(str(self.name), self.checkpoint)


class Kept(Protocol):
    """What a snapshot store knows of a snapshot."""

    damaged: bool

    @property
    def name(self) -> SnapshotName: ...
    @property
    def point(self) -> Point: ...


KeptT = TypeVar("KeptT", bound=Kept)


class SnapshotStore(Generic[KeptT]):
    """The snapshots of one instance. None is ever damaged."""

    corrupt: Sequence[str] = ()

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.claimed = LOWEST_FENCE
        self.kept: dict[SnapshotName, KeptT] = {}
        self.appends = False  # most are transactions in a log, behind a whole one
        self._logged = LoggedCheckpoints(most=_IN_ONE_LOG)
        self._writing: LogName | None = None
        self._newest: SnapshotName | None = None  # in it
        self._kept_from: int | None = None

    def become(self, then: SnapshotStore[KeptT]) -> None:
        """All is as it was in another one, which is not used any more."""
        self.claimed, self.kept = then.claimed, then.kept
        self._logged, self._writing, self._newest = then._logged, then._writing, then._newest

    def claim(self, fence: Fence) -> None:
        self.check(fence)
        self.claimed = fence

    def check(self, fence: Fence) -> None:
        """Raises Fenced where a newer incarnation of the instance has claimed its snapshots."""
        if fence < self.claimed:
            raise Fenced(
                f"the state of {self.origin} was taken over: its fence is {self.claimed:x}, not {fence:x}"
            )

    def write(self, snapshot: KeptT) -> None:
        """The manifest is there. Whether its writer may still do this was checked before it was sent."""
        name = snapshot.name
        self.kept[name] = snapshot
        if self._writing is not None and self._goes_on(name):
            self._logged.add(self._writing, [name])
            self._keep_those_that_count()
        else:
            self._writing = LogName(str(name)) if self.appends else None
            self._drop(snapshot_name.superseded(self.kept, name, self._kept_from))
        self._newest = name

    def _goes_on(self, name: SnapshotName) -> bool:
        """Whether it may stand in the log that is written. One that comes late is of a process that is lost."""
        before = self._newest
        if self._writing is None or before is None or name.final or self._logged.is_full(self._writing):
            return False
        return before.fence == name.fence and before < name

    def _keep_those_that_count(self) -> None:
        passed_over = [name for name in self.kept if self._logged.log_of(name)]
        for name in set(passed_over).difference(self._logged):
            del self.kept[name]

    def damage(self, name: SnapshotName) -> None:
        """What is behind it in its log needs it."""
        log = self._logged.log_of(name)
        for other, kept in self.kept.items():
            if other == name or (log is not None and log == self._logged.log_of(other) and other > name):
                kept.damaged = True

    def open(self) -> None:
        """By another process, which has not been told yet from which number on they are kept."""
        self._kept_from = None

    def keep_from(self, number: int) -> None:
        self._kept_from = max(number, self._kept_from or 0)

    def latest(
        self,
        *,
        epoch: Epoch,
        fence: Fence,
        since: Since | None,
        final_only: bool,
        usable: Callable[[KeptT], bool],
    ) -> KeptT | None:
        """Where a replacement that is to run `epoch` may start from."""
        if not final_only:
            for name in snapshot_name.in_epoch(self.kept, epoch):
                if not self.kept[name].damaged and usable(self.kept[name]):
                    return self.kept[name]
        return self.beginning(epoch, fence, since)

    def beginning(self, epoch: Epoch, fence: Fence, since: Since | None) -> KeptT | None:
        """Where the attempt of `fence` began `epoch`."""
        return self.resumed(epoch, fence) or self.final(epoch_before(epoch), since)

    def resumed(self, epoch: Epoch, fence: Fence) -> KeptT | None:
        """Where it resumed, if it did so inside the epoch. Raises ResumeFailed."""
        found = snapshot_name.resumed(self.kept, epoch, fence)
        return self._whole(found[0]) if found else None

    def named(self, text: str) -> KeptT | None:
        """Raises ResumeFailed."""
        return next((self._whole(name) for name in self.kept if str(name) == text), None)

    def inside(self, epoch: Epoch) -> list[Point]:
        """Inside the epoch, as the newest attempt to claim the instance left it."""
        names = snapshot_name.of_newest_attempt(self.kept, epoch, self.claimed)
        return [self.kept[name].point for name in names]

    def inside_of_all_attempts(self, epoch: Epoch) -> list[Point]:
        return [self.kept[name].point for name in snapshot_name.of_all_attempts(self.kept, epoch)]

    def final(self, epoch: Epoch, since: Since | None) -> KeptT | None:
        """How it stood at the end of `epoch`, or of the last one before that it ran. Raises SnapshotCorrupt."""
        names = snapshot_name.ends(self.kept, epoch, since)
        if not names:
            return None
        found = self.kept[names[0]]
        if found.damaged:
            raise SnapshotCorrupt(
                f"the snapshot of {self.origin} at the end of epoch {found.name.epoch} is damaged"
            )
        return found

    def _whole(self, name: SnapshotName) -> KeptT:
        if self.kept[name].damaged:
            raise ResumeFailed(f"the snapshot of {self.origin} inside epoch {name.epoch} is damaged")
        return self.kept[name]

    def binding(self, epoch: Epoch, fence: Fence) -> KeptT | None:
        """How an attempt before that of `fence` has ended `epoch`, where it has to end alike."""
        found = snapshot_name.binding(self.kept, epoch, fence)
        return self.kept[found[0]] if found else None

    def discard_from(self, epoch: Epoch, fence: Fence) -> None:
        """What attempts before that of `fence` left of the epoch, but how one that binds has ended it."""
        self._drop(snapshot_name.overtaken(self.kept, epoch, fence))

    def forget(self, before_epoch: Epoch, fence: Fence, since: Since | None) -> None:
        self._drop(snapshot_name.outlived(self.kept, before_epoch, fence, since))

    def _drop(self, names: list[SnapshotName]) -> None:
        """A log, and so what counts in it, goes as a whole."""
        logged = [name for name in names if self._logged.log_of(name)]
        for name in set(names).difference(logged):
            del self.kept[name]
        for log in self._logged.drop(logged):
            for name in [name for name in self.kept if self._logged.log_of(name) == log]:
                del self.kept[name]
            self._logged.forget(log)

    def clear(self) -> None:
        """All of them are gone."""
        self.kept.clear()
        self._logged, self._writing = LoggedCheckpoints(most=_IN_ONE_LOG), None


class Snapshots(SnapshotStore[Snapshot]):
    """Of an operator's instance."""


class SinkSnapshots(SnapshotStore[SinkSnapshot]):
    """Of a sink's instance that holds output."""


@dataclass
class Checkpoint:
    """Spark's checkpoint folder with ours inside."""

    claims: list[Claim] = field(default_factory=list)
    leases: dict[str, Lease] = field(default_factory=dict)
    offsets: dict[Epoch, dict[Origin, int]] = field(default_factory=dict)
    synced: Epoch = NO_EPOCH  # the last epoch whose offsets the driver or a replica has synced
    commits: set[Epoch] = field(default_factory=set)
    synced_commit: Epoch = NO_EPOCH
    channels: dict[Page, list[Numbered]] = field(default_factory=dict)
    record: bytes | None = None  # of the last epoch that is known to have committed
    recorded: Epoch = NO_EPOCH  # which one that is
    unrecorded: UnrecordedCommit | None = None  # the last that the driver could not record
    lines: dict[int, RecoveryLine] = field(default_factory=dict)
    hosts: dict[int, dict[str, str]] = field(default_factory=dict)  # memberships, of each start
    effects: bool = False  # an instance has acted on the outside
    archives: dict[Origin, ArchiveStorage] = field(default_factory=dict)
    _snapshots: dict[Origin, Snapshots] = field(default_factory=dict)
    _sink_snapshots: dict[Origin, SinkSnapshots] = field(default_factory=dict)

    def snapshots(self, origin: Origin) -> Snapshots:
        if origin not in self._snapshots:
            self._snapshots[origin] = Snapshots(origin)
        return self._snapshots[origin]

    def archive(self, origin: Origin) -> ArchiveStorage:
        return self.archives.setdefault(origin, ArchiveStorage())

    def sink_snapshots(self, origin: Origin) -> SinkSnapshots:
        """Of a sink's instance that holds output."""
        if origin not in self._sink_snapshots:
            self._sink_snapshots[origin] = SinkSnapshots(origin)
        return self._sink_snapshots[origin]

    def any_snapshots(self, origin: Origin) -> Snapshots | SinkSnapshots:
        """Of an operator's instance, or of a sink's that holds output."""
        return self._sink_snapshots.get(origin) or self.snapshots(origin)

    def sink_ends(self, epoch: Epoch) -> dict[Origin, SinkEnd]:
        """How sinks' instances that hold output stood at the end of an epoch that has committed."""
        found = {
            origin: kept.final(epoch, self.since(origin)) for origin, kept in self._sink_snapshots.items()
        }
        return {origin: snapshot.end for origin, snapshot in found.items() if snapshot is not None}

    def since(self, origin: Origin) -> Since | None:
        """Which snapshots of an instance count, by the last start of the query."""
        return since_of(self.newest_line, origin)

    @property
    def newest_line(self) -> RecoveryLine | None:
        return self.lines[max(self.lines)] if self.lines else None

    @property
    def last_hosts(self) -> dict[str, str]:
        """The memberships that the last start kept."""
        return self.hosts[max(self.hosts)] if self.hosts else {}

    def keep_hosts(self, generation: Generation, memberships: Mapping[str, str]) -> None:
        self.hosts[generation] = dict(memberships)

    def ended(self, origin: Origin, epoch: Epoch) -> Snapshot | None:
        """How an instance stood at the end of an epoch that has committed."""
        return self.snapshots(origin).final(epoch, self.since(origin))

    @property
    def committed(self) -> Epoch:
        return max(self.commits, default=NO_EPOCH)

    @property
    def passed(self) -> Epoch:
        """The last epoch that Spark does not run again: it plans the next one when that has committed."""
        return max(self.committed, epoch_before(max(self.offsets, default=NO_EPOCH)))

    @property
    def settled(self) -> Epoch:
        """The last epoch that no start runs again: what Spark has lost of a commit is written again from the record."""
        return max(self.passed, self.recorded)

    @property
    def durably_settled(self) -> Epoch:
        """Also after a power failure."""
        return max(self.synced_commit, epoch_before(self.synced), self.recorded)

    def sync_spark_files(self) -> None:
        """Sync the files that say with which epoch the query goes on."""
        self.synced = max(self.synced, max(self.offsets, default=NO_EPOCH))
        self.synced_commit = self.committed

    @property
    def may_lose_commit(self) -> bool:
        return self.committed > self.synced_commit

    def lose_commit(self, *, offsets: bool) -> None:
        """Spark does not sync what it writes; in real time its offsets are as young as its commit."""
        last = self.committed
        self.commits.discard(last)
        if offsets:
            self.offsets.pop(last, None)

    def keep_offsets(self, epoch: Epoch) -> None:
        if epoch in self.offsets:
            self.synced = max(self.synced, epoch)

    @property
    def may_lose_offsets(self) -> bool:
        """Whether Spark has written the end offsets of the epoch under way, and they are not synced."""
        return bool(self._not_durable)

    def lose_offsets(self) -> None:
        for epoch in self._not_durable:
            del self.offsets[epoch]

    @property
    def _not_durable(self) -> list[Epoch]:
        return [epoch for epoch in self.offsets if epoch > max(self.settled, self.synced)]

    def copy(self) -> Checkpoint:
        return deepcopy(self)

    def is_between_numbers_of(self, newer: Checkpoint) -> bool:
        """Whether this copy was made before the last start had numbered all of its source channels. A start from such
        a copy cannot tell that numbers are missing (docs/limits.md)."""
        last = max(newer.channels, default=None)
        return last is not None and last not in self.channels and Page(last.start, 0) in self.channels

    def restore(self, older: Checkpoint) -> None:
        """Everything is again as it was when the copy was made."""
        older = older.copy()
        self.claims, self.leases = older.claims, older.leases
        self.record, self.recorded, self.unrecorded = older.record, older.recorded, older.unrecorded
        self.offsets, self.commits, self.lines = older.offsets, older.commits, older.lines
        self.synced, self.synced_commit = older.synced, older.synced_commit
        self.channels, self.hosts, self.effects = older.channels, older.hosts, older.effects
        self.archives = older.archives
        for origin, snapshots in self._snapshots.items():
            then = older.snapshots(origin)
            snapshots.become(then)
