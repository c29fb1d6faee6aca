"""Where a row goes: the same function of its key on both sides.

Source rows get their destination from a Spark expression, operator rows from the instance that emits them, and a union
of both must agree. So the function is CRC-32 over a canonical text of the key modulo the parallelism: Spark and zlib
both have it. Floating-point keys have no canonical text that both sides share, and are refused when the query is
built.

A function may give the same key in many forms: `Decimal("10.0")` where the column is a decimal(5,0), `True` where it
is an integer, an aware datetime or a naive one. What counts is the value that the column's type makes of it, which is
what the receiver sees. So a key is *conformed* to its column first; the text, and everything that is remembered, is a
function of the conformed value. Python's equality is not enough: it takes 10 and 10.0, or the two instants of a
repeated hour, for the same, and what is remembered would then depend on which of them came first.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from itertools import accumulate
from typing import Any, Final, TypeAlias

from clonos.errors import InputError
from clonos.protocol.side_output import MAIN, OutputName, output_of

SEPARATOR = "\x1f"
NULL = "\x00N"

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DATE = dt.date(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)

Conformed: TypeAlias = str | bool | int | bytes | None
"""A key's value in its column's type: dates as days and timestamps as microseconds since 1970. In one column, equal
ones are the same."""


class KeyKind(Enum):
    """The types that a key's column may have."""

    STRING = "string"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    DECIMAL = "decimal without fraction"
    DATE = "date"
    TIMESTAMP = "timestamp"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the key: its place in the row and its type."""

    index: int
    kind: KeyKind


# Types whose values are conformed as they are.
_EXACT: Final[dict[KeyKind, frozenset[type]]] = {
    KeyKind.STRING: frozenset({str, type(None)}),
    KeyKind.BOOLEAN: frozenset({bool, type(None)}),
    KeyKind.INTEGER: frozenset({int, type(None)}),
    KeyKind.DECIMAL: frozenset({type(None)}),
    KeyKind.DATE: frozenset({type(None)}),
    KeyKind.TIMESTAMP: frozenset({type(None)}),
    KeyKind.BINARY: frozenset({bytes, type(None)}),
}


def _string(value: Any, zone: dt.tzinfo) -> str:
    # not str(value): a subclass, an enum for one, may say something else there than it holds
    return str.__str__(value) if isinstance(value, str) else bytes(value).decode()


def _days(value: Any, zone: dt.tzinfo) -> int:
    if isinstance(value, dt.datetime):
        value = value.date()
    return (value - _EPOCH_DATE).days if isinstance(value, dt.date) else int(value)


def _microseconds(value: Any, zone: dt.tzinfo) -> int:
    aware = value if value.tzinfo is not None else value.replace(tzinfo=zone)
    return int((aware - _EPOCH) // _MICROSECOND)


def _bytes(value: Any, zone: dt.tzinfo) -> bytes:
    return str.__str__(value).encode() if isinstance(value, str) else bytes(value)


_CONFORM: Final[dict[KeyKind, Callable[[Any, dt.tzinfo], Conformed]]] = {
    KeyKind.STRING: _string,
    KeyKind.BOOLEAN: lambda value, zone: bool(value),
    KeyKind.INTEGER: lambda value, zone: int(value),
    KeyKind.DECIMAL: lambda value, zone: int(value),
    KeyKind.DATE: _days,
    KeyKind.TIMESTAMP: _microseconds,
    KeyKind.BINARY: _bytes,
}


def conform(kind: KeyKind, value: Any, zone: dt.tzinfo = dt.UTC) -> Conformed:
    """What a column of this type makes of a value; `zone` is the session's, in which naive timestamps are meant."""
    if type(value) in _EXACT[kind]:
        return value  # type: ignore[no-any-return]
    try:
        return _CONFORM[kind](value, zone)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise InputError(
            f"{value!r} ({type(value).__name__}) is no key for a column of type {kind.value}: {error}"
        ) from error


def _text(value: Conformed) -> str:
    if value is None:
        return NULL
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else str(value)


def _target(key: Sequence[Conformed], parallelism: int) -> int:
    return zlib.crc32(SEPARATOR.join(map(_text, key)).encode()) % parallelism


def _kind_of(value: Any) -> KeyKind:
    if value is None or isinstance(value, str):
        return KeyKind.STRING
    if isinstance(value, bool):
        return KeyKind.BOOLEAN
    if isinstance(value, int):
        return KeyKind.INTEGER
    if isinstance(value, dt.datetime):
        return KeyKind.TIMESTAMP
    if isinstance(value, dt.date):
        return KeyKind.DATE
    if isinstance(value, bytes | bytearray | memoryview):
        return KeyKind.BINARY
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return KeyKind.DECIMAL
    raise TypeError(f"a key of type {type(value).__name__} ({value!r}) has no canonical text")


def key_text(key: Sequence[Any], zone: dt.tzinfo = dt.UTC) -> str:
    """The canonical text of a key tuple whose columns have the types that its values show."""
    return SEPARATOR.join([_text(conform(_kind_of(value), value, zone)) for value in key])


def destination(key: Sequence[Any], parallelism: int, zone: dt.tzinfo = dt.UTC) -> int:
    """The instance, 0..parallelism-1, that owns a key whose columns have the types that its values show."""
    return zlib.crc32(key_text(key, zone).encode()) % parallelism


Router = Callable[[list[tuple[Any, ...]]], list[int]]
"""Output rows to the instances of one reader, row by row."""

Destinations: TypeAlias = Sequence[list[int]]
"""Of output rows: for each node that reads them, the destination of every row, or `NOWHERE`."""

NOWHERE: Final = -1
"""The destination of a row at a reader of another output."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A node that reads an operator: how it is fed, its parallelism, and which of the operator's outputs it reads.

    With `has_event_time` it is told how far event time has come: as the rows of the output say (`watermark_of` is their
    latest event time less the delay, in microseconds; None where none has one), else as the operator itself has it,
    less what rows may be behind that (`trails`, in microseconds). Where rows say it, and are of the operator's own
    event time, they say no more than that less what they may be behind it (`waits`): one of its channels may be far
    ahead of another."""

    router: Router
    parallelism: int
    output: OutputName = MAIN
    has_event_time: bool = False
    watermark_of: Callable[[Any], int | None] | None = None
    trails: int = 0
    waits: int | None = None


class Routing:
    """Where an operator's rows go: every reader of an output gets all of it. The operator's destinations are numbered
    through, the instances of one reader after those of another (`Topology.destination`)."""

    def __init__(self, readers: Sequence[Reader], *, has_side_outputs: bool = False) -> None:
        """Readers in the order of their numbers."""
        firsts = accumulate((reader.parallelism for reader in readers), initial=0)
        self._readers = list(zip(readers, firsts, strict=False))
        self._has_side_outputs = has_side_outputs

    @property
    def with_event_time(self) -> list[tuple[Reader, range]]:
        """The readers that are told of event time, and their destinations."""
        return [
            (reader, range(first, first + reader.parallelism))
            for reader, first in self._readers
            if reader.has_event_time
        ]

    def __call__(self, rows: list[tuple[Any, ...]]) -> Destinations:
        if self._has_side_outputs:
            outputs = list(map(output_of, rows))
            return [_of_output(reader, first, rows, outputs) for reader, first in self._readers]
        return [
            reader.router(rows) if first == 0 else [first + instance for instance in reader.router(rows)]
            for reader, first in self._readers
        ]


def _of_output(
    reader: Reader, first: int, rows: list[tuple[Any, ...]], outputs: list[OutputName]
) -> list[int]:
    read = [at for at, output in enumerate(outputs) if output == reader.output]
    found = [NOWHERE] * len(rows)
    for at, instance in zip(read, reader.router([rows[at] for at in read]), strict=True):
        found[at] = first + instance
    return found


def route_to_one(rows: list[tuple[Any, ...]]) -> list[int]:
    return [0] * len(rows)


def route_to(target: int) -> Router:
    """Every row to one destination: a sink's instances are fed by channel, not by key."""
    return lambda rows: [target] * len(rows)


def conform_column(column: KeyColumn, rows: list[tuple[Any, ...]], zone: dt.tzinfo) -> list[Conformed]:
    """One column of the key, conformed."""
    index, kind = column.index, column.kind
    values = [row[index] for row in rows]
    if _EXACT[kind].issuperset(map(type, values)):
        return values
    return [conform(kind, value, zone) for value in values]


def route_by_key(
    columns: Sequence[KeyColumn], parallelism: int, *, zone: dt.tzinfo = dt.UTC, remembered: int = 65_536
) -> Router:
    """Rows by the key in `columns`. Destinations of keys seen are remembered, up to a bound."""
    if parallelism == 1:
        return route_to_one
    known: dict[Any, int] = {}
    single = len(columns) == 1

    def destination_of(key: Any) -> int:
        if len(known) >= remembered:
            known.clear()
        # Conformed: in a column, equal values have one text, so it does not matter which of them came first.
        target = known[key] = _target((key,) if single else key, parallelism)
        return target

    def route(rows: list[tuple[Any, ...]]) -> list[int]:
        found = [conform_column(column, rows, zone) for column in columns]
        keys = found[0] if single else zip(*found, strict=True)
        targets = []
        for key in keys:
            target = known.get(key)
            targets.append(destination_of(key) if target is None else target)
        return targets

    return route
