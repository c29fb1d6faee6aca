"""What becomes of a value that is handed back: what PySpark's own conversion makes of it, or a refusal."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal as D
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.conversion import PandasToArrowConversion
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import StructField, StructType

from clonos.errors import ClonosError
from clonos.operators.frames import FrameReader
from clonos.operators.outputs import Outputs
from clonos.operators.pyspark_rows import naive_as_utc
from clonos.operators.rows import RowEncoder
from clonos.operators.types import arrow_schema

ZONE = "America/New_York"
NOON = dt.datetime(2024, 1, 2, 12)
AWARE = NOON.replace(tzinfo=dt.UTC)
VALUES: dict[str, list[Any]] = {
    "int": [1.5, 7.0, True, "7", "x", 2**40, np.int64(7), np.int64(2**40), np.float64(7.5), D(7), D("7.5")],
    "tinyint": [300, -1, np.int64(300), float("nan"), None],
    "bigint": [2**70, 1.5, 1e300],
    "double": [3, np.float32(1.1), True, "1.5", D("1.5"), 2**60 + 1, float("nan")],
    "float": [1.1, 3, 1e300],
    "string": [5, True, 1.5, b"x", None],
    "boolean": [1, 0, 2, "true", np.bool_(True), 1.0, None],
    "decimal(10,2)": [5, 1.5, D("1.005"), D("1.5"), np.int64(5), "1.5", D("123456789012")],
    "date": [pd.Timestamp(NOON), NOON, np.datetime64("2024-01-02"), NOON.date(), "2024-01-02", 5],
    "timestamp": [pd.Timestamp(NOON), pd.Timestamp(AWARE), NOON, AWARE, NOON.date(), "2024-01-02", 5],
    "timestamp_ntz": [NOON, pd.Timestamp(NOON), AWARE, 5],
    "interval day to second": [pd.Timedelta("1h"), dt.timedelta(-1), 5],
    "binary": ["abc", bytearray(b"x"), b"x", 5],
    "array<int>": [np.array([1, 2]), np.array([1.5, 2]), [1, None], [1.5], (1, 2), np.array([1, None]), "ab"],
    "array<double>": [np.array([1.0, np.nan]), [1, None]],
    "map<string,int>": [{"a": 1}, [("a", 1)], {"a": 1.5}, {"a": None}],
    "struct<x:int,y:int>": [
        Row(y=2, x=1), {"y": 2, "x": 1}, (1, 2), Row(p=2, q=1), {"x": 1}, {"x": 1, "z": 2}, [1, 2],
    ],
}  # fmt: skip
CASES = [
    pytest.param(kind, value, id=f"{kind}-{value!r}") for kind, values in VALUES.items() for value in values
]
REFUSED = "refused"


def stored(array: Any, kind: pa.DataType) -> Any:
    return repr(array.cast(kind).to_pylist())


def spark_rows(value: Any, schema: pa.Schema) -> str:
    """What `transformWithState` does with the rows of a processor."""
    arrow = to_arrow_type(from_arrow_schema(schema), timezone="UTC", prefers_large_types=False)
    try:
        batch = pa.RecordBatch.from_pylist([Row(v=value).asDict(True)], schema=pa.schema(list(arrow)))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return REFUSED
    return stored(batch.column(0), schema.field(0).type)


def spark_frames(value: Any, schema: pa.Schema) -> str:
    """What Spark does with frames that have come out of a function."""
    try:
        batch = PandasToArrowConversion.convert(
            [pd.DataFrame({"v": [value]})],
            StructType([StructField("_0", from_arrow_schema(schema))]),
            timezone=ZONE,
            safecheck=False,
            arrow_cast=True,
            assign_cols_by_name=True,
        )
    except Exception:
        return REFUSED
    return stored(batch.column(0).flatten()[0], schema.field(0).type)


def our_rows(value: Any, schema: pa.Schema) -> str:
    try:
        outputs = Outputs(schema, "f")
        made = naive_as_utc(schema)(outputs.settle([outputs.taken(Row(v=value), 0)]))
        return repr(RowEncoder(schema, ZONE).batch(made).column(0).to_pylist())
    except ClonosError:
        return REFUSED


def our_frames(value: Any, schema: pa.Schema) -> str:
    try:
        made = FrameReader(schema, ZONE, "f").rows(pd.DataFrame({"v": [value]}))
        return repr(RowEncoder(schema, ZONE).batch(made).column(0).to_pylist())
    except ClonosError:
        return REFUSED


@pytest.mark.parametrize(("kind", "value"), CASES)
def test_a_row_that_is_handed_back(kind: str, value: Any) -> None:
    schema = arrow_schema(f"v {kind}")
    assert (
        our_rows(value, schema) in (spark_rows(value, schema), REFUSED)
        or spark_rows(value, schema) == REFUSED
    )


@pytest.mark.parametrize(("kind", "value"), CASES)
def test_a_frame_that_is_handed_back(kind: str, value: Any) -> None:
    schema = arrow_schema(f"v {kind}")
    spark = spark_frames(value, schema)
    assert our_frames(value, schema) in (spark, REFUSED) or spark == REFUSED


def test_what_is_cast_is_what_arrow_casts() -> None:
    """As the documentation says."""
    assert our_rows(1.5, arrow_schema("v int")) == "[1]"
    assert our_rows(D("7.5"), arrow_schema("v int")) == "[7]"
    assert our_rows(True, arrow_schema("v double")) == "[1.0]"
    for kind, value in (("int", True), ("int", "7"), ("int", 2**40), ("string", 5), ("boolean", 1)):
        assert our_rows(value, arrow_schema(f"v {kind}")) == REFUSED
    for kind, value in (("int", 1.5), ("int", 2**40), ("tinyint", 300), ("bigint", 1e300)):
        assert (
            our_frames(value, arrow_schema(f"v {kind}"))
            == REFUSED
            != spark_frames(value, arrow_schema(f"v {kind}"))
        )
