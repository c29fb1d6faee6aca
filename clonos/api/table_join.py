"""`stream.join(table, on, how)`: a stream beside a table that changes slowly, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from clonos.api.grouping_columns import column_name, key_columns_of, key_types
from clonos.api.joined_columns import joined_columns, others
from clonos.api.streams import CausalStream, arrow
from clonos.errors import QueryDefinitionError
from clonos.operators.table_join import How, TableJoin
from clonos.spark.plan import Binding, TablePlan
from clonos.spark.types import struct_type_of, window_microseconds

_HOW = {
    "inner": How.INNER,
    "left": How.LEFT,
    "leftouter": How.LEFT,
    "semi": How.LEFT_SEMI,
    "leftsemi": How.LEFT_SEMI,
    "anti": How.LEFT_ANTI,
    "leftanti": How.LEFT_ANTI,
}
_NO_TABLE = (
    "Give a DataFrame that is no stream, a function that returns one, or a PyArrow table; of two streams, both are "
    "causal, with within="
)


def join_table(
    stream: CausalStream, table: Any, on: Any, how: Any, *, refresh: str | None, binding: Binding
) -> CausalStream:
    """Raises QueryDefinitionError."""
    name = binding.name
    kind = _HOW.get(how.lower().replace("_", "")) if isinstance(how, str) else None
    if kind is None:
        raise QueryDefinitionError(
            f"{name!r} is a join of kind {how!r}",
            hint="A table is joined with how= inner, left, left_semi or left_anti",
        )
    every = (
        None
        if refresh is None
        else window_microseconds(stream._spark, refresh, "how often a table is read, refresh=")
    )
    if every is not None and every <= 0:
        raise QueryDefinitionError(
            f"a table cannot be read every {refresh!r}", hint="Give, say, refresh='1 minute'"
        )
    read = _reader(table, name)
    schema = struct_type_of(read())
    given = arrow(schema)
    plan = TablePlan(read, given, None if every is None else every / 1_000_000)
    if not isinstance(on, str | list | tuple):
        raise QueryDefinitionError(
            f"{name!r} is joined on {on!r}", hint='Give the names of columns that both have: on="id"'
        )
    columns = tuple(column_name(stream, column) for column in ([on] if isinstance(on, str) else on))
    keys = (
        key_columns_of(stream.schema, columns, stream._spark),
        key_columns_of(schema, columns, stream._spark),
    )
    _check_types(stream.schema, schema, keys, name)
    mine, theirs = others(stream.schema, keys[0]), others(schema, keys[1])
    output = joined_columns(
        (stream.schema, keys[0]),
        (schema, keys[1]) if kind in (How.INNER, How.LEFT) else None,
        outer=kind is How.LEFT,
        said=f"the stream and the table of {name!r} both",
        hint="Rename or drop it in the table",
    )
    zone = stream.timezone
    at = _places(stream.schema, keys[0]), _places(schema, keys[1])
    values = _places(stream.schema, mine), _places(schema, theirs)
    made = partial(TableJoin, kind, values, given, at, arrow(output), tz=zone)
    joined = stream._then((), lambda _, operator: partial(made, name=operator), output, binding, table=plan)
    time = stream.event_time
    return joined if time is None else joined._with_event_time(time._replace(inherited=True))


def _reader(table: Any, name: str) -> Callable[[], Any]:
    """How it is read: a DataFrame that Spark reads each time, or a table that stays as it is."""
    if isinstance(table, pa.Table) or hasattr(table, "isStreaming"):
        return lambda: _checked(table, name)
    if callable(table) and not isinstance(table, CausalStream):
        return lambda: _checked(table(), name)
    raise QueryDefinitionError(f"{name!r} cannot be joined with a {type(table).__name__}", hint=_NO_TABLE)


def _checked(table: Any, name: str) -> Any:
    if isinstance(table, pa.Table) or (hasattr(table, "isStreaming") and not table.isStreaming):
        return table
    raise QueryDefinitionError(f"{name!r} cannot be joined with {table!r}", hint=_NO_TABLE)


def _check_types(mine: Any, theirs: Any, keys: tuple[tuple[str, ...], tuple[str, ...]], name: str) -> None:
    own, given = key_types(mine, keys[0]), key_types(theirs, keys[1])
    if own != given:
        raise QueryDefinitionError(
            f"the keys of {name!r} have different types: {own} in the stream and {given} in the table",
            hint="Cast the table's columns",
        )


def _places(schema: Any, columns: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(map(schema.names.index, columns))
