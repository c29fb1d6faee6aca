"""Rows as pandas frames and back, the way PySpark shows them to its pandas functions.

PySpark makes the frames of `applyInPandasWithState` from Arrow columns, so they have the columns' own dtypes; those of
`transformWithStateInPandas` it makes from rows, so every integer is int64 there and every float float64. Sums overflow
in one and not in the other, so `widened` frames are the latter. Those of `mapInPandas` it makes of one struct: where
any of its columns is neither a number, a boolean, bytes nor a moment, integer columns with missing values are pandas's
nullable integers, which hold every value; elsewhere they are float64. Such frames are `of_one_struct`.

Making a frame costs hundreds of microseconds, however small it is. So a bundle becomes one frame, and each group's
frame is a slice of it. The dtype of a column must not depend on which other groups happened to be in the bundle,
though: where an integer or boolean column has missing values, pandas would change the dtype of the whole column, and
then each group is converted on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from clonos.errors import InputError
from clonos.operators.nested_frames import nested_value, nulls_for_nan
from clonos.operators.rows import RowDecoder, RowEncoder, placed_values, spark_name, zone_of
from clonos.operators.values import is_missing

if TYPE_CHECKING:
    import pandas as pd

_NOT_A_TIME = -(2**63)
_MOST = (2**63 - 1) // 1000  # microseconds that fit into nanoseconds


class FrameMaker:
    """Frames of input rows; `widened`, with the dtypes of frames that are made from rows; `of_one_struct`, with those
    of frames that are made from one struct."""

    def __init__(
        self, schema: pa.Schema, tz: str | None, *, widened: bool = False, of_one_struct: bool = False
    ) -> None:
        self._schema = schema
        self._zone = zone_of(tz)
        self._widened = widened
        self._nullable = of_one_struct and not all(_is_numpys(field.type) for field in schema)
        self._encoder = RowEncoder(schema, tz)
        self._fragile = [i for i, f in enumerate(schema) if self._changes_with_nulls(f.type)]
        self._makers = [self._maker(f) for f in schema]

    def split(self, groups: Sequence[Sequence[tuple[Any, ...]]]) -> Iterator[pd.DataFrame]:
        """One frame per group, each with its own index from 0."""
        if len(groups) == 1:
            yield self._frame(groups[0])
            return
        rows = [row for group in groups for row in group]
        columns = list(zip(*rows)) or [()] * len(self._schema)
        if any(None in columns[i] for i in self._fragile):
            yield from map(self._frame, groups)
            return
        whole = self._frame(rows)
        start = 0
        for group in groups:
            yield whole.iloc[start : start + len(group)].reset_index(drop=True)
            start += len(group)

    def _frame(self, rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
        import pandas as pd

        columns: Any = zip(*rows) if rows else repeat((), len(self._schema))
        made = {i: make(values) for i, (make, values) in enumerate(zip(self._makers, columns))}
        frame = pd.DataFrame(made, copy=False)
        frame.columns = pd.Index(self._schema.names)
        return frame

    def _changes_with_nulls(self, kind: pa.DataType) -> bool:
        if pa.types.is_duration(kind):
            return self._widened
        return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_nested(kind))

    def empty(self) -> pd.DataFrame:
        """No rows: what a timed-out key is given."""
        import pandas as pd

        return pd.DataFrame(columns=self._schema.names)

    def _maker(self, field: pa.Field) -> Callable[[Sequence[Any]], Any]:
        kind = field.type
        if pa.types.is_timestamp(kind):
            return lambda values: _nanoseconds(np.array(values, "M8[us]"), "M8[ns]")
        if pa.types.is_duration(kind):
            return self._spans
        if pa.types.is_floating(kind):
            dtype = np.float64 if self._widened else kind.to_pandas_dtype()
            return lambda values: np.array(values, dtype)
        if pa.types.is_integer(kind) and self._nullable:
            return _nullable_maker(kind)
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return _fragile_maker(pa.int64() if self._widened and pa.types.is_integer(kind) else kind)
        if pa.types.is_nested(kind):
            return lambda values: self._nested(field, values)
        return _objects

    def _spans(self, values: Sequence[Any]) -> Any:
        if self._widened and all(value is None for value in values):  # nothing says that these are no moments
            return np.array(values, "M8[ns]")
        return _nanoseconds(np.array(values, "m8[us]"), "m8[ns]")

    def _nested(self, field: pa.Field, values: Sequence[Any]) -> Any:
        array = self._encoder.column(field, values)
        series = array.to_pandas(
            date_as_object=True, coerce_temporal_nanoseconds=True, integer_object_nulls=True
        )
        convert = nested_value(field.type, self._zone)
        if convert is not None:
            series = series.map(lambda value: None if value is None else convert(value))
        return series.astype(object)


def _fragile_maker(kind: pa.DataType) -> Callable[[Sequence[Any]], Any]:
    """Integers with missing values become float64, booleans objects: what pandas does everywhere."""
    dtype = kind.to_pandas_dtype()
    if pa.types.is_boolean(kind):
        return lambda values: _objects(values) if None in values else np.array(values, dtype)
    return lambda values: np.array(values, np.float64 if None in values else dtype)


def _nullable_maker(kind: pa.DataType) -> Callable[[Sequence[Any]], Any]:
    """Integers with missing values stay integers."""
    import pandas as pd

    dtype = kind.to_pandas_dtype()
    name = f"Int{np.dtype(dtype).itemsize * 8}"
    return lambda values: pd.array(values, name) if None in values else np.array(values, dtype)


def _is_numpys(kind: pa.DataType) -> bool:
    """Whether PySpark leaves a column of this type to Arrow and numpy, with those beside it."""
    t = pa.types
    is_other = t.is_string(kind) or t.is_large_string(kind) or t.is_decimal(kind) or t.is_duration(kind)
    return not (is_other or t.is_nested(kind))


def _objects(values: Sequence[Any]) -> Any:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def _nanoseconds(array: Any, dtype: str) -> Any:
    """PySpark gives nanoseconds; microseconds stay where nanoseconds cannot hold the values."""
    counts = array.view("i8")
    known = counts[counts != _NOT_A_TIME]
    if known.size and (known.min() < -_MOST or known.max() > _MOST):
        return array
    return array.astype(dtype)


class FrameReader:
    """Output frames as tuples of the output schema: columns by name, or by position where names are not strings."""

    def __init__(self, schema: pa.Schema, tz: str | None, name: str) -> None:
        self._schema = schema
        self._name = name
        self._decoder = RowDecoder(schema, tz)
        self._encoder = RowEncoder(schema, tz, name, placed_values)
        self._zone = zone_of(tz)

    def rows(self, frame: Any) -> list[tuple[Any, ...]]:
        """All rows of one frame."""
        import pandas as pd

        if not isinstance(frame, pd.DataFrame):
            raise InputError(
                f"{self._name!r} yielded a {type(frame).__name__}, not a pandas.DataFrame",
                hint="Return an iterator (or yield) pandas.DataFrames",
            )
        series = self._columns(frame)
        if not len(frame):
            return []
        columns = [self._values(s, f) for s, f in zip(series, self._schema)]
        return list(zip(*columns)) if columns else [()] * len(frame)

    def _columns(self, frame: pd.DataFrame) -> list[pd.Series]:
        names, given = list(self._schema.names), list(frame.columns)
        if not given and not len(frame):
            return [frame.index.to_series()] * len(names)
        if any(isinstance(c, str) for c in given):
            missing = [n for n in names if n not in given]
            extra = [str(c) for c in given if c not in names]
            if missing or extra or len(given) != len(names):
                raise InputError(
                    f"the columns of a frame from {self._name!r} do not match the output schema: "
                    f"missing {missing}, unexpected {extra}, given {[str(c) for c in given]}"
                )
            return [frame[n] for n in names]
        if len(given) != len(names):
            raise InputError(
                f"a frame from {self._name!r} has {len(given)} columns where {len(names)} are due: {names}"
            )
        return [frame.iloc[:, i] for i in range(len(names))]

    def _values(self, series: pd.Series, field: pa.Field) -> list[Any]:
        kind = field.type
        if str(series.dtype) == "object" or pa.types.is_nested(kind) or pa.types.is_decimal(kind):
            values = list(map(nulls_for_nan(kind), series.tolist()))
            return self._decoded(self._encoder.column(field, values), field)
        if pa.types.is_timestamp(kind) and kind.tz is not None and str(series.dtype).startswith("datetime64"):
            if series.dt.tz is None:
                if self._zone is None:
                    return self._decoded(self._encoder.column(field, self._naive(series)), field)
                series = series.dt.tz_localize(self._zone, ambiguous=False, nonexistent="shift_forward")
            series = series.dt.tz_convert("UTC")
        try:
            array = pa.Array.from_pandas(series, type=kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"column {field.name!r} ({spark_name(kind)}) of a frame from {self._name!r}, "
                f"dtype {series.dtype}: {error}"
            ) from error
        return self._decoded(array, field)

    def _naive(self, series: pd.Series) -> list[Any]:
        return [None if is_missing(v) else v.to_pydatetime(warn=False) for v in series]

    def _decoded(self, array: pa.Array, field: pa.Field) -> list[Any]:
        return self._decoder.column(array, self._schema.get_field_index(field.name))
