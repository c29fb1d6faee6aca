"""What there is of commits in the checkpoint and in the sinks: `clonos.spark.commits` here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from clonos.protocol.fence import Generation
from clonos.protocol.ids import FIRST_EPOCH, Epoch, NodeId, Origin
from clonos.protocol.line.commit_reconciliation import Found, newest_of
from clonos.protocol.line.commit_record import CommitRecord, Ended
from clonos.protocol.line.final_snapshot import FinalSnapshot, FinalSnapshots
from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.line.unrecorded_commit import UnrecordedCommit
from clonos.protocol.recovery.rollback.sink_progress import with_held
from clonos.protocol.roles.commit_records import shown_commit
from clonos.protocol.topology import NodeKind

if TYPE_CHECKING:
    from clonos.sim.sinks import SinkStore
    from clonos.sim.world import World

_COMMIT = b"v1"  # Spark's file of a commit


class Commits:
    """For `protocol.roles.commit_records`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._checkpoint = world.checkpoint

    def record_of(self, epoch: Epoch, generation: Generation, ends: Mapping[Origin, Ended]) -> CommitRecord:
        """Spark's files may be lost even now, unlike on a real disk: they are written again from the record."""
        return CommitRecord(
            query="simulated",
            epoch=epoch,
            generation=generation,
            ends=ends,
            cursors=self._cursors(epoch),
            offsets=written(self._checkpoint.offsets[epoch]),
            commits=_COMMIT,
        )

    def keep_in_checkpoint(self, record: CommitRecord) -> None:
        self._checkpoint.record, self._checkpoint.recorded = record.to_bytes(), record.epoch

    @property
    def sinks(self) -> dict[NodeId, SinkStore]:
        return self._world.sink_stores

    def keep_unrecorded(self, unrecorded: UnrecordedCommit) -> None:
        self._checkpoint.unrecorded = unrecorded

    def found(self) -> Found:
        line = self._checkpoint.newest_line
        return Found(
            committed=self._checkpoint.committed,
            passed=self._checkpoint.passed,
            begun=line.epoch if line is not None else FIRST_EPOCH,
            offsets={epoch: written(each) for epoch, each in self._checkpoint.offsets.items()},
            commits=dict.fromkeys(self._checkpoint.commits, _COMMIT),
            kept=self._kept,
            shown=self._shown,
            cursors=self._cursors(self._checkpoint.settled),
            snapshots={
                origin: list(map(str, self._checkpoint.snapshots(origin).kept))
                for origin in self._world.plan.dataflow.instances(NodeKind.OPERATOR)
            },
        )

    def _cursors(self, epoch: Epoch) -> dict[Origin, dict[int, int]]:
        """Of the sinks, which may hold output of an epoch that has committed."""
        cursors = {origin: place.cursors for origin, place in self._world.sinks.items()}
        return with_held(cursors, self._checkpoint.sink_ends(epoch))

    def repair(self, record: CommitRecord) -> None:
        self._world.trace("driver", f"writes Spark's commit of epoch {record.epoch} again")
        self._checkpoint.offsets[record.epoch] = read(record.offsets)
        self._checkpoint.commits.add(record.epoch)

    def complete(self, epoch: Epoch, commits: bytes) -> None:
        self._world.trace(
            "driver", f"writes Spark's commit of epoch {epoch}, of which there is no commit record"
        )
        self._checkpoint.commits.add(epoch)

    def sync_spark_files(self) -> None:
        self._checkpoint.sync_spark_files()

    @property
    def newest(self) -> CommitRecord | None:
        return newest_of(self._kept, self._shown.values())

    @property
    def _kept(self) -> CommitRecord | None:
        raw = self._checkpoint.record
        return CommitRecord.from_bytes(raw, "the checkpoint") if raw is not None else None

    @property
    def _shown(self) -> dict[NodeId, CommitRecord]:
        said = {node: shown_commit(node, store) for node, store in self.sinks.items()}
        return {node: record for node, record in said.items() if record is not None}

    def final_snapshots(self, epoch: Epoch) -> FinalSnapshots:
        found = {
            origin: self._checkpoint.ended(origin, epoch)
            for origin in self._world.plan.dataflow.instances(NodeKind.OPERATOR)
        }
        return {
            origin: FinalSnapshot(snapshot.point, snapshot.instance.emitted)
            for origin, snapshot in found.items()
            if snapshot is not None
        }

    def newest_line(self) -> RecoveryLine | None:
        return self._checkpoint.newest_line


def written(offsets: dict[Origin, int]) -> bytes:
    """Spark's file of an epoch's end offsets."""
    return json.dumps([[*origin, at] for origin, at in sorted(offsets.items())]).encode()


def read(raw: bytes) -> dict[Origin, int]:
    return {Origin(node, instance): at for node, instance, at in json.loads(raw)}
