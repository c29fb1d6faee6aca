"""The commits of one query, in its leader: recorded before anything is forgotten, compared with Spark's at every start.

What a record says is a matter of `protocol.line.commit_record`, what becomes of one at a start of
`protocol.line.commit_reconciliation`, and what proves that an instance has run of `protocol.line.missing_end`. Here is
the order: Spark's files are durable before they are recorded, and a record stands in the checkpoint before it stands in
the sinks, in all of them before anything is forgotten.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from clonos.errors import ClonosError, LogCorrupt
from clonos.protocol.fence import NO_GENERATION, Fence, Generation, generation_of
from clonos.protocol.ids import Epoch, NodeId, Origin
from clonos.protocol.line.commit_reconciliation import Course, Found, check_last_output, reconcile
from clonos.protocol.line.commit_record import CommitRecord, Ended
from clonos.protocol.line.final_snapshot import FinalSnapshots, check_finals
from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.line.unrecorded_commit import UnrecordedCommit
from clonos.protocol.roles.steps import Steps
from clonos.protocol.topology import Topology


class SinkStore(Protocol):
    """What is kept of the query beside a sink's output, as the driver sees it. Sinks may share it."""

    def raise_fence(self, fence: Fence) -> Steps:
        """Writers under lower ones show nothing any more."""
        ...

    def standing_fence(self) -> Fence:
        """The highest that was raised."""
        ...

    def record_commit(self, fence: Fence, epoch: Epoch, record: bytes) -> None:
        """In place of an earlier epoch's. Raises Fenced where a later start of the query has taken over."""
        ...

    def last_commit(self) -> tuple[Epoch, bytes] | None:
        """Raises LogCorrupt."""
        ...


def shown_commit(node: NodeId, sink: SinkStore) -> CommitRecord | None:
    """What a sink has heard of last. Raises LogCorrupt."""
    said = sink.last_commit()
    return None if said is None else CommitRecord.from_bytes(said[1], f"sink node {node}")


class CommitStore(Protocol):
    """The checkpoint and the sinks, as far as commits are concerned."""

    def found(self) -> Found:
        """All that a start compares. Changes nothing. Raises LogCorrupt."""
        ...

    def record_of(self, epoch: Epoch, generation: Generation, ends: Mapping[Origin, Ended]) -> CommitRecord:
        """How an epoch ended that Spark has committed. Spark's files of it are durable when this returns."""
        ...

    def final_snapshots(self, epoch: Epoch) -> FinalSnapshots:
        """Those that are there. Raises SnapshotCorrupt."""
        ...

    def newest_line(self) -> RecoveryLine | None:
        """That of the last start."""
        ...

    def keep_in_checkpoint(self, record: CommitRecord) -> None: ...

    @property
    def sinks(self) -> Mapping[NodeId, SinkStore]:
        """By node."""
        ...

    def keep_unrecorded(self, unrecorded: UnrecordedCommit) -> None:
        """Where instances find it that wait for the record. Raises StorageUnavailable."""
        ...

    def repair(self, record: CommitRecord) -> None:
        """Write Spark's files of the record's epoch again as they were."""
        ...

    def complete(self, epoch: Epoch, commits: bytes) -> None:
        """Write Spark's commit of an epoch that has no commit record."""
        ...

    def sync_spark_files(self) -> None:
        """Those that say with which epoch the query goes on."""
        ...


class CommitRecords:
    """See the module."""

    def __init__(self, store: CommitStore, topology: Topology) -> None:
        self.newest: CommitRecord | None = None
        self._unrecorded: UnrecordedCommit | None = None
        self._store = store
        self._topology = topology

    def record(self, epoch: Epoch, generation: Generation) -> CommitRecord:
        """Spark has committed an epoch: when this returns, a power failure, a copy or an older checkpoint cannot make a
        later start believe otherwise unnoticed, and what lies before its end may be forgotten. Where that fails for
        good, the instances that wait for the record hear of it."""
        try:
            ends = {origin: final.ended for origin, final in self.final_snapshots(epoch).items()}
            record = self._store.record_of(epoch, generation, ends)
            record.check_follows(self.newest)
            self.keep(record)
        except ClonosError as error:
            if not error.retryable:
                self._keep_unrecorded(UnrecordedCommit.of(epoch, generation, error))
            raise
        return record

    def _keep_unrecorded(self, unrecorded: UnrecordedCommit) -> None:
        """Once: the driver tries again and again. An error here would hide the one that is to be told; it is tried
        again with the record."""
        if unrecorded != self._unrecorded:
            with contextlib.suppress(ClonosError):
                self._store.keep_unrecorded(unrecorded)
                self._unrecorded = unrecorded

    def keep(self, record: CommitRecord) -> None:
        self._store.keep_in_checkpoint(record)
        for node, sink in self._store.sinks.items():
            told = record.kept_for(node, _readable(node, sink))
            sink.record_commit(Fence.of(record.generation), record.epoch, told.to_bytes())
        self.newest = record

    def look(self) -> Course:
        """Where the query goes on. Changes nothing. Raises CheckpointMismatch, LogCorrupt, SnapshotCorrupt."""
        found = self._store.found()
        course = reconcile(found)
        newest, committed = course.newest, course.committed
        if newest is not None and committed > newest.epoch:
            finals = self._store.final_snapshots(committed)
            check_last_output(found, newest, self._topology, committed, finals)
        return course

    def settle(self, course: Course, generation: Generation) -> None:
        """Carry it out, when older writers are fenced: what Spark has lost is there again, and all records say that
        this start knows them."""
        if course.repair is not None:
            self._store.repair(course.repair)
        if course.completes is not None:
            self._store.complete(course.completes, course.commits)
        self._store.sync_spark_files()  # what this start begins behind
        if course.newest is not None:
            self.keep(replace(course.newest, generation=generation, sinks=None))

    def final_snapshots(self, epoch: Epoch) -> FinalSnapshots:
        """With which instances ended an epoch that has committed, or the last one before that they ran. Raises
        SnapshotCorrupt where an instance that has run has none."""
        finals = self._store.final_snapshots(epoch)
        check_finals(self._topology, finals, line=self._store.newest_line(), epoch=epoch)
        return finals

    def newest_line(self) -> RecoveryLine | None:
        """Of the last start that has drawn one."""
        return self._store.newest_line()

    @property
    def last_generation(self) -> Generation:
        """The highest start of this query that any sink has heard of; a copy of the checkpoint may not know it."""
        return max((_last_start(*sink) for sink in self._store.sinks.items()), default=NO_GENERATION)

    def fence_sinks(self, generation: Generation) -> Steps:
        """What an old writer still makes visible must be in the logs that the new generation reads."""
        for sink in self._store.sinks.values():
            yield from sink.raise_fence(Fence.of(generation))


def _last_start(node: NodeId, sink: SinkStore) -> Generation:
    """That the sink has heard of. What it cannot read of its record it is not asked for."""
    shown = _readable(node, sink)
    standing = generation_of(sink.standing_fence())
    return standing if shown is None else max(standing, shown.generation)


def _readable(node: NodeId, sink: SinkStore) -> CommitRecord | None:
    """A sink's record, if it has one that is whole."""
    with contextlib.suppress(LogCorrupt):
        return shown_commit(node, sink)
    return None
