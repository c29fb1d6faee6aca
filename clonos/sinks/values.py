"""How column values are written down, by their Arrow type.

Scalars that JSON has are written as they are. What JSON lacks is written so that nothing is lost and Spark's JSON
reader takes it back under the same schema: decimals and non-finite floats as strings, timestamps and dates in ISO 8601,
binary in base64, maps as objects. Types without a faithful form are refused when the query is built.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from clonos.errors import QueryDefinitionError, SinkError
from clonos.sinks.port import Row

Encode = Callable[[Any], Any]

encode_json = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode


def check_names(names: Sequence[str], id_column: str) -> None:
    """Column names must be there, be distinct whatever their case, and leave the id column alone."""
    if not names:
        raise QueryDefinitionError("a sink needs rows with at least one column")
    seen: dict[str, str] = {}
    for name in names:
        if not name or "\0" in name:
            raise QueryDefinitionError(f"a sink column cannot be named {name!r}")
        folded = name.casefold()
        if folded in seen:
            raise QueryDefinitionError(
                f"columns {seen[folded]!r} and {name!r} would be one column in the sink"
            )
        if folded == id_column.casefold():
            raise QueryDefinitionError(
                f"column {name!r} has the name of the sink's id column", hint="Choose another with id_column="
            )
        seen[folded] = name


def column_names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Of an argument that is a column, several, or none."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def is_binary(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def is_nested(kind: pa.DataType) -> bool:
    return bool(_is_list(kind) or pt.is_struct(kind) or pt.is_map(kind))


def check_type(kind: pa.DataType, name: str) -> None:
    """Refuse a type that no sink can write down faithfully."""
    if _is_list(kind):
        return check_type(kind.value_type, f"{name}[]")
    if pt.is_map(kind):
        if is_nested(kind.key_type):
            raise QueryDefinitionError(f"column {name!r}: a map with nested keys cannot be written")
        check_type(kind.key_type, f"{name}.key")
        return check_type(kind.item_type, f"{name}.value")
    if pt.is_struct(kind):
        for field in kind:
            check_type(field.type, f"{name}.{field.name}")
        return None
    if not any(known(kind) for known in _SCALARS):
        raise QueryDefinitionError(
            f"column {name!r}: type {kind} has no form in this sink", hint="Cast it before the sink"
        )
    return None


def json_encoder(kind: pa.DataType) -> Encode | None:
    """A function to a value that `encode_json` takes, or None where values are taken as they are. Never sees None."""
    if pt.is_floating(kind):
        return _float
    if pt.is_decimal(kind):
        return plain
    if is_binary(kind):
        return _base64
    if pt.is_timestamp(kind):
        return _timestamp
    if pt.is_date(kind):
        return dt.date.isoformat
    if pt.is_duration(kind):
        return interval
    if _is_list(kind):
        return _list_encoder(json_encoder(kind.value_type))
    if pt.is_map(kind):
        return _map_encoder(json_encoder(kind.key_type), json_encoder(kind.item_type))
    if pt.is_struct(kind):
        return _struct_encoder([(field.name, json_encoder(field.type)) for field in kind])
    return None


def json_text_encoder(kind: pa.DataType) -> Encode:
    """For one column that holds JSON text."""
    inner = json_encoder(kind)
    return encode_json if inner is None else lambda value: encode_json(inner(value))


def to_columns(
    rows: Sequence[Row], ids: Sequence[str], names: Sequence[str], encoders: Sequence[Encode | None]
) -> list[Any]:
    """The rows' columns, encoded. A value that cannot be written is blamed on its row and column."""
    try:
        columns: list[Any] = list(zip(*rows, strict=True))
    except ValueError:
        columns = []
    if rows and len(columns) != len(names):
        wrong = next((i for i, row in enumerate(rows) if len(row) != len(names)), 0)
        raise SinkError(f"row {ids[wrong]} has {len(rows[wrong])} values for {len(names)} columns")
    for at, encode in enumerate(encoders if rows else ()):
        if encode is None:
            continue
        try:
            columns[at] = [None if value is None else encode(value) for value in columns[at]]
        except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError):
            raise _blame(columns[at], ids, names[at], encode) from None
    return columns


def _blame(column: Sequence[Any], ids: Sequence[str], name: str, encode: Encode) -> SinkError:
    for row_id, value in zip(ids, column, strict=True):
        try:
            if value is not None:
                encode(value)
        except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
            kind = type(value).__name__
            return SinkError(f"row {row_id}: column {name!r} holds a {kind} that cannot be written: {error}")
    return SinkError(f"column {name!r} holds a value that cannot be written")


def plain(value: Decimal) -> str:
    return format(value, "f")


def microseconds(value: dt.timedelta) -> int:
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds


def interval(value: dt.timedelta) -> str:
    """As Spark writes a day-time interval, and alone reads it back: the sign is that of the whole."""
    total = microseconds(value)
    seconds, left = divmod(abs(total), 1_000_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    sign = "-" if total < 0 else ""
    return f"INTERVAL '{sign}{day} {hour:02}:{minute:02}:{second:02}.{left:06}' DAY TO SECOND"


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _timestamp(value: dt.datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    return value.astimezone(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _list_encoder(item: Encode | None) -> Encode:
    if item is None:
        return list
    return lambda value: [None if each is None else item(each) for each in value]


def _map_encoder(key: Encode | None, item: Encode | None) -> Encode:
    def encode(value: Any) -> dict[str, Any]:
        pairs = value.items() if isinstance(value, dict) else value
        return {_key(k, key): (v if v is None or item is None else item(v)) for k, v in pairs}

    return encode


def _key(value: Any, encode: Encode | None) -> str:
    encoded = value if encode is None else encode(value)
    return encoded if isinstance(encoded, str) else encode_json(encoded)


def _struct_encoder(fields: list[tuple[str, Encode | None]]) -> Encode:
    def encode(value: Any) -> dict[str, Any]:
        items = value if isinstance(value, dict) else dict(zip((n for n, _ in fields), value, strict=True))
        return {
            name: (items[name] if inner is None or items[name] is None else inner(items[name]))
            for name, inner in fields
        }

    return encode


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


_SCALARS: tuple[Callable[[pa.DataType], bool], ...] = (
    pt.is_signed_integer,
    pt.is_floating,
    pt.is_boolean,
    pt.is_string,
    pt.is_large_string,
    pt.is_binary,
    pt.is_large_binary,
    pt.is_fixed_size_binary,
    pt.is_decimal,
    pt.is_timestamp,
    pt.is_date,
    pt.is_duration,
    pt.is_null,
)
