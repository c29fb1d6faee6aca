"""What Spark has made of an expression, read off its analysed plan: columns resolved, types and modes decided.

What does not depend on a row is evaluated here, by Spark itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from clonos.errors import QueryDefinitionError
from clonos.operators.expressions.arithmetic import EXACT, single
from clonos.operators.expressions.kinds import INTEGERS, decimal_of
from clonos.operators.expressions.tree import COLUMN, LITERAL, Expression
from clonos.operators.rows import local, zone_of
from clonos.spark.before_causal import items

_CLOCKS: Final = frozenset({"CurrentTimestamp", "Now", "LocalTimestamp", "CurrentDate", "CurrentTime"})
_ARITHMETIC: Final = frozenset({"Add", "Subtract", "Multiply", "Divide", "IntegralDivide", "Remainder"})
_REPLACEABLE: Final = "org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable"
_EPOCH: Final = datetime(1970, 1, 1)
_CASED: Final = 0x20000
"""Characters from here on are neither upper nor lower case."""
_RECORDED: Final = (
    "Use a function instead, map() or filter(): ctx.random, ctx.now() and ctx.call(fn, ...) are recorded"
)
BY_A_FUNCTION: Final = 'Do it in a function: map(fn, output, name="...") or filter(fn, name="...")'


class Reader:
    """Of the expressions of one node of a plan: `columns` are the places of those that it gets, by their ids."""

    def __init__(self, spark: Any, zone: str, columns: Mapping[int, int]) -> None:
        self._spark = spark
        self._zone = zone
        self._columns = columns
        self._common: dict[int, Expression] = {}

    def read(self, expression: Any) -> Expression:
        """Raises QueryDefinitionError."""
        try:
            self._check(expression)
            return self._read(expression)
        except jvm_errors() as error:
            raise QueryDefinitionError(
                f"Spark does not say of {text_of(expression)} what a replica must know to evaluate it behind an "
                f"operator ({type(error).__name__}: {first_line(error)})",
                hint=BY_A_FUNCTION,
            ) from error

    def _check(self, expression: Any) -> None:
        """That it gives the same whenever it is evaluated."""
        kind = str(expression.getClass().getSimpleName())
        children = list(items(expression.children()))
        own = not expression.deterministic() and all(child.deterministic() for child in children)
        if kind in _CLOCKS or own:
            raise QueryDefinitionError(
                f"{expression.sql()} is another one when a row is made again, and cannot follow causal()",
                hint=_RECORDED,
            )
        for child in children:
            self._check(child)

    def _read(self, expression: Any) -> Expression:
        op = str(expression.getClass().getSimpleName())
        if op == "Alias":
            return self._read(expression.child())
        if op == "UpdateFields":  # withField, dropFields
            return self._read(expression.evalExpr())
        kind = str(expression.dataType().catalogString())
        if op == "AttributeReference":
            return self._column(expression, kind)
        if expression.foldable():
            value = self._folded(expression, kind)
            if value is not None:
                return value
        if op == "CommonExpressionRef":
            return self._common[expression.id().id()]
        if op == "With":
            for each in items(expression.defs()):
                self._common[each.id().id()] = self._read(each.child())
            return self._read(expression.child())
        if self._is_replaceable(expression):
            return self._read(expression.replacement())
        args = tuple(map(self._read, items(expression.children())))
        return Expression(op, kind, args, self._more(expression, op), str(expression.sql()))

    def _is_replaceable(self, expression: Any) -> bool:
        return self._is_a(expression, _REPLACEABLE)

    def _is_a(self, expression: Any, name: str) -> bool:
        from py4j.java_gateway import is_instance_of

        return bool(is_instance_of(self._spark.sparkContext._gateway, expression, name))

    def _column(self, expression: Any, kind: str) -> Expression:
        text = str(expression.sql())
        index = self._columns.get(expression.exprId().id())
        if index is None:
            raise QueryDefinitionError(f"{text} is no column of this stream")
        return Expression(COLUMN, kind, (), (("index", index),), text)

    # ---------------------------------------------------------------- literals

    def _folded(self, expression: Any, kind: str) -> Expression | None:
        """None where it must be evaluated row by row: its value is none that is known here, or an error."""
        try:
            value = expression.eval(None)
            literal = None if value is None else self._literal(value, kind)
        except Exception:
            return None
        if value is not None and literal is None:
            return None
        return Expression(LITERAL, kind, (), (("value", literal),), str(expression.sql()))

    def _literal(self, value: Any, kind: str) -> Any:
        """In the form that it has in a row; None for types that are not known here."""
        if kind == "float":
            return single(value)
        if kind in INTEGERS or kind in ("double", "boolean"):
            return value
        if found := decimal_of(kind):
            return EXACT.quantize(value.toJavaBigDecimal(), Decimal(1).scaleb(-found[1]))
        if kind == "string":
            return str(value.toString())
        if kind == "binary":
            return bytes(value)
        if kind == "date":
            return date(1970, 1, 1) + timedelta(days=value)
        if kind == "timestamp":
            return local(value, zone_of(self._zone))
        return _EPOCH + timedelta(microseconds=value) if kind == "timestamp_ntz" else None

    # ------------------------------------------------- what is not said by children

    def _more(self, expression: Any, op: str) -> tuple[tuple[str, Any], ...]:
        said: dict[str, Any] = {}
        if op in _ARITHMETIC:
            said["mode"] = str(expression.evalContext().evalMode().toString())
        elif op == "Cast":
            said["mode"] = str(expression.evalMode().toString())
        elif op in ("UnaryMinus", "Abs", "GetArrayItem", "ElementAt"):
            said["fails"] = bool(expression.failOnError())
        elif op == "GetStructField":
            said["at"] = int(expression.ordinal())
        elif op == "Like":
            said["escape"] = str(expression.escapeChar())
        elif op == "Size":
            said["legacy"] = bool(expression.legacySizeOfNull())
        elif op in ("Upper", "Lower"):
            said["table"] = _case_table(self._spark, op)
        if op == "ElementAt":
            said["has_default"] = bool(expression.defaultValueOutOfBound().isDefined())
        self._check_zone(expression)
        return tuple(sorted(said.items()))

    def _check_zone(self, expression: Any) -> None:
        if not self._is_a(expression, "org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression"):
            return
        zone = expression.timeZoneId()
        if zone.isDefined() and str(zone.get()) != self._zone:
            raise QueryDefinitionError(
                f"{expression.sql()} is meant in the time zone {zone.get()}, the stream's rows in {self._zone}",
                hint=BY_A_FUNCTION,
            )


def jvm_errors() -> tuple[type[Exception], ...]:
    """What a call of an object of the JVM raises."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException


def text_of(expression: Any) -> str:
    """An expression as SQL; Spark writes not every one that way."""
    for written in (expression.sql, expression.toString):
        try:
            return str(written())
        except jvm_errors():
            continue
    return "an expression"


def first_line(error: Exception) -> str:
    """Of what the JVM says."""
    inner = getattr(error, "java_exception", None)
    said = str(error if inner is None else inner.toString()).strip()
    return said.splitlines()[0] if said else "no reason is given"


@lru_cache(maxsize=8)
def _case_table(spark: Any, op: str) -> tuple[tuple[str, str], ...]:
    """What becomes of each character, as Spark in this JVM has it; of those alone that are changed."""
    from pyspark.sql import functions as f

    given = [chr(code) for code in range(_CASED) if not 0xD800 <= code < 0xE000 and chr(code) != "\n"]
    column = (f.upper if op == "Upper" else f.lower)(f.lit("\n".join(given)))
    plan = spark.range(1).select(column)._jdf.queryExecution().analyzed()
    made = str(plan.projectList().apply(0).child().eval(None).toString()).split("\n")
    found = tuple((one, other) for one, other in zip(given, made, strict=True) if one != other)
    plain = {(one, one.upper() if op == "Upper" else one.lower()) for one in map(chr, range(128))}
    if {(one, other) for one, other in found if one.isascii()} != {
        pair for pair in plain if pair[0] != pair[1]
    }:
        raise QueryDefinitionError(
            f"{op.lower()} of this JVM's language is not known to a replica", hint=BY_A_FUNCTION
        )
    return found
