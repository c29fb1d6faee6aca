"""Spark's own `select`, `where` and their like on a causal stream: what they make of a plan.

On a source they are done by Spark, in front of everything. Behind an operator Spark only analyses them, over a
DataFrame without rows, and the operator's replica evaluates what comes out (`clonos.operators.derived_outputs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from clonos.errors import QueryDefinitionError
from clonos.operators.expressions.derived import DerivedRows
from clonos.operators.expressions.tree import Derivation, Select, Step, Unsupported, Where
from clonos.operators.types import arrow_schema
from clonos.spark.before_causal import check_before_causal, items
from clonos.spark.expression_tree import BY_A_FUNCTION, Reader, text_of
from clonos.spark.identity import carried_on
from clonos.spark.plan import DerivedPlan, SideOutputPlan, SourcePlan, Upstream, base_output, schema_of
from clonos.spark.stream_columns import StreamColumns, attributes

Own = Callable[[Any], Any]
"""From a DataFrame to one: what the user has asked for."""

_ELSEWHERE: Final = {
    "Generate": "Use flat_map(fn, output), which makes several rows of one",
    "Aggregate": "Use groupBy(...).agg(...) of the causal stream, or process(fn, output) with ctx.state",
    "Window": "Use groupBy(...).process(fn, output) with ctx.state",
}


class Derived(NamedTuple):
    """What Spark's own method has made of one upstream. `given` and `asked` are the DataFrames that it got and gave."""

    upstream: Upstream
    schema: Any
    given: Any
    asked: Any


def derived(columns: StreamColumns, upstream: Upstream, own: Own) -> Derived:
    """The rows of an upstream of a stream with what Spark's own method makes of them. Raises QueryDefinitionError, and
    Spark's own AnalysisException."""
    frame = columns.frame_for(upstream)
    asked = own(frame)
    if isinstance(upstream, SourcePlan):
        check_before_causal(asked)
        return Derived(carried_on(upstream, asked), asked.schema, frame, asked)
    zone = str(frame.sparkSession.conf.get("spark.sql.session.timeZone"))
    given = schema_of(upstream)
    steps, said = _steps(frame.sparkSession, asked, zone)
    more = Derivation(steps, arrow_schema(asked.schema), zone, said)
    _check(given, more)
    if isinstance(upstream, DerivedPlan):
        more = upstream.derivation.then(more)
    node = upstream.node if isinstance(upstream, SideOutputPlan | DerivedPlan) else upstream
    made = DerivedPlan(node, base_output(upstream), more, asked.schema)
    return Derived(made, asked.schema, frame, asked)


def _check(given: Any, derivation: Derivation) -> None:
    """That a replica can evaluate it."""
    try:
        DerivedRows(arrow_schema(given), derivation, "")
    except Unsupported as error:
        raise QueryDefinitionError(
            f"the expression {error} is not evaluated behind an operator", hint=BY_A_FUNCTION
        ) from None


def _steps(spark: Any, asked: Any, zone: str) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """And as users read them."""
    nodes = list(_down(asked))
    for name, _ in nodes[:-1]:
        if name not in ("Project", "Filter"):
            raise QueryDefinitionError(
                f"{name} cannot follow an operator: only what makes one row of one, or drops it",
                hint=_ELSEWHERE.get(name, BY_A_FUNCTION),
            )
    columns = places(items(nodes.pop()[1].output()))
    steps: list[Step] = []
    said = []
    for name, node in reversed(nodes):
        read = Reader(spark, zone, columns).read
        if name == "Filter":
            steps.append(Where(read(node.condition())))
            said.append(f"where {text_of(node.condition())}")
        else:
            listed = list(items(node.projectList()))
            steps.append(Select(tuple(map(read, listed))))
            said.append(f"select {', '.join(map(text_of, listed))}")
            columns = places(items(node.output()))
    return tuple(steps), tuple(said)


def _down(df: Any) -> Iterator[tuple[str, Any]]:
    """The nodes of its plan with their names, from the top."""
    node = df._jdf.queryExecution().analyzed()
    yield str(node.nodeName()), node
    while node.children().size():
        node = node.children().apply(0)
        yield str(node.nodeName()), node


def places(output: Iterable[Any]) -> dict[int, int]:
    """Of attributes, by their ids."""
    return {attribute.exprId().id(): place for place, attribute in enumerate(output)}


class Followed(NamedTuple):
    """What has become of a column."""

    name: str | None
    """What it is called now; None where it is not there any more."""
    computed: frozenset[str]
    """The other columns that say something of it."""
    drops_rows: bool
    """Whether rows are dropped by what it is, or by what was computed from it."""


def followed(given: Any, asked: Any, column: str, computed: frozenset[str]) -> Followed:
    """A column of the DataFrame `given`, from which others of it are `computed`, behind what was `asked` of it."""
    same = {attribute.exprId().id() for attribute in attributes(given) if attribute.name() == column}
    say = same | {attribute.exprId().id() for attribute in attributes(given) if attribute.name() in computed}
    nodes, known = list(_down(asked)), len(list(_down(given)))
    drops_rows = False
    for name, node in reversed(nodes[: len(nodes) - known]):
        if name == "Filter":
            drops_rows = drops_rows or _asks(node.condition(), say)
        elif name == "Project":
            for each in items(node.projectList()):
                if each.getClass().getSimpleName() == "Alias" and _asks(each.child(), say):
                    say.add(each.exprId().id())
                    if _is_column(each.child(), same):
                        same.add(each.exprId().id())
    names = {each.exprId().id(): str(each.name()) for each in attributes(asked)}
    found = [name for identity, name in names.items() if identity in same]
    now = column if column in found else next(iter(found), None)
    return Followed(
        now,
        frozenset(name for identity, name in names.items() if identity in say and name != now),
        drops_rows,
    )


def _asks(expression: Any, columns: set[int]) -> bool:
    return any(each.exprId().id() in columns for each in items(expression.references().toSeq()))


def _is_column(expression: Any, same: set[int]) -> bool:
    return expression.getClass().getSimpleName() == "AttributeReference" and expression.exprId().id() in same
