"""One sink instance's way into a topic of Kafka, whatever the mode (`kafka_delivery`)."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from clonos.errors import SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.ids import InstanceId, NodeId, Origin
from clonos.protocol.roles.fence_log import Taking
from clonos.protocol.roles.sink_fence import Holder
from clonos.sinks.bundle import check_bundle
from clonos.sinks.kafka_delivery import Counts, Delivery, Held
from clonos.sinks.kafka_port import Cluster, Message
from clonos.sinks.kafka_rows import KafkaRows
from clonos.sinks.kafka_side_topic import SideTopic
from clonos.sinks.patience import Patience
from clonos.sinks.port import Cursors, Row, SinkPosition


class KafkaWriter:
    """See `clonos.sinks.port.SinkWriter`. `id_prefix`: what the ids in the user's topic begin with."""

    def __init__(
        self,
        topic: str,
        rows: KafkaRows,
        cluster: Callable[[], Cluster],
        delivery: Callable[[Held], Delivery],
        *,
        id_prefix: Callable[[str, Origin], str],
        prefix: str,
        patience: Patience,
    ) -> None:
        self._topic, self._rows, self._prefix = topic, rows, prefix
        self._make_cluster, self._make_delivery = cluster, delivery
        self._make_id_prefix, self._id_prefix = id_prefix, ""
        self._patience = patience
        self._cluster: Cluster | None = None
        self._delivery: Delivery | None = None
        self._has_begun = False
        self._owner = secrets.token_hex(8)
        self._cursors: Cursors = {}
        self._counts = Counts()

    def open(self, *, query: str, node: NodeId, instance: InstanceId, fence: Fence) -> SinkPosition:
        self._let_go()
        if self._cluster is None:
            self._cluster = self._make_cluster()
        origin = Origin(node, instance)
        side = SideTopic(self._cluster, self._prefix + query)
        # The same owner at each attempt of one writer, so that it knows what it took when it was not told.
        taking = Taking(origin, Holder(fence, self._owner))
        self._id_prefix = self._make_id_prefix(query, origin)
        self._cursors = self._patience.run(lambda _: self._take_over(side, taking))
        return SinkPosition(cursors=dict(self._cursors))

    def write(self, rows: list[Row], ids: list[str], cursors: Cursors, deltas: list[bytes]) -> None:
        if self._delivery is None:
            raise SinkError("a sink writer was used before it was opened")
        check_bundle(rows, ids, cursors, self._cursors)
        messages = self._rows.encode(self._id_prefix, rows, ids)
        moved = {c: p for c, p in cursors.items() if p != self._cursors.get(c)}
        if messages or moved or deltas:
            self._patience.run(lambda _: self._attempt(messages, moved, deltas))
            self._cursors.update(moved)

    def counted(self) -> dict[str, float]:
        return {
            "sink_retries": self._patience.retries,
            "kafka_committed": self._counts.committed,
            "kafka_aborted": self._counts.aborted,
            "kafka_in_doubt": self._counts.in_doubt,
        }

    def close(self) -> None:
        self._let_go()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _take_over(self, side: SideTopic, taking: Taking) -> Cursors:
        assert self._cluster is not None
        if not self._cluster.partitions(self._topic):
            raise SinkError(
                f"there is no topic {self._topic!r} on this Kafka cluster",
                hint="Create it, with as many partitions as its readers want; a Kafka sink does not",
            )
        side.create()
        # Again is the same, where the answer was lost
        partition = side.offer(taking).partitions[taking.origin]
        side.ensure_partition(partition)
        held = Held(
            self._cluster,
            side,
            self._topic,
            taking.origin,
            taking.holder,
            partition,
            self._rows.layout,
            self._counts,
        )
        self._delivery = self._make_delivery(held)
        cursors = self._begin(self._delivery)
        self._counts.in_doubt += self._delivery.is_in_doubt
        return cursors

    def _begin(self, delivery: Delivery) -> Cursors:
        cursors = delivery.begin()
        self._has_begun = True
        return cursors

    def _attempt(self, messages: list[Message], moved: Cursors, deltas: list[bytes]) -> None:
        """Raises SinkUnavailable with the outcome in doubt, which the next attempt resolves."""
        assert self._delivery is not None
        if not self._has_begun and self._took_effect(self._begin(self._delivery), {**self._cursors, **moved}):
            return
        aborted = self._counts.aborted
        try:
            self._delivery.deliver(messages, self._cursors, moved, deltas)
        except SinkUnavailable:
            self._counts.in_doubt += self._counts.aborted == aborted
            self._let_go()
            raise

    def _took_effect(self, standing: Cursors, after: Cursors) -> bool:
        if standing == self._cursors:
            return False
        if standing == after:
            return True
        raise SinkError(
            "the sink's cursors are neither where this bundle starts nor where it ends",
            hint="After a failed write repeat that very bundle or open a new writer",
        )

    def _let_go(self) -> None:
        self._has_begun = False
        if self._delivery is not None:
            self._delivery.let_go()
