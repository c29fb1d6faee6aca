"""What may stand before `causal()`: whatever gives each source record the same row, in the same order, at each reading.

A source is read again after a failure, and what the epoch has brought is recognised by its identity, never by its
content. So between the source and the first operator there may be nothing that gives another row at the second reading
(chance, the clock, other tables), nothing that makes several rows of one record or one of several, and nothing that
sends records of one channel on different ways. What is refused here would otherwise show as a divergence of whichever
function reads it. What a Python UDF does behind its promise to be deterministic cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from clonos.errors import QueryDefinitionError

_PASSES: Final = {"Project", "Filter", "SubqueryAlias", "View", "EventTimeWatermark", "CollectMetrics"}

_ORDER = (
    "it loses the order of records within a channel",
    (
        "Leave it out: groupBy(...) after causal() brings the rows of a key together, and an operator's parallelism= "
        "says over how many instances"
    ),
)
_MULTIPLIES = (
    "it makes several rows of one record, or others, and all would have the record's identity",
    "Use flat_map(fn, output) after causal(), which numbers what it makes",
)
_CHOOSES = (
    "which rows it lets through is not the same at each reading",
    "Use filter(fn) after causal(), with ctx.random for chance and ctx.state for counting",
)
_KEEPS = (
    "it keeps state of its own, which is not restored together with that of a causal operator",
    "Keep what it needs in ctx.state: causal(...).groupBy(...).process(fn, output, name=...)",
)
_JOINS = (
    "the other side may be another one at the next reading, and may make several rows of one record",
    (
        "Join behind causal(), where it is recorded: causal(a).join(table, key), or of two streams "
        'causal(a).join(causal(b), key, within="10 minutes")'
    ),
)
_UNITES = (
    "records of its sides would have one identity",
    "Unite causal streams: causal(a).union(causal(b))",
)
_REFUSED: Final[dict[str, tuple[str, str]]] = {
    **dict.fromkeys(("Repartition", "RepartitionByExpression", "RebalancePartitions", "Sort"), _ORDER),
    **dict.fromkeys(("Generate", "Expand", "MapInPandas", "MapInArrow", "PythonMapInArrow"), _MULTIPLIES),
    **dict.fromkeys(("GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample"), _CHOOSES),
    **dict.fromkeys(("Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "Window"), _KEEPS),
    **dict.fromkeys(("Join", "AsOfJoin", "LateralJoin"), _JOINS),
    "Union": _UNITES,
}
_OTHERS = (
    "whether it gives the same rows with the same identities at each reading is not known",
    "Do it after causal(), with map, flat_map, filter or process",
)

INSTEAD: Final[dict[str, str]] = {
    **dict.fromkeys(("repartition", "repartitionByRange", "sort", "orderBy"), _ORDER[1]),
    **dict.fromkeys(("limit", "sample"), _CHOOSES[1]),
    **dict.fromkeys(("distinct", "dropDuplicates", "dropDuplicatesWithinWatermark"), _KEEPS[1]),
    **dict.fromkeys(("intersect", "subtract"), _OTHERS[1]),
    "agg": "Group first: groupBy(...).agg(...), or groupBy(...).window(...).agg(...)",
    "explode": _MULTIPLIES[1],
    "crossJoin": _JOINS[1],
    "unionByName": _UNITES[1],
    "coalesce": "Apply coalesce to the source DataFrame before causal()",
}
"""What to do, by the methods of a DataFrame that cannot follow `causal()`. Only `coalesce` may stand before it."""

_CHANCE = (
    "Draw it inside a function after causal(): ctx.random (a random.Random) and ctx.uuid4() are recorded"
)
_CLOCK = "Read the clock inside a function after causal(): ctx.now() is recorded"
_PLACE = "An identity comes from the source: give causal() channel= and position= columns that the source has"
_CALL = "Call it inside a function after causal(), with ctx.call(fn, ...), which is recorded"
_HINTS: Final = {
    **dict.fromkeys(("Rand", "Randn", "Uuid", "Shuffle", "Uniform", "RandStr"), _CHANCE),
    **dict.fromkeys(("SparkPartitionID", "MonotonicallyIncreasingID"), _PLACE),
}
_OF_THE_SOURCE: Final = {"InputFileName", "InputFileBlockStart", "InputFileBlockLength"}
"""Nondeterministic to Spark, but a source record comes from the same file at each reading."""


def check_before_causal(df: Any) -> None:
    """Raises QueryDefinitionError, naming what is refused and where."""
    patterns = df.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    for node in _nodes(df._jdf.queryExecution().analyzed()):
        name = str(node.nodeName())
        if node.children().size() and name not in _PASSES and not _keeps_order(node, name):
            why, hint = _REFUSED.get(name, _OTHERS)
            raise QueryDefinitionError(f"{_shown(node)} cannot stand before causal(): {why}", hint=hint)
        if name == "CollectMetrics":  # counts what passes, and changes nothing
            continue
        for expression in items(node.expressions()):
            _check_expression(expression, name, patterns)


def _keeps_order(node: Any, name: str) -> bool:
    """`coalesce`: whole partitions, one after another."""
    return name == "Repartition" and not node.shuffle()


def _check_expression(expression: Any, node: str, patterns: Any) -> None:
    named = expression.getClass().getSimpleName() == "Alias"
    where = f"column {expression.name()!r}" if named else f"a {node}"
    # Spark has not marked current_time() as it has the others.
    if expression.containsPattern(patterns.CURRENT_LIKE()) or "current_time" in expression.toString():
        for found in _expressions(expression):
            kind = found.getClass().getSimpleName()
            if kind in ("CurrentTimestamp", "Now", "LocalTimestamp", "CurrentDate", "CurrentTime"):
                raise QueryDefinitionError(
                    f"{found.sql()} in {where} stands before causal(): it is another one when a record is read again",
                    hint=_CLOCK,
                )
    if expression.containsPattern(patterns.PLAN_EXPRESSION()):
        raise QueryDefinitionError(
            f"a subquery in {where} stands before causal(): {_JOINS[0]}", hint=_JOINS[1]
        )
    if expression.deterministic():
        return
    for found in _expressions(expression):
        kind = found.getClass().getSimpleName()
        own = not found.deterministic() and all(child.deterministic() for child in items(found.children()))
        if own and kind not in _OF_THE_SOURCE:
            raise QueryDefinitionError(
                f"{found.sql()} in {where} stands before causal(): it is not deterministic, so a record that is read "
                "again would be another one",
                hint=_HINTS.get(kind, _CALL),
            )


def _shown(node: Any) -> str:
    return str(node.simpleString(80)).lstrip("~")


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in items(plan.children()):
        yield from _nodes(child)


def _expressions(expression: Any) -> Iterator[Any]:
    yield expression
    for child in items(expression.children()):
        yield from _expressions(child)


def items(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala Seq."""
    for index in range(sequence.size()):
        yield sequence.apply(index)
