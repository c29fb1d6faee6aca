"""`stream.iterate(body, log)`: a loop, whose rows come back by an embedded log.

The log is a sink of the query, which shows each row once, and a source of it, which gives the same rows each time. So a
loop recovers as two queries would of which one reads what the other has shown; the dataflow itself has no cycle.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from clonos.api.streams import CausalStream, causal
from clonos.errors import QueryDefinitionError
from clonos.sinks.json_rows import HIDDEN_ID
from clonos.sinks.log_sink import LogSink
from clonos.spark.plan import BackEdge, SinkPlan, SourcePlan
from clonos.spark.rows_from_json import rows_from_json

_SHAPE = "A loop is built by a function that takes the stream and returns (again, output)"


def iterate(
    stream: CausalStream,
    body: Callable[[CausalStream], tuple[CausalStream, CausalStream]],
    log: str | os.PathLike[str],
    *,
    name: str,
    partitions: int,
) -> CausalStream:
    """Raises QueryDefinitionError."""
    sink = LogSink(log, partitions, id_column=HIDDEN_ID)
    edge = BackEdge()
    made = body(stream.union(_coming_back(stream, os.fspath(log), partitions, edge)))
    if (
        not isinstance(made, tuple)
        or len(made) != 2
        or not all(isinstance(one, CausalStream) for one in made)
    ):
        raise QueryDefinitionError(f"the loop {name!r} was given {made!r} by its function", hint=_SHAPE)
    again, output = made
    mine, theirs = stream.schema.simpleString(), again.schema.simpleString()
    if mine != theirs:
        raise QueryDefinitionError(
            f"rows come back into the loop {name!r} with other columns than they came with: {theirs} instead of {mine}",
            hint="Give both the same columns, in the same order",
        )
    edge.end = SinkPlan(again.plan, again.schema, sink, name, is_back_edge=True)
    return output


def _coming_back(stream: CausalStream, log: str, partitions: int, edge: BackEdge) -> CausalStream:
    time = stream.event_time
    source_of = stream._spark.readStream.format("clonos").option("ownOutput", "true")
    entries = source_of.option("partitions", partitions).load(log)
    read = causal(rows_from_json(entries.selectExpr("cast(value as string) as value"), stream.schema))
    (source,) = read.plan
    assert isinstance(source, SourcePlan)
    back = CausalStream(stream._spark, (replace(source, back_edge=edge),), read.schema)
    return back if time is None else back._with_event_time(time)
