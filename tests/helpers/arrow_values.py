"""A value of each kind of column that sinks of tables and files take."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa

VALUES = [
    (pa.string(), "ä"),
    (pa.binary(), b"\0\xff"),
    (pa.int8(), -1),
    (pa.float64(), 0.1),
    (pa.bool_(), True),
    (pa.decimal128(38, 2), Decimal("1.50")),
    (pa.date32(), dt.date(2024, 2, 29)),
    (pa.timestamp("us", "UTC"), dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.UTC)),
    (pa.timestamp("us"), dt.datetime(2024, 2, 29, 1, 2, 3, 4)),
    (pa.list_(pa.string()), ["a", None]),
    (pa.struct([("a", pa.binary()), ("b", pa.list_(pa.int64()))]), {"a": b"\1", "b": [1]}),
]
