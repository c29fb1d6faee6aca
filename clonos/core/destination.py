"""Where a row goes: the same function of its key on both sides.

Source rows get their destination from a Spark expression, operator rows from the instance that emits them, and a union
of both must agree. So the function is CRC-32 over a canonical text of the key modulo the parallelism: Spark and zlib
both have it. Floating-point keys have no canonical text that both sides share, and are refused when the query is
built.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

SEPARATOR = "\x1f"
NULL = "\x00N"

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DATE = dt.date(1970, 1, 1)


def _canonical(value: Any, zone: dt.tzinfo) -> str:
    if value is None:
        return NULL
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=zone)
        return str((aware - _EPOCH) // dt.timedelta(microseconds=1))
    if isinstance(value, dt.date):
        return str((value - _EPOCH_DATE).days)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes | bytearray):
        return value.hex()
    raise TypeError(f"a key of type {type(value).__name__} has no canonical text")


def key_text(key: Sequence[Any], zone: dt.tzinfo = dt.UTC) -> str:
    """The canonical text of a key tuple; `zone` is the session's, in which naive timestamps are meant."""
    return SEPARATOR.join([_canonical(value, zone) for value in key])


def destination(key: Sequence[Any], parallelism: int, zone: dt.tzinfo = dt.UTC) -> int:
    """The instance, 0..parallelism-1, that owns a key."""
    return zlib.crc32(key_text(key, zone).encode()) % parallelism


Router = Callable[[list[tuple[Any, ...]]], list[int]]
"""Output rows to their destinations, row by row."""


def route_to_one(rows: list[tuple[Any, ...]]) -> list[int]:
    return [0] * len(rows)


def route_to(target: int) -> Router:
    """Every row to one destination: a sink's instances are fed by channel, not by key."""
    return lambda rows: [target] * len(rows)


def route_by_key(
    columns: Sequence[int], parallelism: int, *, zone: dt.tzinfo = dt.UTC, remembered: int = 65_536
) -> Router:
    """Rows by the key in `columns`. Destinations of keys seen are remembered, up to a bound."""
    if parallelism == 1:
        return route_to_one
    known: dict[Any, int] = {}
    single = columns[0] if len(columns) == 1 else None

    def destination_of(key: Any) -> int:
        if len(known) >= remembered:
            known.clear()
        # A column has one declared type, so equal keys (1, 1.0, True) have one text here.
        target = known[key] = destination((key,) if single is not None else key, parallelism, zone)
        return target

    def route(rows: list[tuple[Any, ...]]) -> list[int]:
        targets = []
        for row in rows:
            key = row[single] if single is not None else tuple([row[c] for c in columns])
            target = known.get(key)
            targets.append(destination_of(key) if target is None else target)
        return targets

    return route
