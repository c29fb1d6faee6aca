"""The ends of loops: the sinks by which rows come back."""

from __future__ import annotations

from collections.abc import Sequence

from clonos.errors import CheckpointMismatch
from clonos.spark.plan import SinkPlan, SourcePlan, in_order


def with_back_edges(sinks: Sequence[SinkPlan]) -> list[SinkPlan]:
    """And the ends of the loops that their rows come from."""
    found = list(sinks)
    while True:
        nodes = in_order(tuple(node for sink in found for node in sink.upstream))
        edges = [node.back_edge for node in nodes if isinstance(node, SourcePlan)]
        ends = [edge.end for edge in edges if edge is not None and edge.end is not None]
        new = [end for end in ends if not any(end is sink for sink in found)]
        more = list(
            {id(end): end for end in new}.values()
        )  # several expressions may follow the begin of one loop
        if not more:
            return found
        found += more


def check_back_edges(sinks: Sequence[SinkPlan], query: str) -> None:
    """Over a checkpoint with committed epochs. Raises CheckpointMismatch where what goes round is not there: the source
    would go on where another log had been."""
    for plan in sinks:
        if plan.is_back_edge and not plan.sink.has_rows_of(query):
            raise CheckpointMismatch(
                f"the log of the loop {plan.name!r} is not where it was: {plan.sink!r} has nothing of this query",
                hint="Bring the folder back as it was, or begin anew with a new checkpointLocation and new sinks",
            )
