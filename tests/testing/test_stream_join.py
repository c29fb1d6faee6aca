"""`a.join(b, on, within=...)` in the test driver: which rows meet, when a row is given up, and every replay alike."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import clonos
from clonos.errors import QueryDefinitionError
from clonos.testing.driver import OperatorDriver, stream

ORDERS = stream("id int, amount int, at timestamp").withWatermark("at", "0 seconds")
PAYMENTS = stream("id int, paid int, paid_at timestamp").withWatermark("paid_at", "0 seconds")
NOON = dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)


def at(second: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=second)


def joined(how: str = "inner") -> OperatorDriver:
    return OperatorDriver(ORDERS.join(PAYMENTS, "id", how, within="10 seconds"))


def pairs(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(row.id, row.amount, row.paid) for row in rows]


def test_rows_meet_that_are_no_further_apart_than_said() -> None:
    with joined() as driver:
        assert driver.feed([(1, 10, at(0)), (1, 11, at(15)), (2, 20, at(0))]) == []
        met = driver.feed([(1, 100, at(10)), (2, 200, at(10.5)), (3, 300, at(0))], input="right")
        assert pairs(met) == [(1, 10, 100), (1, 11, 100)], "10 seconds, and 5"
        assert (met[0].at, met[0].paid_at) == (at(0).replace(tzinfo=None), at(10).replace(tzinfo=None))
        driver.kill()
        assert pairs(driver.feed([(2, 21, at(20))])) == [(2, 21, 200)]
        driver.end_epoch()
        driver.kill()
        assert pairs(driver.feed([(2, 201, at(20))], input="right")) == [(2, 21, 201)]


def test_what_nothing_can_meet_any_more_is_dropped() -> None:
    with joined() as driver:
        driver.feed([(1, 10, at(0)), (1, 11, at(9))])
        driver.feed([(9, 0, at(30))])
        assert set(driver.state(1)) == {"left", "columns"}, "the right stream has not come so far"
        driver.feed([(8, 0, at(10))], input="right")
        assert [kept[1] for kept in driver.state(1)["left"]] == [(11, at(9).replace(tzinfo=None))]
        driver.feed([(8, 0, at(19))], input="right")
        assert driver.state(1) in (None, {})
        assert driver.timers(1) == []
        assert driver.feed([(8, 1, at(19))]) == [], "late: it is dropped, as Spark drops it"
        assert driver.state(8).keys() == {"right", "columns"}


def test_a_left_row_that_has_met_none_is_given_out_when_none_can_come() -> None:
    with joined("left") as driver:
        assert pairs(driver.feed([(None, 1, at(0)), (1, 2, None)])) == [(None, 1, None), (1, 2, None)]
        driver.feed([(1, 10, at(0)), (2, 20, at(0)), (9, 0, at(60))])
        assert pairs(driver.feed([(1, 100, at(5))], input="right")) == [(1, 10, 100)]
        driver.kill()
        assert pairs(driver.feed([(7, 0, at(9))], input="right")) == []
        assert pairs(driver.feed([(7, 0, at(10))], input="right")) == [(2, 20, None)]
        assert driver.feed([(None, 1, at(11))], input="right") == []
        driver.kill()


def test_what_is_late_and_what_has_expired_is_told_by_the_same_milliseconds() -> None:
    with joined("left") as driver:
        driver.feed([(1, 10, at(0.0005)), (9, 0, at(10.0007))])
        assert driver.feed([(8, 0, at(10.0007))], input="right") == []
        assert pairs(driver.feed([(1, 100, at(10.0003))], input="right")) == [(1, 10, 100)]
        driver.kill()


def test_a_late_row_is_dropped_whatever_its_key() -> None:
    with joined("left") as driver:
        driver.feed([(9, 0, at(60))])
        driver.feed([(9, 0, at(60))], input="right")
        assert driver.feed([(None, 1, at(0)), (1, 1, at(0))]) == []
        assert pairs(driver.feed([(None, 1, at(61))])) == [(None, 1, None)]


def test_the_rows_of_a_join_have_event_time_that_makes_none_of_them_late() -> None:
    """Those without a partner come later, by `within` and by the delay of the watermark that gives them up; a watermark
    that would drop them is refused."""
    rows = ORDERS.join(PAYMENTS, "id", "left", within="10 seconds")
    assert rows.event_time is not None and rows.event_time.column == "at"
    (plan,) = rows.plan
    assert plan.output_trails == 10_000_000
    with pytest.raises(QueryDefinitionError, match="would make them late"):
        rows.filter(lambda row: True, name="all", pure=True).withWatermark("at", "9 seconds")
    assert rows.withWatermark("at", "10 seconds").event_time.delay == 10_000_000
    third = stream("id int, sent int, sent_at timestamp").withWatermark("sent_at", "0 seconds")
    again = rows.join(third, "id", within="1 second", name="again")
    assert again.event_time.trails == 11_000_000
    delayed = stream("id int, amount int, at timestamp").withWatermark("at", "5 seconds")
    late = delayed.join(PAYMENTS, "id", "left", within="10 seconds")
    with pytest.raises(QueryDefinitionError, match=r"up to 15 seconds behind.*would make them late"):
        late.withWatermark("at", "14 seconds")
    assert late.withWatermark("at", "15 seconds").event_time.trails == 0


def test_how_and_within_are_part_of_the_version() -> None:
    def version(*given: str, **more: Any) -> tuple[str, list[str]]:
        (plan,) = ORDERS.join(PAYMENTS, "id", given[0], within=given[1], **more).plan
        return plan.binding.version, sorted(plan.previous)

    assert version("inner", "10 seconds") == ("1 (inner, within 10000000 microseconds)", ["1"])
    assert version("left_outer", "1 second", previous={"1": ("INNER", "10 seconds")}) == (
        "1 (left, within 1000000 microseconds)",
        ["1", "1 (inner, within 10000000 microseconds)"],
    )
    with pytest.raises(QueryDefinitionError, match="as it had them"):
        version("left", "1 second", previous={"1": "10 seconds"})


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ORDERS.join(PAYMENTS, "id", "outer", within="1 second"), 'how="inner" or how="left"'),
        (lambda: stream("id int").join(PAYMENTS, "id", within="1 second"), "has no watermark"),
        (
            lambda: ORDERS.join(ORDERS, "id", within="1 second"),
            "both streams of 'join' have a column 'amount'",
        ),
        (lambda: ORDERS.join(PAYMENTS, "amount", within="1 second"), "no column 'amount'"),
        (lambda: ORDERS.join(PAYMENTS, "id", within="soon"), "soon"),
        (lambda: ORDERS.join("other", "id", within="1 second"), "joined with a causal stream"),
    ],
)
def test_what_cannot_be_joined_is_refused(make: Any, says: str) -> None:
    with pytest.raises(QueryDefinitionError, match=says):
        make()


def test_a_join_goes_by_the_columns_that_both_have_and_keeps_values_of_all_types() -> None:
    left = stream("a string, b int, x struct<p: int, q: string>, l timestamp").withWatermark("l", "1 second")
    right = stream("y array<int>, b int, a string, r timestamp").withWatermark("r", "1 second")
    stream_ = left.join(right, ["a", "b"], within="1 minute", name="both")
    assert stream_.columns == ["a", "b", "x", "l", "y", "r"]
    with OperatorDriver(stream_) as driver:
        driver.feed([("k", 1, (7, "z"), at(0))])
        driver.end_epoch()
        driver.kill()
        (row,) = driver.feed([([1, 2], 1, "k", at(1))], input="right")
        assert (row.a, row.b, tuple(row.x), row.y) == ("k", 1, (7, "z"), [1, 2])
    assert clonos.connect(left, right) is not None
