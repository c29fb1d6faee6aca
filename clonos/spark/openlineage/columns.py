"""From which columns of its sources each column of a sink comes, over all operators between them.

What expressions, aggregates and joins do is known (`clonos.operators.column_flow`). What a user's function makes of a
row is not, nor what goes through a loop: nothing is said of columns that come from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clonos.operators.column_flow import (
    ColumnFlow,
    Flow,
    From,
    Input,
    KnowsColumns,
    Transformation,
    columns_named,
    followed,
    of_expression,
    through,
)
from clonos.operators.expressions.tree import Derivation, Select
from clonos.operators.types import arrow_schema
from clonos.protocol.side_output import MAIN
from clonos.spark.openlineage.source_datasets import Column, Read
from clonos.spark.plan import (
    DerivedPlan,
    OperatorPlan,
    SinkPlan,
    SourcePlan,
    Upstream,
    base_output,
    node_of,
    schema_of,
)


@dataclass(frozen=True, slots=True)
class RowsFrom:
    """Where rows come from: each of their columns (None: not known), and what has a say in which rows there are."""

    columns: tuple[Flow[Column] | None, ...]
    rows: Flow[Column] = frozenset()


class ColumnLineage:
    """Of one query. `reads` are those of its sources, by `id` of their plans, `tables` those of tables beside streams,
    by that of the operator."""

    def __init__(self, reads: Mapping[int, Read], tables: Mapping[int, Read]) -> None:
        self._reads, self._tables = reads, tables
        self._known: dict[int, RowsFrom] = {}

    def of_sink(self, sink: SinkPlan) -> RowsFrom:
        return self._united(sink.upstream, len(sink.input.fields))

    def _united(self, upstream: Sequence[Upstream], width: int) -> RowsFrom:
        """The rows of all of them, whose columns correspond by their places."""
        each = list(map(self._of, upstream))
        columns: list[Flow[Column] | None] = []
        for at in range(width):
            flows = [one.columns[at] for one in each]
            known = [flow for flow in flows if flow is not None]
            columns.append(frozenset().union(*known) if len(known) == len(flows) else None)
        return RowsFrom(tuple(columns), frozenset().union(*(one.rows for one in each)))

    def _of(self, upstream: Upstream) -> RowsFrom:
        if isinstance(upstream, DerivedPlan):
            return _derived(self._base(upstream), upstream.derivation)
        return self._base(upstream)

    def _base(self, upstream: Upstream) -> RowsFrom:
        """Of an output that the node gives itself."""
        node = node_of(upstream)
        if isinstance(node, SourcePlan):
            read = self._reads.get(id(node))
            return _unknown(schema_of(node)) if read is None else RowsFrom(read.columns, read.rows)
        found = self._of_operator(node)
        output = base_output(upstream)
        return found if output == MAIN else _unknown(node.side_outputs[output], found.rows)

    def _of_operator(self, node: OperatorPlan) -> RowsFrom:
        found = self._known.get(id(node))
        if found is None:
            found = self._known[id(node)] = self._through(node)
        return found

    def _through(self, node: OperatorPlan) -> RowsFrom:
        given = self._united(node.upstream, len(node.input.fields))
        right = None
        if node.right is not None:
            right = self._united(node.right.upstream, len(node.right.input.fields))
        before = given.rows | (frozenset() if right is None else right.rows)
        flow = column_flow_of(node)
        if flow is None:
            return _unknown(node.schema, before)
        lookup = _Lookup(node, given, right, self._tables.get(id(node))).column
        columns = given.columns
        if flow.columns is not None:
            columns = tuple(None if each is None else followed(each, lookup) for each in flow.columns)
        return RowsFrom(columns, before | _known_part(flow.rows, lookup))


def column_flow_of(node: OperatorPlan) -> ColumnFlow | None:
    """None of a function of the user's."""
    operator = node.operator(arrow_schema(node.input), node.binding.name)()
    return operator.column_flow(len(node.key)) if isinstance(operator, KnowsColumns) else None


@dataclass(frozen=True, slots=True)
class _Lookup:
    """Where the columns of an operator's input come from."""

    node: OperatorPlan
    given: RowsFrom
    right: RowsFrom | None
    table: Read | None

    def column(self, of: From) -> Flow[Column] | None:
        match of.of:
            case Input.ROW:
                return self.given.columns[of.at]
            case Input.KEY:
                return self.given.columns[_index(self.node.input, self.node.key[of.at])]
            case Input.TABLE:
                return self.table.columns[of.at] if self.table is not None and self.table.columns else None
        if self.right is None or self.node.right is None:
            return None
        plan = self.node.right
        at = _index(plan.input, plan.key[of.at]) if of.of is Input.RIGHT_KEY else of.at
        return self.right.columns[at]


def _index(schema: Any, column: str) -> int:
    """Of a column in a StructType."""
    return int(schema.names.index(column))


def _derived(given: RowsFrom, derivation: Derivation) -> RowsFrom:
    """Behind `select` and `where`."""
    columns, rows = given.columns, given.rows
    for step in derivation.steps:
        if isinstance(step, Select):
            columns = tuple(of_expression(each, columns.__getitem__) for each in step.columns)
        else:
            for at in columns_named(step.condition):
                rows |= through(columns[at] or frozenset(), Transformation.FILTER)
    return RowsFrom(columns, rows)


def _known_part(flow: Flow[From], lookup: Callable[[From], Flow[Column] | None]) -> Flow[Column]:
    """Of what has a say in rows, each part is true without the others."""
    parts = (followed(frozenset({each}), lookup) for each in flow)
    return frozenset().union(*(part for part in parts if part is not None))


def _unknown(schema: Any, rows: Flow[Column] = frozenset()) -> RowsFrom:
    return RowsFrom((None,) * len(schema.fields), rows)
