"""`initialState` of `transformWithState`: the rows that keys begin with, grouped as the stream is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from clonos.api.grouping_columns import key_columns_of, key_types
from clonos.api.streams import CausalStream, arrow
from clonos.errors import QueryDefinitionError
from clonos.spark.plan import TablePlan
from clonos.spark.types import struct_type_of

_GROUPED = (
    'Give df.groupBy("key") of a DataFrame that is no stream, or table.group_by("key") of a PyArrow table'
)


def initial_table(given: Any, stream: CausalStream, key: tuple[str, ...], name: str) -> TablePlan:
    """Read once, when the query starts for the first time. Raises QueryDefinitionError."""
    if isinstance(given, pa.TableGroupBy):
        rows, columns = given._table, given.keys
    elif hasattr(given, "_jgd") and not given._df.isStreaming:
        rows, columns = given._df, given.count().columns[:-1]
    else:
        raise QueryDefinitionError(
            f"the initialState of {name!r} is {type(given).__name__}, or grouped from a stream", hint=_GROUPED
        )
    schema = struct_type_of(rows)
    columns = [columns] if isinstance(columns, str) else list(columns)
    missing = [column for column in columns if column not in schema.names]
    if missing:
        raise QueryDefinitionError(
            f"the initialState of {name!r} is grouped by {', '.join(missing)}, which is none of its columns",
            hint="Compute the key as a column before, with withColumn()",
        )
    own = key_columns_of(schema, tuple(columns), stream._spark)
    mine, given_types = key_types(stream.schema, key), key_types(schema, own)
    if mine != given_types:
        raise QueryDefinitionError(
            f"the keys of {name!r} have the types {mine} in the stream and {given_types} in the initialState",
            hint="Group both by the same columns, and cast those of the initialState",
        )
    return TablePlan(lambda: rows, arrow(schema), key=own)
