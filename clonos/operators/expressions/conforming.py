"""What a column's type makes of the values that a function has given: what its reader would see.

A function may give an integer as a bool or a numpy scalar, a text as bytes, a moment with a zone. Expressions take
values as the next operator would get them. Most columns hold nothing but plain values of their type, which is seen for
a whole column at once; the others go through Arrow, as they do on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timezone
from typing import Any, Final

import pyarrow as pa

from clonos.operators.rows import RowDecoder, RowEncoder, is_zoned, zone_of

_Row = tuple[Any, ...]
_NOTHING: Final = type(None)


class Conforming:
    """Of some columns of a schema. Raises InputError where a value does not fit its column."""

    def __init__(self, schema: pa.Schema, zone: str, name: str, columns: Iterable[int]) -> None:
        self._schema = schema
        self._columns = sorted(columns)
        self._encoder = RowEncoder(schema, zone, name)
        self._decoder = RowDecoder(schema, zone)
        self._is_fixed = isinstance(zone_of(zone), timezone)

    def __call__(self, rows: list[_Row]) -> list[_Row]:
        """The rows, with the values of these columns in their types."""
        changed: dict[int, list[Any]] = {}
        for at in self._columns:
            values = [row[at] for row in rows]
            if not self._are_plain(self._schema.field(at), values):
                array = self._encoder.column(self._schema.field(at), values)
                changed[at] = self._decoder.column(array, at)
        if not changed:
            return rows
        made = [list(row) for row in rows]
        for at, values in changed.items():
            for row, value in zip(made, values, strict=True):
                row[at] = value
        return [tuple(row) for row in made]

    def _are_plain(self, field: pa.Field, values: list[Any]) -> bool:
        kinds = set(map(type, values))
        if _NOTHING in kinds:
            if not field.nullable:
                return False
            kinds.discard(_NOTHING)
        if not kinds:
            return True
        if len(kinds) > 1:
            return False
        (kind,), due = kinds, field.type
        if pa.types.is_integer(due):
            bound = 1 << (due.bit_width - 1)
            given = values if field.nullable is False else [value for value in values if value is not None]
            return kind is int and -bound <= min(given) and max(given) < bound
        if pa.types.is_timestamp(due):
            naive = kind is datetime and all(value is None or value.tzinfo is None for value in values)
            return naive and (not is_zoned(due) or self._is_fixed)
        if pa.types.is_string(due):
            return kind is str and _is_text(values)
        return (
            (pa.types.is_float64(due) and kind is float)
            or (pa.types.is_boolean(due) and kind is bool)
            or (pa.types.is_date32(due) and kind is date)
        )


def _is_text(values: list[Any]) -> bool:
    """Python's strings may hold halves of characters."""
    try:
        "".join(value for value in values if value is not None).encode()
    except UnicodeEncodeError:
        return False
    return True
