"""Interception in every way in which a function is called."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import clonos
from clonos.api.streams import CausalStream
from clonos.errors import DivergenceError
from clonos.testing.driver import OperatorDriver, stream

ROWS = stream("k string, i long")
DRAWN = "a double, b string, c double, d timestamp_ntz, e double"


def drawn() -> tuple[float, str, float, datetime, float]:
    return random.random(), str(uuid.uuid4()), time.time(), datetime.now(), float(np.random.random())


def frame() -> pd.DataFrame:
    return pd.DataFrame([drawn()], columns=list("abcde"))


def processed(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    ctx.state["n"] = random.randrange(10**9)
    ctx.timer(1)
    yield drawn()


def on_timer(key: Any, timer: Any, ctx: Any) -> Iterator[Any]:
    ctx.state["n"] += random.randrange(10**9)
    yield drawn()


async def processed_async(key: Any, row: Any, ctx: Any) -> Any:
    before = drawn()
    await ctx.gather(ctx.call(time.time), ctx.call(random.random))
    await ctx.effect(random.random, key=str(row.i))
    return [before, drawn()]


def with_group_state(key: Any, frames: Any, state: Any) -> Iterator[pd.DataFrame]:
    if not state.hasTimedOut:
        state.update((random.randrange(10**9),))
        state.setTimeoutDuration(1000)
    yield frame()


class Drawing(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle
        self.kept = handle.getValueState("kept", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        self.kept.update((random.randrange(10**9),))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1000)
        yield from (drawn() for _ in rows)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        yield drawn()

    def close(self) -> None:
        pass


class DrawingFrames(Drawing):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        super_rows = super().handleInputRows(key, iter(rows), timerValues)
        yield from (pd.DataFrame([row], columns=list("abcde")) for row in super_rows)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        yield frame()


def batch(*given: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip("abcde", drawn(), strict=True))])


KEYED = ROWS.groupBy("k")
FORMS: dict[str, Callable[[], CausalStream]] = {
    "process": lambda: KEYED.process(processed, DRAWN, name="op", on_timer=on_timer),
    "process, async": lambda: KEYED.process(processed_async, DRAWN, name="op"),
    "connect": lambda: (
        clonos.connect(ROWS, stream("k string, j long"))
        .groupBy("k")
        .process(processed, processed, DRAWN, name="op", on_timer=on_timer)
    ),
    "map": lambda: ROWS.map(lambda row, ctx: drawn(), DRAWN, name="op"),
    "map, pure": lambda: ROWS.map(lambda row: drawn(), DRAWN, name="op", pure=True),
    "flat_map": lambda: ROWS.flat_map(lambda row, ctx: [drawn(), drawn()], DRAWN, name="op"),
    "filter": lambda: ROWS.filter(lambda row, ctx: random.random() < 0.5, name="op"),
    "map_batches": lambda: ROWS.map_batches(batch, DRAWN, name="op"),
    "mapInArrow": lambda: ROWS.mapInArrow(lambda batches: map(batch, batches), DRAWN),
    "mapInPandas": lambda: ROWS.mapInPandas(lambda frames: (frame() for _ in frames), DRAWN),
    "applyInPandasWithState": lambda: KEYED.applyInPandasWithState(
        with_group_state, DRAWN, "n long", "update", "ProcessingTimeTimeout"
    ),
    "transformWithState": lambda: KEYED.transformWithState(Drawing(), DRAWN, "update", "ProcessingTime"),
    "transformWithStateInPandas": lambda: KEYED.transformWithStateInPandas(
        DrawingFrames(), DRAWN, "update", "ProcessingTime"
    ),
}


def driven(form: str, *, intercept: bool) -> None:
    with OperatorDriver(FORMS[form](), intercept=intercept) as driver:
        said = driver.feed([(f"k{number % 5}", number) for number in range(40)])
        assert said
        driver.kill()
        fired = driver.advance(2)
        assert fired or (form not in ("process", "connect") and "State" not in form)
        driver.end_epoch()
        driver.feed([("k1", 41)])
        driver.kill()
        driver.feed([("k1", number) for number in range(20)])
        driver.advance(2)
        driver.kill()


@pytest.mark.parametrize("form", FORMS)
def test_a_replay_repeats(form: str) -> None:
    driven(form, intercept=True)


ASKED: list[Callable[[], Any]] = [
    lambda: time.time(),
    lambda: time.monotonic(),
    lambda: time.process_time(),
    lambda: datetime.now(),
    lambda: random.random(),
    lambda: random.seed(),
    lambda: random.gauss(0, 1),
    lambda: random.Random().random(),
    lambda: uuid.uuid4(),
    lambda: os.urandom(3),
    lambda: np.random.random(),
    lambda: np.random.seed(5),
    lambda: np.random.default_rng().random(),
]
EVENTS = st.one_of(
    st.lists(st.lists(st.integers(0, len(ASKED) - 1), max_size=4), min_size=1, max_size=3),  # a bundle
    st.sampled_from(["kill", "end of the epoch"]),
)


@given(st.lists(EVENTS, max_size=12))
@settings(max_examples=20, deadline=None)
def test_whatever_a_function_asks_for_in_whichever_order(events: list[Any]) -> None:
    def fn(row: Any, ctx: Any) -> Any:
        return (repr([ASKED[number]() for number in row.asked]),)

    plan = stream("asked array<int>").map(fn, "said string", name="asks")
    with OperatorDriver(plan, intercept=True) as driver:
        for event in events:
            if event == "kill":
                assert driver.kill() == []
            elif event == "end of the epoch":
                driver.end_epoch()
            else:
                driver.feed([(asked,) for asked in event])
        assert driver.kill() == []


@pytest.mark.parametrize("form", FORMS)
def test_without_interception_it_is_found_out(form: str) -> None:
    with pytest.raises(DivergenceError):
        driven(form, intercept=False)
