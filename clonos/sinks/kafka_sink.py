"""Rows into a topic of Kafka, exactly once: in a transaction per bundle, or at once for readers that look at ids."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from clonos.errors import ConfigurationError, QueryDefinitionError
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.line.kept_commit import KeptCommit
from clonos.protocol.roles.fence_log import FenceLog, Raising, Trimming
from clonos.protocol.roles.sink_fence import check_driver
from clonos.sinks.kafka_at_once import AtOnce
from clonos.sinks.kafka_client import KafkaCluster
from clonos.sinks.kafka_format import pack_mark
from clonos.sinks.kafka_ids import at_once_prefix, committed_prefix
from clonos.sinks.kafka_port import Cluster
from clonos.sinks.kafka_rows import KafkaRows, Layout
from clonos.sinks.kafka_side_topic import InstanceLog, SideTopic
from clonos.sinks.kafka_transactional import Transactional
from clonos.sinks.kafka_writer import KafkaWriter
from clonos.sinks.patience import Patience, check_patience
from clonos.sinks.port import Cursors
from clonos.sinks.values import column_names

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")
Mode = Literal["transactions", "at_once"]
_FENCED_AT_ONCE: Final = 16
_OWN: Final = {
    "transactional.id": "the sink has one of its own for each instance",
    "transaction.timeout.ms": "the sink knows how long its transactions take",
    "enable.idempotence": "the sink needs it",
    "acks": "the sink waits for all replicas that are in sync",
    "bootstrap.servers": "it is the first argument of the sink",
    "isolation.level": "the sink reads what is committed",
}


class KafkaSink:
    """A topic, which is there already.

    `servers`: host:port, several with commas. `topic`: where rows go. `key`: the column, or columns, of the message's
    key; its partition depends on it. `value`: the column of the message's value, text or binary, or None for a JSON
    object of all columns that are no headers. `headers`: header to column. `options`: further settings of librdkafka,
    as for TLS and SASL. `prefix`: what the names of the sink's own topic and of its transactional ids begin with.
    `patience`: for how many seconds an unreachable cluster is tried again before the query hears of it. `mode`: whether
    a bundle is a transaction, for readers of committed messages, or its rows are there at once and may come again, with
    the same id and content, for readers that know that (`clonos.kafka`).
    """

    instants = True
    parallelism: int | None = None

    def __init__(
        self,
        servers: str,
        *,
        topic: str,
        key: str | Sequence[str] | None = None,
        value: str | None = None,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        prefix: str = "clonos-",
        patience: float = 30.0,
        mode: Mode = "transactions",
    ) -> None:
        if mode not in ("transactions", "at_once"):
            raise QueryDefinitionError(f"mode is 'transactions' or 'at_once', not {mode!r}")
        if not servers or not isinstance(servers, str):
            raise QueryDefinitionError(f"a Kafka sink needs host:port of a broker, not {servers!r}")
        if not topic or not isinstance(topic, str):
            raise QueryDefinitionError(f"a Kafka sink needs the name of a topic, not {topic!r}")
        for name in sorted(set(options or {}) & set(_OWN)):
            raise QueryDefinitionError(f"options= of a Kafka sink cannot set {name}: {_OWN[name]}")
        self._servers = ",".join(each.strip() for each in servers.split(",") if each.strip())
        self._layout = Layout(topic, column_names(key), value, dict(headers or {}))
        self._options = dict(options or {})
        self._prefix = prefix
        self._patience = check_patience(patience)
        self._mode = mode
        self._rows: pa.Schema | None = None

    def __repr__(self) -> str:
        return f"KafkaSink({self._servers!r}, topic={self._layout.topic!r})"

    @property
    def target(self) -> Hashable:
        return "kafka", tuple(sorted(self._servers.split(","))), self._layout.topic

    @property
    def servers(self) -> list[str]:
        """As they were given, host:port each."""
        return self._servers.split(",")

    def bind(self, checkpoint: str) -> None:
        """Nothing of this sink is kept in the checkpoint."""

    def validate(self, schema: pa.Schema) -> None:
        self._layout.check(schema)
        self._rows = schema

    def writer(self) -> KafkaWriter:
        if self._rows is None:
            raise ConfigurationError(
                "this sink has not been given a schema yet", hint="Call validate(schema) first"
            )
        rows = KafkaRows(self._layout, self._rows)
        return self.writing(rows, Patience(self._patience))

    def writing(self, rows: KafkaRows, patience: Patience) -> KafkaWriter:
        """A writer of these rows."""
        at_once = self._mode == "at_once"
        return KafkaWriter(
            self._layout.topic,
            rows,
            self.cluster,
            AtOnce if at_once else Transactional,
            id_prefix=at_once_prefix if at_once else committed_prefix,
            prefix=self._prefix,
            patience=patience,
        )

    def cluster(self) -> Cluster:
        """A client of its own."""
        return KafkaCluster({**self._options, "bootstrap.servers": self._servers}, self._patience)

    def raise_fence(self, query: str, fence: Fence) -> None:
        def work(cluster: Cluster) -> None:
            side = self._side(cluster, query)
            side.create()
            state = side.offer(Raising(fence))
            if state.partitions and self._mode == "at_once":  # where a mark is left there
                side.ensure_partition(max(state.partitions.values()))
            # One that a later start has overtaken already, too: its successor may not have begun yet.
            with ThreadPoolExecutor(_FENCED_AT_ONCE) as pool:
                for _ in pool.map(
                    lambda each: self._overtake(cluster, side, fence, *each), state.partitions.items()
                ):
                    pass

        self._patiently(work)

    def standing_fence(self, query: str) -> Fence:
        def work(cluster: Cluster) -> Fence:
            return self._side(cluster, query).standing().floor

        return self._patiently(work)

    def log_reader(self, query: str) -> KafkaLogReader:
        return KafkaLogReader(self.cluster(), self._prefix + query, Patience(self._patience))

    def record_commit(self, query: str, fence: Fence, epoch: Epoch, record: bytes) -> None:
        kept = KeptCommit(fence, epoch, record)

        def work(cluster: Cluster) -> None:
            side = self._side(cluster, query)
            side.create()
            side.record(kept)

        self._patiently(work)

    def last_commit(self, query: str) -> tuple[Epoch, bytes] | None:
        kept = self._patiently(lambda cluster: self._side(cluster, query).standing().commit)
        return None if kept is None else (kept.epoch, kept.record)

    def truncate(self, query: str, fence: Fence, keep: Callable[[bytes], bool]) -> int:
        def work(cluster: Cluster) -> int:
            side = self._side(cluster, query)
            state = side.standing()
            check_driver(fence, floor=state.floor)
            return sum(_trim(side, state, origin, fence, keep) for origin in sorted(state.partitions))

        return self._patiently(work)

    def _overtake(
        self, cluster: Cluster, side: SideTopic, fence: Fence, origin: Origin, partition: int
    ) -> None:
        """What a writer of an instance has under way takes no effect, or is known to the logs that are read next."""
        if self._mode == "at_once":
            side.append(partition, pack_mark(fence))
        else:
            # It begins again then, reads the fence log, and finds itself fenced.
            cluster.transactions(side.transactional_id(origin), side.name).close()

    def _side(self, cluster: Cluster, query: str) -> SideTopic:
        return SideTopic(cluster, self._prefix + query)

    def _patiently(self, work: Callable[[Cluster], _T]) -> _T:
        with closing(self.cluster()) as cluster:
            return Patience(self._patience).run(lambda _: work(cluster))


def _trim(
    side: SideTopic, state: FenceLog, origin: Origin, fence: Fence, keep: Callable[[bytes], bool]
) -> int:
    """Drop the entries at the beginning of an instance's log that are not wanted, up to one that has all cursors; how
    many deltas they had. They are gone for every reader when the offer is accepted, and deleted afterwards."""
    dropped = unwanted = before = 0
    for offset, entry in side.entries(state, origin, corrupt=[]):
        if entry.full:
            dropped, before = unwanted, offset
        if any(keep(delta) for delta in entry.deltas):
            break
        unwanted += len(entry.deltas)
    if before > state.trimmed.get(origin, 0):
        side.offer(Trimming(fence, origin, before))
        side.delete_before(state.partitions[origin], before)
        return dropped
    return 0


class KafkaLogReader:
    """See `clonos.sinks.port.SinkLogReader`. A cluster without our topic holds nothing."""

    def __init__(self, cluster: Cluster, topic: str, patience: Patience) -> None:
        self._cluster, self._side = cluster, SideTopic(cluster, topic, patience)
        self._corrupt: list[str] = []

    @property
    def corrupt(self) -> list[str]:
        return list(self._corrupt)

    def deltas(self) -> Iterator[bytes]:
        self._corrupt.clear()
        state = self._side.standing()
        for origin in sorted(state.partitions):
            for _, entry in self._side.entries(state, origin, self._corrupt):
                yield from entry.deltas

    def cursors(self) -> dict[Origin, Cursors]:
        return {origin: log.cursors for origin, log in self._logs().items() if log.cursors}

    def reached(self) -> dict[Origin, Cursors]:
        reached = {origin: {**log.cursors, **log.doubt.cursors} for origin, log in self._logs().items()}
        return {origin: cursors for origin, cursors in reached.items() if cursors}

    def _logs(self) -> dict[Origin, InstanceLog]:
        state = self._side.standing()
        return {origin: self._side.log(state, origin) for origin in state.partitions}

    def close(self) -> None:
        self._cluster.close()
