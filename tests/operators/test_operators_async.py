"""Async functions, driven without Spark: what is at work at the same time, what is recorded, what is refused."""

from __future__ import annotations

import asyncio
import decimal
import threading
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import clonos
from clonos.errors import QueryDefinitionError, RecordedError, StateError, UserFunctionError
from clonos.testing.driver import OperatorDriver, SideOutput, stream

ROWS = "k string, n int"
SAID = "k string, n int, said string"


@pytest.fixture
def asked() -> list[Any]:
    return []


def keyed(fn: Any, output: str = SAID, **more: Any) -> OperatorDriver:
    return OperatorDriver(stream(ROWS).groupBy("k").process(fn, output, name="f", **more))


def mapped(fn: Any, output: str = SAID, **more: Any) -> OperatorDriver:
    return OperatorDriver(stream(ROWS).map(fn, output, name="f", **more))


class Meeting:
    """Calls that end only when so many of them have begun."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.here = 0
        self.all_here = asyncio.Event()

    async def come(self) -> int:
        self.here += 1
        if self.here == self.size:
            self.all_here.set()
        await self.all_here.wait()
        return self.here


def test_records_of_different_keys_are_at_work_at_the_same_time_and_leave_in_their_order() -> None:
    meeting, ends = Meeting(3), {"a": asyncio.Event(), "b": asyncio.Event(), "c": asyncio.Event()}
    ends["c"].set()

    async def comes(key: str) -> str:
        await meeting.come()
        await ends[key].wait()  # c ends first, then b, then a
        if key != "a":
            ends["b" if key == "c" else "a"].set()
        return key.upper()

    async def fn(key: Any, row: Any, ctx: Any) -> Any:
        said = await ctx.call(comes, row.k)
        yield row.k, row.n, said

    with keyed(fn) as driver:
        assert driver.feed([("a", 1), ("b", 2), ("c", 3)]) == [("a", 1, "A"), ("b", 2, "B"), ("c", 3, "C")]
        assert meeting.here == 3
        assert driver.kill() == []
        assert meeting.here == 3  # the calls were not made again


def test_records_of_one_key_come_one_after_the_other() -> None:
    inside = 0

    async def alone() -> int:
        nonlocal inside
        inside += 1
        await asyncio.sleep(0)
        inside -= 1
        return inside

    async def fn(key: Any, row: Any, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        others = await ctx.call(alone)
        return [(row.k, row.n, f"{others} {ctx.state['n']} {ctx.key}")]

    with keyed(fn) as driver:
        rows = driver.feed([("a", n) for n in range(5)])
        assert rows == [("a", n, f"0 {n + 1} ('a',)") for n in range(5)]
        assert driver.kill() == []
        assert driver.state("a") == {"n": 5}


@pytest.mark.parametrize("at_once", [1, 4])
def test_no_more_calls_are_under_way_than_the_operator_says(at_once: int) -> None:
    """As many as that are, and no more: they wait for each other, group by group."""
    under_way, most, come = 0, 0, 0
    meetings = [Meeting(at_once) for _ in range(20 // at_once)]

    async def ask() -> None:
        nonlocal under_way, most, come
        under_way, come = under_way + 1, come + 1
        most = max(most, under_way)
        await meetings[(come - 1) // at_once].come()
        under_way -= 1

    async def fn(row: Any, ctx: Any) -> Any:
        await ctx.gather(ctx.call(ask), ctx.call(ask))
        return row.k, row.n, "done"

    with mapped(fn, calls=clonos.Calls(at_once=at_once)) as driver:
        assert len(driver.feed([("a", n) for n in range(10)])) == 10
        assert most == at_once


def test_functions_that_are_not_async_are_called_in_threads_of_their_own(asked: list[Any]) -> None:
    meeting = threading.Barrier(4)

    def comes(n: int) -> int:
        meeting.wait()
        asked.append(threading.current_thread().name)
        return n * 10

    async def fn(row: Any, ctx: Any) -> Any:
        return row.k, row.n, str(await ctx.call(comes, row.n))

    with mapped(fn) as driver:
        assert [row.said for row in driver.feed([("a", n) for n in range(4)])] == ["0", "10", "20", "30"]
        assert set(asked) == {"clonos-call"}


def test_gather_waits_for_all_and_raises_the_first_failure() -> None:
    first = asyncio.Event()
    ended: list[str] = []

    async def fails(text: str, after: asyncio.Event | None) -> None:
        if after is not None:
            await after.wait()
        ended.append(text)
        first.set()
        raise ValueError(text)

    async def fn(row: Any, ctx: Any) -> Any:
        both = ctx.call(fails, "late", first), ctx.call(fails, "early", None)
        if row.n:
            return row.k, row.n, str(await ctx.gather(*both, return_exceptions=True))
        try:
            await ctx.gather(*both)
        except ValueError as error:
            return row.k, row.n, str(error)

    with mapped(fn) as driver:
        assert driver.feed([("a", 0)]) == [("a", 0, "early")]
        assert ended == ["early", "late"]
        assert driver.kill() == []
        assert driver.feed([("a", 1)]) == [("a", 1, "[ValueError('late'), ValueError('early')]")]


def test_gather_takes_coroutines_too_with_calls_of_their_own() -> None:
    async def double(n: int) -> int:
        return 2 * n

    async def twice(ctx: Any, n: int) -> int:
        return int(await ctx.call(double, await ctx.call(double, n)))

    async def fn(row: Any, ctx: Any) -> Any:
        return row.k, row.n, str(await ctx.gather(twice(ctx, row.n), ctx.call(double, row.n), ctx.gather()))

    with mapped(fn) as driver:
        assert driver.feed([("a", 1), ("b", 2)]) == [("a", 1, "[4, 2, []]"), ("b", 2, "[8, 4, []]")]
        assert driver.kill() == []


@pytest.mark.parametrize("timeout", [0.01, timedelta(milliseconds=10)])
def test_a_call_that_takes_too_long_raises_a_recorded_timeout(timeout: Any, asked: list[Any]) -> None:
    released = threading.Event()

    async def never() -> None:
        asked.append("async")
        await asyncio.Event().wait()

    def blocks() -> None:
        asked.append("thread")
        released.wait()

    async def fn(row: Any, ctx: Any) -> Any:
        try:
            await ctx.call(never if row.n else blocks)
        except TimeoutError as error:
            return row.k, row.n, str(error)

    with mapped(fn, calls=clonos.Calls(timeout=timeout)) as driver:
        said = "no answer within 0.01 s"
        assert driver.feed([("a", 0), ("a", 1)]) == [("a", 0, said), ("a", 1, said)]
        assert sorted(asked) == ["async", "thread"]
        assert driver.kill() == []
        assert len(asked) == 2
    released.set()


def test_a_call_that_fails_is_tried_again_and_the_last_attempt_counts(asked: list[Any]) -> None:
    async def works_at_last(n: int) -> str:
        asked.append(n)
        if asked.count(n) < 3:
            raise ConnectionError(f"attempt {asked.count(n)}")
        return f"attempt {asked.count(n)}"

    async def fn(row: Any, ctx: Any) -> Any:
        return row.k, row.n, await ctx.call(works_at_last, row.n)

    with mapped(fn, calls=clonos.Calls(retries=2, pause=0)) as driver:
        assert driver.feed([("a", 1), ("a", 2)]) == [("a", 1, "attempt 3"), ("a", 2, "attempt 3")]
    asked.clear()

    async def gives_up(row: Any, ctx: Any) -> Any:
        try:
            await ctx.call(works_at_last, row.n)
        except ConnectionError as error:
            return row.k, row.n, f"{error} of {asked.count(row.n)}"

    with mapped(gives_up, calls=clonos.Calls(retries=1, pause=timedelta(0))) as driver:
        assert driver.feed([("a", 7)]) == [("a", 7, "attempt 2 of 2")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"at_once": 0}, "lets no call begin"),
        ({"retries": -1}, "negative"),
        ({"timeout": 0}, "over before a call begins"),
        ({"timeout": timedelta(seconds=-1)}, "over before a call begins"),
        ({"pause": -0.5}, "negative"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(QueryDefinitionError, match=said):
        clonos.Calls(**options)


def test_an_effect_is_awaited_and_carried_out_once(asked: list[Any]) -> None:
    async def pay(n: int) -> str:
        await asyncio.sleep(0)
        asked.append(n)
        return f"paid {n}"

    def pay_at_once(n: int) -> str:
        asked.append(-n)
        return f"paid {-n}"

    async def fn(key: Any, row: Any, ctx: Any) -> Any:
        said = await ctx.effect(pay if row.n % 2 else pay_at_once, row.n, key=f"pay-{row.n}")
        return [(row.k, row.n, said)]

    with keyed(fn) as driver:
        assert driver.feed([("a", 1), ("b", 2)]) == [("a", 1, "paid 1"), ("b", 2, "paid -2")]
        assert driver.kill() == []
        assert asked == [1, -2]


def test_timers_are_async_too_and_one_that_was_cancelled_does_not_fire() -> None:
    async def ask(n: int) -> int:
        return n

    async def fn(key: Any, row: Any, ctx: Any) -> None:
        ctx.timer(row.n, name=f"{row.n}")

    async def on_timer(key: Any, timer: Any, ctx: Any) -> Any:
        ctx.state["fired"] = await ctx.call(ask, int(timer.name))
        yield *key, int(timer.name), f"{ctx.state} {ctx.key}"
        if timer.name == "1":
            ctx.cancel_timer(timer.due_us + 1_000_000, "2")

    with keyed(fn, on_timer=on_timer) as driver:
        assert driver.feed([("a", 1), ("a", 2), ("b", 2)]) == []
        assert driver.advance(2) == [("a", 1, "{'fired': 1} ('a',)"), ("b", 2, "{'fired': 2} ('b',)")]
        assert driver.kill() == []


def test_filter_flat_map_and_side_outputs() -> None:
    async def even(n: int) -> bool:
        return n % 2 == 0

    async def keeps(row: Any, ctx: Any) -> bool:
        return bool(await ctx.call(even, row.n))

    async def both(row: Any, ctx: Any) -> Any:
        if not await ctx.call(even, row.n):
            ctx.side_output("odd", (row.n,))
        yield row.k, row.n
        yield row.k, -row.n

    rows = [("a", 1), ("a", 2), ("b", 3)]
    with OperatorDriver(stream(ROWS).filter(keeps, name="f")) as driver:
        assert driver.feed(rows) == [("a", 2)]
        assert driver.kill() == []
    made = stream(ROWS).flat_map(both, ROWS, name="f", side_outputs={"odd": "n int"})
    with OperatorDriver(made) as driver:
        assert driver.feed(rows) == [
            SideOutput("odd", (1,)),
            ("a", 1),
            ("a", -1),
            ("a", 2),
            ("a", -2),
            SideOutput("odd", (3,)),
            ("b", 3),
            ("b", -3),
        ]
        assert driver.kill() == []


def test_one_function_of_connected_streams_may_be_async() -> None:
    async def ask(n: int) -> int:
        return n * 10

    async def left(key: Any, row: Any, ctx: Any) -> Any:
        ctx.state["price"] = await ctx.call(ask, row.n)

    def right(key: Any, row: Any, ctx: Any) -> Any:
        return [(*key, row.m, str(ctx.state.get("price")))]

    made = (
        clonos.connect(stream(ROWS), stream("k string, m int"))
        .groupBy("k")
        .process(left, right, SAID, name="f")
    )
    with OperatorDriver(made) as driver:
        assert driver.feed([("a", 4)]) == []
        assert driver.feed([("a", 1), ("b", 1)], input="right") == [("a", 1, "40"), ("b", 1, "None")]
        assert driver.kill() == []


def test_a_failed_function_is_lost_with_its_record_named_and_the_next_life_repeats_what_was_recorded(
    asked: list[Any],
) -> None:
    fails = True

    async def ask(n: int) -> int:
        asked.append(n)
        return n

    async def fn(row: Any, ctx: Any) -> Any:
        await ctx.call(ask, row.n)
        if row.n == 2 and fails:
            raise ValueError("not this one")
        return row.k, row.n, "done"

    with mapped(fn) as driver:
        assert driver.feed([("a", 0)]) == [("a", 0, "done")]
        with pytest.raises(UserFunctionError, match="raised ValueError: not this one") as raised:
            driver.feed([("a", n) for n in range(1, 4)])
        assert raised.value.where.position == 3
        fails = False
        assert driver.kill() == [("a", n, "done") for n in (1, 2, 3)]
        assert asked.count(0) == 1


def outside_the_function(ctx: Any, what: str) -> Any:
    return {
        "key": lambda: ctx.key,
        "watermark": lambda: ctx.watermark,
        "now": ctx.now,
        "state": lambda: ctx.state,
        "random": lambda: ctx.random,
        "timer": lambda: ctx.timer(1),
    }[what]()


@pytest.mark.parametrize("what", ["now", "state", "random", "timer", "key", "watermark"])
def test_a_recorded_function_cannot_reach_ctx(what: str) -> None:
    async def fn(key: Any, row: Any, ctx: Any) -> Any:
        ctx.now(), ctx.state.get("n")  # what the bundle has read is out of reach, too
        try:
            await ctx.call(outside_the_function, ctx, what)
        except QueryDefinitionError as error:
            return [(row.k, row.n, error.message)]

    async def never(key: Any, timer: Any, ctx: Any) -> None:
        raise AssertionError

    with keyed(fn, on_timer=never) as driver:
        ((_, _, said),) = driver.feed([("a", 1)])
        assert said.startswith(f"ctx.{what} was used in another thread")


async def nothing() -> None:
    pass


async def forgets(row: Any, ctx: Any) -> Any:
    ctx.call(nothing)
    return row.k, row.n, ""


async def forgets_to_gather(row: Any, ctx: Any) -> Any:
    ctx.gather()
    return row.k, row.n, ""


async def forgets_an_effect(row: Any, ctx: Any) -> Any:
    ctx.effect(nothing, key="pay-1")
    return row.k, row.n, ""


async def is_cancelled(row: Any, ctx: Any) -> Any:
    await ctx.call(nothing)
    raise asyncio.CancelledError


def interrupts() -> None:
    raise KeyboardInterrupt


async def calls_what_interrupts(row: Any, ctx: Any) -> Any:
    await ctx.call(interrupts)


async def sleeps(row: Any, ctx: Any) -> Any:
    await asyncio.sleep(0.01)


async def gives_way(row: Any, ctx: Any) -> Any:
    await asyncio.sleep(0)


async def awaits_twice(row: Any, ctx: Any) -> Any:
    call = ctx.call(nothing)
    await call
    await call


def exits() -> None:
    raise SystemExit(3)


async def calls_what_exits(row: Any, ctx: Any) -> Any:
    await ctx.call(exits)


async def cancelled() -> None:
    raise asyncio.CancelledError


async def calls_what_is_cancelled(row: Any, ctx: Any) -> Any:
    await ctx.call(cancelled)


async def gives_nothing(row: Any, ctx: Any) -> None:
    await ctx.call(nothing)


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (forgets, "a call of nothing was not awaited, so it did not take place"),
        (forgets_to_gather, "ctx.gather was not awaited"),
        (forgets_an_effect, "the effect 'pay-1' was not awaited"),
        (is_cancelled, "raised CancelledError"),
        (calls_what_interrupts, "the call ended with KeyboardInterrupt"),
        (sleeps, "no running event loop(?s:.)*inside a recorded call"),
        (gives_way, "awaits NoneType, which is not recorded"),
        (awaits_twice, "awaited twice"),
        (calls_what_exits, "raised SystemExit: 3"),
        (calls_what_is_cancelled, "raised RuntimeError: the call was cancelled"),
        (gives_nothing, "gave no row for one"),
    ],
)
def test_what_goes_wrong_in_an_async_function_is_said(fn: Any, said: str) -> None:
    with mapped(fn) as driver, pytest.raises(clonos.errors.ClonosError, match=said) as raised:
        driver.feed([("a", 1)])
    assert raised.value.where.position == 1


def test_a_result_that_cannot_be_recorded_names_the_record_that_asked_for_it() -> None:
    async def ask(n: int) -> Any:
        return object() if n == 2 else n

    async def fn(row: Any, ctx: Any) -> Any:
        return row.k, row.n, str(await ctx.call(ask, row.n))

    with mapped(fn) as driver, pytest.raises(StateError, match="cannot be recorded") as raised:
        driver.feed([("a", 1), ("a", 2), ("a", 3)])
    assert raised.value.where.position == 2


def test_an_exception_of_a_class_that_a_replica_cannot_build_is_a_recorded_error() -> None:
    class Mine(Exception):
        pass

    async def ask() -> None:
        raise Mine("hidden")

    async def fn(row: Any, ctx: Any) -> Any:
        try:
            await ctx.call(ask)
        except RecordedError as error:
            return row.k, row.n, str("Mine: hidden" in str(error))

    with mapped(fn) as driver:
        assert driver.feed([("a", 1)]) == [("a", 1, "True")]


class Callable:
    """An object that is called like an async function."""

    async def __call__(self, row: Any, ctx: Any) -> Any:
        await ctx.call(nothing)
        return row.k, row.n, "called"


def test_an_object_may_be_called_like_an_async_function() -> None:
    with mapped(Callable()) as driver:
        assert driver.feed([("a", 1)]) == [("a", 1, "called")]


async def async_function(*given: Any) -> None:
    pass


async def async_generator(*given: Any) -> Any:
    yield given


class Processor:
    """As PySpark's, but async."""

    def init(self, handle: Any) -> None:
        pass

    async def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Any:
        pass


@pytest.mark.parametrize("fn", [async_function, async_generator])
def test_an_async_function_is_refused_where_nothing_awaits_it(fn: Any) -> None:
    by_key = stream(ROWS).groupBy("k")
    timed = stream("k string, t timestamp").withWatermark("t", "1 minute").groupBy("k").window("1 minute")
    places: list[Any] = [
        lambda: by_key.process(print, SAID, name="f", migrate=fn),
        lambda: by_key.applyInPandasWithState(fn, SAID, "n int", "append", "NoTimeout"),
        lambda: timed.process(fn, SAID, name="f"),
        lambda: timed.aggregate(fn, print, output=SAID, name="f"),
        lambda: clonos.sinks.call(fn),
        lambda: clonos.sinks.batches(fn),
    ]
    for place in places:
        with pytest.raises(QueryDefinitionError, match="async function"):
            place()
    with pytest.raises(QueryDefinitionError, match="declared pure"):
        stream(ROWS).flat_map(fn, SAID, name="f", pure=True)
    with pytest.raises(QueryDefinitionError, match="'f', handleInputRows, is given an async function"):
        by_key.transformWithState(Processor(), SAID, "append", "none", name="f")


def test_a_policy_for_calls_needs_an_async_function() -> None:
    with pytest.raises(QueryDefinitionError, match="its function is not async"):
        stream(ROWS).map(lambda row, ctx: row, SAID, name="f", calls=clonos.Calls())


def test_context_variables_are_each_records_own() -> None:
    async def fn(row: Any, ctx: Any) -> Any:
        with decimal.localcontext() as arithmetic:
            arithmetic.prec = row.n
            await ctx.call(nothing)
            third = str(Decimal(1) / 3)
            parts = await ctx.gather(precision(ctx), precision(ctx))
        return row.k, row.n, f"{third} {parts} {decimal.getcontext().prec == outside}"

    async def precision(ctx: Any) -> int:
        await ctx.call(nothing)
        return decimal.getcontext().prec

    outside = decimal.getcontext().prec
    with mapped(fn) as driver:
        rows = driver.feed([("a", 2), ("b", 5)])
        assert [row.said for row in rows] == ["0.33 [2, 2] True", "0.33333 [5, 5] True"]
        assert driver.kill() == []
    assert decimal.getcontext().prec == outside


def test_a_failed_function_has_no_effect_of_others_carried_out(asked: list[Any]) -> None:
    fails = True

    async def fn(key: Any, row: Any, ctx: Any) -> Any:
        try:
            await ctx.call(nothing)
            if row.n == 2 and fails:
                raise ValueError("once")
        finally:
            await ctx.effect(asked.append, row.n, key=f"release-{row.n}")
        return [(row.k, row.n, "done")]

    with keyed(fn) as driver:
        with pytest.raises(UserFunctionError, match="once"):
            driver.feed([("a", 1), ("b", 2), ("c", 3)])
        before = [*asked]
        fails = False
        assert driver.kill() == [("a", 1, "done"), ("b", 2, "done"), ("c", 3, "done")]
        assert asked[: len(before)] == before and sorted(set(asked)) == [1, 2, 3]


def test_a_version_may_become_async_and_its_policy_is_for_the_async_ones() -> None:
    def before(row: Any, ctx: Any) -> Any:
        return row.k, row.n, "1"

    async def now(row: Any, ctx: Any) -> Any:
        return row.k, row.n, str(await ctx.call(nothing))

    for fn, old in ((now, before), (before, now)):
        with mapped(fn, version="2", previous={"1": old}, calls=clonos.Calls(timeout=1)) as driver:
            assert len(driver.feed([("a", 1)])) == 1
        by_key = stream(ROWS).groupBy("k")
        keyed_fn = lambda key, row, ctx, fn=fn: fn(row, ctx)  # noqa: E731
        with pytest.raises(QueryDefinitionError, match="is not async"):
            by_key.process(keyed_fn, SAID, name="f", calls=clonos.Calls())


def test_a_filter_that_gives_a_coroutine_keeps_no_row() -> None:
    async def keeps(row: Any, ctx: Any) -> bool:
        return False

    made = stream(ROWS).filter(lambda row, ctx: keeps(row, ctx), name="f")
    with OperatorDriver(made) as driver, pytest.raises(clonos.errors.InputError, match="nothing awaits"):
        driver.feed([("a", 1)])
