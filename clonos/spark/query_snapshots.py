"""The snapshots of all instances of a query, as its driver finds them in the checkpoint.

Those inside an epoch matter in real time alone: in micro-batch mode an instance downstream begins to read when all rows
are made, and a recovery line would hardly ever lie inside the epoch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator

from clonos.protocol.fence import LOWEST_FENCE
from clonos.protocol.ids import Epoch, NodeId, Origin
from clonos.protocol.line.final_snapshot import FinalSnapshot
from clonos.protocol.line.recovery_line import Point, since_of
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.recovery.rollback.sink_progress import SinkEnd
from clonos.protocol.topology import NodeKind, Topology
from clonos.storage.event_medium import NO_EVENTS
from clonos.storage.event_place import EventPlace
from clonos.storage.manifest import Manifest
from clonos.storage.recovery_line_file import newest_line
from clonos.storage.snapshots import SnapshotStore
from clonos_standby.replica import snapshot_metadata as metadata
from clonos_standby.replica.held_output_codec import decode_meta

LOG = logging.getLogger("clonos")


def final_snapshots(checkpoint: str, topology: Topology, epoch: Epoch) -> dict[Origin, FinalSnapshot]:
    """With which every operator's instance ended `epoch`, or the last one before that it ran, where one is there
    (`final_snapshot.check_finals`)."""
    line = newest_line(checkpoint)
    return {
        origin: FinalSnapshot(_point(found), metadata.candidate(found).emitted)
        for origin, store in snapshot_stores(checkpoint, topology)
        if (found := store.final(epoch, since_of(line, origin))) is not None
    }


def snapshots_inside(checkpoint: str, topology: Topology, epoch: Epoch) -> dict[Origin, list[Point]]:
    """The snapshots inside an epoch of every operator's instances, oldest first."""
    found: dict[Origin, list[Point]] = {}
    for origin, store in snapshot_stores(checkpoint, topology, logged=True):
        found[origin] = [_point(one) for one in store.inside(epoch)]
        store.close()
    return found


class SnapshotsInside:
    """Those inside an epoch of operators' and of sinks' instances, and of all attempts, oldest first, but of nodes that
    repeat what they did. A manifest is read once, however often this is asked, from whichever thread."""

    def __init__(self, checkpoint: str, topology: Topology, repeating: Collection[NodeId] = ()) -> None:
        self._checkpoint = checkpoint
        self._topology = topology
        self._repeating = repeating
        self._read: dict[Origin, tuple[SnapshotStore, dict[SnapshotName, Point | None]]] = {}
        self._lock = threading.Lock()
        self._told: set[str] = set()  # of damage

    def all(self, epoch: Epoch) -> dict[Origin, list[Point]]:
        with self._lock:
            if not self._read:
                kinds = (NodeKind.OPERATOR, NodeKind.SINK)
                stores = snapshot_stores(self._checkpoint, self._topology, *kinds, logged=True)
                self._read = {
                    origin: (store, {}) for origin, store in stores if origin.node not in self._repeating
                }
            return {origin: self._look(origin, epoch) for origin in self._read}

    def close(self) -> None:
        """Of connections."""
        with self._lock:
            for store, _ in self._read.values():
                store.close()

    def _look(self, origin: Origin, epoch: Epoch) -> list[Point]:
        store, before = self._read[origin]
        points: dict[SnapshotName, Point | None] = {}
        for name in store.names_of_all_attempts(epoch):
            if name in before:
                points[name] = before[name]
            else:
                meta = store.meta(name)
                points[name] = metadata.point(str(name), meta) if meta is not None else None
        self._read[origin] = store, points
        for damage in set(store.corrupt) - self._told:
            self._told.add(damage)
            LOG.warning("%s; checkpoints that need it do not count", damage)
        return [point for point in points.values() if point is not None]


def sink_ends(checkpoint: str, topology: Topology, epoch: Epoch) -> dict[Origin, SinkEnd]:
    """With which checkpoint every instance of a sink that holds output ended `epoch`, or the last one before."""
    line = newest_line(checkpoint)
    return {
        origin: SinkEnd(str(found.name), decode_meta(found.meta))
        for origin, store in snapshot_stores(checkpoint, topology, NodeKind.SINK)
        if (found := store.final(epoch, since_of(line, origin))) is not None
    }


def _point(found: Manifest) -> Point:
    return metadata.point(str(found.name), found.meta)


def snapshot_stores(
    checkpoint: str, topology: Topology, *kinds: NodeKind, logged: bool = False
) -> Iterator[tuple[Origin, SnapshotStore]]:
    """The snapshot stores of all instances of nodes of these kinds, or of every operator's, to be read only; with those
    inside an epoch that are in logs of events if `logged`."""
    place = EventPlace.of(checkpoint) if logged else None
    for origin in topology.instances(*(kinds or (NodeKind.OPERATOR,))):
        root = f"{checkpoint.rstrip('/')}/clonos/state/{origin.node}/{origin.instance}"
        events = place.medium(origin) if place is not None else NO_EVENTS
        yield origin, SnapshotStore(root, fence=LOWEST_FENCE, pending=None, events=events)
