"""transformWithState: PySpark's own StatefulProcessor, run over causal services."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType
from surface_services import START, FakeServices, advance, advance_watermark, opened, store_kinds

import clonos.operators.current as running
from clonos.errors import ClonosError, InputError, QueryDefinitionError, StateError, UserFunctionError
from clonos.operators.rows import make_row
from clonos.operators.transform_with_state import TransformWithStateOperator

IN = pa.schema([("card", pa.string()), ("amount", pa.int64())])
__all__ = ["store_kinds"]

OUT = "card STRING, n BIGINT"
NOW = START // 1000


def rows(*values: tuple[str, Any]) -> tuple[list[Any], list[Any]]:
    made = [make_row(IN.names, v) for v in values]
    return [(r.card,) for r in made], made


def make(processor: Any, services: FakeServices, **more: Any) -> Any:
    settings: dict[str, Any] = {"input": IN, "output": OUT, "name": "tws", **more}
    return opened(TransformWithStateOperator(processor, **settings), services)


class Counter(StatefulProcessor):
    """From PySpark's documentation, in spirit."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", StructType([StructField("n", IntegerType())]))
        self.closed = False

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        n = self.count.get()[0] if self.count.exists() else 0
        for row in rows:
            n += row.amount + row["amount"] - row[1]
        self.count.update((n,))
        yield Row(n=n, card=key[0])

    def close(self) -> None:
        self.closed = True


def test_a_processor_written_for_pyspark() -> None:
    services, processor = FakeServices(), Counter()
    operator = make(processor, services)
    assert operator.bundle(*rows(("b", 1), ("a", 2), ("b", 3))) == [("b", 4), ("a", 2)]
    operator.close()
    assert processor.closed
    assert make(Counter(), services).bundle(*rows(("b", 1))) == [("b", 5)]
    assert services.clock_reads == 0


class PandasCounter(Counter):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for pdf in rows:
            self.count.update((len(pdf),))
            yield pd.DataFrame({"n": [pdf.amount.sum()], "card": [key[0]]})


def test_the_pandas_variant() -> None:
    assert make(PandasCounter(), FakeServices(), pandas=True).bundle(*rows(("b", 1), ("a", 2), ("b", 3))) == [
        ("b", 4),
        ("a", 2),
    ]


class Script(StatefulProcessor):
    """Declares one variable of each kind and does what the test says."""

    def __init__(self, act: Any = None, expired: Any = None, ttl: Any = None) -> None:
        self.act, self.expired, self.ttl = act, expired, ttl

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n BIGINT, s STRING", self.ttl)
        self.list = handle.getListState("list", StructType([StructField("n", LongType())]), self.ttl)
        names = StructType([StructField("name", StringType())])
        self.map = handle.getMapState("map", names, "l ARRAY<INT>", self.ttl)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        return self.act(self, key, list(rows), timerValues) or iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        return self.expired(self, key, timerValues, expiredTimerInfo)


def run(act: Any, services: FakeServices | None = None, **more: Any) -> Any:
    """One call for key 'a'; `act(script, key, rows, timerValues)`."""
    ttl = more.pop("ttl", None)
    operator = make(Script(act, more.pop("expired", None), ttl), services or FakeServices(), **more)
    return operator, operator.bundle(*rows(("a", 1)))


def test_value_state() -> None:
    def act(p: Any, *_: Any) -> None:
        assert not p.value.exists()
        assert p.value.get() is None
        p.value.update((1, "x"))
        assert p.value.get() == (1, "x")
        with pytest.raises(StateError, match="taken by position here"):
            p.value.update(Row(s="y", n=2))  # Spark would keep "y" as n
        p.value.update(Row(number=2, text="y"))
        assert p.value.get() == (2, "y")
        p.value.clear()
        assert not p.value.exists()

    services = FakeServices()
    run(act, services)
    assert services.state.data == {}


def test_what_is_kept_for_a_key_is_that_of_all_variables_and_of_no_other_key() -> None:
    def act(p: Any, key: Any, *_: Any) -> None:
        p.value.update((len(key[0]), key[0]))
        p.map.updateValue(("x",), ([1],))
        p.handle.registerTimer(START // 1000 + 5)

    services = FakeServices()
    operator = make(Script(act), services, time_mode="ProcessingTime")
    operator.bundle(*rows(("a", 1)))
    alone = dict(services.state.data)
    operator.bundle(*rows(("ab", 1), ("", 1)))
    assert operator.kept(("a",)) == alone
    assert len(alone) == 3
    assert operator.kept(("b",)) == {}


def test_list_state() -> None:
    def act(p: Any, *_: Any) -> None:
        assert not p.list.exists()
        assert list(p.list.get()) == []
        p.list.appendValue((1,))
        p.list.appendList([(2,), (3,)])
        for n, value in enumerate(p.list.get()):  # reads while it writes: a reader sees what there was
            p.list.appendValue((n,))
            assert value == (n + 1,)
        assert list(p.list.get()) == [(1,), (2,), (3,), (0,), (1,), (2,)]
        p.list.put([(9,)])
        assert list(p.list.get()) == [(9,)]
        p.list.clear()
        assert not p.list.exists()

    run(act)
    for bad in ([], [None], "ab", 5):
        with pytest.raises(StateError, match="list"):
            run(lambda p, *_: p.list.put(bad) if bad != [None] else p.list.appendList(None))  # noqa: B023


def test_map_state() -> None:
    def act(p: Any, *_: Any) -> None:
        assert not p.map.exists()
        assert p.map.getValue(("x",)) is None
        p.map.updateValue(("z",), ([1],))
        p.map.updateValue(("x",), ([1, 2],))
        p.map.getValue(("x",))[0].append(3)
        assert p.map.getValue(("x",)) == ([1, 2],)
        assert p.map.containsKey(("x",))
        assert not p.map.containsKey(("y",))
        assert list(p.map.keys()) == [("z",), ("x",)]
        assert list(p.map.values()) == [([1],), ([1, 2],)]
        assert list(p.map.iterator()) == [(("z",), ([1],)), (("x",), ([1, 2],))]
        p.map.removeKey(("absent",))
        p.map.removeKey(("z",))
        assert p.map.exists()
        p.map.removeKey(("x",))
        assert not p.map.exists()

    services = FakeServices()
    run(act, services)
    assert services.state.data == {}


def test_keys_do_not_see_each_other() -> None:
    def act(p: Any, key: Any, rows: Any, _: Any) -> Any:
        p.value.update(((p.value.get() or (0, ""))[0] + len(rows), key[0]))
        return iter([(key[0], p.value.get()[0])])

    operator = make(Script(act), FakeServices())
    assert operator.bundle(*rows(("a", 1), ("b", 1), ("a", 1))) == [("a", 2), ("b", 1)]
    assert operator.bundle(*rows(("a", 1))) == [("a", 3)]


def refused(act: Any, **more: Any) -> BaseException:
    with pytest.raises(ClonosError) as caught:
        run(act, **more)
    error = caught.value
    return error.__cause__ if isinstance(error, UserFunctionError) and error.__cause__ else error


def test_what_variables_refuse() -> None:
    assert "'n' (long)" in str(refused(lambda p, *_: p.value.update(("x", "y"))))
    assert "None" in str(refused(lambda p, *_: p.value.update(None)))
    assert "None" in str(refused(lambda p, *_: p.map.updateValue(("x",), None)))
    assert "'name' (string)" in str(refused(lambda p, *_: p.map.getValue((1,))))
    assert "in init()" in str(refused(lambda p, *_: p.handle.getValueState("late", "n INT")))
    for declare in (
        lambda h: [h.getValueState("v", "n INT"), h.getListState("v", "n INT")],
        lambda h: h.getValueState("", "n INT"),
        lambda h: h.getValueState("v", "n WHAT"),
        lambda h: h.getValueState("v", "n INT", 1000),
        lambda h: h.getValueState("v", "n INT").get(),
        lambda h: h.getValueState("v", 5),
    ):
        processor = Script()
        processor.init = declare  # type: ignore[method-assign]
        with pytest.raises(QueryDefinitionError):
            make(processor, FakeServices())
    with pytest.raises(QueryDefinitionError, match="positive"):
        make(Script(ttl=0), FakeServices(), time_mode="ProcessingTime")


def test_state_kept_by_another_version_is_refused() -> None:
    services = FakeServices()
    run(lambda p, *_: p.value.update((1, "x")), services)

    class Other(Script):
        def init(self, handle: Any) -> None:
            self.value = handle.getListState("value", "n BIGINT")

    with pytest.raises(StateError, match="not a list"):
        make(Other(lambda p, *_: list(p.value.get())), services).bundle(*rows(("a", 1)))
    with pytest.raises(StateError, match="not a list"):
        run(lambda p, *_: p.value.get(), services, ttl=5, time_mode="ProcessingTime")


def test_delete_if_exists_purges_every_key() -> None:
    services = FakeServices()
    operator = make(Script(lambda p, *_: p.value.update((1, "x")) or p.list.put([(1,)])), services)
    operator.bundle(*rows(("a", 1), ("b", 1)))
    assert len(services.state.data) == 4

    class Newer(Script):
        def init(self, handle: Any) -> None:
            self.list = handle.getListState("list", "n BIGINT")
            handle.deleteIfExists("value")
            handle.deleteIfExists("never")

    make(Newer(), services)
    assert len(services.state.data) == 2


def test_a_variable_is_not_deleted_and_declared_in_one_init() -> None:
    """Every replica that takes over would begin with an empty one."""

    class Both(Script):
        def init(self, handle: Any) -> None:
            handle.deleteIfExists("value")
            super().init(handle)

    with pytest.raises(QueryDefinitionError, match=r"deleted and declared in the same init.*another name"):
        make(Both(), FakeServices())


def test_a_deleted_variable_fails_as_in_spark() -> None:
    """A handler that expects this of Spark catches it here, too."""

    class Gone(Script):
        def init(self, handle: Any) -> None:
            super().init(handle)
            for name in ("value", "list", "map"):
                handle.deleteIfExists(name)

    def act(p: Any, *_: Any) -> None:
        for doing, use in (
            ("checking value state exists", p.value.exists),
            ("getting value state", p.value.get),
            ("updating value state", lambda: p.value.update((1, "x"))),
            ("clearing value state", p.value.clear),
            ("checking value state exists", p.list.exists),
            ("getting value state", p.list.get),
            ("updating value state", lambda: p.list.appendValue((1,))),
            ("checking map state exists", p.map.exists),
            ("getting value", lambda: p.map.getValue(("x",))),
            ("updating map state value", lambda: p.map.updateValue(("x",), ([1],))),
            ("removing key from map state", lambda: p.map.removeKey(("x",))),
        ):
            with pytest.raises(PySparkRuntimeError, match=rf"Error {doing}: .*init\(\) has deleted it"):
                use()

    services = FakeServices()
    make(Gone(act), services).bundle(*rows(("a", 1)))
    assert services.state.data == {}


def test_processing_timers() -> None:
    def act(p: Any, key: Any, rows: Any, times: Any) -> None:
        assert times.getCurrentProcessingTimeInMs() == NOW
        assert times.getCurrentWatermarkInMs() == -1
        for delay in (20, 10, 10, 30):
            p.handle.registerTimer(NOW + delay)
        p.handle.deleteTimer(NOW + 30)
        p.handle.deleteTimer(NOW + 31)
        assert list(p.handle.listTimers()) == [NOW + 10, NOW + 20]

    def expired(p: Any, key: Any, times: Any, info: Any) -> Any:
        assert info.getExpiryTimeInMs() in list(p.handle.listTimers())
        yield (key[0], info.getExpiryTimeInMs() - NOW)

    services = FakeServices()
    operator, _ = run(act, services, expired=expired, time_mode="processingTime")
    assert advance(operator, services, 9_999) == []
    assert advance(operator, services, 1) == [("a", 10)]
    assert advance(operator, services, 20_000) == [("a", 20)]
    assert services.state.data == {}


def test_a_timer_may_be_of_numpys_integers() -> None:
    def act(p: Any, key: Any, rows: Any, times: Any) -> None:
        for delay in (1, 2, 2**62):
            p.handle.registerTimer(np.int64(NOW + delay))
        p.handle.deleteTimer(np.int64(NOW + 1))
        assert [type(each) for each in p.handle.listTimers()] == [int, int]

    def expired(p: Any, key: Any, times: Any, info: Any) -> Any:
        yield (key[0], info.getExpiryTimeInMs() - NOW)

    services = FakeServices()
    operator, _ = run(act, services, expired=expired, time_mode="ProcessingTime")
    assert advance(operator, services, 2_000) == [("a", 2)]
    assert services.timers.next_due() == 2**63 - 1  # later milliseconds are no moment, and never come


def test_timers_of_one_moment_can_delete_and_register_each_other() -> None:
    def act(p: Any, key: Any, rows: Any, times: Any) -> None:
        for delay in (1, 2, 3):
            p.handle.registerTimer(NOW + delay)

    def expired(p: Any, key: Any, times: Any, info: Any) -> Any:
        p.handle.deleteTimer(NOW + 2)
        p.handle.registerTimer(NOW - 5)  # in the past: due at once, but not within the same moment
        yield (key[0], info.getExpiryTimeInMs() - NOW)

    services = FakeServices()
    operator, _ = run(act, services, expired=expired, time_mode="ProcessingTime")
    assert advance(operator, services, 10_000) == [("a", 1), ("a", 3)]
    assert services.timers.pop_due(services.time) == []
    assert advance(operator, services, 1) == [("a", -5)]


def test_event_timers() -> None:
    def act(p: Any, key: Any, rows: Any, times: Any) -> None:
        assert times.getCurrentWatermarkInMs() == 0
        p.handle.registerTimer(1000)

    def expired(p: Any, key: Any, times: Any, info: Any) -> Any:
        p.handle.registerTimer(500)  # has passed, too: when event time goes on
        p.handle.registerTimer(1001)
        yield (key[0], times.getCurrentWatermarkInMs())

    services = FakeServices()
    operator, _ = run(act, services, expired=expired, time_mode="EventTime")
    assert advance_watermark(operator, services, 999_999) == []
    assert advance_watermark(operator, services, 1_000_000) == [("a", 1000)]


def test_timers_need_a_time_mode_and_a_key() -> None:
    for act in (
        lambda p, *_: p.handle.registerTimer(5),
        lambda p, *_: p.handle.deleteTimer(5),
        lambda p, *_: p.handle.listTimers(),
    ):
        assert isinstance(refused(act), PySparkRuntimeError)
    assert "milliseconds" in str(refused(lambda p, *_: p.handle.registerTimer("x"), time_mode="EventTime"))
    seen: list[Any] = []
    run(lambda p, k, r, t: seen.append((t.getCurrentProcessingTimeInMs(), t.getCurrentWatermarkInMs())))
    assert seen == [(-1, -1)]


def test_time_to_live_hides_and_then_removes() -> None:
    services = FakeServices()

    def act(p: Any, key: Any, rows: Any, _: Any) -> Any:
        amount = rows[0].amount
        if amount == 1:
            p.value.update((1, "x"))
            p.list.appendValue((1,))
            p.map.updateValue(("x",), ([],))
        elif amount == 2:
            p.list.appendValue((2,))
            p.map.updateValue(("y",), ([],))
        alive = (p.value.exists(), [v[0] for v in p.list.get()], [k[0] for k, _ in p.map.iterator()])
        return iter([(repr(alive), 0)])

    operator = make(Script(act, ttl=np.int64(10)), services, time_mode="ProcessingTime")
    look = lambda n: operator.bundle(*rows(("a", n)))[0][0]  # noqa: E731
    assert look(1) == "(True, [1], ['x'])"
    services.time += 6_000
    assert look(2) == "(True, [1, 2], ['x', 'y'])"
    services.time += 4_000
    assert look(3) == "(False, [2], ['y'])"
    assert advance(operator, services, 0) == []
    assert sorted(len(str(v)) > 0 for v in services.state.data.values()) == [True, True]  # list and map
    assert len(services.timers.entries) == 2
    advance(operator, services, 6_000)
    assert services.state.data == {}
    assert services.timers.entries == []


def test_what_expires_while_a_version_does_not_use_the_variable_goes() -> None:
    services = FakeServices()

    class Without(Script):
        def init(self, handle: Any) -> None:
            self.handle = handle

    def act(p: Any, key: Any, rows: Any, _: Any) -> Any:
        if rows[0].amount == 1:
            p.value.update((1, "x"))
            p.list.appendValue((1,))
            p.map.updateValue(("x",), ([],))
        elif rows[0].amount == 2:
            p.list.appendValue((2,))
            p.map.updateValue(("y",), ([],))
        alive = (p.value.exists(), [v[0] for v in p.list.get()], [k[0] for k, _ in p.map.iterator()])
        return iter([(repr(alive), 0)])

    used = make(Script(act, ttl=10), services, time_mode="ProcessingTime")
    used.bundle(*rows(("a", 1)))
    services.time += 6_000
    used.bundle(*rows(("a", 2)))
    without = make(Without(lambda *_: None), services, time_mode="ProcessingTime")
    advance(without, services, 4_000)
    assert len(services.timers.entries) == 2, "of the list and of the map, of which something is left"
    again = make(Script(act, ttl=10), services, time_mode="ProcessingTime")
    assert again.bundle(*rows(("a", 3)))[0][0] == "(False, [2], ['y'])"
    again.bundle(*rows(("a", 1)))
    assert len(services.timers.entries) == 3
    advance(without, services, 20_000)
    assert services.state.data == {}
    assert services.timers.entries == []


def test_an_update_renews_the_time_to_live() -> None:
    services = FakeServices()
    operator = make(
        Script(lambda p, *_: p.value.update((1, "x")), ttl=10), services, time_mode="ProcessingTime"
    )
    for _ in range(5):
        operator.bundle(*rows(("a", 1)))
        advance(operator, services, 6_000)
        assert services.state.data
        assert len(services.timers.entries) == 1
    advance(operator, services, 4_000)
    assert services.state.data == {}


def test_current_exceptions_and_outputs() -> None:
    def act(p: Any, key: Any, rows: Any, _: Any) -> Any:
        assert running.current().key == key
        return iter([Row(card=key[0], n=running.current().random.getrandbits(8))])

    assert run(act)[1][0][0] == "a"

    def poison(p: Any, key: Any, rows: Any, _: Any) -> Any:
        yield 1 / 0

    with pytest.raises(UserFunctionError, match=r"'tws' raised ZeroDivisionError, key \('a',\)"):
        run(poison)
    with pytest.raises(InputError, match="returned a int"):
        run(lambda *_: 5)
    with pytest.raises(InputError, match="not a row"):
        run(lambda *_: iter([5]))
    with pytest.raises(InputError, match="not a pandas"):
        run(lambda *_: iter([5]), pandas=True)


@pytest.mark.parametrize(
    "more",
    [{"output_mode": "complete"}, {"time_mode": "Lunch"}, {"time_mode": None}],
)
def test_definitions_that_make_no_sense(more: Any) -> None:
    with pytest.raises(QueryDefinitionError):
        make(Counter(), FakeServices(), **more)
    with pytest.raises(QueryDefinitionError, match="StatefulProcessor"):
        make(Counter, FakeServices())


def test_errors_in_init_and_close_are_the_users() -> None:
    class Bad(Counter):
        def close(self) -> None:
            raise OSError("x")

    with pytest.raises(UserFunctionError, match="in close"):
        make(Bad(), FakeServices()).close()
    bad = Script()
    bad.init = lambda handle: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(UserFunctionError, match="in init"):
        make(bad, FakeServices())
