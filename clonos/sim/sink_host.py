"""The surroundings of a sink's instance inside a replica: the outside, and the conduit. What is done with them, and in
which order, is `protocol.roles.sink_session`'s matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.errors import SinkUnavailable
from clonos.protocol.engine.output_commit import Write
from clonos.protocol.ids import LOG_BEGIN, NO_OUTPUT
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.conduit_model import Checkpointed, Output
from clonos.protocol.roles.sink_session import SinkPorts, SinkSession
from clonos.sim.frames import OutputFrame
from clonos.sim.kernel import Steps
from clonos.sim.sinks import SinkPlace

if TYPE_CHECKING:
    from clonos.sim.replica import Replica
    from clonos.sim.world import World

PATIENCE = 2


class SinkHost(SinkPorts):
    """See the module."""

    def __init__(self, world: World, replica: Replica) -> None:
        self._world = world
        self._replica = replica
        self._place: SinkPlace = world.sink(replica.origin)
        name = world.plan.dataflow.topology.node(replica.origin.node).name
        self.session = self._new_session(name)

    def _new_session(self, name: str) -> SinkSession:
        return SinkSession(name, self._replica.origin, self)

    def open_sink(self, request: AttachRequest) -> Steps:
        yield from self._replica.pause("opens the sink")
        self._world.checks.acts(self._replica.origin, request.fence, "opens the sink")
        return (yield from self._place.open(self._replica, request.fence))

    def write(self, write: Write) -> Steps:
        """After SinkUnavailable it is not known whether the write took effect: the very same bundle is tried again."""
        yield from self._replica.pause("is about to commit")
        self._world.checks.ingestion.visible(self._replica.origin, write, self._world.kernel.now)
        for attempt in range(PATIENCE + 1):
            try:
                yield from self._place.write(self._replica, self.session.request.fence, write)
                break
            except SinkUnavailable:
                if attempt == PATIENCE:
                    raise
                yield self._world.choices.schedule.randint(500, 3000)
        yield from self._replica.pause("has committed")

    def send_checkpointed(self, seq: int) -> Steps:
        self._replica.send(OutputFrame(Output(seq, NO_OUTPUT, LOG_BEGIN, b"", 0, NO_OUTPUT, NO_OUTPUT), ()))
        self._replica.send(Checkpointed(seq, LOG_BEGIN))
        yield from ()

    def ends(self) -> Steps:
        yield from self._replica.pause("is at the end of its input")
