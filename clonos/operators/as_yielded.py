"""What a function has handed over is what it was at that moment, as in Spark, whatever the function does to it later.

Rows wait for the end of their bundle before they are turned into Arrow. A tuple of plain values cannot change
meanwhile; lists, dicts and buffers inside it can, so the columns that may hold such are copied when a row is yielded.
Which columns these are is decided once, from the schema. What does not fit its column is left as it is: it is refused
where rows are encoded, with column, row and value.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, Final

import pyarrow as pa

from clonos.operators.rows import Convert, struct_values

__all__ = ["row_copier"]

_Row = tuple[Any, ...]
_LISTED: Final[tuple[type[Any], ...]] = (
    list,
    set,
    frozenset,
    deque,
    array,
    type({}.keys()),
    type({}.values()),
)
_SEQUENCES: Final[tuple[type[Any], ...]] = (tuple, *_LISTED)
_BUFFERS: Final = (bytearray, memoryview)


def row_copier(schema: pa.Schema | Sequence[str]) -> Callable[[_Row], _Row] | None:
    """Copies what may change inside a row of the schema; None where nothing may. Of columns that are known by their
    names alone, all may."""
    if isinstance(schema, pa.Schema):
        copiers = [(i, _copier(field.type)) for i, field in enumerate(schema)]
    else:
        copiers = [(i, _anything) for i in range(len(schema))]
    parts = [(i, copy) for i, copy in copiers if copy is not None]
    if not parts:
        return None

    def copied(row: _Row) -> _Row:
        values = list(row)
        for i, copy in parts:
            values[i] = copy(values[i])
        return tuple(values)

    return copied


def _copier(kind: pa.DataType) -> Convert | None:
    """For values of a type; None where they cannot change."""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _bytes
    if pa.types.is_struct(kind):
        return _struct_copier(kind)
    if pa.types.is_map(kind):
        return _map_copier(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_copier(kind)
    return _anything if pa.types.is_nested(kind) else None


def _bytes(value: Any) -> Any:
    return bytes(value) if isinstance(value, _BUFFERS) else value


def _anything(value: Any) -> Any:
    """A copy of a value of which nothing is known."""
    if isinstance(value, _BUFFERS):
        return bytes(value)
    with suppress(Exception):  # what cannot be copied, such as an iterator, is no value of any column either
        return deepcopy(value)
    return value


def _list_copier(kind: pa.DataType) -> Convert:
    element = _copier(kind.value_type) or _same

    def plain(value: Any) -> Any:
        if type(value) is list:
            return value[:]
        if value is None or isinstance(value, tuple):
            return value
        return list(value) if isinstance(value, _LISTED) else _anything(value)

    def copied(value: Any) -> Any:
        if isinstance(value, _SEQUENCES):
            return [element(each) for each in value]
        return _anything(value)

    return plain if element is _same else copied


def _map_copier(kind: pa.DataType) -> Convert:
    """Keys of a dict cannot change, or they would be none."""
    of_key, of_value = (_copier(each) or _same for each in (kind.key_type, kind.item_type))

    def pair(given: Any) -> Any:
        if isinstance(given, tuple) and len(given) == 2:
            return of_key(given[0]), of_value(given[1])
        return given

    def copied(value: Any) -> Any:
        if isinstance(value, dict):
            return value.copy() if of_value is _same else {k: of_value(v) for k, v in value.items()}
        return list(map(pair, value)) if isinstance(value, (list, tuple)) else value

    return copied


def _struct_copier(kind: pa.DataType) -> Convert:
    names = [kind.field(i).name for i in range(kind.num_fields)]
    parts = [_copier(kind.field(i).type) or _same for i in range(kind.num_fields)]
    plain = all(part is _same for part in parts)

    def copied(value: Any) -> Any:
        if value is None or (plain and isinstance(value, tuple)):
            return value
        if plain and type(value) is dict:
            return value.copy()
        with suppress(TypeError, ValueError):
            given = struct_values(value, names)
            return tuple([part(each) for part, each in zip(parts, given, strict=True)])
        return value

    return copied


def _same(value: Any) -> Any:
    return value
