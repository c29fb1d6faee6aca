"""The surroundings of a sink's instance that holds its output: as `sink_host`, and checkpoint storage. What is done
with them, and in which order, is `protocol.roles.holding_sink_session`'s matter."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Final

from clonos.errors import SnapshotCorrupt
from clonos.protocol.fence import Fence, Generation
from clonos.protocol.ids import Epoch, InstanceId, Origin
from clonos.protocol.line.recovery_line import RecoveryLine, Resume
from clonos.protocol.line.snapshot_name import Since, SnapshotName
from clonos.protocol.recovery.rollback.held_output import SinkCheckpoint
from clonos.protocol.recovery.rollback.rounds import StoredRound
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.holding_sink_session import HoldingSinkPorts, HoldingSinkSession
from clonos.protocol.roles.sink_session import SinkSession
from clonos.protocol.roles.steps import Steps
from clonos.storage.disk_errors import disk
from clonos.storage.manifest import Manifest
from clonos.storage.recovery_line_file import read_line
from clonos.storage.snapshots import SnapshotStore
from clonos.testing.faults import FaultInjector
from clonos_standby.cluster.spec import NodeSpec, QuerySpec
from clonos_standby.replica.held_output_codec import decode_held, decode_meta, encode_held, encode_meta
from clonos_standby.replica.instance_config import snapshot_limits
from clonos_standby.replica.sink_host import SinkHost

_HELD: Final = "held"


class _HeldFile:
    """What is held, as the state of a snapshot: one file."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def increment(self) -> bytes | None:
        return None

    def checkpoint(self, directory: str) -> None:
        with disk(f"writing into {directory}", corrupt=SnapshotCorrupt):
            os.makedirs(directory)
            Path(directory, _HELD).write_bytes(self._content)


class HoldingSinkHost(SinkHost, HoldingSinkPorts[Manifest]):
    """See the module."""

    def __init__(self, query: QuerySpec, node: NodeSpec, instance: InstanceId, faults: FaultInjector) -> None:
        super().__init__(query, node, instance, faults)
        place = f"{node.number}/{instance}"
        self._root = f"{query.checkpoint.rstrip('/')}/clonos/state/{place}"
        self._pending = os.path.join(query.data, "pending", place)
        self._restored = os.path.join(query.data, "state", place)

    def _new_session(self, node: NodeSpec, origin: Origin) -> SinkSession:
        policy = node.policy.policy(origin.instance)
        limits = snapshot_limits(self._query.settings, node, origin)
        return HoldingSinkSession(node.name, origin, self, policy, limits)

    def figures(self) -> dict[str, float]:
        return {**super().figures(), "held_rows": self._session.held_rows}

    @property
    def snapshots(self) -> SnapshotStore:
        return self._snapshots

    def open_snapshots(self, request: AttachRequest) -> None:
        self._snapshots = SnapshotStore(self._root, fence=request.fence, pending=self._pending)

    def claim(self, fence: Fence) -> None:
        self._snapshots.claim(fence)

    def discard_from(self, epoch: Epoch) -> None:
        self._snapshots.discard_from(epoch)

    def line(self, generation: Generation) -> RecoveryLine:
        return read_line(self._query.checkpoint, generation)

    def restore_held(self, found: Manifest) -> SinkCheckpoint:
        shutil.rmtree(self._restored, ignore_errors=True)
        os.makedirs(os.path.dirname(self._restored), exist_ok=True)
        self._snapshots.restore(found, self._restored)
        with disk(f"reading {self._restored}", corrupt=SnapshotCorrupt):
            content = Path(self._restored, _HELD).read_bytes()
        shutil.rmtree(self._restored, ignore_errors=True)
        said = decode_meta(found.meta)
        held = decode_held(content, self._reader.row_class(0), self._node.input.names)
        return SinkCheckpoint(said.epoch, said.shown, said.covered, held)

    def resume_held(self, found: Manifest, resume: Resume) -> Steps:
        self._snapshots.resume(found, found.meta)
        yield from ()

    def store_held(self, name: SnapshotName, checkpoint: SinkCheckpoint) -> Steps:
        pending = self._snapshots.begin(
            _HeldFile(encode_held(checkpoint, self._node.input.names)),
            encode_meta(checkpoint),
            epoch=name.epoch,
            sequence=name.sequence,
            final=name.final,
        )
        self._snapshots.store(pending)
        yield from ()

    def forget_snapshots(self, epoch: Epoch, since: Since | None) -> None:
        self._snapshots.forget(before_epoch=epoch, since=since)

    def steady_clock(self) -> float:
        return time.monotonic()

    def round_stored(self, stored: StoredRound) -> None:
        self.stored_round = stored
