"""The surroundings of a sink's instance that holds its output: as `sim.sink_host`, and checkpoint storage. What is done
with them, and in which order, is `protocol.roles.holding_sink_session`'s matter."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

from clonos.errors import StorageUnavailable
from clonos.protocol.fence import Fence, Generation
from clonos.protocol.ids import Epoch
from clonos.protocol.line.recovery_line import RecoveryLine, Resume
from clonos.protocol.line.snapshot_name import Since, SnapshotName
from clonos.protocol.recovery.rollback.held_output import SinkCheckpoint
from clonos.protocol.recovery.rollback.rounds import StoredRound
from clonos.protocol.recovery.uncoordinated.independent_checkpoints import own_limits
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.holding_sink_session import HoldingSinkPorts, HoldingSinkSession
from clonos.protocol.roles.sink_session import SinkSession
from clonos.sim.checkpoint import SinkSnapshot, SinkSnapshots
from clonos.sim.kernel import Steps
from clonos.sim.sink_host import SinkHost

if TYPE_CHECKING:
    from clonos.sim.replica import Replica
    from clonos.sim.world import World


class HoldingSinkHost(SinkHost, HoldingSinkPorts[SinkSnapshot]):
    """See the module."""

    def __init__(self, world: World, replica: Replica) -> None:
        super().__init__(world, replica)
        self._kept: SinkSnapshots = world.checkpoint.sink_snapshots(replica.origin)

    def _new_session(self, name: str) -> SinkSession:
        plan, origin = self._world.plan, self._replica.origin
        limits = own_limits(origin, plan.round_interval)
        return HoldingSinkSession(name, origin, self, self._world.instance_policy(origin), limits)

    @property
    def snapshots(self) -> SinkSnapshots:
        return self._kept

    def open_snapshots(self, request: AttachRequest) -> None:
        self._kept.open()

    def claim(self, fence: Fence) -> None:
        self._kept.claim(fence)
        self._world.checks.acts(self._replica.origin, fence, "claims its checkpoints")

    def discard_from(self, epoch: Epoch) -> None:
        self._kept.discard_from(epoch, self.session.request.fence)

    def line(self, generation: Generation) -> RecoveryLine:
        line = self._world.checkpoint.lines.get(generation)
        if line is None:
            raise StorageUnavailable(f"the line of start {generation} is not there")
        return line

    def restore_held(self, found: SinkSnapshot) -> SinkCheckpoint:
        return found.checkpoint

    def resume_held(self, found: SinkSnapshot, resume: Resume) -> Steps:
        fence = self.session.request.fence
        if not found.name.begins(fence):
            yield from self._write(replace(found, name=replace(found.name, fence=fence, resumed=True)), fence)

    def store_held(self, name: SnapshotName, checkpoint: SinkCheckpoint) -> Steps:
        yield from self._replica.pause("is about to store what it holds")
        yield from self._write(SinkSnapshot(name, pickle.dumps(checkpoint)), name.fence)
        yield from self._replica.pause("has stored what it holds")

    def _write(self, snapshot: SinkSnapshot, fence: Fence) -> Steps:
        self._kept.claim(fence)
        yield self._world.choices.schedule.randint(50, 400)
        self._kept.claim(fence)
        self._world.checks.acts(self._replica.origin, fence, "writes a checkpoint")
        self._kept.write(snapshot)

    def forget_snapshots(self, epoch: Epoch, since: Since | None) -> None:
        self._kept.forget(epoch, self.session.request.fence, since)

    def steady_clock(self) -> float:
        return self._world.kernel.now / 1e6

    def round_stored(self, stored: StoredRound) -> None:
        self._replica.round_stored(stored)
