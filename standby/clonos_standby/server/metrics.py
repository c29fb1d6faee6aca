"""The numbers of a replica server in Prometheus' text format.

Made when somebody asks, from what the supervisor knows anyway: replicas tell it how far they are once a second and at
the end of an epoch, so a record costs nothing more. Counters begin with the server, as their readers expect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from clonos_standby.server.server_stats import BUCKETS, Account

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STATES = ("busy", "idle", "dying")

Sample = tuple[str, Mapping[str, object], float]
"""What follows the family's name, labels, value."""

Family = tuple[str, str, str, list[Sample]]
"""Name, type, what it is, samples."""


def render(status: Mapping[str, Any], account: Account, names: Mapping[int, str]) -> str:
    """The whole page. `names` are the operators' and sinks', by node."""
    families = (*_processes(status, account), *_instances(status, account, names), *_events(account))
    return "".join(line for family in families for line in _lines(*family))


def _processes(status: Mapping[str, Any], account: Account) -> Iterable[Family]:
    states = [_state(replica) for replica in status["replicas"]]
    by_state: list[Sample] = [("", {"state": state}, states.count(state)) for state in _STATES]
    committed = "The last epoch that the server has heard to be committed; -1 before the first"
    yield "replicas", "gauge", "Processes that serve an instance", by_state
    yield "spares", "gauge", "Processes that wait to replace another", [_plain(len(status["spares"]))]
    yield "waiting", "gauge", "Connections that wait for a replica", [_plain(status["waiting"])]
    yield "committed_epoch", "gauge", committed, [_plain(account.committed)]
    yield "start_time_seconds", "gauge", "When the server started", [_plain(status["started"])]


def _instances(status: Mapping[str, Any], account: Account, names: Mapping[int, str]) -> Iterable[Family]:
    def place(node: int, instance: int) -> dict[str, object]:
        return {"operator": names.get(node, str(node)), "instance": instance}

    def gauge(name: str, says: str, value: Callable[[Mapping[str, Any]], float | None]) -> Family:
        found = [(place(each["node"], each["instance"]), value(each)) for each in status["replicas"]]
        return name, "gauge", says, [("", labels, number) for labels, number in found if number is not None]

    def counter(name: str, says: str, field: str) -> Family:
        found = [(key, work.total.get(field)) for key, work in sorted(account.work.items())]
        samples: list[Sample] = [("", place(*key), number) for key, number in found if number is not None]
        return name, "counter", says, samples

    up = "1 where an instance has a process that is not being killed"
    yield gauge("replica_up", up, lambda replica: int(replica["dying"] is None))
    yield gauge("epoch", "The last epoch that an instance was given", lambda replica: replica["epoch"])
    yield gauge("resident_bytes", "Memory of an instance's process", lambda replica: replica["resident"])
    length = "Length of an instance's causal log since the query began"
    yield gauge("log_bytes", length, lambda replica: replica["log_bytes"])
    yield counter("records_total", "Records processed, repeated ones included", "records")
    yield counter("snapshots_total", "Snapshots made durable", "snapshots")
    durable = "From the beginning of a snapshot until it was durable"
    yield counter("snapshot_seconds_total", durable, "snapshot_seconds")
    yield counter("output_bytes_total", "Bytes of rows handed on, with everything on them", "output_bytes")
    yield counter("delta_bytes_total", "Of those, determinants for whoever gets the rows", "delta_bytes")


def _events(account: Account) -> Iterable[Family]:
    deaths: list[Sample] = [("", {"kind": kind}, count) for kind, count in sorted(account.deaths.items())]
    failover = "From the death of a replica until its instance was live again within the same task"
    yield "deaths_total", "counter", "Ends of replica processes, by kind", deaths
    yield "failures_total", "counter", "Tasks that failed", [_plain(account.failures)]
    yield "failover_seconds", "histogram", failover, _histogram(account)


def _state(replica: Mapping[str, Any]) -> str:
    if replica["dying"]:
        return "dying"
    return "idle" if replica["busy"] is None else "busy"


def _plain(value: float) -> Sample:
    return "", {}, value


def _histogram(account: Account) -> list[Sample]:
    samples: list[Sample] = [
        ("_bucket", {"le": f"{bound:g}"}, count) for bound, count in zip(BUCKETS, account.failover_buckets)
    ]
    samples.append(("_bucket", {"le": "+Inf"}, account.failovers))
    return [*samples, ("_sum", {}, account.failover_seconds), ("_count", {}, account.failovers)]


def _lines(name: str, kind: str, says: str, samples: list[Sample]) -> Iterable[str]:
    yield f"# HELP clonos_{name} {says}.\n# TYPE clonos_{name} {kind}\n"
    for suffix, labels, value in samples:
        text = ",".join(f'{key}="{_escaped(str(label))}"' for key, label in labels.items())
        yield f"clonos_{name}{suffix}{'{' + text + '}' if text else ''} {value}\n"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
