"""Values as they are shown, as JSON and as text to be read.

A function knows a TIMESTAMP as a naive datetime in the query's time zone. What is shown of it is the instant, in UTC
and with microseconds, as sinks write it: the same value is the same text, a reader in another zone reads the same, and
the two times of a repeated hour are told apart. A TIMESTAMP_NTZ is no instant, and stays without a zone.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from math import isfinite, isnan
from typing import Any

import pyarrow as pa

from clonos.operators.rows import in_utc, instant, is_zoned, make_row, zone_of
from clonos.protocol.ids import NodeId
from clonos.sinks.values import interval
from clonos.values.canonical_text import canonical
from clonos_standby.cluster.spec import NodeSpec


def with_instants(value: Any, kind: pa.DataType, zone: dt.tzinfo | None) -> Any:
    """A value of a column as a function knows it, with aware datetimes, of UTC, for TIMESTAMPs."""
    if value is None:
        return None
    if is_zoned(kind):
        try:
            return in_utc(instant(value, zone))
        except OverflowError:  # at the ends of Python's years
            return value.replace(tzinfo=zone)
    if pa.types.is_struct(kind):
        fields = zip(kind, value, strict=True)
        return make_row(value._fields, [with_instants(each, field.type, zone) for field, each in fields])
    if pa.types.is_map(kind):
        pairs = value.items()
        return {
            with_instants(key, kind.key_type, zone): with_instants(item, kind.item_type, zone)
            for key, item in pairs
        }
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [with_instants(each, kind.value_type, zone) for each in value]
    return value


def record_shown(node: NodeSpec, sender: NodeId, given: Any) -> dict[str, Any]:
    """The columns of a record that the operator's function was given."""
    schema, zone = node.schema_from(sender), zone_of(node.zone)
    return {
        field.name: with_instants(value, field.type, zone) for field, value in zip(schema, given, strict=True)
    }


def columns(row: dict[str, Any] | None) -> str:
    """A row as text."""
    return ", ".join(f"{name}={as_text(value)}" for name, value in (row or {}).items())


def as_text(value: Any) -> str:
    """A value of a row to be read: as Python writes it, and instants as JSON has them."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return _moment(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = zip(value._fields, value, strict=True)
        return f"Row({', '.join(f'{name}={as_text(each)}' for name, each in fields)})"
    if isinstance(value, list):
        return f"[{', '.join(map(as_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_text(key)}: {as_text(item)}" for key, item in value.items()) + "}"
    return repr(value)


def as_json(value: Any, zone: dt.tzinfo | None = None) -> Any:
    """As JSON has it: structs by the names of their fields, keys of dicts, and what JSON does not have, as text. A
    naive datetime has no type that says what it is: the second one of its wall time in the `zone` has its offset."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: as_json(each, zone) for name, each in zip(value._fields, value, strict=True)}
    if isinstance(value, dict):
        names = [_name(key, zone) for key in value]
        if len(set(names)) < len(names):  # as of 1 and "1"
            names = list(map(repr, value))
        return {name: as_json(each, zone) for name, each in zip(names, value.values(), strict=True)}
    if isinstance(value, list | tuple):
        return [as_json(each, zone) for each in value]
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if (said := _scalar(value, zone)) is not None:
        return said
    return canonical(value) if isinstance(value, set | frozenset) else str(value)


def _scalar(value: Any, zone: dt.tzinfo | None) -> str | None:
    """Of types that columns have, and JSON has not."""
    if isinstance(value, dt.datetime):
        if value.tzinfo is None and value.fold and zone is not None:
            return _moment(value.replace(tzinfo=zone))
        return _moment(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return interval(value)
    if isinstance(value, Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes | bytearray) else None


def _name(key: Any, zone: dt.tzinfo | None) -> str:
    """Of an entry of a dict."""
    if isinstance(key, str):
        return key
    said = _scalar(key, zone)
    return repr(key) if said is None else said


def _moment(value: dt.datetime) -> str:
    said = value.isoformat(timespec="microseconds")
    return f"{said.removesuffix('+00:00')}Z" if said.endswith("+00:00") else said
