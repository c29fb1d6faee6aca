"""Rows as Arrow columns, as Parquet files have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from clonos.errors import SinkError
from clonos.sinks.port import Row

_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


def to_arrow(rows: list[Row], ids: list[str], schema: pa.Schema) -> pa.Table:
    """The ids are the first column. Raises SinkError, which names the row that cannot be written."""
    try:
        columns = [ids, *zip(*rows, strict=True)]
        arrays = [_array(column, field) for column, field in zip(columns, schema, strict=True)]
    except _REFUSED:
        raise _blame(rows, ids, schema) from None
    return pa.Table.from_arrays(arrays, schema=schema)


def misfits(rows: pa.Schema, table: pa.Schema, to_add: str) -> Iterator[str]:
    """Why a table does not take rows; `to_add` says how a column is added to it."""
    there = {each.name: each for each in table}
    for field in rows:
        found = there.pop(field.name, None)
        if found is None:
            yield f"it has no column {field.name!r}. Add it: {to_add}"
        elif not _takes(found, field):
            kinds = (f"{each.type}{'' if each.nullable else ', never null'}" for each in (found, field))
            yield f"column {field.name!r} is {' there, and '.join(kinds)} in the rows"
    for name, found in there.items():
        if not found.nullable:
            yield f"column {name!r} may not be null there, and the rows do not have it"


def with_nulls(schema: pa.Schema) -> pa.Schema:
    """The columns as a new table has them: any may be null, since the query may change before the table does."""
    return pa.schema([pa.field(field.name, _with_nulls(field.type)) for field in schema])


def _with_nulls(kind: pa.DataType) -> pa.DataType:
    if pt.is_struct(kind):
        return pa.struct([pa.field(field.name, _with_nulls(field.type)) for field in kind])
    if pt.is_map(kind):
        return pa.map_(kind.key_type, _with_nulls(kind.item_type))
    if pt.is_list(kind) or pt.is_large_list(kind):
        of_list = pa.list_ if pt.is_list(kind) else pa.large_list
        return of_list(_with_nulls(kind.value_type))
    return kind


def _takes(there: pa.Field, rows: pa.Field) -> bool:
    """Whether whatever a column of the rows may hold, at any depth, the table's may hold, too."""
    if rows.nullable and not there.nullable:
        return False
    pair = there.type, rows.type
    if all(map(pt.is_struct, pair)):
        names = ([field.name for field in kind] for kind in pair)
        return len(set(map(tuple, names))) == 1 and all(map(_takes, *pair))
    if all(map(pt.is_map, pair)):
        return there.type.key_type == rows.type.key_type and _takes(*(kind.item_field for kind in pair))
    if all(map(pt.is_list, pair)) or all(map(pt.is_large_list, pair)):
        return _takes(*(kind.value_field for kind in pair))
    return bool(there.type == rows.type)


def _array(column: Any, field: pa.Field) -> pa.Array:
    change = _change(field.type)
    array = pa.array(column if change is None else map(change, column), field.type)
    if array.null_count and not field.nullable:
        raise ValueError("it is null, and the column never is")
    return array


def _change(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Structs may come as tuples or as dicts, and maps as dicts or as pairs. Arrow takes one of them in a column."""
    if pt.is_struct(kind):
        fields = [(field.name, _change(field.type)) for field in kind]

        def struct(value: Any) -> Any:
            if value is None:
                return None
            parts = [value[name] for name, _ in fields] if isinstance(value, dict) else value
            return {
                name: part if change is None else change(part)
                for (name, change), part in zip(fields, parts, strict=True)
            }

        return struct
    if pt.is_map(kind):
        of_key, of_item = (_change(each) or _same for each in (kind.key_type, kind.item_type))

        def pairs(value: Any) -> Any:
            found = value.items() if isinstance(value, dict) else value
            return None if value is None else [(of_key(key), of_item(item)) for key, item in found]

        return pairs
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        inner = _change(kind.value_type)
        return inner and (lambda value: None if value is None else [inner(each) for each in value])
    return None


def _same(value: Any) -> Any:
    return value


def _blame(rows: list[Row], ids: list[str], schema: pa.Schema) -> SinkError:
    for row_id, row in zip(ids, rows, strict=True):
        if len(row) != len(schema) - 1:
            return SinkError(f"row {row_id} has {len(row)} values for {len(schema) - 1} columns")
        for value, field in zip(row, list(schema)[1:], strict=True):
            try:
                _array([value], field)
            except _REFUSED as error:
                return SinkError(f"row {row_id}: column {field.name!r} cannot hold its value: {error}")
    return SinkError("a row cannot be written to a Parquet file")
