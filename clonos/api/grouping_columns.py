"""The columns of a key, given as PySpark takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clonos.api.expressions import is_expression
from clonos.errors import QueryDefinitionError
from clonos.spark.routing import check_key_types
from clonos.spark.types import column_named

if TYPE_CHECKING:
    from clonos.api.streams import CausalStream


def key_columns(stream: CausalStream, columns: tuple[Any, ...]) -> tuple[str, ...]:
    """The columns of a key, given as PySpark takes them. Raises QueryDefinitionError."""
    given = columns[0] if len(columns) == 1 and isinstance(columns[0], list | tuple) else columns
    named = tuple(column_name(stream, column) for column in given)
    return key_columns_of(stream.schema, named, stream._spark)


def key_columns_of(schema: Any, columns: tuple[Any, ...], spark: Any) -> tuple[str, ...]:
    """The columns of a key in a schema, by their names. Raises QueryDefinitionError."""
    key = tuple(column_named(column, schema.names, spark) for column in columns)
    if not key:
        raise QueryDefinitionError("groupBy needs at least one column")
    if len(set(key)) < len(key):
        raise QueryDefinitionError(f"a key column is given twice: {', '.join(key)}")
    check_key_types(schema, key)
    return key


def key_types(schema: Any, key: tuple[str, ...]) -> list[str]:
    """Of the columns of a key, as messages say them: keys of two streams are compared by these."""
    return [schema[column].dataType.simpleString() for column in key]


def column_name(stream: CausalStream, column: Any) -> str:
    """The name behind a grouping column: text, or a Column that is nothing but one of the stream's. Raises
    QueryDefinitionError."""
    if isinstance(column, str):
        return column
    name = stream._spark_columns.name_of(column) if is_expression(column) else None
    if name is None:
        raise QueryDefinitionError(
            f"groupBy takes column names, not {column!r}",
            hint="Compute the key as a column before, with withColumn()",
        )
    return name
