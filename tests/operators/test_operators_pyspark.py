"""Functions with PySpark's signatures meet rows, frames, keys and states that pass for PySpark's; without a JVM."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from surface_services import FakeServices, opened

import clonos
from clonos.errors import QueryDefinitionError
from clonos.operators.frames import FrameMaker, FrameReader
from clonos.operators.group_state import GroupStateOperator
from clonos.operators.pyspark_rows import PySparkRows, array_key, arrow_key, frame_key
from clonos.operators.rows import make_row
from clonos.operators.transform_with_state import TransformWithStateOperator
from clonos.operators.types import arrow_schema

ZONE = "America/New_York"
NEW_YORK = ZoneInfo(ZONE)
NOON = datetime(2024, 7, 1, 12)
TYPES = "n int, t timestamp, m map<string,int>, s struct<x:int,t:timestamp>"


def test_rows_and_states_pass_for_pysparks_own() -> None:
    row = make_row(("a",), (1,))
    assert isinstance(row, Row) and isinstance(row, tuple) and row.asDict() == {"a": 1}
    assert pickle.loads(pickle.dumps(row)) == row
    seen: list[bool] = []

    def fn(key: Any, frames: Any, state: Any) -> Any:
        seen.append(isinstance(state, GroupState))
        return ()

    schema = pa.schema([("k", pa.string())])
    operator = opened(
        GroupStateOperator(fn, input=schema, output="k string", state="n int", name="f"), FakeServices()
    )
    operator.bundle([("a",)], [make_row(("k",), ("a",))])
    assert seen == [True]


def test_rows_have_aware_times_pairs_and_dicts() -> None:
    schema = arrow_schema(TYPES)
    struct = make_row(("x", "t"), (1, NOON))
    rows = [make_row(schema.names, (1, NOON, {"a": 1}, struct)), make_row(schema.names, (None,) * 4)]
    aware = NOON.replace(tzinfo=NEW_YORK)
    full, empty = PySparkRows(schema, ZONE).rows(rows)
    assert tuple(full) == (1, aware, [("a", 1)], {"x": 1, "t": aware})
    assert full.t.utcoffset() == timedelta(hours=-4) and tuple(empty) == (None,) * 4  # type: ignore[attr-defined]
    plain = arrow_schema("n int, k string")
    given = [make_row(plain.names, (1, "a"))]
    assert PySparkRows(plain, ZONE).rows(given) is given


def test_frames_made_of_rows_do_not_overflow() -> None:
    schema = arrow_schema("n int, f float, d interval day to second")
    full, missing = [[(30_000_000, 1.1, timedelta(1)), (1, 1.5, None)], [(None, None, None), (7, 2.0, None)]]
    of_arrow, _ = FrameMaker(schema, ZONE).split([full, missing])
    of_rows, with_nulls = FrameMaker(schema, ZONE, widened=True).split([full, missing])
    assert (of_rows["n"] * 100).sum() == 3_000_000_100 != (of_arrow["n"] * 100).sum()
    assert list(of_arrow.dtypes) == [np.int32, np.float32, "m8[ns]"]
    assert list(of_rows.dtypes) == [np.int64, np.float64, "m8[ns]"]
    assert list(with_nulls.dtypes) == [np.float64, np.float64, "M8[ns]"]  # NaT alone, as Spark makes it


def test_nested_values_in_frames_at_every_depth() -> None:
    schema = arrow_schema("a array<struct<m:map<string,timestamp>>>, n map<timestamp,array<int>>")
    inner = make_row(("m",), ({"k": NOON},))
    (frame,) = FrameMaker(schema, ZONE).split([[([inner, None], {NOON: [1, 2]})]])
    assert frame["a"][0].tolist() == [{"m": {"k": pd.Timestamp(NOON)}}, None]
    ((moment, numbers),) = frame["n"][0].items()
    assert moment == pd.Timestamp(NOON) and moment.tzinfo is None and list(numbers) == [1, 2]


def test_nan_in_an_array_of_a_frame_is_null() -> None:
    schema = arrow_schema("a array<double>, s struct<x:int>")
    frame = pd.DataFrame({"a": [np.array([1.0, np.nan])], "s": [{"x": float("nan")}]})
    ((array, struct),) = FrameReader(schema, ZONE, "f").rows(frame)
    assert array == [1.0, None] and struct == (None,)


def test_keys_are_of_the_types_that_they_have_in_spark() -> None:
    kinds = [pa.int32(), pa.timestamp("us", "UTC"), pa.bool_(), pa.string(), pa.duration("us")]
    key = (7, NOON, True, "a", timedelta(1))
    assert arrow_key(kinds, ZONE)(key) == (7, NOON.replace(tzinfo=NEW_YORK), True, "a", timedelta(1))
    of_frame = frame_key(kinds)(key)
    assert of_frame == (7, pd.Timestamp(NOON), True, "a", pd.Timedelta(1, "D"))
    assert [type(v) for v in of_frame] == [int, pd.Timestamp, bool, str, pd.Timedelta]
    assert [type(v) for v in array_key(kinds)(key)] == [np.int32, pd.Timestamp, np.bool_, str, pd.Timedelta]
    for keys in (frame_key(kinds), array_key(kinds)):
        number, moment, flag, text, span = keys((None,) * 5)
        assert np.isnan(number) and moment is pd.NaT and flag is None and text is None and span is pd.NaT
    assert arrow_key(kinds, ZONE)((None,) * 5) == (None,) * 5


class Naive(StatefulProcessor):
    def init(self, handle: Any) -> None:
        pass

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        yield NOON, [NOON, None], {"x": NOON}
        yield None, None, None


def test_a_time_that_a_processor_returns_without_a_zone_is_utc() -> None:
    schema = pa.schema([("k", pa.string())])
    output = "t timestamp, l array<timestamp>, s struct<x:timestamp>"
    made = TransformWithStateOperator(Naive(), input=schema, output=output, name="f", tz=ZONE)
    full, empty = opened(made, FakeServices()).bundle([("a",)], [make_row(("k",), ("a",))])
    aware = NOON.replace(tzinfo=UTC)
    assert full == (aware, [aware, None], (aware,)) and empty == (None, None, None)


AT = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC"))])
START = datetime(2024, 1, 1)


def second(number: int, key: str = "a") -> Any:
    return make_row(AT.names, (key, START + timedelta(seconds=number)))


def micros(number: int) -> int:
    return int((START + timedelta(seconds=number)).replace(tzinfo=UTC).timestamp()) * 1_000_000


def counting(services: FakeServices, **more: Any) -> tuple[Any, list[tuple[str, list[int], int]]]:
    """An operator, and what it is called with: key, seconds, watermark."""
    seen: list[tuple[str, list[int], int]] = []

    def fn(key: Any, frames: Any, state: Any) -> Any:
        seconds = [int((moment - START).total_seconds()) for frame in frames for moment in frame["at"]]
        seen.append((key[0], seconds, state.getCurrentWatermarkMs()))
        return ()

    settings: dict[str, Any] = {
        "timeout": "EventTimeTimeout",
        "event_time": "at",
        "has_watermark": True,
        **more,
    }
    made = GroupStateOperator(
        fn, input=AT, key=("k",), output="k string", state="n int", name="f", **settings
    )
    return opened(made, services), seen


def test_late_is_what_the_epoch_began_behind() -> None:
    services = FakeServices()
    operator, seen = counting(services)
    services.watermark = micros(9)  # moves within the epoch, and makes nothing late
    operator.bundle([("a",)] * 2, [second(1), second(2)])
    services.epoch_watermark = micros(2)
    operator.bundle([("a",)] * 3, [second(1), second(2), second(3)])
    assert [seconds for _, seconds, _ in seen] == [[1, 2], [3]]
    operator.bundle([("a",)], [second(2)])
    assert len(seen) == 2  # all late: not even called
    operator, seen = counting(services, timeout="NoTimeout")
    operator.bundle([("a",)], [second(1)])
    assert len(seen) == 1  # as in Spark


def test_a_batch_is_one_call_per_key_in_their_order_when_the_epoch_ends() -> None:
    services = FakeServices()
    operator, seen = counting(services, per="batch", timeout="NoTimeout")
    assert operator.per_epoch
    assert operator.bundle([("b",), ("a",)], [second(1, "b"), second(2)]) == []
    assert operator.bundle([("b",), (None,)], [second(3, "b"), second(4)]) == [] == seen
    operator.gathered()
    assert [(key, seconds) for key, seconds, _ in seen] == [(None, [4]), ("a", [2]), ("b", [1, 3])]
    operator.gathered()
    assert len(seen) == 3
    with pytest.raises(QueryDefinitionError, match="per='week' is unknown"):
        counting(services, per="week")


def test_functions_with_pysparks_signatures_have_no_side_outputs() -> None:
    def count(key: Any, pdfs: Any, state: Any) -> Any:
        clonos.current().side_output("late", (1,))

    services = FakeServices()
    made = GroupStateOperator(count, input=AT, key=("k",), output="n long", state="n long", name="count")
    operator = opened(made, services)
    with pytest.raises(QueryDefinitionError, match="process, map, flat_map, filter and map_batches have"):
        operator.bundle([("a",)], [second(1)])
