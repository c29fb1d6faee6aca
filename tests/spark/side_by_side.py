"""The same expressions over the same rows in Spark and in a replica's evaluator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from clonos.operators.expressions.compiled import EvaluationError
from clonos.operators.expressions.derived import DerivedRows, ExpressionFailed
from clonos.operators.rows import RowDecoder, RowEncoder
from clonos.operators.types import arrow_schema
from clonos.spark.derivation import derived
from clonos.spark.plan import Binding, DerivedPlan, OperatorPlan
from clonos.spark.stream_columns import StreamColumns

Row = tuple[Any, ...]
Asked = str | Callable[[], Any]
"""SQL, or what makes a Column."""


def column_of(expression: Asked) -> Any:
    return f.expr(expression) if isinstance(expression, str) else expression()


class Outcome(NamedTuple):
    """A value, or an error that has no other."""

    failed: bool
    value: Any = None


FAILED = Outcome(True)


class SideBySide:
    def __init__(self, spark: Any, ddl: str, rows: Sequence[Row]) -> None:
        self._spark = spark
        self._zone = spark.conf.get("spark.sql.session.timeZone")
        self._schema = StructType.fromDDL(ddl)
        self._rows = list(rows)
        self._node = OperatorPlan(
            (), self._schema, (), lambda given, name: lambda: None, self._schema, Binding("op"), None
        )

    def derivation(self, expression: Asked) -> DerivedPlan:
        """Raises QueryDefinitionError where it is not evaluated behind an operator."""
        columns = StreamColumns(self._spark, (self._node,), self._schema)
        asked = column_of(expression)
        plan = derived(columns, self._node, lambda df: df.select(asked.alias("r"))).upstream
        assert isinstance(plan, DerivedPlan)
        return plan

    def ours(self, expression: Asked) -> list[Outcome]:
        plan = self.derivation(expression)
        make = DerivedRows(arrow_schema(self._schema), plan.derivation, "op")
        schema = plan.derivation.schema
        encoder, decoder = RowEncoder(schema, self._zone), RowDecoder(schema, self._zone, instants=True)
        found = []
        for row in self._rows:
            try:
                made = make([row])
            except ExpressionFailed as error:
                assert isinstance(error.cause, EvaluationError), (expression, row, error.cause)
                found.append(FAILED)
                continue
            found.append(Outcome(False, decoder.decode(encoder.batch(made))[1][0][0]))  # type: ignore[arg-type]
        return found

    def _theirs(
        self, expressions: Sequence[Asked], rows: Sequence[Row], asked: Sequence[Sequence[bool]] | None = None
    ) -> list[list[Any]]:
        """By expression, its values; with `asked`, only of the rows of which that says so, and None of the others."""
        columns = StructType(list(self._schema.fields))
        for at in range(len(asked or ())):
            columns.add(f"asked{at}", "boolean")
            rows = [(*row, is_asked) for row, is_asked in zip(rows, asked[at], strict=True)]
        batch = RowEncoder(arrow_schema(columns), self._zone).batch(rows)
        given = self._spark.createDataFrame(pa.Table.from_batches([batch]), columns)
        made = given.select(
            *[
                (f.when(f.col(f"asked{at}"), column_of(each)) if asked else column_of(each)).alias(f"r{at}")
                for at, each in enumerate(expressions)
            ]
        )
        schema = arrow_schema(made.schema)
        table = made.toArrow().cast(schema).combine_chunks()
        decoder = RowDecoder(schema, self._zone, instants=True)
        (whole,) = table.to_batches()
        return decoder.columns(whole)

    def _fails(self, expression: Asked, row: Row) -> bool:
        try:
            self._theirs([expression], [row])
        except PySparkException:
            return True
        return False

    def check(self, expressions: Sequence[Asked]) -> None:
        """That both sides give the same, or fail, row by row. Of the rows where it fails, Spark is asked for one."""
        ours = {each: self.ours(each) for each in expressions}
        quiet = [each for each in expressions if FAILED not in ours[each]]
        wrong = []
        for expression, values in zip(quiet, self._theirs(quiet, self._rows) if quiet else (), strict=True):
            wrong += self._differing(expression, self._rows, ours[expression], values)
        failing = [each for each in expressions if FAILED in ours[each]]
        asked = [[not outcome.failed for outcome in ours[each]] for each in failing]
        theirs = self._theirs(failing, self._rows, asked) if failing else ()
        for expression, values, is_asked in zip(failing, theirs, asked, strict=True):
            compared = [
                list(itertools.compress(all_, is_asked)) for all_ in (self._rows, ours[expression], values)
            ]
            wrong += self._differing(expression, *compared)
            failed = [row for row, good in zip(self._rows, is_asked, strict=True) if not good]
            one = failed[len(failed) // 2]
            if not self._fails(expression, one):
                wrong.append((expression, one, "fails here alone"))
        assert not wrong, wrong[:5]

    @staticmethod
    def _differing(
        expression: Asked, rows: Sequence[Row], ours: Sequence[Outcome], theirs: Sequence[Any]
    ) -> list[Any]:
        triples = zip(rows, ours, theirs, strict=True)
        return [(expression, row, mine, value) for row, mine, value in triples if not same(mine.value, value)]


def same(mine: Any, theirs: Any) -> bool:
    """Bit by bit, but for which NaN it is."""
    if isinstance(mine, float) and isinstance(theirs, float):
        both_nan = mine != mine and theirs != theirs
        return both_nan or (mine == theirs and math.copysign(1, mine) == math.copysign(1, theirs))
    if isinstance(mine, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(mine, Decimal):
        return isinstance(theirs, Decimal) and str(mine) == str(theirs)
    return type(mine) is type(theirs) and bool(mine == theirs)
