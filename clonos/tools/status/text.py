"""The state of a query for a person who has just been woken: what runs, what has died, how long it took to mend."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from clonos.protocol.recovery.recovery_kind import RecoveryKind

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_HEAD = (
    "operator",
    "instance",
    "process",
    "state",
    "epoch",
    "records",
    "up",
    "memory",
    "log",
    "state",
    "spill",
)
_LEFT = 1
"""Columns that are set to the left: the name."""


def render(said: dict[str, Any], now: float) -> str:
    """All of it, as lines."""
    server = said["server"]
    lines = [
        f"query {said['query']}, start {said['generation']}, checkpoint {said['checkpoint']}",
        _epochs(said, now),
        f"server process {server['pid']}, up {span(now - server['started'])}, {size(server['resident'])}; "
        + (f"determinants process {server['grpc_pid']}" if server["grpc_pid"] else "NO determinant service")
        + f"; {_spares(said['spares'])}"
        + (f"; {server['waiting']} waiting for a replica" if server["waiting"] else ""),
        *(
            f"server of standbys process {other['pid']}{_on(other['place'])}, "
            f"up {span(now - other['started'])}, {size(other['resident'])}"
            for other in said["others"]
        ),
        *_metrics([server, *said["others"]]),
        "",
        *table(_HEAD, _rows(said["operators"])),
        "",
    ]
    lines += _section(
        f"deaths: {said['deaths']} since the server started", map(_death, said["recent_deaths"]), now
    )
    lines += _recoveries(said["operators"])
    lines += _on_other_hosts(said["operators"])
    lines += _standbys(said["operators"])
    lines += _letters(said["operators"])
    lines += _section("failures:", map(_failure, said["failures"]), now)
    lines += _section("recoveries:", map(_recovery, said["recoveries"]), now)
    return "\n".join([*lines, f"what replicas write: {said['data']}/replicas/"])


def _epochs(said: dict[str, Any], now: float) -> str:
    committed = "no epoch committed yet"
    if said["committed"] >= 0:
        at = said["committed_at"]
        ago = f" {span(now - at)} ago" if at is not None else ""
        committed = f"epoch {said['committed']} committed{ago}"
    running = f"epoch {said['epoch']} under way" if said["epoch"] is not None else "no epoch under way"
    return ", ".join([committed, running, *_round(said, now)])


def _round(said: dict[str, Any], now: float) -> Iterator[str]:
    """Where rows are seen later than they are made."""
    at = said["round_at"]
    ago = f"{span(now - at)} ago" if at is not None else ""
    recoveries = {operator["recovery"] for operator in said["operators"]}
    kinds = {RecoveryKind(name) for name in recoveries}
    if any(kind.has_rounds for kind in kinds):
        yield f"last round complete {ago}" if ago else "no round complete yet"
    if any(kind.begins_at_older_ones for kind in kinds):
        yield f"safe line moved {ago}" if ago else "no safe line inside the epoch yet"


def _recoveries(operators: list[dict[str, Any]]) -> list[str]:
    """Where they are not all the same."""
    by_kind: dict[str, list[str]] = {}
    for operator in operators:
        by_kind.setdefault(operator["recovery"], []).append(operator["operator"])
    if len(by_kind) < 2:
        return []
    return ["recoveries: " + "; ".join(f"{kind}: {', '.join(names)}" for kind, names in by_kind.items())]


def _metrics(servers: list[dict[str, Any]]) -> list[str]:
    """Queries of one service share its page."""
    found = dict.fromkeys(server["metrics"] for server in servers if server["metrics"])
    return [f"metrics at {', '.join(found)}"] if found else []


def _spares(pids: Sequence[int]) -> str:
    if not pids:
        return "NO spare process"
    return f"{len(pids)} spare{'s' if len(pids) > 1 else ''}: {', '.join(map(str, pids))}"


def _rows(operators: list[dict[str, Any]]) -> Iterable[tuple[str, ...]]:
    for operator in operators:
        sink = operator["kind"] == "sink"
        name = (
            f"{operator['operator']} (sink)"
            if sink and operator["operator"] != "sink"
            else operator["operator"]
        )
        for at, each in enumerate(operator["instances"]):
            yield (
                name if at == 0 else "",
                str(each["instance"]),
                _or_dash(each["pid"]),
                each["state"],
                _or_dash(each["epoch"]),
                "-" if each["records"] is None else f"{each['records']:,}",
                "-" if each["uptime"] is None else span(each["uptime"]),
                size(each["resident"]),
                "-" if sink else size(each["log_disk"]),
                "-" if sink else size(each["state_disk"]),
                size(each["spill_disk"]),
            )


def _on(place: str | None) -> str:
    """Where something is that is not on the driver's host."""
    return f" on {place}" if place else ""


def _instances(operators: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each with its name."""
    for operator in operators:
        for each in operator["instances"]:
            yield f"{operator['operator']}/{each['instance']}", each


def _on_other_hosts(operators: list[dict[str, Any]]) -> list[str]:
    found = [f"{name}{_on(each['place'])}" for name, each in _instances(operators) if each["place"]]
    return [f"on other hosts: {'; '.join(found)}"] if found else []


def _standbys(operators: list[dict[str, Any]]) -> list[str]:
    found = [
        f"{name}: process {standby['pid']}{_on(standby['place'])}"
        + ("" if standby["follows"] else ", catching up")
        for name, each in _instances(operators)
        if (standby := each["standby"])
    ]
    return [f"standbys: {'; '.join(found)}"] if found else []


def _letters(operators: list[dict[str, Any]]) -> list[str]:
    found = [
        f"{name}: {each['dead_letters']}" for name, each in _instances(operators) if each["dead_letters"]
    ]
    return [f"dead letters: {', '.join(found)}"] if found else []


def _death(death: dict[str, Any]) -> tuple[float, str]:
    how = death["message"].rpartition(f"(process {death['pid']}) ")[2]
    return death["at"], f"{_who(death)}: process {death['pid']} {how}; it was up {span(death['uptime'])}"


def _failure(failure: dict[str, Any]) -> tuple[float, str]:
    first = failure["message"].partition("\n")[0]
    return failure["at"], f"{_who(failure)}: {failure['error']}: {first}"


def _recovery(recovery: dict[str, Any]) -> tuple[float, str]:
    phases = ", ".join(f"{name} {ms:.0f}" for name, ms in recovery["phases"].items())
    if recovery["since_death_ms"] is not None:
        live = (
            f"live {recovery['since_death_ms']:.0f} ms after the death, {recovery['ms']:.0f} of them its own"
        )
    else:
        how = " in a new task" if recovery["fresh"] else " as a standby" if recovery["promoted"] else ""
        live = f"live after {recovery['ms']:.0f} ms{how}"
        if recovery.get("resumed") is not None:
            live += f" that resumed {size(recovery['resumed'])} into its log of the epoch"
    return recovery["at"], (
        f"{_who(recovery)}: epoch {recovery['epoch']} {live} ({phases}; {size(recovery['repeated'])} repeated)"
    )


def _who(event: dict[str, Any]) -> str:
    if event.get("node") is None:
        return "spare"
    return f"{event['operator'] or event['node']}/{event['instance']}"


def _section(title: str, events: Iterable[tuple[float, str]], now: float) -> list[str]:
    lines = [f"  {clock(at)} ({span(now - at)} ago)  {text}" for at, text in events]
    return [title, *lines] if lines else [f"{title.rstrip(':')}: none" if title.endswith(":") else title]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns as wide as what is in them; names to the left, everything else to the right."""
    every = [head, *rows]
    widths = [max(len(row[at]) for row in every) for at in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if at < _LEFT else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in every
    ]


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def size(count: int | None) -> str:
    """Bytes in words: `-` where unknown."""
    if count is None:
        return "-"
    amount = float(count)
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"


def span(seconds: float) -> str:
    """A stretch of time in one word."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f}s"
    for unit, length, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < most * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def clock(at: float) -> str:
    """A moment, in UTC as in the logs."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at))
