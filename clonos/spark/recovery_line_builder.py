"""The recovery line of one start of the query, from what the checkpoint and the sink hold.

Only in real time do rows reach their receivers before the epoch is over; in micro-batch mode whoever reads them begins
when all of them are made, and a line would hardly ever lie inside the epoch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

from clonos.protocol.ids import Origin
from clonos.protocol.line.missing_end import check_no_end_is_missing
from clonos.protocol.line.recovery_line import RecoveryLine, Standing, recovery_line, since_of
from clonos.protocol.roles.snapshot_candidate import Candidate
from clonos.protocol.topology import NodeKind, Topology
from clonos.storage.recovery_line_file import newest_line
from clonos.storage.snapshots import SnapshotStore
from clonos_standby.replica import snapshot_metadata as metadata


def draw_line(
    checkpoint: str, topology: Topology, reader: Any, *, generation: int, epoch: int
) -> RecoveryLine:
    """`reader` is the sink's (`clonos.sinks.port.SinkLogReader`). When older writers are fenced, and before new ones
    begin."""
    try:
        cursors = reader.cursors()
    finally:
        reader.close()
    return recovery_line(
        topology, standings(checkpoint, topology, epoch), cursors, generation=generation, epoch=epoch
    )


def ends_of(checkpoint: str, topology: Topology, epoch: int) -> dict[Origin, Candidate]:
    """How every operator's instance stood at the end of `epoch`, which has committed, or of the last one before that it
    ran. Raises SnapshotCorrupt where an instance that has run has no snapshot."""
    line = newest_line(checkpoint)
    manifests = {
        origin: found
        for origin, store in snapshot_stores(checkpoint, topology)
        if (found := store.final(epoch, since_of(line, origin))) is not None
    }
    reached = {origin: metadata.point(str(one.name), one.meta).reached for origin, one in manifests.items()}
    realtime = line is not None and line.ran_in_real_time(epoch)
    check_no_end_is_missing(topology, reached, epoch=epoch, realtime=realtime)
    return {origin: metadata.candidate(found) for origin, found in manifests.items()}


def standings(checkpoint: str, topology: Topology, epoch: int) -> dict[Origin, Standing]:
    """Every operator's instance at the beginning of `epoch`, and inside it."""
    found: dict[Origin, Standing] = {}
    line = newest_line(checkpoint)
    for origin, store in snapshot_stores(checkpoint, topology):
        base = store.final(epoch - 1, since_of(line, origin))
        found[origin] = Standing(
            metadata.point(str(base.name), base.meta) if base is not None else None,
            [metadata.point(str(one.name), one.meta) for one in store.inside(epoch)],
        )
    return found


def snapshot_stores(checkpoint: str, topology: Topology) -> Iterator[tuple[Origin, SnapshotStore]]:
    """Of every operator's instance, for looking only."""
    with tempfile.TemporaryDirectory(prefix="clonos-") as scratch:
        for node in topology.nodes:
            for instance in range(node.parallelism if node.kind is NodeKind.OPERATOR else 0):
                root = f"{checkpoint.rstrip('/')}/clonos/state/{node.number}/{instance}"
                yield Origin(node.number, instance), SnapshotStore(root, fence=0, pending=scratch)
