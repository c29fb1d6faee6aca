"""A sink's instance inside a replica process.

Drives `protocol.engine.output_commit`: every bundle becomes one atomic write of rows, determinants and cursors, after
which the conduit may forget it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clonos.protocol.engine.output_commit import SinkInstance
from clonos.testing.faults import FaultInjector, Point
from clonos.wire.messages import Bundle, Hello, Resume, pack_output, pack_stable
from clonos_standby.cluster.spec import NodeSpec, QuerySpec
from clonos_standby.replica.batches import BundleReader
from clonos_standby.replica.connection import Connection
from clonos_standby.replica.progress import Recovery


class SinkHost:
    """See the module."""

    def __init__(self, query: QuerySpec, node: NodeSpec, instance: int, faults: FaultInjector) -> None:
        self._query = query
        self._node = node
        self._number = instance
        self._faults = faults
        self._reader = BundleReader(node.input, node.zone, instants=node.sink.instants)
        self._writer: Any = None
        self._sink: SinkInstance | None = None
        self.progress = 0
        self.recovered: dict[str, Any] | None = None
        self.recovered_end = 0

    def figures(self) -> dict[str, float]:
        return {"records": self.progress}

    def warn(self, hello: Hello, previous: Mapping[str, Any] | None) -> None:
        """A sink runs no function of the user's."""

    def look(self) -> None:
        """How long a sink may wait for the outside is its own matter."""

    def open(self, hello: Hello, resume: Resume, connection: Connection) -> None:
        self._hello = hello
        self._connection = connection
        continued = self._writer is not None
        recovery = Recovery(hello.epoch, fresh=hello.fresh)
        if continued:
            self._writer.close()
        self._writer = self._node.sink.writer()
        position = self._writer.open(
            query=self._query.query, node=self._node.number, instance=self._number, fence=hello.fence
        )
        self._sink = SinkInstance(self._node.name, self._number, position.cursors)
        self._sink.open_epoch(hello.epoch)
        if position.cursors and not continued:
            recovery.done("sink")
            self.recovered = recovery.live(0, 0)
            self._faults.reached(Point.RECOVERY, hello.epoch)

    def start(self) -> None:
        """Nothing to begin."""

    def bundle(self, bundle: Bundle) -> None:
        assert self._sink is not None
        write = self._sink.take(self._reader.read(bundle.batch))
        if write is not None:
            if self._faults.active:
                self._faults.reached(Point.BEFORE_COMMIT, self._hello.epoch, self.progress + len(write.rows))
            self._writer.write(write.rows, write.ids, write.cursors, write.deltas)
            self.progress += len(write.rows)
            if self._faults.active:
                self._faults.reached(Point.AFTER_COMMIT, self._hello.epoch, self.progress)
        self._connection.send(pack_output(bundle.seq, 0, 0), pack_stable(bundle.seq, 0))
        if self._faults.active:
            self._faults.reached(Point.INPUT, self._hello.epoch, self.progress)

    def tick(self) -> None:
        """A sink has no timers."""

    def end(self, seq: int) -> int:
        self._faults.reached(Point.BEFORE_SNAPSHOT, self._hello.epoch)
        self._faults.reached(Point.AFTER_SNAPSHOT, self._hello.epoch)
        return 0

    def commit(self, epoch: int, stable: Mapping[tuple[int, int], int]) -> None:
        """The coordinator truncates sink logs."""

    def wakeups(self) -> None:
        return None

    def finished(self) -> None:
        """No background work."""

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
