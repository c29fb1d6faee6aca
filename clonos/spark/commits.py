"""The commits of one query: recorded before anything is forgotten, compared with Spark's at every start.

The rules are `clonos.protocol.line.commit_reconciliation`'s. Here is what they need of the checkpoint and the sink,
and what follows from them: records in both places, and Spark's own files, synced before they are acted on, or written
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from clonos.errors import LogCorrupt
from clonos.protocol.fence import Fence, generation_of
from clonos.protocol.ids import Origin
from clonos.protocol.line.commit_reconciliation import Course, Found, newest_of, reconcile
from clonos.protocol.line.commit_record import CommitRecord, Ended
from clonos.protocol.topology import NodeKind, Topology
from clonos.spark.checkpoint import COMMITS, Checkpoint
from clonos.spark.recovery_line_builder import ends_of, snapshot_stores
from clonos.storage.epoch_plan import OFFSETS
from clonos.storage.recovery_line_file import newest_line
from clonos_standby.server.log import about

LOG = logging.getLogger("clonos")


class Commits:
    """Of one query, in its leader."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        topology: Topology,
        sink: Any,
        query: str,
        fit: Callable[[bytes], bytes] = lambda offsets: offsets,
    ) -> None:
        """`fit` gives Spark's offsets as Spark expects them of this program."""
        self._checkpoint = checkpoint
        self._topology = topology
        self._sink = sink
        self._query = query
        self._fit = fit
        self._newest: CommitRecord | None = None

    # ------------------------------------------------------- when one is seen

    def record(self, epoch: int, generation: int) -> CommitRecord:
        """Spark has committed an epoch: when this returns, a power failure, a copy or an older checkpoint cannot make
        anybody believe otherwise unnoticed, and what lies before its end may be forgotten."""
        offsets, commits = self._checkpoint.spark_files(epoch)
        record = CommitRecord(
            query=self._query,
            epoch=epoch,
            generation=generation,
            ends=self.ends(epoch),
            cursors=self._cursors(),
            versions={
                node.number: node.version for node in self._topology.nodes if node.kind is NodeKind.OPERATOR
            },
            offsets=offsets,
            commits=commits,
        )
        record.check_follows(self._newest)
        self._keep(record)
        return record

    def _keep(self, record: CommitRecord) -> None:
        self._checkpoint.keep_commit(record)
        fence = Fence.of(record.generation)
        self._sink.record_commit(self._query, fence, record.epoch, record.to_bytes())
        self._newest = record

    # ------------------------------------------------------------ at a start

    def look(self) -> Course:
        """Where the query goes on. Changes nothing. Raises CheckpointMismatch, LogCorrupt."""
        damaged: list[LogCorrupt] = []
        kept = self._fitted(_read(self._checkpoint.kept_commit, damaged))
        shown = self._fitted(_read(self._shown, damaged))
        newest = newest_of(kept, shown)
        if newest is None and damaged:
            raise damaged[0]
        for error in damaged:  # what was forgotten, both of them know of
            LOG.warning(
                "%s; the other one is taken", error.message, extra=about("commit_damaged", query=self._query)
            )
        line = newest_line(self._checkpoint.location)
        offsets, commits = self._spark_files(newest)
        found = Found(
            committed=self._checkpoint.committed(),
            passed=self._checkpoint.passed(),
            begun=line.epoch if line is not None else 0,
            offsets=offsets,
            commits=commits,
            kept=kept,
            shown=shown,
            cursors=self._cursors() if newest else {},
            snapshots=self._snapshots() if newest else {},
        )
        if newest is not None and newest.cursors and shown is None and not any(found.cursors.values()):
            LOG.warning(
                "the sink has never heard of this query, which has committed epoch %d: rows before are not in it",
                newest.epoch,
                extra=about("sink_is_new", query=self._query),
            )
        return reconcile(found)

    def _fitted(self, record: CommitRecord | None) -> CommitRecord | None:
        """A start may have died between fitting Spark's file and saying so here: both are compared as they will be."""
        return replace(record, offsets=self._fit(record.offsets)) if record is not None else None

    def _spark_files(self, newest: CommitRecord | None) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Offsets and commits that the newest record can be compared with."""
        if newest is None:
            return {}, {}
        epochs = range(newest.epoch - 1, newest.epoch + 1)
        offsets = self._checkpoint.files_of(OFFSETS, epochs)
        return (
            {epoch: self._fit(said) for epoch, said in offsets.items()},
            self._checkpoint.files_of(COMMITS, epochs),
        )

    def settle(self, course: Course, generation: int) -> None:
        """Carry it out, when older writers are fenced: what Spark has lost is there again, and both records say that
        this start knows them."""
        if course.repair is not None:
            LOG.warning(
                "Spark has lost its commit of epoch %d, or has other files of it; they are written again as they were",
                course.repair.epoch,
                extra=about("commit_repaired", query=self._query, epoch=course.repair.epoch),
            )
            self._checkpoint.write_spark_files(course.repair)
        if course.completes is not None:
            LOG.warning(
                "Spark has lost its commit of epoch %d, behind which it has planned another; it is written again",
                course.completes,
                extra=about("commit_repaired", query=self._query, epoch=course.completes),
            )
            self._checkpoint.write_commit(course.completes, course.commits)
        self._checkpoint.sync_spark_files()  # what this start begins behind
        if course.newest is not None:
            self._keep(replace(course.newest, generation=generation))

    def fit_offsets(self, generation: int) -> None:
        """To what Spark expects of this program; the records say the same."""
        changed = self._checkpoint.fit_offsets(self._fit)
        newest = self._newest
        if newest is not None and newest.epoch in changed:
            self._keep(replace(newest, generation=generation, offsets=changed[newest.epoch]))

    @property
    def last_generation(self) -> int:
        """The highest start of this query that the sink has heard of; a copy of the checkpoint may not know it."""
        shown = _read(self._shown, [])
        standing = generation_of(self._sink.standing_fence(self._query))
        return max(standing, shown.generation if shown is not None else 0)

    def _shown(self) -> CommitRecord | None:
        said = self._sink.last_commit(self._query)
        return CommitRecord.from_bytes(said[1], "the sink") if said is not None else None

    def _cursors(self) -> dict[Origin, dict[int, int]]:
        reader = self._sink.log_reader(self._query)
        try:
            return {Origin(*origin): dict(each) for origin, each in reader.cursors().items()}
        finally:
            reader.close()

    # -------------------------------------------------------------- snapshots

    def _snapshots(self) -> dict[Origin, frozenset[str]]:
        stores = snapshot_stores(self._checkpoint.location, self._topology)
        return {origin: frozenset(map(str, store.manifests())) for origin, store in stores}

    def ends(self, epoch: int) -> dict[Origin, Ended]:
        """Of every instance: at the end of the epoch, or of the last one before that it ran. Raises SnapshotCorrupt."""
        found = ends_of(self._checkpoint.location, self._topology, epoch)
        return {origin: Ended(str(end.name), end.log_offset, end.emitted) for origin, end in found.items()}

    def numbers(self) -> int:
        """The highest output number that is visible, or that an instance had given when the last epoch committed."""
        visible = [number for each in self._cursors().values() for number in each.values()]
        given = [end.emitted for end in self.ends(self._checkpoint.committed()).values()]
        return max([0, *visible, *given])


def _read(read: Callable[[], CommitRecord | None], damaged: list[LogCorrupt]) -> CommitRecord | None:
    try:
        return read()
    except LogCorrupt as error:
        damaged.append(error)
        return None
