"""What a checkpoint says of itself, as a document and as lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clonos.protocol.topology import Node, NodeKind
from clonos.protocol.versions.upgrade import History
from clonos.spark.checkpoint import Checkpoint
from clonos.tools.status.text import table

_HEAD = ("node", "name", "kind", "instances", "version", "from epoch", "key", "bound to")
_CHANNELS = ("source node", "channel", "its name")
_LONGEST_NAME = 100


def described(checkpoint: Checkpoint) -> dict[str, Any]:
    """Raises CheckpointMismatch where it is none of ours."""
    history = checkpoint.history()
    query, _ = checkpoint.shape()
    last = history.bindings[-1].program
    place = checkpoint.place()
    return {
        "checkpoint": checkpoint.location,
        "query": query,
        "committed": checkpoint.committed(),
        "place": None if place is None else {"host": place[0], "data": place[1]},
        "zone": last.zone,
        "settings": None if last.settings is None else dict(last.settings),
        "realtime": last.realtime,
        "programs": [one.since for one in history.bindings],
        "nodes": [_node(node, history) for node in last.nodes],
        "channels": [entry._asdict() for entry in checkpoint.channel_numbers().entries()],
    }


def _node(node: Node, history: History) -> dict[str, Any]:
    return {
        **node.to_document(),
        "versions": [
            {"since": since, "version": version} for since, version in history.schedule(node.number).entries
        ],
    }


def render(said: dict[str, Any]) -> Iterator[str]:
    """For people."""
    committed = "none" if said["committed"] < 0 else str(said["committed"])
    yield f"query {said['query']}, checkpoint {said['checkpoint']}"
    yield f"last committed epoch: {committed}; programs from epochs {', '.join(map(str, said['programs']))} on"
    if said["place"] is not None:
        yield f"started last on {said['place']['host']}, data in {said['place']['data']}"
    mode = {True: "real time", False: "micro-batch", None: "not said"}[said["realtime"]]
    yield f"time zone {said['zone'] or 'not said'}, mode {mode}"
    for name, value in (said["settings"] or {}).items():
        yield f"{name} = {value}"
    yield ""
    yield from table(_HEAD, [row for node in said["nodes"] for row in _rows(node)])
    if said["channels"]:
        yield ""
        yield from table(
            _CHANNELS,
            [[str(one["node"]), str(one["number"]), _quoted(one["name"])] for one in said["channels"]],
        )
    if "program" in said:
        yield ""
        yield from _program(said["program"])


def _quoted(name: str) -> str:
    """On one line, and not a longer one than can be read."""
    return repr(name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "...")


def _rows(node: dict[str, Any]) -> Iterator[list[str]]:
    what = ", ".join(filter(None, _bound(node)))
    kind = node["form"] or node["kind"]
    for at, entry in enumerate(node["versions"]):
        own = (
            [str(node["number"]), node["name"], kind, str(node["parallelism"] or "-")]
            if at == 0
            else [""] * 4
        )
        version = (
            [entry["version"], str(entry["since"])] if node["kind"] == NodeKind.OPERATOR.value else ["", ""]
        )
        newest = at == len(node["versions"]) - 1  # whose columns and state these are
        yield [*own, *version, ", ".join(node["key"]) if at == 0 else "", what if newest else ""]


def _bound(node: dict[str, Any]) -> Iterator[str]:
    for name, value in (node["source"] or {}).items():
        yield f"{name} {value}"
    if node["timeout"] not in (None, "", "None", "NoTimeout"):
        yield str(node["timeout"])
    if node["per"]:
        yield f"per {node['per']}"
    if node["watermark"] and node["watermark"][0]:
        yield f"watermark {node['watermark'][0]} less {node['watermark'][1] / 1_000_000:g} s"
    for upstream, said, *_ in node.get("derived", ()):
        yield f"reads node {upstream} through {_quoted(said)}"
    for variable in node["state"] or ():
        fields = ", ".join(f"{column[0]} {column[1]}" for column in variable["columns"])
        yield f"state {variable['name']}({fields})"


def _program(said: dict[str, Any]) -> Iterator[str]:
    if said["refused"]:
        yield f"the program is REFUSED: {said['refused']}"
    elif not said["changes"]:
        yield "the program changes nothing"
    for change in said["changes"]:
        when = f"from epoch {said['since']} on" if change["when"] == "from an epoch on" else change["when"]
        todo = f" ({change['todo']})" if change["todo"] else ""
        yield f"{when}: {change['what']} of {change['where']} {change['says']}{todo}"
    if said["drops"]:
        yield f"what is recorded of epoch {said['since']}, of which nothing was seen, is dropped"
