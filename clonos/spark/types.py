"""Spark's schemas and intervals as the surface takes them: from the user, checked, in Spark's own reading."""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from clonos.errors import QueryDefinitionError
from clonos.operators.group_state import duration_us
from clonos.operators.types import COLUMNS_APART, arrow_schema

_DAYS_PER_MONTH = 31  # as Spark counts a watermark's delay
_QUOTED: Final = re.compile("`(?:[^`]|``)*`")


def quoted(name: str) -> str:
    """A column's name as expressions take it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def struct_type(schema: Any) -> Any:
    """A StructType from one, or from DDL."""
    from pyspark import SparkContext
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, str):
        if SparkContext._active_spark_context is None:
            # An operator is tested; PySpark's reader of DDL is the JVM's.
            return from_arrow_schema(arrow_schema(schema))
        try:
            return StructType.fromDDL(schema)
        except Exception as error:
            raise QueryDefinitionError(
                f"the schema {schema!r} cannot be read: {str(error).strip().splitlines()[0]}",
                hint="Write it as DDL: 'card string, total double'",
            ) from error
    raise QueryDefinitionError(f"a schema is a StructType or DDL text, not {type(schema).__name__}")


def struct_type_of(table: Any) -> Any:
    """That of a DataFrame, or of a PyArrow table."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(table.schema) if isinstance(table, pa.Table) else table.schema


def united(mine: Any, theirs: Any) -> Any:
    """The schema of a union: equal names and types, nullable where either is."""
    from pyspark.sql.types import StructField, StructType

    texts = mine.simpleString(), theirs.simpleString()
    if texts[0] != texts[1]:
        raise QueryDefinitionError(
            f"streams with different schemas cannot be united: {texts[0]} and {texts[1]}",
            hint="Give both the same columns, with select() or map()",
        )
    return StructType(
        [
            StructField(a.name, _nullable(a.dataType, b.dataType), a.nullable or b.nullable, a.metadata)
            for a, b in zip(mine.fields, theirs.fields)
        ]
    )


def _nullable(mine: Any, theirs: Any) -> Any:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(mine, StructType):
        return united(mine, theirs)
    if isinstance(mine, ArrayType):
        element = _nullable(mine.elementType, theirs.elementType)
        return ArrayType(element, mine.containsNull or theirs.containsNull)
    if isinstance(mine, MapType):
        key, value = _nullable(mine.keyType, theirs.keyType), _nullable(mine.valueType, theirs.valueType)
        return MapType(key, value, mine.valueContainsNull or theirs.valueContainsNull)
    return mine


def delay_microseconds(spark: Any, text: str, what: str = "the watermark's delay") -> int:
    """A span of event time such as '10 minutes', read by Spark itself."""
    if not isinstance(text, str):
        raise QueryDefinitionError(f"{what} is text such as '10 minutes', not {text!r}")
    delay = _microseconds(spark, text, _DAYS_PER_MONTH)
    if delay < 0:
        raise QueryDefinitionError(f"{what} {text!r} is negative")
    return delay


def window_microseconds(spark: Any, text: str, what: str) -> int:
    """The size, slide, gap or start of windows, read by Spark itself. Months have no length."""
    if not isinstance(text, str):
        raise QueryDefinitionError(f"{what} is text such as '10 minutes', not {text!r}")
    span = _microseconds(spark, text, 0)
    if span != _microseconds(spark, text, _DAYS_PER_MONTH):
        raise QueryDefinitionError(
            f"{what} {text!r} has months, which differ in length", hint="Give it in days"
        )
    return span


def _microseconds(spark: Any, text: str, days_per_month: int) -> int:
    jvm = spark._jvm
    if jvm is None:  # a session of `clonos.testing.driver`
        return duration_us(text, days_per_month)
    try:
        utils = jvm.org.apache.spark.sql.catalyst.util.IntervalUtils
        unit = jvm.java.util.concurrent.TimeUnit.MICROSECONDS
        return int(utils.getDuration(utils.fromIntervalString(text), unit, days_per_month))
    except Exception as error:
        raise QueryDefinitionError(f"{text!r} is not an interval", hint="For example '10 minutes'") from error


def column_named(name: Any, names: list[str], spark: Any) -> str:
    """The column that a name means, which may be quoted, as Spark resolves it."""
    if isinstance(name, str) and _QUOTED.fullmatch(name):
        name = name[1:-1].replace("``", "`")
    if name in names:
        return str(name)
    if not case_sensitive(spark):
        found = [column for column in names if column.lower() == str(name).lower()]
        if len(found) == 1:
            return found[0]
    raise QueryDefinitionError(f"there is no column {name!r}; there are {', '.join(names)}")


def check_columns(schema: Any, what: str, spark: Any) -> None:
    """Refuse names that Spark could not tell apart, and those taken for the hidden columns."""
    names = schema.names if case_sensitive(spark) else [name.lower() for name in schema.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise QueryDefinitionError(
            f"{what} has two columns called {twice[0]!r}",
            hint=COLUMNS_APART,
        )
    hidden = [name for name in schema.names if name.lower().startswith("_clonos")]
    if hidden:
        raise QueryDefinitionError(
            f"{what} has the column {hidden[0]!r}; names that begin with _clonos are taken"
        )


def case_sensitive(spark: Any) -> bool:
    return str(spark.conf.get("spark.sql.caseSensitive", "false")) == "true"


def check_intervals(kind: Any, where: str) -> None:
    """Raises QueryDefinitionError where a type of Spark has intervals of other units than from day to second: a value
    does not say which units are meant, and a sink would write others than Spark does."""
    from pyspark.sql.types import ArrayType, DayTimeIntervalType, MapType, StructType

    match kind:
        case DayTimeIntervalType() if kind != DayTimeIntervalType():
            raise QueryDefinitionError(
                f"{where} has a column of type {kind.simpleString()!r}, which is not supported",
                hint="Cast it to interval day to second",
            )
        case StructType():
            for field in kind.fields:
                check_intervals(field.dataType, where)
        case ArrayType():
            check_intervals(kind.elementType, where)
        case MapType():
            check_intervals(kind.keyType, where)
            check_intervals(kind.valueType, where)
