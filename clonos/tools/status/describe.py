"""The state of a running query as one JSON object: what its server says, what lies on disk, what has committed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clonos.json_text import parsed_json
from clonos.protocol.ids import Origin
from clonos.spark.source_progress import sources_of
from clonos.tools.live_query import LiveQuery
from clonos.wire.server_status import PlacedReplica
from clonos_standby.replica.holders import server_folders
from clonos_standby.server.histogram import LATENCY, LATENCY_SECONDS, Histogram
from clonos_standby.server.strike import playing

RECENT = 8
_TAIL_BYTES = 256 * 1024


def describe(query: LiveQuery) -> dict[str, Any]:
    """See the module. Times are seconds since 1970, sizes bytes; None where something cannot be known."""
    status = query.status()
    primaries = [each for each in status["replicas"] if not each["standby"]]
    spilled = query.spilled()
    names = {node.number: node.name for node in query.nodes}

    def named(event: Mapping[str, Any]) -> dict[str, Any]:
        return {"operator": names.get(event.get("node") or 0), **event}

    def instance(origin: Origin) -> dict[str, Any]:
        replica, standby = (playing(status["replicas"], origin, standby=standby) for standby in (False, True))
        return {
            "instance": origin.instance,
            "pid": replica["pid"] if replica else None,
            "state": _state(replica),
            **{
                name: replica[name] if replica else None
                for name in ("epoch", "fence", "uptime", "resident", "records", "log_bytes")
            },
            "place": replica["place"] if replica else None,
            "standby": standby and {name: standby[name] for name in ("pid", "follows", "place")},
            "log_disk": query.bytes_of("logs", origin),
            "state_disk": query.bytes_of("state", origin),
            "dead_letters": query.checkpoint.dead_letters(origin),
            "spill_disk": None if spilled is None else spilled.get(origin, 0),
            "latency": _latency(replica),
        }

    recoveries = query.checkpoint.recoveries()
    return {
        "checkpoint": query.checkpoint.location,
        "query": query.query,
        "data": str(query.data),
        "generation": status["generation"],
        "recovery": query.checkpoint.recovery().value,
        "round_at": status["round_at"],
        "committed": query.checkpoint.committed(),
        "committed_at": query.checkpoint.committed_at(),
        "epoch": max((each["busy"] for each in primaries if each["busy"] is not None), default=None),
        "server": {
            name: status[name]
            for name in ("pid", "started", "resident", "grpc", "grpc_pid", "metrics", "waiting")
        },
        "others": status["others"],
        "operators": [
            {
                "node": node.number,
                "operator": node.name,
                "kind": node.kind,
                "recovery": recoveries[node.name].value,
                "instances": [instance(Origin.of(node.number, number)) for number in range(node.parallelism)],
            }
            for node in query.nodes
        ],
        "sources": sources_of(query.data),
        "spares": status["spares"],
        "deaths": status["deaths"],
        "recent_deaths": [named(death) for death in last_of(query.data, "deaths.jsonl")],
        "failures": [named(failure) for failure in status["failures"][-RECENT:]],
        "recoveries": [named(recovery) for recovery in last_of(query.data, "recoveries.jsonl")],
    }


def _latency(replica: PlacedReplica | None) -> dict[str, Any] | None:
    """Of a sink's instance since its server began: the rows that it has made visible, by how long they took since they
    entered the query. `rows` has a number for each upper bound in `seconds`, and one for those above the last."""
    if replica is None or f"{LATENCY}_sum" not in replica["done"]:
        return None
    found = Histogram.of(LATENCY_SECONDS, LATENCY, replica["done"])
    return {"seconds": list(LATENCY_SECONDS), "rows": found.counts, "sum": found.sum}


def _state(replica: PlacedReplica | None) -> str:
    if replica is None:
        return "none"
    if replica["dying"]:
        return "dying"
    if replica["stopped"]:
        return "stopped"
    return "idle" if replica["busy"] is None else "busy"


def last_of(data: Path, name: str) -> list[dict[str, Any]]:
    """The last lines of the files of this name that outlive the servers."""
    found = [line for folder in server_folders(data).values() for line in _lines_of(folder / name)]
    return sorted(found, key=lambda line: line["at"])[-RECENT:]


def _lines_of(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    whole = lines[1:] if size > _TAIL_BYTES else lines
    return [said for line in whole[:-1] if (said := _parsed(line)) is not None][-RECENT:]


def _parsed(line: bytes) -> dict[str, Any] | None:
    """None of a line that a full disk has torn."""
    try:
        said = parsed_json(line)
        return said if isinstance(said, dict) and "at" in said else None
    except ValueError:
        return None
