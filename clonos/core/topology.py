"""The shape of a query: nodes, edges, parallelism, and what of it a checkpoint is bound to.

A checkpoint's state, logs and cursors are keyed by node and instance and were written under one shape. Continuing
under another would hand state to the wrong owner, so the shape is kept beside them and compared at every start:
`CheckpointMismatch` says which node differs and how.
"""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import Any

from clonos.errors import CheckpointMismatch

FORMAT_VERSION = 1


class NodeKind(enum.Enum):
    SOURCE = "source"
    OPERATOR = "operator"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `version` is the user's own: raised when a function changes on purpose."""

    number: int
    kind: NodeKind
    name: str
    parallelism: int  # 0 for a source: as many partitions as it has
    upstream: tuple[int, ...] = ()
    version: str = "1"
    key: tuple[str, ...] = ()
    output: str = ""  # schema, as DDL or JSON


@dataclass(frozen=True, slots=True)
class Topology:
    nodes: tuple[Node, ...]

    def node(self, number: int) -> Node:
        return next(node for node in self.nodes if node.number == number)

    def downstream(self, number: int) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if number in node.upstream)

    def to_document(self) -> dict[str, Any]:
        """For a JSON file in the checkpoint."""
        return {
            "version": FORMAT_VERSION,
            "nodes": [{**asdict(node), "kind": node.kind.value} for node in self.nodes],
        }

    def check_against(self, document: dict[str, Any]) -> None:
        """Raises CheckpointMismatch unless a checkpoint written under `document` can be continued."""
        if document.get("version") != FORMAT_VERSION:
            raise CheckpointMismatch(
                f"the checkpoint was written in format version {document.get('version')}, this library reads "
                f"{FORMAT_VERSION}",
                hint="Finish the query with the version of clonos that wrote it, or start from a new checkpoint",
            )
        then = {node["number"]: node for node in document["nodes"]}
        now = {node["number"]: node for node in self.to_document()["nodes"]}
        for number in sorted(then.keys() | now.keys()):
            old, new = then.get(number), now.get(number)
            if old is None or new is None:
                raise CheckpointMismatch(
                    f"node {number} ({(old or new or {}).get('name')!r}) is {'new' if old is None else 'gone'}",
                    hint="A checkpoint continues only the query that wrote it; use a new checkpointLocation",
                )
            for what in ("kind", "name", "parallelism", "upstream", "key", "output", "version"):
                before, after = old[what], new[what]
                if list(before) != list(after) if what in ("upstream", "key") else before != after:
                    raise CheckpointMismatch(
                        f"{what} of node {number} ({new['name']!r}) was {before!r} when the checkpoint was written "
                        f"and is {after!r} now",
                        hint="A checkpoint continues only the query that wrote it; restore the old value or use a new "
                        "checkpointLocation",
                    )
