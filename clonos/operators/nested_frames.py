"""Nested values inside pandas columns, as PySpark shows them: an array is an ndarray, a struct and a map are dicts, a
moment is a `Timestamp` (a TIMESTAMP naive, in the session's zone); the same at every depth."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from clonos.operators.rows import is_zoned
from clonos.operators.values import is_missing

__all__ = ["nested_value", "nulls_for_nan"]

_Convert = Callable[[Any], Any]


def nested_value(kind: pa.DataType, zone: tzinfo | None) -> _Convert | None:
    """From what Arrow gives pandas, not None, to what PySpark does; None where they are the same."""
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        parts = [(f.name, _optional(nested_value(f.type, zone))) for f in fields]
        return lambda v: {name: part(v[name]) for name, part in parts}
    if pa.types.is_map(kind):
        of_key = _optional(nested_value(kind.key_type, zone))
        of_value = _optional(nested_value(kind.item_type, zone))
        return lambda pairs: {of_key(a): of_value(b) for a, b in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = nested_value(kind.value_type, zone)
        if element is None:
            return None
        part = _optional(element)
        return lambda values: np.array([part(v) for v in values])
    if pa.types.is_timestamp(kind):
        return _moment_in(zone) if is_zoned(kind) else _moment
    return None


def _optional(convert: _Convert | None) -> _Convert:
    if convert is None:
        return lambda v: v
    return lambda v: None if v is None else convert(v)


def _moment(value: Any) -> Any:
    import pandas as pd

    return pd.Timestamp(value)


def _moment_in(zone: tzinfo | None) -> _Convert:
    import pandas as pd

    def convert(value: Any) -> Any:
        moment = pd.Timestamp(value)
        if moment.tzinfo is None:
            moment = moment.tz_localize("UTC")
        if zone is None:
            return pd.Timestamp(moment.to_pydatetime(warn=False).astimezone().replace(tzinfo=None))
        return moment.tz_convert(zone).tz_localize(None)

    return convert


def nulls_for_nan(kind: pa.DataType) -> _Convert:
    """From what a frame's column holds to a value without NaN: there it means null, at every depth."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = nulls_for_nan(kind.value_type)
        return lambda v: v if isinstance(v, (str, bytes, dict)) else _each(element, v)
    if pa.types.is_map(kind):
        of_value = nulls_for_nan(kind.item_type)
        return lambda v: {k: of_value(x) for k, x in v.items()} if isinstance(v, dict) else _null(v)
    if pa.types.is_struct(kind):
        parts = {kind.field(i).name: nulls_for_nan(kind.field(i).type) for i in range(kind.num_fields)}
        each = list(parts.values())

        def convert(value: Any) -> Any:
            if isinstance(value, dict):
                return {k: parts[k](x) if k in parts else x for k, x in value.items()}
            if type(value) in (tuple, list) and len(value) == len(each):
                return tuple([part(x) for part, x in zip(each, value, strict=True)])
            return _null(value)

        return convert
    return _null


def _null(value: Any) -> Any:
    if is_missing(value) or (isinstance(value, Decimal) and value.is_nan()):
        return None
    return value


def _each(element: _Convert, values: Any) -> Any:
    return [element(v) for v in values] if hasattr(values, "__iter__") else _null(values)
