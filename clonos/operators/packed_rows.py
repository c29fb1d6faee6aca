"""Few rows as bytes, without Arrow.

To make Arrow arrays of one row and to read them takes longer than all else that a replica does with it. So rows of
plain columns that are few are sent as MessagePack: an array of rows, each an array of its values. A TIMESTAMP is its
microseconds since 1970, a date its days. What a function gives in another type than a reader of the column gets it in
goes through Arrow first, which converts or refuses it: a reader cannot tell in which way a row has come, and the bytes
do not tell in which types its values were given.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import pyarrow as pa

from clonos.errors import InputError
from clonos.operators.rows import instant, is_zoned, local, zone_of

FEW: Final = 64
"""Most rows that are packed: from there on Arrow is faster (`benchmarks/small_blocks.py`)."""
_SHAPES: Final = 1024
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_WALL_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_REFUSED: Final = (TypeError, ValueError, OverflowError)  # UnicodeError is a ValueError

Convert = Callable[[Any], Any]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Column:
    """What a plain column packs: values of one type, in a range if they are integers; times as integers."""

    kind: type
    range: range | None = None
    integers: pa.DataType | None = None
    pack: Convert | None = None
    read: Convert | None = None


def _wall(moment: dt.datetime) -> int:
    if moment.tzinfo is not None:
        raise TypeError("an aware datetime")
    return (moment - _WALL_EPOCH) // _MICROSECOND


def _column(kind: pa.DataType, zone: dt.tzinfo | None, *, instants: bool) -> _Column | None:
    if pa.types.is_signed_integer(kind):
        return _Column(int, range(-(1 << kind.bit_width - 1), 1 << kind.bit_width - 1))
    if pa.types.is_date32(kind):
        return _Column(
            dt.date,
            integers=pa.int32(),
            pack=lambda day: day.toordinal() - _EPOCH_DAY,
            read=lambda days: dt.date.fromordinal(days + _EPOCH_DAY),
        )
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        if not is_zoned(kind):
            return _Column(
                dt.datetime, integers=pa.int64(), pack=_wall, read=lambda n: _WALL_EPOCH + n * _MICROSECOND
            )
        return _Column(
            dt.datetime,
            integers=pa.int64(),
            pack=lambda moment: instant(moment, zone),
            read=(lambda n: local(n, dt.UTC).replace(tzinfo=dt.UTC))
            if instants
            else (lambda n: local(n, zone)),
        )
    plain = {pa.string(): str, pa.bool_(): bool, pa.float64(): float, pa.binary(): bytes}.get(kind)
    return None if plain is None else _Column(plain)


def _columns(schema: pa.Schema, tz: str | None, *, instants: bool = False) -> list[_Column] | None:
    """None where the schema has a column that is not plain."""
    zone = zone_of(tz)
    columns = [_column(field.type, zone, instants=instants) for field in schema]
    plain = [column for column in columns if column is not None]
    return plain if columns and len(plain) == len(columns) else None


class _Shapes:
    """Which types the values of a row have together. There are few shapes, and a look is cheaper than the test."""

    def __init__(self, kinds: Sequence[type], schema: pa.Schema) -> None:
        nothing = type(None)
        self._allowed = [
            {kind, nothing} if field.nullable else {kind} for kind, field in zip(kinds, schema, strict=True)
        ]
        self._seen: set[tuple[type, ...]] = set()

    def fit(self, row: Row) -> bool:
        shape = (*map(type, row),)
        if shape in self._seen:
            return True
        if len(shape) != len(self._allowed) or not all(map(set.__contains__, self._allowed, shape)):
            return False
        if len(self._seen) < _SHAPES:
            self._seen.add(shape)
        return True


class RowPacker:
    """Packs rows of a schema. What comes out is a function of the values that a reader gets."""

    def __init__(self, schema: pa.Schema, tz: str | None) -> None:
        columns = _columns(schema, tz)
        self._is_plain = columns is not None
        if columns is None:
            return
        self._shapes = _Shapes([column.kind for column in columns], schema)
        self._ranges = [(at, column.range) for at, column in enumerate(columns) if column.range is not None]
        self._converts = [(at, column.pack) for at, column in enumerate(columns) if column.pack is not None]
        self._integers = [column.integers for column in columns]
        self._pack = msgpack.Packer(use_bin_type=True).pack

    def is_for(self, rows: int) -> bool:
        """Whether so many rows are packed, and not sent as Arrow arrays."""
        return self._is_plain and rows <= FEW

    def pack(self, rows: Sequence[Row]) -> list[bytes] | None:
        """Each row as bytes; None where a value is not of the type that a reader of its column gets."""
        fit, ranges, converts, pack = self._shapes.fit, self._ranges, self._converts, self._pack
        packed: list[bytes] = []
        try:
            for row in rows:
                if not fit(row):
                    return None
                for at, numbers in ranges:
                    if row[at] is not None and row[at] not in numbers:
                        return None
                if converts:
                    values = list(row)
                    for at, convert in converts:
                        if values[at] is not None:
                            values[at] = convert(values[at])
                    row = tuple(values)
                packed.append(pack(row))
        except _REFUSED:
            return None
        return packed

    def pack_arrays(self, arrays: Sequence[pa.Array]) -> list[bytes]:
        """The same of rows that Arrow has converted."""
        columns = [
            (array if integers is None else array.view(integers)).to_pylist()
            for array, integers in zip(arrays, self._integers, strict=True)
        ]
        return list(map(self._pack, zip(*columns, strict=True)))


def joined(packed: Sequence[bytes]) -> bytes:
    """Packed rows as one array."""
    header: bytes = msgpack.Packer().pack_array_header(len(packed))
    return header + b"".join(packed)


class RowUnpacker:
    """Reads packed rows of a schema."""

    def __init__(
        self, schema: pa.Schema, tz: str | None, row_class: type[Row], *, instants: bool = False
    ) -> None:
        columns = _columns(schema, tz, instants=instants)
        self._columns = columns
        self._row_class = row_class
        if columns is not None:
            self._shapes = _Shapes(
                [int if column.read is not None else column.kind for column in columns], schema
            )
            self._converts = [
                (at, column.read, schema.names[at])
                for at, column in enumerate(columns)
                if column.read is not None
            ]

    def rows(self, packed: memoryview) -> list[Row]:
        """Raises InputError where they do not fit the schema."""
        try:
            rows = msgpack.unpackb(packed, use_list=False)
        except Exception as error:
            raise InputError(f"a block of packed rows cannot be read: {error}") from error
        if self._columns is None or type(rows) is not tuple:
            raise InputError("a block of packed rows does not fit the declared input schema")
        fit = self._shapes.fit
        for row in rows:
            if type(row) is not tuple or not fit(row):
                raise InputError(f"a packed row does not fit the declared input schema: {row!r}")
        if self._converts:
            rows = [self._read(row) for row in rows]
        return list(map(self._row_class, rows))

    def _read(self, row: Row) -> list[Any]:
        values = list(row)
        for at, read, name in self._converts:
            if values[at] is None:
                continue
            try:
                values[at] = read(values[at])
            except (OverflowError, ValueError):
                raise InputError(
                    f"column {name!r} holds a time that is beyond the years 1 to 9999 of Python, in the session's time "
                    "zone"
                ) from None
        return values
