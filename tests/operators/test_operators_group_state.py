"""applyInPandasWithState: PySpark's semantics, one bundle at a time."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError, PySparkTypeError, PySparkValueError
from surface_services import START, FakeServices, advance, advance_watermark, opened, store_kinds

import clonos.operators.current as running
from clonos.errors import InputError, QueryDefinitionError, StateError, UserFunctionError
from clonos.operators.group_state import GroupStateOperator, duration_ms
from clonos.operators.rows import make_row
from clonos.values.key_codec import pack

IN = pa.schema([("card", pa.string()), ("amount", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
__all__ = ["store_kinds"]

OUT = "card STRING, total BIGINT, timed_out BOOLEAN"
NOW_MS = START // 1000


def rows(*values: tuple[str, Any]) -> tuple[list[Any], list[Any]]:
    at = datetime(2024, 7, 1, 12)
    made = [make_row(IN.names, (card, amount, at)) for card, amount in values]
    return [(r.card,) for r in made], made


def make(fn: Any, services: FakeServices, **more: Any) -> Any:
    settings: dict[str, Any] = {"input": IN, "output": OUT, "state": "total BIGINT", "name": "sums", **more}
    return opened(GroupStateOperator(fn, **settings), services)


def one(out: Any) -> Any:
    return pd.DataFrame([out], columns=["card", "total", "timed_out"])


def summing(key: Any, pdfs: Any, state: Any) -> Any:
    (total,) = state.getOption or (0,)
    for pdf in pdfs:
        total += pdf.amount.sum()  # a numpy integer
    if state.hasTimedOut:
        state.remove()
    else:
        state.update((total,))
        if state._conf == "ProcessingTimeTimeout":
            state.setTimeoutDuration("5 seconds")
    yield one((key[0], total, state.hasTimedOut))


def test_each_key_once_per_bundle_in_order_of_first_appearance() -> None:
    services = FakeServices()
    calls: list[Any] = []

    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        frames = list(pdfs)
        calls.append((key, [list(f.amount) for f in frames], list(frames[0].index), list(frames[0].columns)))
        yield from summing(key, iter(frames), state)

    operator = make(fn, services)
    assert operator.bundle(*rows(("b", 1), ("a", 2), ("b", 3))) == [("b", 4, False), ("a", 2, False)]
    assert calls == [(("b",), [[1, 3]], [0, 1], IN.names), (("a",), [[2]], [0], IN.names)]
    assert operator.bundle(*rows(("a", 5))) == [("a", 7, False)]
    assert services.state.data[pack(("a",))] == [(7,), -1]
    assert type(services.state.data[pack(("a",))][0][0]) is int


def test_frames_do_not_depend_on_the_other_groups_and_may_be_changed() -> None:
    seen: dict[str, Any] = {}

    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        for pdf in pdfs:
            seen[key[0]] = str(pdf.amount.dtype)
            pdf["amount"] = pdf.amount * 2
            pdf["more"] = 1
        return iter(())

    make(fn, FakeServices()).bundle(*rows(("a", 1), ("b", None), ("a", 2)))
    assert seen == {"a": "int64", "b": "float64"}
    make(fn, FakeServices()).bundle(*rows(("a", 1), ("b", 2)))


def test_timestamps_are_naive_in_the_session_zone() -> None:
    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        for pdf in pdfs:
            assert str(pdf["at"].dtype) == "datetime64[ns]"
            yield pd.DataFrame({"at": pdf["at"] + pd.Timedelta(hours=1)})

    for zone in ("UTC", "Europe/Berlin", "-03:00", None):
        operator = make(fn, FakeServices(), output="at TIMESTAMP", tz=zone)
        assert operator.bundle(*rows(("a", 1))) == [(datetime(2024, 7, 1, 13),)]


def test_processing_time_timeouts() -> None:
    services = FakeServices()
    operator = make(summing, services, timeout="ProcessingTimeTimeout")
    operator.bundle(*rows(("a", 1), ("b", 2)))
    services.time += 3_000_000
    operator.bundle(*rows(("a", 1)))
    assert advance(operator, services, 2_000_000) == [("b", 2, True)]
    assert advance(operator, services, 2_999_999) == []
    assert advance(operator, services, 1) == [("a", 2, True)]
    assert services.state.data == {}
    assert services.timers.entries == []


def test_a_call_clears_the_timeout_unless_it_sets_one() -> None:
    services = FakeServices()
    seen: list[Any] = []

    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        seen.append((state.hasTimedOut, list(pdfs) == [], state.oldTimeoutTimestamp))
        if len(seen) == 1:
            state.setTimeoutDuration(1000)
        return []

    operator = make(fn, services, timeout="ProcessingTimeTimeout")
    operator.bundle(*rows(("a", 1)))
    assert services.state.data == {pack(("a",)): [None, NOW_MS + 1000]}
    operator.bundle(*rows(("a", 1)))
    assert services.timers.entries == []
    assert services.state.data == {}
    operator.bundle(*rows(("a", 1)))
    assert seen == [(False, False, -1), (False, False, NOW_MS + 1000), (False, False, -1)]


def test_a_timed_out_key_can_set_the_next_timeout() -> None:
    services = FakeServices()

    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        state.setTimeoutDuration(1000)
        yield one((key[0], sum(map(len, pdfs)), state.hasTimedOut))

    operator = make(fn, services, timeout="ProcessingTimeTimeout")
    operator.bundle(*rows(("a", 1)))
    for _ in range(3):
        assert advance(operator, services, 1_000_000) == [("a", 0, True)]


def test_event_time_timeouts_fire_past_the_watermark() -> None:
    services = FakeServices()

    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        state.update((1,))
        if state.hasTimedOut:
            assert state.getCurrentWatermarkMs() == 2001
            with pytest.raises(PySparkValueError, match="2000"):
                state.setTimeoutTimestamp(2000)
        else:
            assert state.getCurrentWatermarkMs() == 0
            state.setTimeoutTimestamp(datetime(1970, 1, 1, 1, 0, 1), "1 second")
        yield one((key[0], 0, state.hasTimedOut))

    operator = make(fn, services, timeout="EventTimeTimeout", tz="+01:00", has_watermark=True)
    operator.bundle(*rows(("a", 1)))
    assert advance_watermark(operator, services, 2_000_999) == []
    assert advance_watermark(operator, services, 2_001_000) == [("a", 0, True)]
    assert services.event_timers.entries == []


@pytest.mark.parametrize("timeout", [2000.9, np.int64(2000), np.float64(2000)])
@pytest.mark.parametrize("conf", ["ProcessingTimeTimeout", "EventTimeTimeout"])
def test_a_timeout_is_kept_as_a_whole_number_whatever_number_it_was(conf: str, timeout: Any) -> None:
    services = FakeServices()
    is_event = conf == "EventTimeTimeout"

    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        if not state.hasTimedOut:
            (state.setTimeoutTimestamp if is_event else state.setTimeoutDuration)(timeout)
        yield one((key[0], 0, state.hasTimedOut))

    operator = make(fn, services, timeout=conf, has_watermark=True)
    for _ in range(2):
        operator.bundle(*rows(("a", 1)))
        (_, kept) = services.state.data[pack(("a",))]
        assert type(kept) is int
        assert kept == (0 if is_event else NOW_MS) + 2000
    assert (advance_watermark if is_event else advance)(operator, services, 2_001_000) == [("a", 0, True)]


def misuse(act: Any, **more: Any) -> BaseException | None:
    services = FakeServices()

    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        act(state)
        return []

    with pytest.raises((UserFunctionError, StateError)) as caught:
        make(fn, services, **more).bundle(*rows(("a", 1)))
    return caught.value.__cause__ or caught.value


def test_misuse_raises_sparks_errors() -> None:
    processing, event = {"timeout": "ProcessingTimeTimeout"}, {"timeout": "EventTimeTimeout"}
    assert isinstance(misuse(lambda s: s.get), PySparkValueError)
    assert isinstance(misuse(lambda s: s.update(None)), PySparkTypeError)
    assert isinstance(misuse(lambda s: s.setTimeoutDuration(1)), PySparkRuntimeError)
    assert isinstance(misuse(lambda s: s.setTimeoutDuration(1), **event), PySparkRuntimeError)
    assert isinstance(misuse(lambda s: s.setTimeoutTimestamp(1), **processing), PySparkRuntimeError)
    assert isinstance(misuse(lambda s: s.setTimeoutDuration(0), **processing), PySparkValueError)
    assert isinstance(misuse(lambda s: s.setTimeoutTimestamp(-1), **event), PySparkValueError)
    assert isinstance(misuse(lambda s: s.getCurrentWatermarkMs()), PySparkRuntimeError)


def test_methods_of_the_state() -> None:
    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        assert not state.exists
        assert state.getOption is None
        assert str(state) == "GroupState(<undefined>)"
        assert state.getCurrentProcessingTimeMs() == NOW_MS
        state.update((np.int64(3),))
        assert state.exists
        assert state.get == (3,)
        assert str(state) == "GroupState((3,))"
        state.remove()
        assert not state.exists
        return ()

    services = FakeServices()
    make(fn, services).bundle(*rows(("a", 1)))
    assert services.state.data == {}


@pytest.mark.parametrize(
    ("state", "value", "says"),
    [
        ("total INT", (2**31,), "beyond 32 bits"),
        ("total INT", ("x",), "an integer is due"),
        ("total INT", (1, 2), "2 values"),
        ("total INT NOT NULL", (None,), "NOT NULL"),
        ("s STRUCT<a: INT>", ((1, 2),), "2 values"),
        ("d DECIMAL(4,2)", ("1",), "a Decimal is due"),
    ],
)
def test_state_that_does_not_fit_is_refused(state: str, value: Any, says: str) -> None:
    error = misuse(lambda s: s.update(value), state=state)
    assert isinstance(error, StateError)
    assert says in str(error)
    assert "'sums'" in str(error)


def test_kept_state_that_no_longer_fits_is_refused() -> None:
    services = FakeServices()
    make(summing, services).bundle(*rows(("a", 1)))
    with pytest.raises(StateError, match="no longer fits its schema"):
        make(summing, services, state="total STRING").bundle(*rows(("a", 1)))
    with pytest.raises(StateError, match="no longer fits its schema"):
        make(summing, services, state="a BIGINT, b BIGINT NOT NULL").bundle(*rows(("a", 1)))
    services.state.data[pack(("a",))] = {"n": 1}
    with pytest.raises(StateError, match="another operator"):
        make(summing, services).bundle(*rows(("a", 1)))


def test_a_field_that_was_added_to_the_state_is_null() -> None:
    services = FakeServices()
    make(summing, services).bundle(*rows(("a", 1)))
    seen: list[Any] = []

    def look(key: Any, frames: Any, state: Any) -> Any:
        seen.append(tuple(state.get))
        yield from ()

    make(look, services, state="total BIGINT, last STRING").bundle(*rows(("a", 1)))
    assert seen == [(1, None)]


def test_the_state_is_read_as_it_will_be_kept_from_its_update_on() -> None:
    noon = datetime(2024, 2, 29, 12)
    seen: list[Any] = []

    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        if not state.exists:
            state.update((pd.Timestamp(noon), np.float64(0.1), np.int32(1)))
        seen.append([(type(value), value) for value in state.get])
        return []

    operator = make(fn, FakeServices(), state="d DATE, f FLOAT, n BIGINT")
    for _ in range(2):
        operator.bundle(*rows(("a", 1)))
    assert seen == [[(date, noon.date()), (float, float(np.float32(0.1))), (int, 1)]] * 2


def test_a_list_in_the_state_changes_only_by_update() -> None:
    services = FakeServices()

    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        if not state.exists:
            mine = [1]
            state.update((mine, {"a": [1]}))
            mine.append(9)
        else:
            assert state.get == ([1], {"a": [1]})
            state.get[0].append(2)
            state.get[1]["a"].append(2)
        return []

    operator = make(fn, services, state="l ARRAY<INT>, m MAP<STRING, ARRAY<INT>>")
    for _ in range(3):
        operator.bundle(*rows(("a", 1)))


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (7, "returned a int"),
        (one(("a", 1, True)), "returned a DataFrame"),
        ([7], "yielded a int"),
        ([pd.DataFrame({"card": ["a"]})], "missing \\['total', 'timed_out'\\]"),
        ([pd.DataFrame([[1, 2]])], "2 columns where 3 are due"),
        ([one(("a", "x", True))], "'total' \\(long\\): row 0 has 'x'"),
        ([one((1.5, 1, True))], "'card'"),
    ],
    ids=lambda v: "" if isinstance(v, str) else type(v).__name__,
)
def test_outputs_that_do_not_fit(made: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make(lambda k, p, s: made, FakeServices()).bundle(*rows(("a", 1)))


def test_outputs_by_name_by_position_and_empty() -> None:
    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        yield pd.DataFrame()
        yield pd.DataFrame({"timed_out": [True, None], "card": ["x", None], "total": [1, np.nan]})
        yield pd.DataFrame([["y", 2, False]])

    out = make(fn, FakeServices()).bundle(*rows(("a", 1)))
    assert out == [("x", 1, True), (None, None, None), ("y", 2, False)]


def test_current_gives_services_inside_the_function() -> None:
    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        ctx = running.current()
        assert ctx.key == key
        yield one((str(ctx.uuid4())[:1], ctx.call(lambda: 42), ctx.random.random() < 2))

    assert make(fn, FakeServices()).bundle(*rows(("a", 1)))[0][1:] == (42, True)
    with pytest.raises(QueryDefinitionError):
        running.current()


def test_an_exception_names_key_and_row() -> None:
    def fn(key: Any, pdfs: Any, state: Any) -> Any:
        if key == ("b",):
            raise ValueError("no")
        return []

    with pytest.raises(UserFunctionError, match=r"'sums' raised ValueError, key \('b',\): no") as caught:
        make(fn, FakeServices()).bundle(*rows(("a", 1), ("b", 1)))
    assert caught.value.where is not None
    assert caught.value.where.position == 1


@pytest.mark.parametrize("more", [{"output_mode": "complete"}, {"timeout": "Never"}, {"state": "x NUMBER"}])
def test_definitions_that_make_no_sense(more: Any) -> None:
    with pytest.raises(QueryDefinitionError):
        make(summing, FakeServices(), **more)


def test_durations() -> None:
    assert duration_ms("1 hour") == 3_600_000
    assert duration_ms("INTERVAL 1 day 2 hours 500 milliseconds") == 93_600_500
    for text in ("", "soon", "1", "1 fortnight", "1 hour x"):
        with pytest.raises(QueryDefinitionError, match="cannot be read"):
            duration_ms(text)
