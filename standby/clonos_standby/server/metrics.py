"""The numbers of a replica server in Prometheus' text format.

Made at each scrape, from what the supervisor knows anyway: replicas tell it how far they are once a second and at
the end of an epoch, so a record costs nothing more. Counters begin with the server, as their readers expect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE, generate_latest
from prometheus_client.registry import Collector

from clonos.protocol.ids import InstanceId, NodeId
from clonos.wire.server_status import ReplicaStatus, SupervisorStatus
from clonos_standby.server.server_stats import BUCKETS, ServerStats

__all__ = ["CONTENT_TYPE", "render"]

_STATES = ("busy", "idle", "dying")
_PLACE = ("operator", "instance")


def render(status: SupervisorStatus, stats: ServerStats, names: Mapping[int, str]) -> str:
    """The whole page. `names` are the operators' and sinks', by node."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(status, stats, names))
    return generate_latest(registry).decode()


class _Page(Collector):
    """What is known at this moment. The page has a registry of its own, so nothing of the process is on it."""

    def __init__(self, status: SupervisorStatus, stats: ServerStats, names: Mapping[int, str]) -> None:
        self._status, self._stats, self._names = status, stats, names

    def collect(self) -> Iterator[Metric]:
        yield from _processes(self._status, self._stats)
        yield from _instances(self._status, self._stats, self._names)
        yield from _events(self._stats)


def _processes(status: SupervisorStatus, stats: ServerStats) -> Iterable[Metric]:
    states = [_state(replica) for replica in status["replicas"]]
    replicas = _gauge("replicas", "Processes that serve an instance", labels=["state"])
    for state in _STATES:
        replicas.add_metric([state], states.count(state))
    committed = "The last epoch that the server has heard to be committed; -1 before the first"
    yield replicas
    yield _gauge("spares", "Processes that wait to replace another", len(status["spares"]))
    yield _gauge("waiting", "Connections that wait for a replica", status["waiting"])
    yield _gauge("committed_epoch", committed, stats.committed)
    yield _gauge("start_time_seconds", "When the server started", status["started"])


def _instances(status: SupervisorStatus, stats: ServerStats, names: Mapping[int, str]) -> Iterable[Metric]:
    def place(node: NodeId, instance: InstanceId) -> list[str]:
        return [names.get(node, str(node)), str(instance)]

    def gauge(name: str, says: str, value: Callable[[ReplicaStatus], float | None]) -> Metric:
        family = _gauge(name, says, labels=_PLACE)
        for each in status["replicas"]:
            number = value(each)
            if number is not None:
                family.add_metric(place(each["node"], each["instance"]), number)
        return family

    def counter(name: str, says: str, field: str) -> Metric:
        family = _counter(name, says, labels=_PLACE)
        for key, work in sorted(stats.work.items()):
            number = work.total.get(field)
            if number is not None:
                family.add_metric(place(*key), number)
        return family

    up = "1 where an instance has a process that is not being killed"
    yield gauge("replica_up", up, lambda replica: int(replica["dying"] is None))
    yield gauge("epoch", "The last epoch that an instance was given", lambda replica: replica["epoch"])
    yield gauge("resident_bytes", "Memory of an instance's process", lambda replica: replica["resident"])
    length = "Length of an instance's causal log since the query began"
    yield gauge("log_bytes", length, lambda replica: replica["log_bytes"])
    yield counter("records", "Records processed, repeated ones included", "records")
    yield counter("snapshots", "Snapshots made durable", "snapshots")
    durable = "From the beginning of a snapshot until it was durable"
    yield counter("snapshot_seconds", durable, "snapshot_seconds")
    yield counter("output_bytes", "Bytes of rows handed on, with everything on them", "output_bytes")
    yield counter("delta_bytes", "Of those, determinants for the instances that get the rows", "delta_bytes")


def _events(stats: ServerStats) -> Iterable[Metric]:
    deaths = _counter("deaths", "Ends of replica processes, by kind", labels=["kind"])
    for kind, count in sorted(stats.deaths.items()):
        deaths.add_metric([kind], count)
    yield deaths
    yield _counter("failures", "Tasks that failed", stats.failures)
    says = "From the death of a replica until its instance was live again within the same task."
    buckets = [(f"{bound:g}", count) for bound, count in zip(BUCKETS, stats.failover_buckets)]
    yield HistogramMetricFamily(
        "clonos_failover_seconds",
        says,
        buckets=[*buckets, ("+Inf", stats.failovers)],
        sum_value=stats.failover_seconds,
    )


def _gauge(
    name: str, says: str, value: float | None = None, labels: Sequence[str] | None = None
) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"clonos_{name}", f"{says}.", value=value, labels=labels)


def _counter(
    name: str, says: str, value: float | None = None, labels: Sequence[str] | None = None
) -> CounterMetricFamily:
    return CounterMetricFamily(f"clonos_{name}", f"{says}.", value=value, labels=labels)


def _state(replica: ReplicaStatus) -> str:
    if replica["dying"]:
        return "dying"
    return "idle" if replica["busy"] is None else "busy"
