"""The test driver for operators: what it shows, and that a killed instance must say again what was said."""

from __future__ import annotations

import datetime as dt
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import clonos
from clonos.errors import (
    ConfigurationError,
    DivergenceError,
    InputError,
    QueryDefinitionError,
    StateError,
    UserFunctionError,
)
from clonos.operators.process import Timer
from clonos.protocol.recovery.causal.recorder import Sent
from clonos.testing.driver import OperatorDriver, SideOutput, stream
from clonos.testing.driver.operator_driver import START
from clonos.testing.ledger import LEDGER_SCHEMA, judge, ledger_of

SECOND = 1_000_000
AT_START = int(START.timestamp()) * SECOND
by_amount = ledger_of("amount")
CARDS = stream("card string, amount long")


def totals(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    ctx.state["total"] = ctx.state.get("total", 0) + row.amount
    yield key[0], ctx.state["total"], ctx.random.random(), ctx.now()


def total_driver(
    fn: Any = totals, output: str = "card string, total long, draw double, at timestamp"
) -> OperatorDriver:
    return OperatorDriver(CARDS.groupBy("card").process(fn, output, name="totals"))


def test_rows_state_and_clock() -> None:
    with total_driver() as driver:
        (row,) = driver.feed([("a", 5)])
        assert (row.card, row.total, row.at) == ("a", 5, START.replace(tzinfo=None)) and 0 <= row.draw < 1
        driver.advance(2.5)
        rows = driver.feed([{"card": "a", "amount": 1}, {"amount": 7, "card": "b"}])
        assert [(row[0], row[1]) for row in rows] == [("a", 6), ("b", 7)]
        assert rows[0].at == START.replace(tzinfo=None) + dt.timedelta(seconds=2.5)
        assert driver.state("a") == {"total": 6} and driver.state(("b",)) == {"total": 7}
        assert driver.state("c") is None and driver.timers("a") == []
        assert driver.now == START + dt.timedelta(seconds=2.5) and driver.watermark is None


def test_a_test_sees_the_same_each_time_it_runs() -> None:
    said = []
    for seed in (1, 1, 2):
        plan = CARDS.groupBy("card").process(
            totals, "c string, t long, draw double, at timestamp", name="totals"
        )
        with OperatorDriver(plan, seed=seed) as driver:
            said.append(driver.feed([("a", 5)]))
    assert said[0] == said[1] != said[2]


def test_a_killed_instance_repeats_and_goes_on() -> None:
    with total_driver(by_amount, LEDGER_SCHEMA) as driver:
        rows: list[Any] = []
        for number in range(40):
            rows += driver.feed([(f"card{n % 3}", 10 * number + n) for n in range(number % 4)])
            driver.advance(0.7)
            if number % 3 == 0:
                assert driver.kill() == []
            if number % 7 == 0:
                assert driver.end_epoch() == []
            if number % 14 == 0:
                assert driver.kill() == []  # at the very beginning of an epoch
        ids = [str(10 * number + n) for number in range(40) for n in range(number % 4)]
        verdict = judge(rows, ids, ordered=True)
        assert verdict.exact, verdict


def test_what_was_said_before_the_epochs_end_is_not_repeated() -> None:
    calls = 0

    def count(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        nonlocal calls
        calls += 1
        yield key[0], row.amount

    with total_driver(count, "card string, amount long") as driver:
        driver.feed([("a", 1), ("a", 2)])
        driver.end_epoch()
        driver.feed([("a", 3)])
        driver.kill()
    assert calls == 4


def test_calls_and_effects_are_carried_out_once() -> None:
    asked: list[str] = []
    done: list[str] = []

    def decide(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        answer = ctx.call(lambda: asked.append(key[0]) or random.random())
        ctx.effect(done.append, f"{key[0]}{row.amount}", key=f"{key[0]}-{row.amount}")
        yield key[0], answer

    with total_driver(decide, "card string, answer double") as driver:
        driver.feed([("a", 1), ("b", 2)])
        driver.kill()
        driver.feed([("a", 3)])
        driver.kill()
    assert asked == ["a", "b", "a"] and done == ["a1", "b2", "a3"]


def test_an_effect_whose_outcome_was_lost_is_carried_out_again_under_its_key() -> None:
    attempts: list[str] = []

    def act(what: str) -> str:
        attempts.append(what)
        if len(attempts) == 1:
            raise SystemExit  # the process ends after the action and before its outcome is recorded
        return what

    def decide(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        yield key[0], ctx.effect(act, str(ctx.random.random()), key="pay")

    with total_driver(decide, "card string, done string") as driver:
        with pytest.raises(UserFunctionError):
            driver.feed([("a", 1)])
        with pytest.raises(ConfigurationError, match=r"kill\(\)"):
            driver.feed([("a", 2)])
        ((card, done),) = driver.kill()
        assert card == "a" and attempts == [done, done]
        assert driver.kill() == [] and len(attempts) == 2


@pytest.mark.parametrize("ending", [False, True], ids=["in the epoch of the timer", "in the next epoch"])
def test_timers_fire_at_their_time_and_are_repeated(ending: bool) -> None:
    def remind(key: Any, row: Any, ctx: Any) -> None:
        ctx.timer(10, name="first")
        ctx.timer(30, name="second")

    def on_timer(key: Any, timer: Any, ctx: Any) -> Iterator[Any]:
        yield key[0], timer.name, ctx.now()

    plan = CARDS.groupBy("card").process(
        remind, "card string, name string, at timestamp", name="remind", on_timer=on_timer
    )
    with OperatorDriver(plan) as driver:
        assert driver.feed([("a", 1)]) == []
        assert driver.timers("a") == [
            Timer("first", AT_START + 10 * SECOND, False),
            Timer("second", AT_START + 30 * SECOND, False),
        ]
        if ending:
            driver.end_epoch()
        assert driver.advance(9.9) == []
        start = START.replace(tzinfo=None)
        assert driver.advance(dt.timedelta(minutes=1)) == [
            ("a", "first", start + dt.timedelta(seconds=10)),
            ("a", "second", start + dt.timedelta(seconds=30)),
        ]
        assert driver.timers("a") == [] and driver.kill() == []


def test_event_time_passes_with_the_rows() -> None:
    def remind(key: Any, row: Any, ctx: Any) -> None:
        ctx.timer(at=row.at, event=True)

    def on_timer(key: Any, timer: Any, ctx: Any) -> Iterator[Any]:
        yield key[0], ctx.watermark

    events = stream("card string, at timestamp").withWatermark("at", "10 seconds")
    plan = events.groupBy("card").process(remind, "card string, mark timestamp", name="r", on_timer=on_timer)
    with OperatorDriver(plan) as driver:
        noon = dt.datetime(2026, 1, 1, 12)
        assert driver.feed([("a", noon)]) == []
        assert driver.watermark == dt.datetime(2026, 1, 1, 11, 59, 50, tzinfo=dt.UTC)
        assert driver.advance(3600) == []
        assert [timer.event for timer in driver.timers("a")] == [True]
        later = noon + dt.timedelta(seconds=10)
        assert driver.feed([("b", later)]) == [("a", noon)]
        driver.kill()
        assert driver.timers("a") == [] and len(driver.timers("b")) == 1


def test_the_zone_of_the_stream() -> None:
    def tell(row: Any, ctx: Any) -> Any:
        return row.at, row.at.hour

    plan = stream("at timestamp", timezone="Europe/Berlin").map(tell, "at timestamp, hour int", name="tell")
    with OperatorDriver(plan) as driver:
        noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
        assert driver.feed([(noon,)]) == [(dt.datetime(2026, 1, 1, 13), 13)]
        assert driver.kill() == []


def apply_totals(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    import pandas as pd

    (total,) = state.getOption or (0,)
    total += sum(int(frame["amount"].sum()) for frame in frames)
    if state.hasTimedOut:
        state.remove()
    else:
        state.update((total,))
        state.setTimeoutDuration(5000)
    yield pd.DataFrame({"card": [key[0]], "total": [total], "over": [state.hasTimedOut]})


@pytest.mark.parametrize("per", ["bundle", "batch"])
def test_apply_in_pandas_with_state(per: str) -> None:
    plan = CARDS.groupBy("card").applyInPandasWithState(
        apply_totals,
        "card string, total long, over boolean",
        "total long",
        "update",
        "ProcessingTimeTimeout",
        per=per,
    )
    with OperatorDriver(plan) as driver:
        rows = driver.feed([("a", 1), ("b", 2), ("a", 3)])
        driver.kill()
        rows += driver.end_epoch()
        assert rows == [("a", 4, False), ("b", 2, False)]
        assert driver.state("a") == (4,) and driver.state("x") is None
        assert driver.timers("a") == [Timer("", AT_START + 5 * SECOND, False)]
        driver.kill()
        rows = driver.advance(5) + driver.end_epoch()
        assert rows == [("a", 4, True), ("b", 2, True)]
        assert driver.state("a") is None and driver.timers("a") == []


def test_a_timeout_may_be_later_than_any_moment() -> None:
    def wait(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        import pandas as pd

        state.setTimeoutDuration(2**62)
        yield pd.DataFrame({"card": [key[0]], "before": [state.oldTimeoutTimestamp > 2**62]})

    plan = CARDS.groupBy("card").applyInPandasWithState(
        wait, "card string, before boolean", "n int", "update", "ProcessingTimeTimeout", per="bundle"
    )
    with OperatorDriver(plan) as driver:
        for before in (False, True):
            assert driver.feed([("a", 1)]) == [("a", before)]
            assert [each.due_us for each in driver.timers("a")] == [2**63 - 1]
            driver.kill()
        assert driver.advance(10**6) == []


class Visits:
    """A StatefulProcessor with every kind of variable, and an attribute that another process would not have."""

    def __init__(self, careless: bool = False) -> None:
        self.careless = careless
        self.seen = 0

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")
        self.amounts = handle.getListState("amounts", "amount long")
        self.by_kind = handle.getMapState("kinds", "kind string", "n long", 60_000)

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Any]:
        for row in rows:
            self.seen += 1
            self.count.update(((self.count.get() or (0,))[0] + 1,))
            self.amounts.appendValue((row.amount,))
            self.by_kind.updateValue(("odd" if row.amount % 2 else "even",), (row.amount,))
            self.handle.registerTimer(timers.getCurrentProcessingTimeInMs() + 1000)
            yield key[0], self.seen if self.careless else self.count.get()[0]

    def handleExpiredTimer(self, key: Any, timers: Any, info: Any) -> Iterator[Any]:
        yield key[0], -1


def visits(careless: bool = False) -> OperatorDriver:
    return OperatorDriver(
        CARDS.groupBy("card").transformWithState(
            Visits(careless), "card string, n long", "update", "ProcessingTime", per="bundle"
        )
    )


def test_transform_with_state() -> None:
    with visits() as driver:
        assert driver.feed([("a", 1), ("a", 2), ("b", 3)]) == [("a", 1), ("a", 2), ("b", 1)]
        expected = {"count": (2,), "amounts": [(1,), (2,)], "kinds": {("odd",): (1,), ("even",): (2,)}}
        assert driver.state("a") == expected
        assert driver.timers("a") == [Timer(str(AT_START // 1000 + 1000), AT_START + SECOND, False)]
        driver.kill()
        assert driver.state("a") == expected
        assert driver.advance(1) == [("a", -1), ("b", -1)]
        assert driver.kill() == [] and driver.timers("a") == []
        driver.advance(60)
        assert driver.state("a") == {"count": (2,), "amounts": [(1,), (2,)]}
        driver.kill()


def test_a_processor_that_remembers_in_itself_is_found_out() -> None:
    with visits(careless=True) as driver:
        driver.feed([("a", 1)])
        driver.kill()  # what it remembers is repeated with the epoch
        driver.end_epoch()
        driver.feed([("a", 1)])
        with pytest.raises(
            DivergenceError, match=r"Row\(card='a', n=2\), the replay gives Row\(card='a', n=1\)"
        ):
            driver.kill()


def test_stateless_operators() -> None:
    with OperatorDriver(CARDS.map(lambda row: (row.amount + 1,), "n long", name="m", pure=True)) as driver:
        assert driver.feed([("a", 1)]) == [(2,)] and driver.kill() == [] and driver.state("a") is None
    with OperatorDriver(CARDS.filter(lambda row, ctx: ctx.random.random() < 0.5, name="f")) as driver:
        rows = driver.feed([("a", n) for n in range(100)])
        assert 20 < len(rows) < 80 and driver.kill() == []
    with OperatorDriver(CARDS.flat_map(lambda row, ctx: [(1,)] * row.amount, "n int", name="f")) as driver:
        assert driver.feed([("a", 2)]) == [(1,), (1,)] and driver.kill() == []


def unrecorded_draw(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    yield key[0], random.random()


def unrecorded_clock(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    yield key[0], float(time.perf_counter_ns())


def rows_by_chance(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    SEEN.append(1)
    for _ in SEEN:
        yield key[0], 1.0


def calls_by_chance(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    SEEN.append(1)
    for _ in SEEN:
        ctx.call(float)
    yield key[0], 1.0


def state_by_chance(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    ctx.state["n"] = random.getrandbits(60)
    yield key[0], 1.0


def timers_by_chance(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    ctx.timer(random.randint(10, 10**9))
    yield key[0], 1.0


SEEN: list[int] = []


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (unrecorded_draw, r"output row 0 was Row\(card='a', x=.*\), the replay gives Row\(card='a', x="),
        (unrecorded_clock, "output row 0 was"),
        (
            rows_by_chance,
            r"there were 1 output rows, the replay gives 2: row 1, Row\(.*\), was not there before",
        ),
        (calls_by_chance, "asked for was a call of float"),
        (state_by_chance, r"the state of key \('a',\) was \{'n': \d+\}, after the replay it is"),
        (timers_by_chance, r"the timers of key \('a',\) were \[Timer.*, after the replay they are"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_not_recorded_is_found_out(fn: Any, said: str) -> None:
    SEEN.clear()
    plan = CARDS.groupBy("card").process(fn, "card string, x double", name="op", on_timer=lambda *_: None)
    with OperatorDriver(plan) as driver:
        driver.feed([("a", 1)])
        with pytest.raises(DivergenceError, match=said) as caught:
            driver.kill()
        assert caught.value.where is not None and caught.value.where.operator == "op"
        assert "ctx.random" in (caught.value.hint or "")


def test_a_state_with_nan_is_the_same_state() -> None:
    def keep(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["x"] = float("nan")
        yield key[0], ctx.state["x"]

    with total_driver(keep, "card string, x double") as driver:
        driver.feed([("a", 1)])
        assert driver.kill() == []


def test_what_is_refused() -> None:
    with total_driver() as driver:
        with pytest.raises(InputError, match="amount"):
            driver.feed([("a", "many")])
        assert len(driver.feed([("a", 1)])) == 1  # a record that does not fit has not reached the instance
        with pytest.raises(ConfigurationError, match="back"):
            driver.advance(-1)
    with pytest.raises(ConfigurationError, match="closed"):
        driver.feed([])
    driver.close()
    with pytest.raises(ConfigurationError, match="time zone"):
        OperatorDriver(CARDS.map(lambda row, ctx: (1,), "n int", name="m"), now=dt.datetime(2026, 1, 1))


@pytest.mark.parametrize(
    "several",
    [
        lambda: CARDS,
        lambda: CARDS.filter(lambda row: True, name="a", pure=True).filter(
            lambda row: True, name="b", pure=True
        ),
        lambda: CARDS.filter(lambda row: True, name="a", pure=True).union(
            CARDS.filter(lambda row: True, name="b", pure=True)
        ),
        lambda: totals,
    ],
)
def test_a_driver_runs_one_operator(several: Any) -> None:
    with pytest.raises(QueryDefinitionError, match="one operator"):
        OperatorDriver(several())


def test_definitions_are_checked_as_in_a_query() -> None:
    with pytest.raises(QueryDefinitionError, match="no column 'crad'"):
        CARDS.groupBy("crad")
    with pytest.raises(QueryDefinitionError, match="cannot be read"):
        stream("card strin")
    with pytest.raises(QueryDefinitionError, match="cannot be read"):
        stream("at timestamp").withWatermark("at", "soon")
    with pytest.raises(QueryDefinitionError, match="negative"):
        stream("at timestamp").withWatermark("at", "-1 second")
    given = StructType([StructField("card", StringType()), StructField("amount", LongType())])
    assert stream(given).schema == CARDS.schema


def test_a_failure_of_the_function_and_another_try() -> None:
    broken = True

    def shaky(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        if broken:
            raise ValueError("the service is away")
        yield key[0], row.amount

    with total_driver(shaky, "card string, amount long") as driver:
        with pytest.raises(UserFunctionError, match="the service is away"):
            driver.feed([("a", 1)])
        with pytest.raises(UserFunctionError, match="the service is away"):
            driver.kill()
        broken = False
        assert driver.kill() == [("a", 1)]
        assert driver.feed([("a", 2)]) == [("a", 2)]


def test_what_cannot_be_kept_is_refused() -> None:
    def keep(key: Any, row: Any, ctx: Any) -> None:
        ctx.state["row"] = row

    with total_driver(keep, "n int") as driver, pytest.raises(StateError):
        driver.feed([("a", 1)])


def test_functions_with_pysparks_signature_have_the_services() -> None:
    class Draws:
        def init(self, handle: Any) -> None: ...

        def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Any]:
            yield key[0], clonos.current().random.random()

    plan = CARDS.groupBy("card").transformWithState(
        Draws(), "card string, x double", "update", "None", per="bundle"
    )
    with OperatorDriver(plan) as driver:
        driver.feed([("a", 1)])
        assert driver.kill() == []


def test_it_needs_no_jvm() -> None:
    program = (
        "from clonos.errors import QueryDefinitionError\n"
        "from clonos.testing.driver import OperatorDriver, stream\n"
        "driver = OperatorDriver(stream('n int').map(lambda row, ctx: (row.n,), 'n int', name='m'))\n"
        "assert driver.feed([(1,)]) == [(1,)] and driver.kill() == []\n"
        "try:\n"
        "    stream('n int').map(lambda row, ctx: (row.n,), 'n int', name='m').where('n > 1')\n"
        "except QueryDefinitionError as error:\n"
        "    assert 'need a Spark session, and there is none' in str(error), error\n"
        "from pyspark import SparkContext\n"
        "assert SparkContext._jvm is None and SparkContext._gateway is None\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_rows_of_side_outputs_are_told_from_others_and_repeated() -> None:
    def split(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        if row.amount < 10:
            ctx.side_output("small", (row.card, ctx.random.random()))
        yield row.card, row.amount

    operator = CARDS.groupBy("card").process(
        split, "card string, amount long", name="split", side_outputs={"small": "card string, draw double"}
    )
    with OperatorDriver(operator) as driver:
        small, one, two = driver.feed([("a", 1), ("b", 20)])
        assert isinstance(small, SideOutput) and small.output == "small"
        assert small.row.card == "a" and 0 <= small.row.draw < 1
        assert [tuple(one), tuple(two)] == [("a", 1), ("b", 20)]
        assert driver.kill() == [] and driver.end_epoch() == [] and driver.kill() == []


@pytest.mark.parametrize("sides", [False, True])
def test_a_log_of_a_version_that_sent_few_rows_as_arrays_is_repeated(
    monkeypatch: pytest.MonkeyPatch, sides: bool
) -> None:
    """Its digests are of the arrays. What is recorded from then on is repeated by this version's."""

    def older(sent: Sent) -> int:
        return sent._with_destinations(sent._encoded.older_digest)

    monkeypatch.setattr(Sent, "digest", property(older))

    def split(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        if sides:
            ctx.side_output("small", (row.card, ctx.random.random()))
        yield row.card, ctx.random.random()

    operator = CARDS.groupBy("card").process(
        split, "card string, draw double", name="split", side_outputs={"small": "card string, draw double"}
    )
    with OperatorDriver(operator) as driver:
        driver.feed([("a", 1), ("b", 20)])
        monkeypatch.undo()
        assert driver.kill() == []
        driver.feed([("a", 2)])
        assert driver.kill() == [] and driver.end_epoch() == [] and driver.kill() == []


def test_a_side_output_that_differs_in_the_replay_is_noticed() -> None:
    def leaky(key: Any, row: Any, ctx: Any) -> None:
        ctx.side_output("small", (str(random.random()), 0.0))

    operator = CARDS.groupBy("card").process(
        leaky, "card string", name="leaky", side_outputs={"small": "card string, draw double"}
    )
    with OperatorDriver(operator) as driver:
        driver.feed([("a", 1)])
        with pytest.raises(DivergenceError, match="output row 0 was SideOutput"):
            driver.kill()


def test_an_operator_with_two_inputs() -> None:
    """One state for both; the replay keeps the order in which records of the two came."""
    paid = stream("order long, sum double, card string")

    def ordered(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["ordered"] = ctx.state.get("ordered", 0) + row.amount
        yield from said(key, ctx)

    def came(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        assert row._fields == ("order", "sum", "card")
        ctx.state["paid"] = ctx.state.get("paid", 0.0) + row.sum
        yield from said(key, ctx)

    def said(key: Any, ctx: Any) -> Iterator[Any]:
        yield key[0], ctx.state.get("ordered", 0), ctx.state.get("paid", 0.0), ctx.random.random()

    match = (
        clonos.connect(CARDS, paid)
        .groupBy("card")
        .process(ordered, came, "card string, ordered long, paid double, draw double", name="match")
    )
    with OperatorDriver(match) as driver:
        assert [row[:3] for row in driver.feed([("a", 5), ("b", 1)])] == [("a", 5, 0.0), ("b", 1, 0.0)]
        assert [row[:3] for row in driver.feed([(1, 2.5, "a")], input="right")] == [("a", 5, 2.5)]
        assert [row[:3] for row in driver.feed([("a", 1)])] == [("a", 6, 2.5)]
        assert driver.kill() == []
        assert driver.state("a") == {"ordered": 6, "paid": 2.5}
        driver.end_epoch()
        driver.feed([{"order": 2, "sum": 1.0, "card": "a"}], input="right")
        assert driver.kill() == [] and driver.state("a") == {"ordered": 6, "paid": 3.5}
    with total_driver() as driver, pytest.raises(ConfigurationError, match="has one input"):
        driver.feed([("a", 1)], input="right")


def test_what_connected_streams_have_in_common() -> None:
    def nothing(key: Any, row: Any, ctx: Any) -> None: ...

    other = stream("number long, card int")
    with pytest.raises(QueryDefinitionError, match=r"different types: \['string'\] and \['int'\].*Cast one"):
        clonos.connect(CARDS, other).groupBy("card")
    with pytest.raises(
        QueryDefinitionError, match="grouped by columns that both have, or by left= and right="
    ):
        clonos.connect(CARDS, other).groupBy("card", left="card")
    for keys, says in (
        ({"left": "card"}, r"lacks right=, the key columns of the right stream.*right=\"order_id\"\)"),
        ({"right": "card"}, "lacks left=, the key columns of the left stream"),
        ({"left": [], "right": []}, "at least one column"),
        (
            {"left": "card", "right": ["number", "card"]},
            r"numbers of columns: 1 \(card\) on the left and 2 \(number, card\) on the right",
        ),
    ):
        with pytest.raises(QueryDefinitionError, match=says):
            clonos.connect(CARDS, other).groupBy(**keys)
    with pytest.raises(QueryDefinitionError, match="connected with each other"):
        clonos.connect(CARDS, "other")  # type: ignore[arg-type]
    grouped = clonos.connect(CARDS, other).groupBy(left=["amount"], right="number")
    old = {"1": nothing}
    with pytest.raises(QueryDefinitionError, match="given by both of its functions"):
        grouped.process(nothing, nothing, "a int", name="op", version="2", previous=old)
    grouped.process(nothing, nothing, "a int", name="op", version="2", previous={"1": (nothing, nothing)})


def test_of_two_inputs_with_event_time_the_slower_one_counts() -> None:
    """One that is silent holds the other back, until it is idle."""
    orders = stream("id int, at timestamp").withWatermark("at", "10 seconds")
    payments = stream("id int, paid timestamp").withWatermark("paid", "0 seconds", idle_after="1 minute")

    def ordered(key: Any, row: Any, ctx: Any) -> None:
        ctx.timer(at=row.at, event=True, name="due")

    def fires(key: Any, timer: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        yield (key[0], round((ctx.watermark - noon).total_seconds()))

    matched = (
        clonos.connect(orders, payments)
        .groupBy("id")
        .process(ordered, lambda key, row, ctx: None, "id int, passed int", name="match", on_timer=fires)
    )
    noon = dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)
    with OperatorDriver(matched) as driver:
        assert driver.feed([(1, noon), (2, noon + dt.timedelta(seconds=30))]) == []
        assert driver.watermark is None
        assert driver.feed([(1, noon + dt.timedelta(seconds=5))], input="right") == [(1, 5)]
        assert driver.watermark == noon + dt.timedelta(seconds=5)
        driver.kill()
        assert driver.watermark == noon + dt.timedelta(seconds=5)
        assert driver.feed([(3, noon + dt.timedelta(seconds=60))]) == []
        assert driver.advance(59) == []
        assert driver.advance(1) == [(2, 50)]
        driver.kill()
        assert driver.end_epoch() == []


def test_a_timer_of_event_time_is_refused_where_no_watermark_ever_comes() -> None:
    def waits(key: Any, row: Any, ctx: Any) -> Any:
        ctx.timer(at=row.at, event=True)

    def fired(key: Any, timer: Any, ctx: Any) -> Any:
        yield (timer.due_us,)

    def driver(given: Any) -> OperatorDriver:
        return OperatorDriver(given.groupBy("id").process(waits, "due long", name="wait", on_timer=fired))

    rows, noon = stream("id int, at timestamp"), dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)
    with driver(rows) as alone, pytest.raises(QueryDefinitionError, match="would never fire"):
        alone.feed([(1, noon)])
    with driver(rows.withWatermark("at", "0 seconds")) as hinted:  # what the hint says
        assert len(hinted.feed([(1, noon)])) == 1
