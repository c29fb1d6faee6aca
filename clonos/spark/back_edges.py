"""The ends of loops, the sinks by which rows come back, and the operators to which they come."""

from __future__ import annotations

from collections.abc import Sequence

from clonos.errors import CheckpointMismatch, QueryDefinitionError
from clonos.spark.plan import OperatorPlan, SinkPlan, SourcePlan, in_order


def with_back_edges(sinks: Sequence[SinkPlan]) -> list[SinkPlan]:
    """And the ends of the loops that their rows come from."""
    found = list(sinks)
    while True:
        nodes = in_order(tuple(node for sink in found for node in sink.upstream))
        edges = [node.back_edge for node in nodes if isinstance(node, SourcePlan)]
        ends = [edge.end for edge in edges if edge is not None and edge.end is not None]
        new = [end for end in ends if not any(end is sink for sink in found)]
        # Several expressions may follow the begin of one loop
        more = list({id(end): end for end in new}.values())
        if not more:
            return found
        found += more


def check_event_time(node: OperatorPlan, name: str) -> None:
    """Raises QueryDefinitionError where an operator that goes by event time would wait for ever for rows that come back
    by a loop, or would not wait for them at all."""
    for upstream in node.all_upstream:
        time = node.stream_time_of(upstream)
        if time is None or not isinstance(upstream, SourcePlan) or upstream.back_edge is None:
            continue
        if time.inherited:
            raise QueryDefinitionError(
                f"the watermark of {name!r} is that of the operator in front of the loop, which knows nothing of the "
                "rows that come back: they would be late",
                hint="Call withWatermark(column, delay, idle_after=...) on the stream that goes into the loop",
            )
        if time.idle_after is None:
            raise QueryDefinitionError(
                f"a loop in which nothing goes round would hold the watermark of {name!r} back for ever",
                hint="Say in withWatermark(..., idle_after=...) when a stream is idle",
            )


def check_back_edges(sinks: Sequence[SinkPlan], query: str) -> None:
    """Over a checkpoint with committed epochs. Raises CheckpointMismatch where what goes round is not there: the source
    would go on where another log had been."""
    for plan in sinks:
        if plan.is_back_edge and not plan.sink.has_rows_of(query):
            raise CheckpointMismatch(
                f"the log of the loop {plan.name!r} is not where it was: {plan.sink!r} has nothing of this query",
                hint="Bring the folder back as it was, or begin anew with a new checkpointLocation and new sinks",
            )
