"""The numbers of a replica server in Prometheus' text format.

Made at each scrape, from what the supervisor knows anyway: replicas tell it how far they are once a second and at
the end of an epoch, so a record costs nothing more. Counters begin with the server, as their readers expect. Every
sample has the query's id, so that one page may be of several queries (`clonos_standby.service.metrics_page`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE, generate_latest
from prometheus_client.registry import Collector

from clonos.protocol.ids import InstanceId, NodeId, Origin
from clonos.wire.server_status import ReplicaStatus, SupervisorStatus
from clonos_standby.server.histogram import BUNDLE_SECONDS, LATENCY, LATENCY_SECONDS, Histogram
from clonos_standby.server.server_stats import ServerStats, Work

__all__ = ["CONTENT_TYPE", "page", "render"]

_STATES = ("busy", "idle", "dying")
_PLACE = ("operator", "operator_instance")
"""Not `instance`: that is what Prometheus itself calls the page that it reads."""


def render(query: str, status: SupervisorStatus, stats: ServerStats, names: Mapping[int, str]) -> str:
    """The page of one server. `names` are the operators' and sinks', by node."""
    return page(_Page(query, status, stats, names).collect())


def page(families: Iterable[Metric]) -> str:
    """The text of these, and of nothing else of the process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry).decode()


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class _Page:
    """What is known at this moment."""

    def __init__(
        self, query: str, status: SupervisorStatus, stats: ServerStats, names: Mapping[int, str]
    ) -> None:
        self._query, self._status, self._stats, self._names = query, status, stats, names

    def collect(self) -> Iterator[Metric]:
        yield from self._processes()
        yield from self._replicas()
        yield from self._work()
        yield from self._sinks()
        yield from self._deaths()
        yield from self._recoveries()

    # ------------------------------------------------------------- what is on it

    def _processes(self) -> Iterator[Metric]:
        status = self._status
        states = [_state(replica) for replica in status["replicas"]]
        each = [((state,), states.count(state)) for state in _STATES]
        yield self._gauge("replicas", "Processes that serve an instance", each, ("state",))
        yield self._one("spares", "Processes that wait to replace another", len(status["spares"]))
        yield self._one("waiting", "Connections that wait for a replica", status["waiting"])
        committed = "The last epoch that the server has heard to be committed; -1 before the first"
        yield self._one("committed_epoch", committed, self._stats.committed)
        yield self._one("start_time_seconds", "When the server started", status["started"])
        starts = "Starts of the query over its checkpoint, by hand and after failures"
        yield self._counter("query_starts", starts, [((), status["generation"])])

    def _replicas(self) -> Iterator[Metric]:
        def gauge(name: str, says: str, value: Callable[[ReplicaStatus], float | None]) -> Metric:
            replicas = [each for each in self._status["replicas"] if not each["standby"]]
            found = [(self._place(each["node"], each["instance"]), value(each)) for each in replicas]
            known = [(place, number) for place, number in found if number is not None]
            return self._gauge(name, says, known, _PLACE)

        up = "1 where an instance has a process that is not being killed"
        yield gauge("replica_up", up, lambda replica: int(replica["dying"] is None))
        yield gauge("epoch", "The last epoch that an instance was given", lambda replica: replica["epoch"])
        yield gauge("resident_bytes", "Memory of an instance's process", lambda replica: replica["resident"])
        standbys = "1 where a standby has come as far as its primary"
        following = [each for each in self._status["replicas"] if each["standby"]]
        places = [(self._place(each["node"], each["instance"]), int(each["follows"])) for each in following]
        yield self._gauge("standby_follows", standbys, places, _PLACE)

    def _work(self) -> Iterator[Metric]:
        length = "Length of an instance's causal log since the query began"
        yield self._gauge("log_bytes", length, self._known(lambda work: work.log_bytes), _PLACE)
        reached = "How far event time has come at an instance, in seconds since 1970"
        where = self._known(lambda work: work.watermark)
        yield self._gauge("watermark_timestamp_seconds", reached, where, _PLACE)
        yield self._total("records", "Records processed, repeated ones included")
        yield self._total("snapshots", "Snapshots made durable")
        yield self._total("snapshot_seconds", "From the beginning of a snapshot until it was durable")
        yield self._total("forced_checkpoints", "Snapshots for the sake of rows that came")
        yield self._total("output_bytes", "Bytes of rows handed on, with everything on them")
        yield self._total(
            "delta_bytes", "Of those, what rides along with the rows: determinants, or dependency vectors"
        )
        yield self._total("dead_letters", "Records that were passed over and kept")
        took = HistogramMetricFamily(
            "clonos_bundle_seconds",
            "From a bundle's being there for an instance's process until all of its rows had left it; "
            "at a sink, until they were visible.",
            labels=("query", *_PLACE),
        )
        for origin, work in sorted(self._stats.work.items()):
            found = Histogram.of(BUNDLE_SECONDS, "bundle_seconds", work.total)
            took.add_metric([self._query, *self._place(*origin)], buckets=found.buckets, sum_value=found.sum)
        yield took

    def _sinks(self) -> Iterator[Metric]:
        yield self._total("visible_rows", "Rows that a sink has made visible")
        yield self._latency()
        held = "Rows that a sink does not show before no failure can lead behind them"
        yield self._gauge("held_rows", held, self._known(lambda work: work.held_rows), _PLACE)
        complete = (
            "When the last round of checkpoints was complete, or the safe line moved, in seconds since 1970"
        )
        at = [((), self._stats.round_at)] if self._stats.round_at is not None else []
        yield self._gauge("round_complete_timestamp_seconds", complete, at)
        yield self._total("sink_retries", "What a sink has tried again, as the outside was away")
        yield self._total("kafka_committed", "Transactions of a Kafka sink that were committed")
        yield self._total("kafka_aborted", "Transactions of a Kafka sink that were aborted")
        doubt = "Bundles of a Kafka sink of which it was in doubt whether they had taken effect"
        yield self._total("kafka_in_doubt", doubt)

    def _latency(self) -> Metric:
        """Of a sink, over its instances."""
        took = HistogramMetricFamily(
            "clonos_end_to_end_latency_seconds",
            "From a row's entering the query until it was visible at a sink; of the rows of a block, the oldest.",
            labels=("query", "sink"),
        )
        totals: dict[NodeId, Histogram] = {}
        for (node, _), work in sorted(self._stats.work.items()):
            if f"{LATENCY}_sum" in work.total:
                total = totals.setdefault(node, Histogram(LATENCY_SECONDS))
                total.add(Histogram.of(LATENCY_SECONDS, LATENCY, work.total))
        for node, total in totals.items():
            took.add_metric([self._query, self._names.get(node, str(node))], total.buckets, total.sum)
        return took

    def _deaths(self) -> Iterator[Metric]:
        deaths = [((kind,), count) for kind, count in sorted(self._stats.deaths.items())]
        yield self._counter("deaths", "Ends of replica processes, by kind", deaths, ("kind",))
        failures = [((error,), count) for error, count in sorted(self._stats.failures.items())]
        yield self._counter("failures", "Tasks that failed, by error", failures, ("error",))

    def _recoveries(self) -> Iterator[Metric]:
        stats = self._stats
        kinds = [((kind,), count) for kind, count in stats.recovered_by.items()]
        yield self._counter(
            "recoveries", "Instances that were live again, by what was lost", kinds, ("kind",)
        )
        phases = SummaryMetricFamily(
            "clonos_recovery_phase_seconds", "Phases of recoveries.", labels=("query", "phase")
        )
        for phase, (count, seconds) in stats.phases.items():
            phases.add_metric([self._query, phase], count, seconds)
        yield phases
        repeated = "Bytes of causal log that recoveries have repeated"
        yield self._counter("repeated_bytes", repeated, [((), stats.repeated)])
        failovers = HistogramMetricFamily(
            "clonos_failover_seconds",
            "From the death of a replica until its instance was live again within the same task.",
            labels=("query",),
        )
        failovers.add_metric([self._query], buckets=stats.failovers.buckets, sum_value=stats.failovers.sum)
        yield failovers

    # ------------------------------------------------------------------ families

    def _place(self, node: NodeId, instance: InstanceId) -> tuple[str, str]:
        return self._names.get(node, str(node)), str(instance)

    def _known(self, value: Callable[[Work], float | None]) -> list[tuple[tuple[str, str], float]]:
        """Of each instance that has told it."""
        works: list[tuple[Origin, Work]] = sorted(self._stats.work.items())
        found = [(self._place(*origin), value(work)) for origin, work in works]
        return [(place, number) for place, number in found if number is not None]

    def _total(self, name: str, says: str) -> Metric:
        return self._counter(name, says, self._known(lambda work: work.total.get(name)), _PLACE)

    def _one(self, name: str, says: str, value: float) -> Metric:
        return self._gauge(name, says, [((), value)])

    def _gauge(self, name: str, says: str, samples: _Samples, labels: Sequence[str] = ()) -> Metric:
        family = GaugeMetricFamily(f"clonos_{name}", f"{says}.", labels=("query", *labels))
        for said, value in samples:
            family.add_metric([self._query, *said], value)
        return family

    def _counter(self, name: str, says: str, samples: _Samples, labels: Sequence[str] = ()) -> Metric:
        family = CounterMetricFamily(f"clonos_{name}", f"{says}.", labels=("query", *labels))
        for said, value in samples:
            family.add_metric([self._query, *said], value)
        return family


_Samples = Iterable[tuple[Sequence[str], float]]
"""The values of labels, and the number."""


def _state(replica: ReplicaStatus) -> str:
    if replica["dying"]:
        return "dying"
    return "idle" if replica["busy"] is None else "busy"
