"""A stream beside a table in the test driver: which rows meet, and every replay alike."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from clonos.errors import StorageUnavailable
from clonos.operators import table_join
from clonos.testing.driver import OperatorDriver, stream

CARDS = stream("card string, amount int")
TABLE = pa.table({"card": ["a", "b", "b", None], "limit": [1, 2, 3, 4]})


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [("a", 1, 1), ("b", 2, 2), ("b", 2, 3)]),
        ("LEFT", [("a", 1, 1), ("b", 2, 2), ("b", 2, 3), (None, 3, None), ("x", 4, None)]),
        ("left_semi", [("a", 1), ("b", 2)]),
        ("leftanti", [(None, 3), ("x", 4)]),
    ],
)
def test_rows_meet_those_of_the_table(how: str, expected: list[Any]) -> None:
    with OperatorDriver(CARDS.join(TABLE, "card", how)) as driver:
        rows = driver.feed([("a", 1), ("b", 2), (None, 3), ("x", 4)])
        assert [tuple(row) for row in rows] == expected
        driver.kill()
        driver.end_epoch()
        driver.advance(2)
        assert len(driver.feed([("a", 1), ("x", 1)])) >= 1
        driver.kill()


def test_keys_are_equal_by_their_value_in_the_columns_type() -> None:
    """The two instants of a repeated hour, and decimals without a scale; columns beside them keep their types."""
    first = dt.datetime(2024, 11, 3, 5, 30, tzinfo=dt.UTC)
    second = dt.datetime(2024, 11, 3, 6, 30, tzinfo=dt.UTC)
    table = pa.table(
        {
            "at": pa.array([first, second], pa.timestamp("us", "UTC")),
            "n": pa.array([Decimal(7), Decimal(7)], pa.decimal128(20, 0)),
            "which": ["first", "second"],
            "of": pa.array([{"a": [1]}, {"a": [2]}], pa.struct([("a", pa.list_(pa.int32()))])),
        }
    )
    given = stream("at timestamp, n decimal(20,0)", timezone="America/New_York")
    with OperatorDriver(given.join(table, ["n", "at"])) as driver:
        rows = driver.feed([(second, Decimal(7)), (first, Decimal(7)), (first, Decimal(8))])
        assert [(row.which, row.of.a) for row in rows] == [("second", [2]), ("first", [1])]
        assert driver.kill() == []


def test_storage_that_is_away_is_waited_for_and_nothing_of_that_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_join, "_PAUSE_SECONDS", 0.0)
    asked = []

    class Away(table_join.FixedTable):
        def newest(self) -> str:
            asked.append(len(asked))
            if len(asked) < 3:
                raise StorageUnavailable("away")
            return super().newest()

    monkeypatch.setattr("clonos.testing.driver.operator_driver.FixedTable", Away)
    with OperatorDriver(CARDS.join(TABLE, "card")) as driver:
        assert [tuple(row) for row in driver.feed([("a", 1)])] == [("a", 1, 1)]
        driver.kill()
        assert len(asked) == 3, "a replay does not ask"
