"""Rows and keys as PySpark's own stateful APIs show them, made of those that operators get.

The record-at-a-time API has rows of its own (`clonos.operators.rows`). In the APIs that have PySpark's names a function
must meet what it meets in Spark, or a job that is moved here silently computes other numbers:

| | `transformWithState` | frames and keys of the pandas APIs |
| --- | --- | --- |
| TIMESTAMP | aware, in the session's zone | naive, in the session's zone |
| map | list of pairs | dict |
| struct | dict | dict |
| TIMESTAMP as output without a zone | UTC | the session's zone |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import repeat
from typing import Any

import pyarrow as pa

from clonos.operators.rows import Convert, is_zoned, row_type, struct_values, zone_of

__all__ = ["PySparkRows", "array_key", "arrow_key", "frame_key", "naive_as_utc"]

_Key = tuple[Any, ...]


class PySparkRows:
    """Input rows for `transformWithState`."""

    def __init__(self, schema: pa.Schema, tz: str | None) -> None:
        zone = zone_of(tz)
        self._class = row_type(tuple(schema.names))
        self._converts = [_shown(field.type, zone) for field in schema]
        self._plain = not any(self._converts)

    def rows(self, given: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        """Rows of the schema. What needs no change is handed on as it is."""
        if self._plain:
            return given
        columns = [
            column if convert is None else [None if v is None else convert(v) for v in column]
            for convert, column in zip(self._converts, zip(*given, strict=True), strict=True)
        ]
        return list(map(tuple.__new__, repeat(self._class), zip(*columns, strict=True)))


def arrow_key(kinds: Sequence[pa.DataType], tz: str | None) -> Callable[[_Key], _Key]:
    """Keys for `transformWithState`: as its rows have them."""
    zone = zone_of(tz)
    return _per_column([_optional(_shown(kind, zone)) for kind in kinds])


def frame_key(kinds: Sequence[pa.DataType]) -> Callable[[_Key], _Key]:
    """Keys for `transformWithStateInPandas`: what iterating over a frame gives."""
    return _per_column([_of_frame(kind) for kind in kinds])


def array_key(kinds: Sequence[pa.DataType]) -> Callable[[_Key], _Key]:
    """Keys for `applyInPandasWithState`: elements of the key's columns."""
    return _per_column([_of_array(kind) for kind in kinds])


def _per_column(converts: list[Convert]) -> Callable[[_Key], _Key]:
    if all(convert is _same for convert in converts):
        return _same
    return lambda key: tuple([convert(v) for convert, v in zip(converts, key, strict=True)])


def _same(value: Any) -> Any:
    return value


def _optional(convert: Convert | None) -> Convert:
    return _same if convert is None else lambda v: None if v is None else convert(v)


def _of_frame(kind: pa.DataType) -> Convert:
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return _of_array(kind)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return lambda v: float("nan") if v is None else v
    return _same


def _of_array(kind: pa.DataType) -> Convert:
    import numpy as np
    import pandas as pd

    if pa.types.is_timestamp(kind):
        return lambda v: pd.NaT if v is None else pd.Timestamp(v)
    if pa.types.is_duration(kind):
        return lambda v: pd.NaT if v is None else pd.Timedelta(v)
    if pa.types.is_boolean(kind):
        return lambda v: None if v is None else np.bool_(v)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        make, missing = kind.to_pandas_dtype(), np.float64("nan")
        return lambda v: missing if v is None else make(v)
    return _same


def _shown(kind: pa.DataType, zone: tzinfo | None) -> Convert | None:
    """From an operator's value, not None, to PySpark's; None where they are the same."""
    if is_zoned(kind):
        return lambda v: v.astimezone() if zone is None else v.replace(tzinfo=zone)
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        parts = [(f.name, _optional(_shown(f.type, zone))) for f in fields]
        return lambda v: {name: part(x) for (name, part), x in zip(parts, v, strict=True)}
    if pa.types.is_map(kind):
        of_key, of_value = _optional(_shown(kind.key_type, zone)), _optional(_shown(kind.item_type, zone))
        return lambda v: [(of_key(a), of_value(b)) for a, b in v.items()]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _shown(kind.value_type, zone)
        if inner is not None:
            element = _optional(inner)
            return lambda v: [element(x) for x in v]
    return None


def naive_as_utc(schema: pa.Schema) -> Callable[[list[_Key]], list[_Key]]:
    """What `transformWithState` hands back: there PySpark takes a TIMESTAMP without a zone for UTC."""
    converts = [_placed(field.type) for field in schema]
    if not any(converts):
        return _same

    def place(made: list[_Key]) -> list[_Key]:
        return [
            tuple([v if f is None or v is None else f(v) for f, v in zip(converts, row, strict=True)])
            for row in made
        ]

    return place


def _placed(kind: pa.DataType) -> Convert | None:
    """None where there is no TIMESTAMP inside."""
    if is_zoned(kind):
        return lambda v: v.replace(tzinfo=UTC) if isinstance(v, datetime) and v.tzinfo is None else v
    if pa.types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        parts = [_placed(kind.field(i).type) for i in range(kind.num_fields)]
        if not any(parts):
            return None
        each = [_optional(part) for part in parts]
        return lambda v: tuple([f(x) for f, x in zip(each, struct_values(v, names), strict=True)])
    if pa.types.is_map(kind):
        of_key, of_value = _placed(kind.key_type), _placed(kind.item_type)
        if of_key is None and of_value is None:
            return None
        k_of, v_of = _optional(of_key), _optional(of_value)
        return lambda v: {k_of(a): v_of(b) for a, b in (v.items() if isinstance(v, dict) else v)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _placed(kind.value_type)
        if inner is not None:
            element = _optional(inner)
            return lambda v: [element(x) for x in v]
    return None
