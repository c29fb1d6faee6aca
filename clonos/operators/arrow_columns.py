"""Arrow arrays of a user's function as columns of a declared schema, and rows as record batches for such a function.

Both work on whole columns. What a function gives is cast by Arrow's safe casts, which refuse a value that would not be
the same afterwards. Casts that would guess are refused by their types: text is not read as a number, and a moment with
a time zone and one without do not become each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any, Final

import pyarrow as pa

from clonos.errors import InputError
from clonos.operators.rows import RowDecoder, RowEncoder, is_zoned, spark_name, zone_of

__all__ = ["BatchMaker", "BatchReader"]

_REFUSED: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
_DIGITS: Final = 38
_INT64_DIGITS: Final = 19


class BatchMaker:
    """Record batches of input rows. A TIMESTAMP is in the session's zone, as in the batches of Spark."""

    def __init__(self, schema: pa.Schema, tz: str | None) -> None:
        self._encoder = RowEncoder(schema, tz)
        self._schema = schema
        self._is_utc = zone_of(tz) is UTC
        self.schema = pa.schema([field.with_type(_in_zone(field.type, tz or "UTC")) for field in schema])
        self._kinds = self.schema.types

    def batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        if not len(self._schema):
            return self._encoder.batch(rows)
        arrays = [self._array(field, values) for field, values in zip(self._schema, zip(*rows, strict=True))]
        shown = [
            array if array.type == kind else array.cast(kind) for array, kind in zip(arrays, self._kinds)
        ]
        return pa.RecordBatch.from_arrays(shown, schema=self.schema)

    def _array(self, field: pa.Field, values: Sequence[Any]) -> pa.Array:
        # Naive datetimes, all of them: no arithmetic value by value
        if self._is_utc and is_zoned(field.type):
            return pa.array(values, pa.timestamp("us")).view(field.type)
        return self._encoder.column(field, values)


class BatchReader:
    """Batches and tables of a user's function as rows of the output schema, columns by name."""

    def __init__(self, schema: pa.Schema, tz: str | None, name: str) -> None:
        self._name = name
        self._decoder = RowDecoder(schema, tz)
        self._names = list(schema.names)
        self._fields = list(schema)
        self._due = [_nullable(field.type) for field in schema]

    def rows(self, given: pa.RecordBatch | pa.Table) -> list[tuple[Any, ...]]:
        """Raises InputError, with the column and the reason."""
        self._check_names(given.column_names)
        columns = [self._column(index, given.column(field.name)) for index, field in enumerate(self._fields)]
        return list(zip(*columns, strict=True)) if columns else [()] * given.num_rows

    def _check_names(self, given: list[str]) -> None:
        names = self._names
        if given == names:
            return
        missing = [name for name in names if name not in given]
        extra = [name for name in given if name not in names]
        if missing or extra or len(given) != len(names):
            raise InputError(
                f"the columns of a batch from {self._name!r} do not match the output schema: "
                f"missing {missing}, unexpected {extra}, given {given}",
                hint="Name them as the output: pa.RecordBatch.from_pydict({name: array, ...}), or batch.select(names)",
            )

    def _column(self, index: int, given: pa.Array | pa.ChunkedArray) -> list[Any]:
        field, due, reason = self._fields[index], self._due[index], None
        if given.type != due:
            reason = _misfit(given.type, due)
        if reason is not None:
            raise self._refusal(field, given.type, reason)
        try:
            array = _cast(given, due)
        except _REFUSED as error:
            raise self._refusal(field, given.type, str(error)) from error
        if array.null_count and not field.nullable and not pa.types.is_null(field.type):
            at = array.is_null().index(True).as_py()
            raise self._refusal(field, given.type, f"it is declared NOT NULL, but row {at} has no value")
        return self._decoder.column(array, index)

    def _refusal(self, field: pa.Field, given: pa.DataType, reason: str) -> InputError:
        return InputError(
            f"column {field.name!r} ({spark_name(field.type)}) of a batch from {self._name!r}, "
            f"which is {given}: {reason}",
            hint="Give arrays of the declared output schema",
        )


def _cast(given: pa.Array | pa.ChunkedArray, due: pa.DataType) -> pa.Array:
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
        if isinstance(given, pa.ChunkedArray):  # of no chunks or of too many, in older versions of Arrow
            given = pa.concat_arrays(given.chunks) if given.num_chunks else pa.array([], given.type)
    if pa.types.is_integer(given.type) and pa.types.is_decimal(due):
        # Arrow asks whether every integer of the type would fit, not whether these do.
        given = given.cast(pa.decimal128(min(_DIGITS, _INT64_DIGITS + 1 + due.scale), due.scale))
    return given if given.type == due else given.cast(due)


def _misfit(given: pa.DataType, due: pa.DataType) -> str | None:
    """Why arrays of a type are not taken for a column of another one; None where that depends on their values."""
    if pa.types.is_dictionary(given):
        return _misfit(given.value_type, due)
    if given == due or pa.types.is_null(given):
        return None
    if pa.types.is_nested(given) and pa.types.is_nested(due):
        return _nested_misfit(given, due)
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(due) and is_zoned(given) != is_zoned(due):
        return f"a moment {'with' if is_zoned(given) else 'without'} a time zone; pyarrow.compute has " + (
            "local_timestamp" if is_zoned(given) else "assume_timezone"
        )
    if pa.types.is_floating(given) and pa.types.is_decimal(due):
        return "a fraction of base two is rounded there; round it where you want it, to a decimal"
    return None if _family(given) == _family(due) else "no value of this type is one of the column's"


def _nested_misfit(given: pa.DataType, due: pa.DataType) -> str | None:
    if pa.types.is_struct(given) and pa.types.is_struct(due):
        names = [[kind.field(i).name for i in range(kind.num_fields)] for kind in (given, due)]
        if names[0] != names[1]:
            return f"a struct of ({', '.join(names[0])}) where one of ({', '.join(names[1])}) is due"
        parts = [(given.field(i).type, due.field(i).type) for i in range(due.num_fields)]
    elif pa.types.is_map(given) and pa.types.is_map(due):
        parts = [(given.key_type, due.key_type), (given.item_type, due.item_type)]
    elif _is_list(given) and _is_list(due):
        parts = [(given.value_type, due.value_type)]
    else:
        return "no value of this type is one of the column's"
    return next((reason for part in parts if (reason := _misfit(*part)) is not None), None)


def _is_list(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind))


def _family(kind: pa.DataType) -> str:
    """Types whose values Arrow casts without a guess."""
    t = pa.types
    if t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind):
        return "number"
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return "text or bytes"
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind) or t.is_binary_view(kind):
        return "text or bytes"
    families = (
        ("moment", t.is_timestamp),
        ("day", t.is_date),
        ("span", t.is_duration),
        ("boolean", t.is_boolean),
    )
    return next((name for name, holds in families if holds(kind)), str(kind))


def _in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    """With every TIMESTAMP in a zone: the same instants."""
    if is_zoned(kind):
        return pa.timestamp(kind.unit, zone)
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_in_zone(f.type, zone)) for f in _fields(kind)])
    if pa.types.is_map(kind):
        key, item = (f.with_type(_in_zone(f.type, zone)) for f in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_zone(kind.value_type, zone)))
    return kind


def _nullable(kind: pa.DataType) -> pa.DataType:
    """With nulls allowed everywhere inside: what Arrow casts to whatever is declared of the array that it is given."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _nullable(f.type)) for f in _fields(kind)])
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type), _nullable(kind.item_type))
    return pa.list_(_nullable(kind.value_type)) if pa.types.is_list(kind) else kind


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(i) for i in range(kind.num_fields)]
