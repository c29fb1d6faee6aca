"""Rows for an operator of which no input is given, drawn from a seed.

Values are few, so that they come again, and chosen so that what depends on an order shows: sums of these doubles depend
on theirs. There are no nulls.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random
from typing import Any, Final

import pyarrow as pa

from clonos.errors import QueryDefinitionError

Values = Callable[[Random], Any]

_DAY: Final = dt.date(2026, 1, 1)
_TEXTS: Final = ("a", "b", "c", "d", "e", "f", "g", "h")
_DOUBLES: Final = (0.1, 0.2, 0.7, 1.0, -1.5, 1e16, -1e16)
_SECONDS: Final = 600
_MOST_IN_A_LIST: Final = 3


def generated(schema: pa.Schema, key: Sequence[int], count: int, choices: Random) -> list[tuple[Any, ...]]:
    """So many rows, with at most three different keys."""
    columns = [_values_of(field.type, field.name) for field in schema]
    keys = [{at: columns[at](choices) for at in key} for _ in range(choices.choice((1, 1, 2, 3)))]
    rows = []
    for _ in range(count):
        fixed = choices.choice(keys)
        rows.append(tuple([fixed[at] if at in fixed else draw(choices) for at, draw in enumerate(columns)]))
    return rows


def _values_of(kind: pa.DataType, column: str) -> Values:
    """How values of a type are drawn."""
    for fits, values in _SIMPLE:
        if fits(kind):
            return values
    if pa.types.is_decimal(kind):
        return lambda choices: Decimal(choices.randint(-9, 9)).scaleb(-kind.scale)
    if pa.types.is_timestamp(kind):
        zone = None if kind.tz is None else dt.UTC
        start = dt.datetime(_DAY.year, _DAY.month, _DAY.day, tzinfo=zone)
        return lambda choices: start + dt.timedelta(seconds=choices.randrange(_SECONDS))
    if pa.types.is_struct(kind):
        fields = {field.name: _values_of(field.type, column) for field in kind}
        return lambda choices: {name: draw(choices) for name, draw in fields.items()}
    if pa.types.is_map(kind):
        of_key, of_item = _values_of(kind.key_type, column), _values_of(kind.item_type, column)
        return lambda choices: {of_key(choices): of_item(choices) for _ in range(_some(choices))}
    if pa.types.is_list(kind):
        item = _values_of(kind.value_type, column)
        return lambda choices: [item(choices) for _ in range(_some(choices))]
    raise QueryDefinitionError(
        f"there are no generated values of type {kind}, which the column {column!r} has",
        hint="Give rows of your own: rows=..., or --input on the command line",
    )


def _some(choices: Random) -> int:
    return choices.randint(0, _MOST_IN_A_LIST)


_SIMPLE: Final[tuple[tuple[Callable[[pa.DataType], bool], Values], ...]] = (
    (pa.types.is_boolean, lambda choices: choices.random() < 0.5),
    (pa.types.is_integer, lambda choices: choices.randint(-3, 9)),
    (pa.types.is_float32, lambda choices: choices.choice(_DOUBLES)),
    (pa.types.is_float64, lambda choices: choices.choice(_DOUBLES)),
    (pa.types.is_string, lambda choices: choices.choice(_TEXTS)),
    (pa.types.is_binary, lambda choices: choices.choice(_TEXTS).encode()),
    (pa.types.is_date, lambda choices: _DAY + dt.timedelta(days=choices.randrange(10))),
    (pa.types.is_duration, lambda choices: dt.timedelta(seconds=choices.randrange(_SECONDS))),
)
