"""What there is of the commits of one query: records in the checkpoint and in the sinks, Spark's own files, snapshots.

When something is recorded, and what a start makes of it, is decided by `clonos.protocol.roles.commit_records`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from clonos.errors import LogCorrupt
from clonos.protocol.fence import Generation
from clonos.protocol.ids import (
    FIRST_EPOCH,
    NO_EPOCH,
    NO_OUTPUT,
    Epoch,
    NodeId,
    Origin,
    OutputNumber,
    epoch_before,
)
from clonos.protocol.line.commit_reconciliation import Found, new_sinks, newest_of
from clonos.protocol.line.commit_record import CommitRecord, Ended
from clonos.protocol.line.final_snapshot import FinalSnapshots
from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.line.unrecorded_commit import UnrecordedCommit
from clonos.protocol.recovery.rollback.sink_progress import with_held
from clonos.protocol.roles.commit_records import shown_commit
from clonos.protocol.topology import NodeKind, Topology
from clonos.spark.checkpoint import COMMITS, Checkpoint
from clonos.spark.query_snapshots import final_snapshots, sink_ends, snapshot_stores
from clonos.spark.sink_stores import SinkStore, SinkStores
from clonos.storage.epoch_plan import OFFSETS
from clonos.storage.recovery_line_file import newest_line
from clonos_standby.server.log import about

LOG = logging.getLogger("clonos")


class Commits:
    """For `clonos.protocol.roles.commit_records`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        topology: Topology,
        sinks: SinkStores,
        fit: Callable[[bytes], bytes] = lambda offsets: offsets,
        *,
        sinks_hold: bool = False,
    ) -> None:
        """`fit` gives Spark's offsets as Spark expects them of this program; `sinks_hold` whether some sink holds
        output until it may be seen."""
        self._sinks_hold = sinks_hold
        self._checkpoint = checkpoint
        self._topology = topology
        self._sinks = sinks
        self._query = sinks.query
        self._fit = fit
        self._told: set[NodeId] = set()  # that they are new, once for each start

    # ------------------------------------------------------- when one is seen

    def record_of(self, epoch: Epoch, generation: Generation, ends: Mapping[Origin, Ended]) -> CommitRecord:
        offsets, commits = self._checkpoint.spark_files(epoch)
        return CommitRecord(
            query=self._query,
            epoch=epoch,
            generation=generation,
            ends=ends,
            cursors=self._cursors(epoch),
            versions={
                node.number: node.version for node in self._topology.nodes if node.kind is NodeKind.OPERATOR
            },
            offsets=offsets,
            commits=commits,
        )

    def keep_in_checkpoint(self, record: CommitRecord) -> None:
        self._checkpoint.keep_commit(record)

    @property
    def sinks(self) -> Mapping[NodeId, SinkStore]:
        return self._sinks.by_node

    def keep_unrecorded(self, unrecorded: UnrecordedCommit) -> None:
        self._checkpoint.keep_unrecorded(unrecorded)

    # ------------------------------------------------------------ at a start

    def found(self) -> Found:
        damaged: list[LogCorrupt] = []
        kept = self._fitted(_read(self._checkpoint.kept_commit, damaged))
        said = {sink[0]: _read(partial(shown_commit, *sink), damaged) for sink in self.sinks.items()}
        shown = {node: record for node, each in said.items() if (record := self._fitted(each)) is not None}
        newest = newest_of(kept, shown.values())
        if newest is None and damaged:
            raise damaged[0]
        for error in damaged:  # what was forgotten, all of them know of
            LOG.warning(
                "%s; another one is taken", error.message, extra=about("commit_damaged", query=self._query)
            )
        line = self.newest_line()
        offsets, commits = self._spark_files(newest)
        found = Found(
            committed=self._checkpoint.committed(),
            passed=self._checkpoint.passed(),
            begun=line.epoch if line is not None else FIRST_EPOCH,
            offsets=offsets,
            commits=commits,
            damaged=self._checkpoint.damaged_offsets(),
            kept=kept,
            shown=shown,
            cursors=self._cursors(
                max(self._checkpoint.passed(), newest.epoch if newest is not None else NO_EPOCH)
            ),
            snapshots=self._snapshots() if newest else {},
        )
        if newest is not None:
            self._tell_new_sinks(found, newest)
        return found

    def _cursors(self, epoch: Epoch) -> Mapping[Origin, Mapping[int, int]]:
        """Of the sinks, which may hold output of an epoch that has committed."""
        cursors = self._sinks.cursors()
        if not self._sinks_hold:
            return cursors
        return with_held(cursors, sink_ends(self._checkpoint.location, self._topology, epoch))

    def _tell_new_sinks(self, found: Found, newest: CommitRecord) -> None:
        for node in sorted(new_sinks(found, newest) - self._told):
            self._told.add(node)
            LOG.warning(
                "the place of sink %r has nothing of it yet, but this query has committed epoch %d: rows up to that "
                "epoch are not in it",
                self._topology.node(node).name,
                newest.epoch,
                extra=about("sink_is_new", query=self._query),
            )

    def _fitted(self, record: CommitRecord | None) -> CommitRecord | None:
        """A start may have died between fitting Spark's file and saying so here: both are compared as they will be."""
        return replace(record, offsets=self._fit(record.offsets)) if record is not None else None

    def _spark_files(self, newest: CommitRecord | None) -> tuple[dict[Epoch, bytes], dict[Epoch, bytes]]:
        """Offsets and commits that the newest record can be compared with."""
        if newest is None:
            return {}, {}
        epochs = epoch_before(newest.epoch), newest.epoch
        offsets = self._checkpoint.files_of(OFFSETS, epochs)
        return (
            {epoch: self._fit(said) for epoch, said in offsets.items()},
            self._checkpoint.files_of(COMMITS, epochs),
        )

    def repair(self, record: CommitRecord) -> None:
        LOG.warning(
            "Spark has lost its commit of epoch %d, or has other files of it; they are written again as they were",
            record.epoch,
            extra=about("commit_repaired", query=self._query, epoch=record.epoch),
        )
        self._checkpoint.write_spark_files(record)

    def complete(self, epoch: Epoch, commits: bytes) -> None:
        LOG.warning(
            "Spark has lost its commit of epoch %d, behind which it has planned another; it is written again",
            epoch,
            extra=about("commit_repaired", query=self._query, epoch=epoch),
        )
        self._checkpoint.write_commit(epoch, commits)

    def sync_spark_files(self) -> None:
        self._checkpoint.sync_spark_files()

    # -------------------------------------------------------------- snapshots

    def _snapshots(self) -> dict[Origin, frozenset[str]]:
        stores = snapshot_stores(self._checkpoint.location, self._topology)
        return {origin: frozenset(map(str, store.manifests())) for origin, store in stores}

    def final_snapshots(self, epoch: Epoch) -> FinalSnapshots:
        return final_snapshots(self._checkpoint.location, self._topology, epoch)

    def newest_line(self) -> RecoveryLine | None:
        return newest_line(self._checkpoint.location)

    def highest_number(self, finals: FinalSnapshots) -> OutputNumber:
        """The highest number of output that may be visible, or that instances had given with their final snapshots."""
        visible = OutputNumber(self._sinks.reached())
        return max([NO_OUTPUT, visible, *(final.emitted for final in finals.values())])


def _read(read: Callable[[], CommitRecord | None], damaged: list[LogCorrupt]) -> CommitRecord | None:
    try:
        return read()
    except LogCorrupt as error:
        damaged.append(error)
        return None
