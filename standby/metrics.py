"""The numbers of a replica server in Prometheus' text format.

Made when somebody asks, from what the supervisor knows anyway: replicas tell it how far they are once a second and at
the end of an epoch, so a record costs nothing more. Counters begin with the server, as their readers expect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from standby.account import BUCKETS, Account

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STATES = ("busy", "idle", "dying")

Sample = tuple[str, Mapping[str, object], float]
"""What follows the family's name, labels, value."""


def render(status: Mapping[str, Any], account: Account, names: Mapping[int, str]) -> str:
    """The whole page. `names` are the operators' and sinks', by node."""

    def place(node: int, instance: int) -> dict[str, object]:
        return {"operator": names.get(node, str(node)), "instance": instance}

    def gauges(field: str) -> list[Sample]:
        return [
            ("", place(replica["node"], replica["instance"]), replica[field])
            for replica in status["replicas"]
            if replica[field] is not None
        ]

    def totals(field: str) -> list[Sample]:
        return [
            ("", place(*key), work.total[field])
            for key, work in sorted(account.work.items())
            if field in work.total
        ]

    states = [_state(replica) for replica in status["replicas"]]
    families: list[tuple[str, str, str, list[Sample]]] = [
        (
            "replicas",
            "gauge",
            "Processes that serve an instance",
            [("", {"state": state}, states.count(state)) for state in _STATES],
        ),
        ("spares", "gauge", "Processes that wait to replace another", [_plain(len(status["spares"]))]),
        ("waiting", "gauge", "Connections that wait for a replica", [_plain(status["waiting"])]),
        (
            "replica_up",
            "gauge",
            "1 where an instance has a process that is not being killed",
            [
                ("", place(replica["node"], replica["instance"]), int(replica["dying"] is None))
                for replica in status["replicas"]
            ],
        ),
        ("epoch", "gauge", "The last epoch that an instance was given", gauges("epoch")),
        (
            "committed_epoch",
            "gauge",
            "The last epoch that the server has heard to be committed; -1 before the first",
            [_plain(account.committed)],
        ),
        ("resident_bytes", "gauge", "Memory of an instance's process", gauges("resident")),
        ("records_total", "counter", "Records processed, repeated ones included", totals("records")),
        (
            "log_bytes",
            "gauge",
            "Length of an instance's causal log since the query began",
            gauges("log_bytes"),
        ),
        ("snapshots_total", "counter", "Snapshots made durable", totals("snapshots")),
        (
            "snapshot_seconds_total",
            "counter",
            "From the beginning of a snapshot until it was durable",
            totals("snapshot_seconds"),
        ),
        (
            "deaths_total",
            "counter",
            "Ends of replica processes, by kind",
            [("", {"kind": kind}, count) for kind, count in sorted(account.deaths.items())],
        ),
        ("failures_total", "counter", "Tasks that failed", [_plain(account.failures)]),
        (
            "failover_seconds",
            "histogram",
            "From the death of a replica until its instance was live again within the same task",
            _histogram(account),
        ),
        ("start_time_seconds", "gauge", "When the server started", [_plain(status["started"])]),
    ]
    return "".join(line for family in families for line in _family(*family))


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


def _family(name: str, kind: str, says: str, samples: list[Sample]) -> Iterable[str]:
    yield f"# HELP clonos_{name} {says}.\n# TYPE clonos_{name} {kind}\n"
    for suffix, labels, value in samples:
        text = ",".join(f'{key}="{_escaped(str(label))}"' for key, label in labels.items())
        yield f"clonos_{name}{suffix}{'{' + text + '}' if text else ''} {value}\n"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
