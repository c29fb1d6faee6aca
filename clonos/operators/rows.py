"""Rows between Arrow and user functions.

A user function sees the Python values that PySpark gives it: a TIMESTAMP is a naive datetime in the session's time
zone, a TIMESTAMP_NTZ a naive datetime, a struct a row, a map a dict. Work is per column, never per value, wherever the
type allows it: `to_pylist` and `zip` in, `zip` and `pa.array` out. A row is a tuple with names, made without running
Python code; it is as cheap as the tuple it is.

The zone is a parameter and never the host's, unless the caller says so: a replica that takes over on another host must
show the function the same values.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import lru_cache
from itertools import repeat
from typing import Any, ClassVar, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from clonos.errors import ConfigurationError, InputError

try:
    from _collections import _tuplegetter as _getter  # type: ignore[import-not-found]  # what namedtuple uses: attribute access in C
except ImportError:  # pragma: no cover - other interpreters

    def _getter(index: int, doc: str) -> Any:
        return property(lambda self: tuple.__getitem__(self, index), doc=doc)


Convert = Callable[[Any], Any]
FieldsOf = Callable[[Any, Sequence[str]], Sequence[Any]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_NOT_A_TIME = -(2**63)
_FEW_ROWS = 128
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])(?:(\d{1,2})(?::(\d{1,2})(?::(\d{2}))?)?|(\d{2})(\d{2})(\d{2})?)", re.IGNORECASE
)
"""As Spark and Java read them: +h, +hh, +hh:mm, +hh:mm:ss, +hhmm and +hhmmss, also behind UTC, GMT or UT."""
_FARTHEST = timedelta(hours=18)


def seen_as(module: str, name: str, own: type) -> type:
    """PySpark's class, for `isinstance`, if this process has imported it; otherwise no code in it can ask for that."""
    return getattr(sys.modules.get(module), name, own)


class Row(tuple[Any, ...]):
    """A tuple with names: `row.card`, `row["card"]`, `row[0]`, `"card" in row`, `row.asDict()`, as in PySpark."""

    __slots__ = ()
    __fields__: ClassVar[tuple[str, ...]] = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    _positions: ClassVar[dict[str, int]] = {}
    _is_right: ClassVar[bool] = False  # of the second input of an operator that has two

    def __getitem__(self, item: Any) -> Any:
        if type(item) is str:
            try:
                return tuple.__getitem__(self, self._positions[item])
            except KeyError:
                raise KeyError(f"the row has no field {item!r}; it has {', '.join(self._fields)}") from None
        return tuple.__getitem__(self, item)

    def __contains__(self, item: object) -> bool:
        return item in self._fields

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{n}={v!r}' for n, v in zip(self._fields, self, strict=True))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (make_row, (self._fields, tuple(self)))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For `isinstance(row, Row)`, without importing pyspark into processes that do not need it."""
        return seen_as("pyspark.sql.types", "Row", type(self))

    def asDict(self, recursive: bool = False) -> dict[str, Any]:
        """The row as a dict; with `recursive`, rows inside it too."""
        if not recursive:
            return dict(zip(self._fields, self, strict=True))
        return {name: _plain(value) for name, value in zip(self._fields, self, strict=True)}

    def _asdict(self) -> dict[str, Any]:
        return self.asDict()

    def _replace(self, **changes: Any) -> Row:
        unknown = changes.keys() - self._positions.keys()
        if unknown:
            raise ValueError(f"the row has no field {', '.join(sorted(unknown))}")
        return make_row(self._fields, [changes.get(n, v) for n, v in zip(self._fields, self, strict=True)])


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.asDict(recursive=True)
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


@lru_cache(maxsize=512)
def row_type(names: tuple[str, ...]) -> type[Row]:
    """The row class with these field names. A name that hides a method of `Row` is reached with `row["name"]`."""
    taken = set(vars(Row)) | {"__class__", "__doc__"}
    body: dict[str, Any] = {"__slots__": (), "__fields__": names, "_fields": names}
    body["_positions"] = {name: i for i, name in reversed(list(enumerate(names)))}
    body["__match_args__"] = tuple(n for n in names if n.isidentifier())
    body.update({n: _getter(i, n) for i, n in enumerate(names) if n not in taken and not n.startswith("__")})
    return type("Row", (Row,), body)


@lru_cache(maxsize=512)
def right_row_type(names: tuple[str, ...]) -> type[Row]:
    """The same for rows of the second input of an operator."""
    return type("Row", (row_type(names),), {"__slots__": (), "_is_right": True})


def values_at(index: int, rows: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """One column of rows. `row[index]` would run the Python code of `Row.__getitem__` for each."""
    return map(_getter(index, "").__get__, rows)


def is_right(row: tuple[Any, ...]) -> bool:
    """Whether a record came by the second input of an operator."""
    return bool(getattr(row, "_is_right", False))


def make_row(names: Sequence[str], values: Sequence[Any]) -> Row:
    """One row; the fast way for many is a `RowDecoder`."""
    if len(names) != len(values):
        raise InputError(f"a row of {len(names)} fields cannot be made from {len(values)} values")
    return tuple.__new__(row_type(tuple(names)), values)


@lru_cache(maxsize=64)
def zone_of(tz: str | None) -> tzinfo | None:
    """The zone of a Spark session setting ("UTC", "Europe/Berlin", "+02:00", "GMT+2"); None is the host's own."""
    if tz is None:
        return None
    text = tz.strip()
    if text.upper() in ("UTC", "Z", "GMT", "ETC/UTC", "UT"):
        return UTC
    if offset := _OFFSET.fullmatch(text):
        sign, *parts = offset.groups()
        hours, minutes, seconds = (
            int(colon or plain or 0) for colon, plain in zip(parts[:3], parts[3:], strict=True)
        )
        away = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if minutes < 60 and seconds < 60 and away <= _FARTHEST:
            return timezone(-away if sign == "-" else away)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"the time zone {tz!r} is unknown", hint="Use a region or an offset"
        ) from error


def local(microseconds: int, zone: tzinfo | None) -> datetime:
    """The naive local datetime of an instant. In the repeated hour of a clock change it carries `fold`."""
    if zone is UTC:
        return _NAIVE_EPOCH + timedelta(microseconds=microseconds)
    return in_utc(microseconds).astimezone(zone).replace(tzinfo=None)


def in_utc(microseconds: int) -> datetime:
    """The aware datetime of an instant. Raises OverflowError at the ends of Python's years."""
    return _EPOCH + timedelta(microseconds=microseconds)


def instant(moment: datetime, zone: tzinfo | None) -> int:
    """Microseconds since the epoch of an aware datetime, or of a naive one in the zone."""
    if moment.tzinfo is None:
        if zone is UTC:
            return (moment - _NAIVE_EPOCH) // _MICROSECOND
        moment = moment.astimezone() if zone is None else moment.replace(tzinfo=zone)
    return (moment - _EPOCH) // _MICROSECOND


# -- Arrow to Python


def is_zoned(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


def reader(kind: pa.DataType, zone: tzinfo | None, *, instants: bool = False) -> Convert | None:
    """From what `to_pylist` gives to what the user sees; None when they are the same. TIMESTAMPs are naive, in the
    zone, or, as `instants`, aware."""
    if is_zoned(kind) and instants:
        return lambda v: None if v is None else v.astimezone(UTC)
    if is_zoned(kind):
        return lambda v: None if v is None else v.astimezone(zone).replace(tzinfo=None)
    if pa.types.is_struct(kind):
        return _struct_reader(kind, zone, instants=instants)
    if pa.types.is_map(kind):
        of_key = reader(kind.key_type, zone, instants=instants)
        of_value = reader(kind.item_type, zone, instants=instants)
        if of_key is None and of_value is None:
            return lambda v: None if v is None else dict(v)
        k_of, v_of = of_key or _same, of_value or _same
        return lambda v: None if v is None else {k_of(a): v_of(b) for a, b in v}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = reader(kind.value_type, zone, instants=instants)
        if inner is not None:
            return lambda v: None if v is None else [inner(x) for x in v]
    return None


def _struct_reader(kind: pa.DataType, zone: tzinfo | None, *, instants: bool) -> Convert:
    fields = [kind.field(i) for i in range(kind.num_fields)]
    cls = row_type(tuple(f.name for f in fields))
    parts = [(f.name, reader(f.type, zone, instants=instants) or _same) for f in fields]
    if all(convert is _same for _, convert in parts):
        return lambda v: None if v is None else tuple.__new__(cls, v.values())
    return lambda v: None if v is None else tuple.__new__(cls, [f(v[n]) for n, f in parts])


def _same(value: Any) -> Any:
    return value


class RowDecoder:
    """Arrow record batches of one schema as rows and keys.

    The schema is that of the user's columns. They may stand behind others in the batch (the hidden columns of the
    wire): `columns(batch, first)` skips those. Keys are plain tuples, as in PySpark. TIMESTAMPs are naive, in the zone,
    as in PySpark, or, as `instants`, aware: a sink that writes them down must not lose which of a repeated hour it is.
    """

    def __init__(
        self,
        schema: pa.Schema,
        tz: str | None = "UTC",
        key: Sequence[str | int] = (),
        *,
        instants: bool = False,
        is_right: bool = False,
    ) -> None:
        self.schema = schema
        self.key_columns = [schema.get_field_index(k) if isinstance(k, str) else k for k in key]
        for name, index in zip(key, self.key_columns, strict=True):
            if not 0 <= index < len(schema):
                raise InputError(f"the key column {name!r} is not in the schema: {', '.join(schema.names)}")
        self.row_class = (right_row_type if is_right else row_type)(tuple(schema.names))
        zone = zone_of(tz)
        self._columns = [_column_reader(field.type, zone, instants=instants) for field in schema]

    def columns(self, batch: pa.RecordBatch, first: int = 0) -> list[list[Any]]:
        """The user's columns as lists of Python values."""
        if batch.num_columns - first != len(self._columns):
            raise InputError(
                f"a batch of {batch.num_columns - first} columns where {len(self._columns)} are due"
            )
        return [self.column(batch.column(first + i), i) for i in range(len(self._columns))]

    def column(self, array: pa.Array, index: int) -> list[Any]:
        """One column by its place in the schema."""
        try:
            return self._columns[index](array)
        except OverflowError:
            raise InputError(
                f"column {self.schema.names[index]!r} holds a timestamp that is beyond the years 1 to 9999 of Python, "
                "in the session's time zone"
            ) from None
        except UnicodeDecodeError as error:
            raise InputError(
                f"column {self.schema.names[index]!r} holds text that is not UTF-8: {error}",
                hint="Take the column as binary, or make it text with Spark's validate_utf8 or make_valid_utf8",
            ) from None

    def rows(self, columns: Sequence[Sequence[Any]], count: int | None = None) -> list[tuple[Any, ...]]:
        """Rows from columns. `count` matters only for a schema without columns."""
        if not columns:
            return [tuple.__new__(self.row_class, ())] * (count or 0)
        return list(map(self.row_class, zip(*columns, strict=True)))

    def keys(self, columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """The key tuple of every row."""
        return list(zip(*[columns[i] for i in self.key_columns], strict=True))

    def decode(
        self, batch: pa.RecordBatch, first: int = 0
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """(keys, rows) of a batch."""
        columns = self.columns(batch, first)
        rows = self.rows(columns, batch.num_rows)
        return (self.keys(columns) if self.key_columns else [()] * len(rows)), rows


def _column_reader(
    kind: pa.DataType, zone: tzinfo | None, *, instants: bool
) -> Callable[[pa.Array], list[Any]]:
    """How to read a whole column. Where `to_pylist` is slow (microseconds per value), numpy and text are fast."""
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        if kind.tz is not None and instants:
            return lambda column: [None if v is None else v.replace(tzinfo=UTC) for v in _moments(column)]
        if kind.tz is None or zone is UTC:
            return _moments
        return lambda column: [
            None if v is None else v.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)
            for v in _moments(column)
        ]
    if pa.types.is_date32(kind):
        return lambda column: _units(column, pa.int32(), "M8[D]")
    if pa.types.is_decimal(kind):
        return lambda column: [
            None if v is None else Decimal(v) for v in column.cast(pa.string()).to_pylist()
        ]
    convert = reader(kind, zone, instants=instants)
    if convert is None:
        return lambda column: column.to_pylist()
    return lambda column: [convert(v) for v in column.to_pylist()]


def _moments(column: pa.Array) -> list[Any]:
    return _units(column, pa.int64(), "M8[us]")


def _units(column: pa.Array, integers: pa.DataType, dtype: str) -> list[Any]:
    """Counts of a unit as datetimes or dates."""
    counts = column.view(integers)
    if column.null_count:
        counts = counts.cast(pa.int64()).fill_null(_NOT_A_TIME)
    values: list[Any] = counts.to_numpy(zero_copy_only=False).astype("i8", copy=False).view(dtype).tolist()
    if int in set(map(type, values)):
        beyond = next(v for v in values if type(v) is int)
        raise InputError(
            f"a {spark_name(column.type)} of {beyond} since 1970 is beyond the years 1 to 9999 of Python"
        )
    return values


# -- Python to Arrow


def _moment(value: Any, zone: tzinfo | None) -> Any:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise TypeError(f"a datetime is due, not {type(value).__name__}")
    return instant(value, zone)


def _wall(value: Any) -> Any:
    if value is None or (isinstance(value, datetime) and value.tzinfo is None):
        return value
    if isinstance(value, datetime):
        raise TypeError("a naive datetime is due for TIMESTAMP_NTZ, not an aware one")
    raise TypeError(f"a datetime is due, not {type(value).__name__}")


def _day(value: Any) -> Any:
    """pandas' NaT says that it is a datetime, and Arrow takes it for the first of January of the year 1."""
    if value is not None and value != value:
        raise TypeError(f"a date is due, not {value}: None stands for what is missing")
    return value


def _items(value: Any) -> Any:
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, (list, tuple)) and all(isinstance(v, tuple) and len(v) == 2 for v in value):
        return value  # pairs, as rows of `transformWithState` have them
    raise TypeError(f"a dict is due, not {type(value).__name__}")


def _listing(value: Any) -> Any:
    if isinstance(value, (str, bytes, dict)):
        raise TypeError(f"a list is due, not {type(value).__name__}")
    return value


def struct_values(value: Any, names: Sequence[str]) -> Sequence[Any]:
    """The values of a struct in the order of `names`: by name from dicts and named rows, else by position.

    By name, what is missing is null, and a name that is unknown is refused.
    """
    if isinstance(value, dict):
        unknown = value.keys() - set(names)
        if unknown:
            raise TypeError(
                f"unknown field {', '.join(map(repr, sorted(map(str, unknown))))}; {_known(names)}"
            )
        return [value.get(n) for n in names]
    if isinstance(value, (tuple, list)):
        given = field_names(value)
        if given is not None and list(given) != list(names):
            return struct_values(dict(zip(given, value, strict=True)), names)
        if len(value) != len(names):
            raise TypeError(f"{len(value)} values; {_known(names)}")
        return value
    if hasattr(type(value), "__dataclass_fields__"):
        return struct_values({n: getattr(value, n) for n in type(value).__dataclass_fields__}, names)
    raise TypeError(f"{type(value).__name__} is not a row; {_known(names)}")


def field_names(value: Any) -> Sequence[str] | None:
    """The field names of a `Row` made with names, or of a named tuple."""
    return getattr(value, "__fields__", None) or getattr(value, "_fields", None)


def names_of_all(kind: type) -> tuple[str, ...] | None:
    """The field names that all values of a class have: of a named tuple's, or of one of `row_type`. Rows that PySpark
    makes have names of their own each."""
    names = kind.__dict__.get("_fields") if issubclass(kind, tuple) else None
    return names if isinstance(names, tuple) else None


def placed_values(value: Any, names: Sequence[str]) -> Sequence[Any]:
    """As `struct_values`, where Spark takes a named row by position: one that has the struct's names in another order,
    or some of them, would be given other fields than it says, and is refused."""
    given = field_names(value)
    if given is None or list(given) == list(names):
        return struct_values(value, names)
    if set(given) & set(names):
        raise TypeError(f"the fields {', '.join(given)} are taken by position here; {_known(names)}")
    return struct_values(tuple(value), names)


def _known(names: Sequence[str]) -> str:
    return f"the fields are ({', '.join(names)})"


def writer(kind: pa.DataType, zone: tzinfo | None, fields_of: FieldsOf = struct_values) -> Convert | None:
    """From what users give to what `pa.array` understands rightly; None when they are the same."""
    if is_zoned(kind):
        return lambda v: _moment(v, zone)
    if pa.types.is_timestamp(kind):
        return _wall
    if pa.types.is_date(kind):
        return _day
    if pa.types.is_struct(kind):
        return _struct_writer(kind, zone, fields_of)
    if pa.types.is_map(kind):
        k_of = writer(kind.key_type, zone, fields_of) or _same
        v_of = writer(kind.item_type, zone, fields_of) or _same
        return lambda v: v if v is None else [(k_of(a), v_of(b)) for a, b in _items(v)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = writer(kind.value_type, zone, fields_of)
        if inner is not None:
            return lambda v: v if v is None else [inner(x) for x in _listing(v)]
    return None


def _struct_writer(kind: pa.DataType, zone: tzinfo | None, fields_of: FieldsOf) -> Convert:
    fields = [kind.field(i) for i in range(kind.num_fields)]
    names = [f.name for f in fields]
    parts = [writer(f.type, zone, fields_of) or _same for f in fields]

    def write(value: Any) -> Any:
        if value is None:
            return None
        values = fields_of(value, names)
        return {n: f(v) for n, f, v in zip(names, parts, values, strict=True)}

    return write


class RowEncoder:
    """Output tuples as Arrow arrays of a declared schema. What does not fit is refused by column, row and value."""

    def __init__(
        self,
        schema: pa.Schema,
        tz: str | None = "UTC",
        operator: str = "",
        fields_of: FieldsOf = struct_values,
    ) -> None:
        self.schema = schema
        self._operator = operator
        zone = zone_of(tz)
        self._writers = [writer(field.type, zone, fields_of) for field in schema]
        # A call of `pa.array` costs as much as some thirty values: few rows are made in one call for all columns.
        self._plain = len(schema) > 0 and not any(self._writers)
        self._struct = pa.struct(list(schema))
        self._required = [i for i, field in enumerate(schema) if not field.nullable]

    def arrays(self, rows: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
        """One array per column of the schema."""
        width = len(self.schema)
        if rows and set(map(len, rows)) != {width}:
            bad = next(i for i, r in enumerate(rows) if len(r) != width)
            raise InputError(
                f"{self._of()}row {bad} has {len(rows[bad])} values where the schema has {width}: "
                f"{', '.join(self.schema.names)}"
            )
        if self._plain and 0 < len(rows) < _FEW_ROWS:
            # Column by column says which
            with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
                arrays: list[pa.Array] = pa.array(rows, self._struct).flatten()
                if not any(arrays[i].null_count for i in self._required):
                    return arrays
        columns: Iterator[Sequence[Any]] = iter(zip(*rows, strict=True)) if rows else repeat((), width)
        return [self._array(i, column) for i, column in zip(range(width), columns, strict=False)]

    def batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        """One record batch with the declared schema."""
        if not len(self.schema):
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        return pa.RecordBatch.from_arrays(self.arrays(rows), schema=self.schema)

    def column(self, field: pa.Field, values: Sequence[Any]) -> pa.Array:
        """One column, by its field."""
        return self._array(self.schema.get_field_index(field.name), values)

    def _array(self, index: int, values: Sequence[Any]) -> pa.Array:
        field, convert = self.schema.field(index), self._writers[index]
        try:
            array = _build(values, field.type, convert)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._refusal(field, values, convert, error) from error
        if array.null_count and not field.nullable and not pa.types.is_null(field.type):
            row = next(i for i, v in enumerate(values) if v is None)
            raise InputError(
                f"{self._of()}column {field.name!r} is declared NOT NULL, but row {row} has no value"
            )
        return array

    def _refusal(
        self, field: pa.Field, values: Sequence[Any], convert: Convert | None, error: Exception
    ) -> InputError:
        for row, value in enumerate(values):
            try:
                _build([value], field.type, convert)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
                return InputError(
                    f"{self._of()}column {field.name!r} ({spark_name(field.type)}): "
                    f"row {row} has {_show(value)}: {cause}",
                    hint="Return values of the declared output schema",
                )
        return InputError(f"{self._of()}column {field.name!r} ({spark_name(field.type)}): {error}")

    def _of(self) -> str:
        return f"output of {self._operator}: " if self._operator else ""


def _build(values: Sequence[Any], kind: pa.DataType, convert: Convert | None) -> pa.Array:
    if convert is None:
        return pa.array(values, kind)
    if is_zoned(kind):
        return pa.array([convert(v) for v in values], pa.int64()).view(kind)
    if pa.types.is_nested(kind) and _has_zoned(kind):
        return _via_integers([convert(v) for v in values], kind)
    return pa.array([convert(v) for v in values], kind)


def _via_integers(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Nested timestamps go in as int64: exact, and free of any zone arithmetic on Arrow's side."""
    return pa.array(values, _integers(kind)).cast(kind)


def _has_zoned(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_zoned(kind.field(i).type) for i in range(kind.num_fields))
    return is_zoned(kind)


def _integers(kind: pa.DataType) -> pa.DataType:
    if is_zoned(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct(
            [f.with_type(_integers(f.type)) for f in (kind.field(i) for i in range(kind.num_fields))]
        )
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_integers(kind.key_type)),
            kind.item_field.with_type(_integers(kind.item_type)),
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_integers(kind.value_type)))
    return kind


def spark_name(kind: pa.DataType) -> str:
    """An Arrow type by the name its user knows."""
    if is_zoned(kind):
        return "timestamp"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{spark_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_name(kind.key_type)},{spark_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{spark_name(field.type)}' for field in kind)}>"
    return _SPARK_NAMES.get(str(kind), str(kind))


_SPARK_NAMES: Final = {
    "bool": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "date32[day]": "date",
    "duration[us]": "interval day to second",
    "null": "void",
}


def _show(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"
