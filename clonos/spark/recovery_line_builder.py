"""The recovery line of one start of the query, from what the checkpoint and the sink hold.

Only in real time do rows reach their receivers before the epoch is over; in micro-batch mode whoever reads them begins
when all of them are made, and a line would hardly ever lie inside the epoch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from clonos.protocol.ids import Origin
from clonos.protocol.line.missing_end import check_no_end_is_missing
from clonos.protocol.line.recovery_line import (
    Point,
    RecoveryLine,
    Standing,
    beginnings,
    ends_among,
    ran_in_real_time,
    recovery_line,
    since_of,
)
from clonos.protocol.roles.snapshot_candidate import Candidate
from clonos.protocol.topology import NodeKind, Topology
from clonos.storage.manifest import Manifest
from clonos.storage.recovery_line_file import newest_line
from clonos.storage.snapshots import SnapshotStore
from clonos_standby.replica import snapshot_metadata as metadata


def draw_line(
    checkpoint: str,
    topology: Topology,
    reader: Any,
    finals: Mapping[Origin, Manifest],
    *,
    generation: int,
    epoch: int,
) -> RecoveryLine:
    """`reader` is the sink's (`clonos.sinks.port.SinkLogReader`), `finals` are those of the epoch before. When older
    writers are fenced, and before new ones begin."""
    try:
        cursors = reader.cursors()
    finally:
        reader.close()
    found = standings(checkpoint, topology, epoch, finals)
    return recovery_line(topology, found, cursors, generation=generation, epoch=epoch)


def line_from_the_beginning(
    finals: Mapping[Origin, Manifest], *, generation: int, epoch: int
) -> RecoveryLine:
    """Of an epoch that nobody resumes inside."""
    found = {origin: Standing(_point(final)) for origin, final in finals.items()}
    return RecoveryLine(generation, epoch, **beginnings(ends_among(found)))


def final_snapshots(checkpoint: str, topology: Topology, epoch: int) -> dict[Origin, Manifest]:
    """With which every operator's instance ended `epoch`, which has committed, or the last one before that it ran.
    Raises SnapshotCorrupt where an instance that has run has none."""
    line = newest_line(checkpoint)
    finals = {
        origin: found
        for origin, store in snapshot_stores(checkpoint, topology)
        if (found := store.final(epoch, since_of(line, origin))) is not None
    }
    reached = {origin: _point(final).reached for origin, final in finals.items()}
    check_no_end_is_missing(topology, reached, epoch=epoch, realtime=ran_in_real_time(line, epoch))
    return finals


def ends_of(checkpoint: str, topology: Topology, epoch: int) -> dict[Origin, Candidate]:
    """How every operator's instance stood at the end of `epoch`, which has committed, or of the last one before that it
    ran. Raises SnapshotCorrupt where an instance that has run has no snapshot."""
    finals = final_snapshots(checkpoint, topology, epoch)
    return {origin: metadata.candidate(final) for origin, final in finals.items()}


def standings(
    checkpoint: str, topology: Topology, epoch: int, finals: Mapping[Origin, Manifest]
) -> dict[Origin, Standing]:
    """Every operator's instance at the beginning of `epoch`, where `finals` are, and inside it."""
    return {
        origin: Standing(
            _point(finals[origin]) if origin in finals else None,
            [_point(one) for one in store.inside(epoch)],
        )
        for origin, store in snapshot_stores(checkpoint, topology)
    }


def _point(found: Manifest) -> Point:
    return metadata.point(str(found.name), found.meta)


def snapshot_stores(checkpoint: str, topology: Topology) -> Iterator[tuple[Origin, SnapshotStore]]:
    """Of every operator's instance, for looking only."""
    with tempfile.TemporaryDirectory(prefix="clonos-") as scratch:
        for origin in topology.instances(NodeKind.OPERATOR):
            root = f"{checkpoint.rstrip('/')}/clonos/state/{origin.node}/{origin.instance}"
            yield origin, SnapshotStore(root, fence=0, pending=scratch)
