"""One transaction per bundle: rows into the user's topic, determinants and cursors into the sink's own.

Kafka's fence is "the last one that begins wins", not "the highest wins". So each time a writer has begun (its
predecessor's transaction is ended then), it reads the fence log, and goes on only if it is the holder there. If a
writer that was taken over begins once more, it finds that out, and the rightful one, whose transaction it ended, begins
again and reads where its log ends: whether the bundle took effect stands there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from clonos.errors import SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.ids import InstanceId, NodeId, Origin
from clonos.protocol.roles.fence_log import Taking
from clonos.protocol.roles.sink_fence import Holder, check_holding
from clonos.sinks.bundle import check_bundle
from clonos.sinks.kafka_client import Cluster, Message, Transactions
from clonos.sinks.kafka_format import Entry, pack_entry
from clonos.sinks.kafka_rows import KafkaRows
from clonos.sinks.kafka_side_topic import SideTopic
from clonos.sinks.patience import Patience
from clonos.sinks.port import Cursors, Row, SinkPosition

_FULL_EVERY: Final = 64
"""Entries from one with all cursors to the next: a log is trimmed up to such a one."""


class KafkaWriter:
    """See `clonos.sinks.port.SinkWriter`."""

    def __init__(
        self, topic: str, rows: KafkaRows, cluster: Callable[[], Cluster], *, prefix: str, patience: Patience
    ) -> None:
        self._topic, self._rows, self._prefix = topic, rows, prefix
        self._make_cluster = cluster
        self._patience = patience
        self._cluster: Cluster | None = None
        self._side: SideTopic | None = None
        self._query, self._origin = "", Origin.of(0, 0)
        self._owner = secrets.token_hex(8)
        self._mine: Holder | None = None
        self._partition = 0
        self._transactions: Transactions | None = None
        self._cursors: Cursors = {}
        self._since_full = _FULL_EVERY

    def open(self, *, query: str, node: NodeId, instance: InstanceId, fence: Fence) -> SinkPosition:
        # The same at each attempt of one writer, so that it knows what it took when it was not told.
        self._query, self._origin, self._mine = query, Origin(node, instance), Holder(fence, self._owner)
        self._let_go()
        if self._cluster is None:
            self._cluster = self._make_cluster()
        self._side = SideTopic(self._cluster, self._prefix + query)
        self._cursors = self._patience.run(lambda _: self._take_over())
        return SinkPosition(cursors=dict(self._cursors))

    def write(self, rows: list[Row], ids: list[str], cursors: Cursors, deltas: list[bytes]) -> None:
        if self._mine is None:
            raise SinkError("a sink writer was used before it was opened")
        check_bundle(rows, ids, cursors, self._cursors)
        messages = self._rows.encode(self._query, rows, ids)
        moved = {c: p for c, p in cursors.items() if p != self._cursors.get(c)}
        if messages or moved or deltas:
            self._patience.run(lambda _: self._attempt(messages, moved, deltas))
            self._cursors.update(moved)

    def close(self) -> None:
        self._let_go()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _take_over(self) -> Cursors:
        side, mine = self._opened()
        assert self._cluster is not None
        if not self._cluster.has_topic(self._topic):
            raise SinkError(
                f"there is no topic {self._topic!r} on this Kafka cluster",
                hint="Create it, with as many partitions as its readers want; a Kafka sink does not",
            )
        side.create()
        state = side.offer(Taking(self._origin, mine))  # again is the same, where the answer was lost
        self._partition = state.partitions[self._origin]
        side.ensure_partition(self._partition)
        return self._begin()

    def _begin(self) -> Cursors:
        """Nothing of another writer takes effect from here on. Where the log stands then; raises Fenced where another
        writer is the holder."""
        side, mine = self._opened()
        assert self._cluster is not None
        transactions = self._cluster.transactions(side.transactional_id(self._origin), side.name)
        try:
            state = side.standing()
            kept_in = f"the topic {side.name}"
            check_holding(mine, state.holder(self._origin), origin=self._origin, kept_in=kept_in)
            cursors = side.cursors(state, self._origin)
        except BaseException:
            transactions.close()
            raise
        self._transactions, self._since_full = transactions, _FULL_EVERY
        return cursors

    def _attempt(self, messages: list[Message], moved: Cursors, deltas: list[bytes]) -> None:
        """Raises SinkUnavailable with the outcome in doubt, which the next attempt resolves."""
        side, mine = self._opened()
        after = {**self._cursors, **moved}
        if self._transactions is None and self._took_effect(self._begin(), after):
            return
        assert self._transactions is not None
        full = self._since_full >= _FULL_EVERY
        entry = Entry(mine.fence, full, after if full else moved, deltas)
        try:
            self._transactions.commit(messages, side.name, self._partition, pack_entry(entry))
        except SinkUnavailable:
            self._let_go()
            raise
        self._since_full = 1 if full else self._since_full + 1

    def _took_effect(self, standing: Cursors, after: Cursors) -> bool:
        if standing == self._cursors:
            return False
        if standing == after:
            return True
        raise SinkError(
            "the sink's cursors are neither where this bundle starts nor where it ends",
            hint="After a failed write repeat that very bundle or open a new writer",
        )

    def _opened(self) -> tuple[SideTopic, Holder]:
        assert self._side is not None and self._mine is not None
        return self._side, self._mine

    def _let_go(self) -> None:
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            transactions.close()
