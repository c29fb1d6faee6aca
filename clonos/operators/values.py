"""Values of declared types: what user functions put into typed state, checked, and what they get out again, copied.

Typed state is Spark's promise that what comes back is what the schema says. Two things follow. What does not fit is
refused where it is written, with the field's name, and again where it is read, because a schema may have changed since.
And a value is a copy each way: a list taken out of the state and changed without `update` must not be changed in the
cache, since after a recovery, when it comes from disk again, it would not be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from clonos.errors import StateError
from clonos.operators.rows import instant, local, placed_values, row_type, spark_name

_Convert = Callable[[Any], Any]
_DIGITS = Context(prec=77)


class Codec:
    """Tuples of one schema: `store` checks what the user gives, `load` what was kept."""

    def __init__(self, schema: pa.Schema, zone: tzinfo | None, what: str) -> None:
        self.schema = schema
        self._what = what
        self._names = list(schema.names)
        fields = list(schema)
        self._in = [_field(f, _checker(f.type, zone, tuple)) for f in fields]
        self._out = [_field(f, _checker(f.type, zone, None)) for f in fields]
        self._zone = zone

    def store(self, value: Any) -> tuple[Any, ...]:
        """The plain form of a user's tuple, list, dict or row; of a lone value where the schema has one field."""
        try:
            values = self._values(value)
        except TypeError as error:
            raise StateError(
                f"{self._what}: {error}", hint="Give a tuple that fits the declared schema"
            ) from error
        return self._convert(values, self._in, "cannot be kept")

    def load(self, kept: Any) -> tuple[Any, ...]:
        """A fresh tuple of what was kept. Fields that were added since are null."""
        if isinstance(kept, tuple) and len(kept) < len(self._names):
            kept += (None,) * (len(self._names) - len(kept))
        if not isinstance(kept, tuple) or len(kept) != len(self._names):
            shape = f"{len(kept)} values" if isinstance(kept, tuple) else f"a {type(kept).__name__}"
            raise StateError(
                f"{self._what} no longer fits its schema ({', '.join(self._names)}): {shape}", hint=_CHANGED
            )
        return self._convert(kept, self._out, "no longer fits its schema", _CHANGED)

    def _values(self, value: Any) -> Sequence[Any]:
        if len(self._names) == 1 and not isinstance(value, (tuple, list, dict)):
            return (value,)
        return placed_values(value, self._names)

    def _convert(
        self, values: Sequence[Any], converters: list[_Convert], says: str, hint: str | None = None
    ) -> tuple[Any, ...]:
        try:
            return tuple([f(v) for f, v in zip(converters, values)])
        except (TypeError, ValueError, OverflowError, InvalidOperation):
            pass
        for name, field, convert, value in zip(self._names, self.schema, converters, values):
            try:
                convert(value)
            except (TypeError, ValueError, OverflowError, InvalidOperation) as error:
                raise StateError(
                    f"{self._what}: field {name!r} ({spark_name(field.type)}) {says}: {error}", hint=hint
                ) from error
        raise AssertionError("a conversion failed once and not twice")


_CHANGED = (
    "The schema was changed since the checkpoint was written: change it back, or start from a new checkpoint"
)


def _field(field: pa.Field, check: _Convert) -> _Convert:
    if field.nullable:
        return lambda v: None if v is None else check(v)

    def required(value: Any) -> Any:
        if value is None:
            raise TypeError("it is declared NOT NULL")
        return check(value)

    return required


def _checker(kind: pa.DataType, zone: tzinfo | None, make: Callable[[Any], Any] | None) -> _Convert:
    """Check and copy a value of this type, not None. `make` builds structs; without it they become rows."""
    t = pa.types
    if t.is_integer(kind):
        return _integer(kind)
    if t.is_floating(kind):
        return _float if kind == pa.float64() else lambda v: float(np.float32(_float(v)))
    if t.is_boolean(kind):
        return _boolean
    if t.is_string(kind) or t.is_large_string(kind):
        return _string
    if t.is_binary(kind) or t.is_large_binary(kind):
        return _binary
    if t.is_decimal(kind):
        return _decimal(kind)
    if t.is_date(kind):
        return _date
    if t.is_timestamp(kind):
        return _timestamp(kind, zone)
    if t.is_duration(kind):
        return _duration
    if t.is_struct(kind):
        return _struct(kind, zone, make)
    if t.is_map(kind):
        return _map(kind, zone, make)
    if t.is_list(kind) or t.is_large_list(kind):
        element = _field(kind.value_field, _checker(kind.value_type, zone, make))
        return lambda v: [element(x) for x in _list(v)]
    if t.is_null(kind):
        return _nothing
    raise StateError(f"the type {kind} cannot be kept in typed state")


def _plain(value: Any) -> Any:
    """Scalars of numpy and pandas as Python's own."""
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime(warn=False)
    if hasattr(value, "to_pytimedelta"):
        return value.to_pytimedelta()
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return value.item() if value.ndim == 0 else value.tolist()
    return value


def _wrong(value: Any, due: str) -> TypeError:
    text = repr(value)
    return TypeError(
        f"{due} is due, not {text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
    )


def _integer(kind: pa.DataType) -> _Convert:
    bound = 1 << (kind.bit_width - 1)

    def check(value: Any) -> int:
        if type(value) is not int:
            value = _plain(value)
            if not isinstance(value, int) or isinstance(value, bool):
                raise _wrong(value, "an integer")
            value = int(value)
        if not -bound <= value < bound:
            raise ValueError(f"{value} is beyond {kind.bit_width} bits")
        return int(value)

    return check


def _float(value: Any) -> float:
    if type(value) is not float:
        value = _plain(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _wrong(value, "a number")
        value = float(value)
    # Of a NaN it counts which object it is (`x in [x]`): each one is its own, as after a restore.
    return value if value == value else float("nan")


def _boolean(value: Any) -> bool:
    value = _plain(value)
    if not isinstance(value, bool):
        raise _wrong(value, "a boolean")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(value, "a string")
    # not str(value): a subclass, an enum for one, may say something else there than it holds
    return value if type(value) is str else str.__str__(value)


def _binary(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _wrong(value, "bytes")
    return bytes(value)


def _decimal(kind: pa.DataType) -> _Convert:
    unit = Decimal(1).scaleb(-kind.scale)
    limit = Decimal(10) ** (kind.precision - kind.scale)

    def check(value: Any) -> Decimal:
        value = _plain(value)
        if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
            raise _wrong(value, "a Decimal")
        exact = Decimal(value).quantize(unit, ROUND_HALF_UP, _DIGITS)
        if not exact.is_finite() or abs(exact) >= limit:
            raise ValueError(f"{value} is beyond decimal({kind.precision},{kind.scale})")
        return exact

    return check


def _date(value: Any) -> date:
    value = _plain(value)
    if not isinstance(value, date):
        raise _wrong(value, "a date")
    return value if type(value) is date else date(value.year, value.month, value.day)


def _timestamp(kind: pa.DataType, zone: tzinfo | None) -> _Convert:
    def check(value: Any) -> datetime:
        value = _plain(value)
        if not isinstance(value, datetime):
            raise _wrong(value, "a datetime")
        if value.tzinfo is None:
            return value if type(value) is datetime else _naive(value)
        if kind.tz is None:
            raise _wrong(value, "a naive datetime")
        return local(instant(value, zone), zone)

    return check


def _naive(value: datetime) -> datetime:
    return datetime.combine(date(value.year, value.month, value.day), value.time())


def _duration(value: Any) -> timedelta:
    value = _plain(value)
    if not isinstance(value, timedelta):
        raise _wrong(value, "a timedelta")
    return value if type(value) is timedelta else timedelta(value.days, value.seconds, value.microseconds)


def _nothing(value: Any) -> None:
    raise _wrong(value, "no value")


def _list(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return value
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    raise _wrong(value, "a list")


def _struct(kind: pa.DataType, zone: tzinfo | None, make: Callable[[Any], Any] | None) -> _Convert:
    fields = [kind.field(i) for i in range(kind.num_fields)]
    names = [f.name for f in fields]
    parts = [_field(f, _checker(f.type, zone, make)) for f in fields]
    if make is None:
        cls = row_type(tuple(names))
        make = lambda values: tuple.__new__(cls, values)  # noqa: E731
    return lambda v: make([f(x) for f, x in zip(parts, placed_values(v, names))])


def _map(kind: pa.DataType, zone: tzinfo | None, make: Callable[[Any], Any] | None) -> _Convert:
    of_key = _field(kind.key_field, _checker(kind.key_type, zone, make))
    of_value = _field(kind.item_field, _checker(kind.item_type, zone, make))

    def check(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _wrong(value, "a dict")
        return {of_key(a): of_value(b) for a, b in value.items()}

    return check


def has_nan(value: Any) -> bool:
    """Whether a NaN is in a key that is kept."""
    return any(map(has_nan, value)) if isinstance(value, tuple) else bool(value != value)


def is_missing(value: Any) -> bool:
    """What pandas uses for "no value" in a column of objects."""
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or type(value).__name__ in ("NaTType", "NAType")
    )
