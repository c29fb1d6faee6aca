"""Commits as the driver records them, and compares them at a start by the core's rules: `clonos.spark.commits` here."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from clonos.protocol.fence import Fence, generation_of
from clonos.protocol.ids import Origin
from clonos.protocol.line.commit_reconciliation import Found, newest_of, reconcile
from clonos.protocol.line.commit_record import CommitRecord, Ended
from clonos.protocol.line.missing_end import check_no_end_is_missing
from clonos.protocol.line.recovery_line import ran_in_real_time
from clonos.protocol.topology import NodeKind

if TYPE_CHECKING:
    from clonos.sim.world import World

_COMMIT = b"v1"  # Spark's file of a commit


class Commits:
    """Of one driver."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._checkpoint = world.checkpoint

    def record(self, epoch: int, generation: int) -> CommitRecord:
        """Before anything is forgotten because of it."""
        record = CommitRecord(
            query="simulated",
            epoch=epoch,
            generation=generation,
            ends=self.ends(epoch),
            cursors={origin: dict(place.cursors) for origin, place in self._world.sinks.items()},
            offsets=written(self._checkpoint.offsets[epoch]),
            commits=_COMMIT,
        )
        record.check_follows(self.newest)
        self.keep(record)
        return record

    def keep(self, record: CommitRecord) -> None:
        self.keep_in_checkpoint(record)
        self.keep_in_sink(record)

    def keep_in_checkpoint(self, record: CommitRecord) -> None:
        self._checkpoint.record, self._checkpoint.recorded = record.to_bytes(), record.epoch

    def keep_in_sink(self, record: CommitRecord) -> None:
        fence = Fence.of(record.generation)
        self._world.sink_commits.record_commit(fence, record.epoch, record.to_bytes())

    def reconcile(self, generation: int) -> None:
        """Raises CheckpointMismatch where the checkpoint, the sink and Spark's logs do not tell one history."""
        line = self._checkpoint.newest_line
        ours = self._kept
        course = reconcile(
            Found(
                committed=self._checkpoint.committed,
                passed=self._checkpoint.passed,
                begun=line.epoch if line is not None else 0,
                offsets={epoch: written(each) for epoch, each in self._checkpoint.offsets.items()},
                commits=dict.fromkeys(self._checkpoint.commits, _COMMIT),
                kept=ours,
                shown=self.shown,
                cursors={origin: place.cursors for origin, place in self._world.sinks.items()},
                snapshots={
                    origin: list(map(str, self._checkpoint.snapshots(origin).kept))
                    for origin in self._world.plan.dataflow.instances(NodeKind.OPERATOR)
                },
            )
        )
        if course.repair is not None:
            epoch = course.repair.epoch
            self._world.trace("driver", f"writes Spark's commit of epoch {epoch} again")
            self._checkpoint.offsets[epoch] = read(course.repair.offsets)
            self._checkpoint.commits.add(epoch)
        if course.completes is not None:
            self._checkpoint.commits.add(course.completes)
        self._checkpoint.sync_spark_files()
        if course.newest is not None:
            self.keep(replace(course.newest, generation=generation))

    @property
    def last_generation(self) -> int:
        """The highest start that the sinks have heard of."""
        standing = generation_of(max(self._world.sink_commits.floor, 0))
        return max(standing, self.shown.generation if self.shown is not None else 0)

    @property
    def newest(self) -> CommitRecord | None:
        return newest_of(self._kept, self.shown)

    @property
    def _kept(self) -> CommitRecord | None:
        raw = self._checkpoint.record
        return CommitRecord.from_bytes(raw, "the checkpoint") if raw is not None else None

    @property
    def shown(self) -> CommitRecord | None:
        said = self._world.sink_commits.last_commit()
        return CommitRecord.from_bytes(said[1], "the sink") if said is not None else None

    def ends(self, epoch: int) -> dict[Origin, Ended]:
        found, reached = {}, {}
        for origin in self._world.plan.dataflow.instances(NodeKind.OPERATOR):
            snapshot = self._checkpoint.ended(origin, epoch)
            if snapshot is not None:
                instance = snapshot.instance
                found[origin] = Ended(str(snapshot.name), instance.log_offset, instance.emitted)
                reached[origin] = instance.reached
        check_no_end_is_missing(
            self._world.plan.dataflow.topology,
            reached,
            epoch=epoch,
            realtime=ran_in_real_time(self._checkpoint.newest_line, epoch),
        )
        return found


def written(offsets: dict[Origin, int]) -> bytes:
    """Spark's file of an epoch's end offsets."""
    return json.dumps([[*origin, at] for origin, at in sorted(offsets.items())]).encode()


def read(raw: bytes) -> dict[Origin, int]:
    return {Origin(node, instance): at for node, instance, at in json.loads(raw)}
