"""The surroundings of a sink's instance inside a replica process: the sink's writer, and the conduit. What is done with
them, and in which order, is `protocol.roles.sink_session`'s matter."""

from __future__ import annotations

import time
from typing import Any

from clonos.protocol.engine.instance import Bundle as Records
from clonos.protocol.engine.output_commit import Write
from clonos.protocol.ids import LOG_BEGIN, NO_OUTPUT, InstanceId, Origin
from clonos.protocol.ingestion import UNKNOWN
from clonos.protocol.recovery.rollback.rounds import StoredRound
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.sink_session import SinkPorts, SinkSession
from clonos.protocol.roles.steps import Steps
from clonos.sinks.port import CountingWriter
from clonos.testing.faults import FaultInjector, Point
from clonos.wire.messages import Bundle, Hello, pack_checkpointed, pack_output
from clonos_standby.cluster.spec import NodeSpec, QuerySpec
from clonos_standby.replica.batches import BundleReader
from clonos_standby.replica.connection import Connection
from clonos_standby.replica.progress import Recovery
from clonos_standby.server.histogram import LATENCY, LATENCY_SECONDS, Histogram


class SinkHost(SinkPorts):
    """See the module."""

    def __init__(self, query: QuerySpec, node: NodeSpec, instance: InstanceId, faults: FaultInjector) -> None:
        self._query = query
        self._node = node
        self._number = instance
        self._faults = faults
        self._reader = BundleReader(node.input, node.zone, instants=node.sink.instants)
        self._writer: Any = None
        self._latency = Histogram(LATENCY_SECONDS)
        self.recovered: dict[str, Any] | None = None
        self.stored_round: StoredRound | None = None
        self._session = self._new_session(node, Origin.of(node.number, instance))

    def _new_session(self, node: NodeSpec, origin: Origin) -> SinkSession:
        return SinkSession(node.name, origin, self)

    @property
    def session(self) -> SinkSession:
        return self._session

    def epoch_report(self) -> bytes:
        """Those who send to a sink tell what they have sent."""
        return b""

    def figures(self) -> dict[str, float]:
        written = self._session.progress
        counted = self._writer.counted() if isinstance(self._writer, CountingWriter) else {}
        return {"records": written, "visible_rows": written, **counted, **self._latency.figures(LATENCY)}

    def look(self) -> None:
        """How long a sink may wait for the outside is its own matter."""

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    def promote(self, hello: Hello) -> None:
        """A sink has no standby."""

    def read(self, bundle: Bundle) -> Records:
        return self._reader.read(bundle, self._session.request.epoch)

    def open_sink(self, request: AttachRequest) -> Steps:
        yield from ()
        continued = self._writer is not None
        recovery = Recovery(request.epoch, fresh=request.fresh)
        if continued:
            self._writer.close()
        self._writer = self._node.sink.writer()
        position = self._writer.open(
            query=self._query.query, node=self._node.number, instance=self._number, fence=request.fence
        )
        if position.cursors and not continued:
            recovery.done("sink")
            self.recovered = recovery.live(0, 0)
            self._faults.reached(Point.RECOVERY, request.epoch)
        return position.cursors

    def write(self, write: Write) -> Steps:
        yield from ()
        written = self._session.progress + len(write.rows)
        self._strike(Point.BEFORE_COMMIT, written)
        self._writer.write(write.rows, write.ids, write.cursors, write.deltas)
        visible = time.time()
        for _, rows, ingested in write.ingested:
            if ingested != UNKNOWN:  # clocks of hosts may differ
                self._latency.observe(max(0.0, visible - ingested / 1_000_000), rows)
        self._strike(Point.AFTER_COMMIT, written)

    def send_checkpointed(self, seq: int) -> Steps:
        yield from ()
        self._connection.send(pack_output(seq, NO_OUTPUT, LOG_BEGIN), pack_checkpointed(seq, LOG_BEGIN))
        self._strike(Point.INPUT, self._session.progress)

    def _strike(self, point: Point, records: int) -> None:
        if self._faults.active:
            self._faults.reached(point, self._session.request.epoch, records)

    def ends(self) -> Steps:
        yield from ()
        self._faults.reached(Point.BEFORE_SNAPSHOT, self._session.request.epoch)
        self._faults.reached(Point.AFTER_SNAPSHOT, self._session.request.epoch)

    def wakeups(self) -> None:
        return None

    def finished(self) -> None:
        """No background work."""

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
