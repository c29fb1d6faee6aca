"""Windows in the test driver: when they end, what is in them, what is late, and every replay alike."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from clonos.api.streams import arrow
from clonos.errors import QueryDefinitionError, UserFunctionError
from clonos.operators.window_contents import AllRows
from clonos.operators.windows import TimeWindows
from clonos.spark.plan import OperatorPlan
from clonos.testing.driver import OperatorDriver, SideOutput, stream

ROWS = stream("id int, value int, at timestamp").withWatermark("at", "0 seconds")
BY_ID = ROWS.groupBy("id")
NOON = dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)


def at(second: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=second)


def seconds(moment: dt.datetime) -> float:
    return (moment.replace(tzinfo=dt.UTC) - NOON).total_seconds()


def listed(key: Any, window: Any, rows: list[Any], ctx: Any) -> Any:
    yield key[0], seconds(window.start), seconds(window.end), [row.value for row in rows]


LISTED = "id int, start double, end double, values array<int>"


def driver(windows: Any, **more: Any) -> OperatorDriver:
    return OperatorDriver(windows.process(listed, LISTED, name="list", **more))


def repeated(of: OperatorDriver, rows: list[Any]) -> list[Any]:
    """Its rows to these, by an instance that dies behind and in front of an epoch's end."""
    said = of.feed(rows)
    of.kill()
    of.end_epoch()
    of.kill()
    return [tuple(row) for row in said]


def test_a_tumbling_window_gives_its_rows_once_when_it_has_ended() -> None:
    with driver(BY_ID.window("10 seconds")) as windows:
        assert repeated(windows, [(1, 10, at(0)), (1, 11, at(9.999)), (2, 20, at(5))]) == []
        ended = repeated(windows, [(1, 12, at(3)), (1, 13, at(19.9))])
        assert ended == [(1, 0, 10, [10, 11, 12]), (2, 0, 10, [20])]
        assert repeated(windows, [(1, 14, at(20))]) == [(1, 10, 20, [13])]
        assert windows.timers(2) == []


def test_a_row_is_in_every_sliding_window_that_covers_it() -> None:
    with driver(BY_ID.window("10 seconds", "5 seconds", "1 second")) as windows:
        assert repeated(windows, [(1, 10, at(0)), (1, 11, at(6))]) == [(1, -9, 1, [10]), (1, -4, 6, [10])]
        assert repeated(windows, [(9, 0, at(60))]) == [(1, 1, 11, [11]), (1, 6, 16, [11])]


def test_a_session_ends_when_nothing_has_come_for_its_gap() -> None:
    with driver(BY_ID.session_window("10 seconds")) as windows:
        assert repeated(windows, [(1, 10, at(0)), (1, 12, at(20)), (2, 20, at(10.5))]) == [(1, 0, 10, [10])]
        assert repeated(windows, [(1, 11, at(11)), (1, 13, at(30))]) == [(2, 10.5, 20.5, [20])]
        assert len(windows.timers(1)) == 1
        assert repeated(windows, [(9, 0, at(60))]) == [(1, 11, 40, [12, 11, 13])]


def test_two_sessions_that_a_row_makes_one_give_their_rows_together() -> None:
    with driver(ROWS.withWatermark("at", "1 minute").groupBy("id").session_window("10 seconds")) as windows:
        many = [(1, value, at(0)) for value in range(300)]
        assert repeated(windows, [*many, (1, 400, at(18)), (1, 500, at(40))]) == []
        assert repeated(windows, [(1, 600, at(9)), (1, 700, at(8))]) == []
        (first,) = repeated(windows, [(9, 0, at(90))])
        assert first == (1, 0, 28, [*range(300), 400, 600, 700])
        assert repeated(windows, [(9, 0, at(120))]) == [(1, 40, 50, [500])]


def test_windows_before_1970_are_given_too() -> None:
    """Spark's watermark begins at 1970, so that its windows of rows before are late at once."""

    def since(key: Any, window: Any, rows: list[Any], ctx: Any) -> Any:
        yield window.start, len(rows)

    moments = [dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (1900, 1969, 1970)]
    moments[-1] -= dt.timedelta(microseconds=1)
    for windows in (BY_ID.window("1 second"), BY_ID.session_window("1 second")):
        with OperatorDriver(windows.process(since, "since timestamp, n int", name="since")) as driven:
            given = driven.feed([(1, 0, moment) for moment in moments]) + driven.feed([(1, 0, at(0))])
            assert sorted(row.since.year for row in given) == [1900, 1969, 1969]


def test_a_row_is_late_for_a_window_that_has_ended_and_not_by_its_own_time() -> None:
    with driver(BY_ID.window("10 seconds"), late="late") as windows:
        windows.feed([(1, 10, at(15))])
        late = windows.feed([(1, 11, at(9)), (1, 12, at(11)), (1, 13, None)])
        assert [(row.output, row.row.value) for row in late if isinstance(row, SideOutput)] == [
            ("late", 11),
            ("late", 13),
        ]
        windows.kill()
        assert [tuple(row) for row in windows.feed([(9, 0, at(20))])] == [(1, 10, 20, [10, 12])]


def test_rows_come_back_from_a_window_as_they_went_in() -> None:
    """With structs in structs, and another row for each reader's change."""
    schema = (
        "id int, at timestamp, of struct<a: int, b: struct<c: array<string>>>, m map<string, struct<x: int>>"
    )

    def told(key: Any, window: Any, rows: list[Any], ctx: Any) -> Any:
        for row in rows:
            row.of.b.c.append("changed")
            yield (f"{row.of.a} {row.of.b.c} {row.m['k'].x} {row['id']} {row.asDict().keys() >= {'of'}}",)

    given = stream(schema).withWatermark("at", "0 seconds").groupBy("id").window("10 seconds")
    with OperatorDriver(given.process(told, "said string", name="tell")) as windows:
        windows.feed([(1, at(0), (7, (["x", None],)), {"k": (3,)})])
        windows.kill()
        (row,) = windows.feed([(2, at(10), None, None)])
        assert row.said == "7 ['x', None, 'changed'] 3 1 True"


def test_rows_that_wait_have_the_columns_that_were_added_meanwhile() -> None:
    """Wherever they stand; null, as in rows that have none."""
    schema = pa.schema([("id", pa.int64()), ("note", pa.string()), ("value", pa.int64())])
    contents = AllRows(listed, schema, dt.UTC, "list")
    piece = {"columns": ("id", "value"), "rows": [(1, 10), (2, 20)]}
    assert list(contents._fitted(piece)) == [(1, None, 10), (2, None, 20)]


def test_windows_do_not_share_the_values_of_a_row() -> None:
    """What one of them does to a list stays in it, whatever comes in one bundle."""

    def add(kept: Any, row: Any, ctx: Any) -> Any:
        kept = row.tags if kept is None else kept
        kept.append("y")
        return kept

    rows = stream("id int, tags array<string>, at timestamp").withWatermark("at", "0 seconds").groupBy("id")
    made = rows.window("10 seconds", "5 seconds").aggregate(
        add, lambda key, window, kept, ctx: [(kept,)], "tags array<string>", name="tags"
    )
    with OperatorDriver(made) as windows:
        ended = windows.feed([(1, ["a"], at(6)), (1, ["b"], at(12))]) + windows.feed([(2, [], at(60))])
        assert [row.tags for row in ended] == [["a", "y"], ["a", "y", "y"], ["b", "y"]]


def test_an_aggregate_keeps_no_rows() -> None:
    def add(kept: Any, row: Any, ctx: Any) -> Any:
        return max(kept or 0, row.value)

    def finish(key: Any, window: Any, kept: Any, ctx: Any) -> Any:
        ctx.state["ended"] = ctx.state.get("ended", 0) + 1
        return [(key[0], kept, ctx.state["ended"], ctx.random.random())]

    made = BY_ID.session_window("10 seconds").aggregate(
        add, finish, "id int, most int, ended int, draw double", name="most", merge=max
    )
    with OperatorDriver(made) as windows:
        windows.feed([(1, 5, at(0)), (1, 9, at(12)), (1, 3, at(6)), (1, 1, at(30))])
        assert windows.state(1) == {"ended": 1}
        (row,) = windows.feed([(1, 2, at(60))])
        assert row[:3] == (1, 1, 2)
        assert windows.state(1) == {"ended": 2}
        windows.kill()


def test_count_has_the_columns_that_sparks_has() -> None:
    counted = BY_ID.window("10 seconds").count()
    kind = "struct<id:int,window:struct<start:timestamp,end:timestamp>,count:bigint>"
    assert counted.schema.simpleString() == kind
    assert "session_window" in BY_ID.session_window("10 seconds").count().schema.simpleString()
    with OperatorDriver(counted) as windows:
        ((key, window, count),) = windows.feed([(1, 1, at(3)), (1, 2, at(4)), (2, 0, at(10))])
        assert (key, seconds(window.start), seconds(window.end), count) == (1, 0, 10, 2)


def test_windows_of_local_time_are_aligned_by_what_clocks_show() -> None:
    """A day of TIMESTAMP_NTZ begins at midnight, wherever that is; one of TIMESTAMP in UTC, as in Spark."""

    def day(kind: str) -> Any:
        given = stream(f"id int, at {kind}", timezone="America/New_York").withWatermark("at", "0 seconds")
        with OperatorDriver(given.groupBy("id").window("1 day").count()) as windows:
            noon = dt.datetime(2026, 11, 26, 12)
            (row,) = windows.feed([(1, noon), (1, noon + dt.timedelta(days=2))])
            return row.window.start

    assert day("timestamp_ntz") == dt.datetime(2026, 11, 26)
    assert day("timestamp") == dt.datetime(2026, 11, 25, 19)


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_a_row_at_the_end_of_time_waits(kind: str) -> None:
    """A date that stands for "never": its window ends beyond the years that Python has."""
    last = dt.datetime(9999, 12, 31, 23, 59, 59)
    with OperatorDriver(
        stream(f"id int, at {kind}").withWatermark("at", "1 day").groupBy("id").window("1 hour").count()
    ) as windows:
        assert windows.feed([(1, last)]) == []
        assert windows.feed([(1, last)]) == []
        windows.kill()


@given(
    st.integers(-(10**15), 10**15),
    st.integers(1, 10**9),
    st.integers(1, 40),
    st.integers(-(10**9), 10**9),
)
def test_windows_cover_the_moment_and_no_other_does(moment: int, slide: int, times: int, offset: int) -> None:
    size = slide * times - slide // 3
    windows = TimeWindows(size, min(slide, size), offset % min(slide, size))
    spans = windows.of(moment)
    assert all(start <= moment < end and end - start == size for start, end in spans)
    starts = [start for start, _ in spans]
    assert all((start - windows.offset) % windows.slide == 0 for start in starts)
    assert starts == sorted(starts, reverse=True)
    assert starts[0] + windows.slide > moment
    assert starts[-1] - windows.slide + size <= moment


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: stream("id int, at timestamp").groupBy("id").window("1 hour"), "no watermark"),
        (lambda: BY_ID.window("0 seconds"), "not longer than nothing"),
        (lambda: BY_ID.window("1 hour", "2 hours"), "would leave rows out"),
        (lambda: BY_ID.window("1 hour", "1 hour", "1 hour"), "cannot start at"),
        (lambda: BY_ID.window("soon"), "soon"),
        (lambda: BY_ID.window(10), "text such as"),
        (lambda: BY_ID.session_window("0 seconds"), "not longer than nothing"),
        (lambda: BY_ID.window("1 hour").process(None, "a int", name="x"), "needs a function"),
        (
            lambda: BY_ID.session_window("1 hour").aggregate(print, print, "a int", name="x"),
            "Give merge=",
        ),
        (
            lambda: BY_ID.window("1 hour").process(
                listed, LISTED, name="x", late="a", side_outputs={"a": "b int"}
            ),
            "two side outputs 'a'",
        ),
        (
            lambda: BY_ID.window("1 hour").process(
                listed, LISTED, name="x", version="2", previous={"1": (1, 2)}
            ),
            "has 1 functions, not 2",
        ),
        (
            lambda: ROWS.groupBy("value").window("1 hour").count().groupBy("window").window("1 hour"),
            "window",
        ),
    ],
)
def test_what_makes_no_window_is_refused(make: Any, says: str) -> None:
    with pytest.raises(QueryDefinitionError) as refused:
        make()
    assert says in str(refused.value)


def test_an_older_version_may_have_had_other_windows() -> None:
    """They repeat what it has begun, and the next one has its own."""
    made = BY_ID.window("20 seconds").process(
        listed, LISTED, name="list", version="2", previous={"1": (listed, BY_ID.window("10 seconds"))}
    )
    (plan,) = made.plan
    assert isinstance(plan, OperatorPlan)
    rows = arrow(plan.input)
    ((version, old),) = plan.previous.items()
    assert (version, plan.binding.version) == (
        "1 (windows of 10000000 every 10000000 microseconds)",
        "2 (windows of 20000000 every 20000000 microseconds)",
    )
    assert old(rows, "list")()._windows == TimeWindows(10_000_000, 10_000_000)
    assert plan.operator(rows, "list")()._windows == TimeWindows(20_000_000, 20_000_000)


def test_a_function_over_windows_sets_no_timers() -> None:
    def wrong(key: Any, window: Any, rows: list[Any], ctx: Any) -> Any:
        ctx.timer(5.0)

    with (
        OperatorDriver(BY_ID.window("1 hour").process(wrong, "a int", name="x")) as windows,
        pytest.raises((QueryDefinitionError, UserFunctionError), match="sets no timers"),
    ):
        windows.feed([(1, 1, at(0)), (1, 1, at(7200))])


def test_the_two_instants_of_a_repeated_hour_are_two_keys_of_windows() -> None:
    first, second = dt.datetime(2024, 10, 27, 2, 30), dt.datetime(2024, 10, 27, 2, 30, fold=1)
    given = stream("t timestamp, at timestamp", timezone="Europe/Berlin").withWatermark("at", "0 seconds")
    at, later = dt.datetime(2024, 12, 1), dt.datetime(2024, 12, 2)
    kinds = (
        lambda windows: windows.count(),
        lambda windows: windows.process(
            lambda key, window, rows, ctx: [(*key, len(rows))], "t timestamp, n int", name="n"
        ),
    )
    for made in kinds:
        with OperatorDriver(made(given.groupBy("t").window("1 minute"))) as driver:
            assert driver.feed([(first, at), (second, at), (second, at)]) == []
            driver.kill()
            rows = driver.feed([(dt.datetime(2024, 1, 1), later)])
            assert sorted((row[0].fold, row[-1]) for row in rows) == [(0, 1), (1, 2)]
