"""A sink's instance inside a replica. Mirrors `clonos_standby.replica.sink_host`: every bundle becomes one atomic
write of rows, determinants and cursors, after which the conduit may forget it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from clonos.errors import SinkUnavailable
from clonos.protocol.engine.output_commit import SinkInstance, Write
from clonos.protocol.ids import Origin
from clonos.protocol.roles.conduit_model import Output, Stable
from clonos.protocol.roles.incarnation import AttachRequest
from clonos.sim.frames import BundleFrame, OutputFrame
from clonos.sim.kernel import Steps
from clonos.sim.sinks import SinkPlace

if TYPE_CHECKING:
    from clonos.sim.replica import Replica, Uploaded
    from clonos.sim.world import World

PATIENCE = 2


class SinkHost:
    """See the module."""

    def __init__(self, world: World, replica: Replica) -> None:
        self._world = world
        self._replica = replica
        self._origin = replica.origin
        self._name = world.plan.dataflow.topology.node(replica.origin.node).name
        self._place: SinkPlace = world.sink(replica.origin)
        self._sink: SinkInstance | None = None
        self.progress = 0
        self.recovered_end = 0

    def open(self, hello: AttachRequest) -> Steps:
        self._hello = hello
        yield from self._replica.pause("opens the sink")
        self._world.checks.acts(self._origin, hello.fence, "opens the sink")
        cursors = yield from self._place.open(self._replica, hello.fence)
        self._sink = SinkInstance(self._name, self._origin.instance, cursors)
        self._sink.open_epoch(hello.epoch)

    def start(self) -> Steps:
        yield 0

    def bundle(self, frame: BundleFrame) -> Steps:
        assert self._sink is not None
        bundle = frame.bundle
        self._world.trace.took(self._replica.name, self._origin, frame.seq, bundle.channels, bundle.positions)
        write = self._sink.take(bundle)
        if write is not None:
            yield from self._replica.pause("is about to commit")
            yield from self._write(write)
            self.progress += len(write.rows)
            yield from self._replica.pause("has committed")
        self._replica.send(OutputFrame(Output(frame.seq, 0, 0, b"", 0, 0, 0), ()))
        self._replica.send(Stable(frame.seq, 0))

    def _write(self, write: Write) -> Steps:
        """After SinkUnavailable nobody knows whether it took effect: the very same bundle is tried again."""
        for attempt in range(PATIENCE + 1):
            try:
                yield from self._place.write(self._replica, self._hello.fence, write)
                return
            except SinkUnavailable:
                if attempt == PATIENCE:
                    raise
                yield self._world.choices.schedule.randint(500, 3000)

    def tick(self) -> Steps:
        yield 0

    def end(self, last: int) -> Steps:
        yield from self._replica.pause("is at the end of its input")
        return 0

    def uploaded(self, word: Uploaded) -> None:
        """No background work."""

    def commit(self, epoch: int, stable: Mapping[Origin, int]) -> None:
        """The coordinator truncates sink logs."""
