"""Which vertices of a changing graph can be reached: a loop over a stream of edges that come and go.

Each vertex tells those behind it by which path it is reached from the root, as routers tell each other; what it tells
goes round and is its neighbour's input. An edge that is taken away takes its path back, and a vertex without a path is
reached no more. A path that leads through the vertex itself counts for nothing, so two vertices do not keep each other.

    python examples/reachability.py [--mode realtime] [--kill]

With `--kill` a process that runs part of it is killed on the way; nothing of that shows in the output.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from clonos import causal

ROOT = "root"
COLUMNS = "vertex string, what string, other string, path array<string>"
"""What a vertex is told: that an edge to another one was inserted or deleted, or by which path another one is reached
that has an edge to it (null: it is not)."""
CHANGES = "vertex string, change int, path array<string>, draw double"


def step(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    """A vertex hears of an edge of its own, or of a path."""
    (vertex,) = key
    edges, offers = ctx.state.setdefault("edges", []), ctx.state.setdefault("offers", {})
    path = ctx.state.setdefault("path", [ROOT] if vertex == ROOT else None)
    if row.what == "insert":
        edges.append(row.other)
        tell(row.other, vertex, path, ctx)
    elif row.what == "delete" and row.other in edges:
        edges.remove(row.other)
        if row.other not in edges:
            tell(row.other, vertex, None, ctx)
    elif row.what == "path":
        offers[row.other] = row.path
        if vertex != ROOT and (best := shortest(vertex, offers)) != path:
            ctx.state["path"] = best
            ctx.state["changes"] = ctx.state.get("changes", 0) + 1
            yield vertex, ctx.state["changes"], best, ctx.random.random()
            for other in dict.fromkeys(edges):
                tell(other, vertex, best, ctx)


def tell(other: str, vertex: str, path: list[str] | None, ctx: Any) -> None:
    ctx.side_output("again", (other, "path", vertex, path))


def shortest(vertex: str, offers: dict[str, Any]) -> list[str] | None:
    usable = [path for path in offers.values() if path is not None and vertex not in path]
    best = min(usable, key=lambda path: (len(path), path), default=None)
    return None if best is None else [*best, vertex]


def reached(edges: Any, log: Any, partitions: int = 1) -> Any:
    """A row each time that a vertex is reached by another path, or no more. What goes round is kept in `log`."""

    def body(told: Any) -> Any:
        steps = told.groupBy("vertex").process(step, CHANGES, name="step", side_outputs={"again": COLUMNS})
        return steps.side_output("again"), steps

    return edges.iterate(body, log, partitions=partitions)


def edges_in(spark: SparkSession, log: Path) -> Any:
    """The edges of a log with lines such as `insert root a`."""
    words = spark.readStream.format("clonos").load(str(log))
    words = words.selectExpr("split(cast(value as string), ' ') as words")
    return words.selectExpr(
        "words[1] as vertex", "words[0] as what", "words[2] as other", "cast(null as array<string>) as path"
    )


def main() -> None:
    from running import arguments, run

    given = arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)

        def query(spark: SparkSession) -> Any:
            return reached(causal(edges_in(spark, base / "in")), base / "again")

        lines = ["insert root a", "insert root b", "insert a c", "insert b c", "insert c d", "delete a c"]
        for row in run(query, base, lines, given, rows=4):
            print(json.dumps(row))


if __name__ == "__main__":
    main()
