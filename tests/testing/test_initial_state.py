"""`initialState` in the test driver: keys begin with their rows, once, with or without records, and replays agree."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from clonos.errors import QueryDefinitionError, UserFunctionError
from clonos.operators.initial_state import RowsByInstance
from clonos.operators.table_join import FixedTable
from clonos.testing.driver import OperatorDriver, stream

PAID = stream("card string, amount int")
OPENING = pa.table({"card": ["b", "a", "b", None], "opening": pa.array([200, 100, 5, 1], pa.int32())})
BALANCE = "card string, balance int, drawn double"


class Balance:
    """A balance per card, that begins with its opening ones; and what was drawn when it began."""

    def init(self, handle: Any) -> None:
        self.balance = handle.getValueState("balance", "amount INT, drawn DOUBLE")

    def handleInitialState(self, key: Any, row: Any, times: Any) -> None:
        import clonos

        before, drawn = self.balance.get() or (0, clonos.current().random.random())
        self.balance.update((before + row.opening, drawn))

    def handleInputRows(self, key: Any, rows: Any, times: Any) -> Any:
        for row in rows:
            before, drawn = self.balance.get() or (0, None)
            self.balance.update((before + row.amount, drawn))
            yield *key, before + row.amount, drawn

    def close(self) -> None:
        pass


def balances(processor: Any = None, initial: Any = None, key: str = "card", **more: Any) -> Any:
    given = OPENING.group_by(key) if initial is None else initial
    return PAID.groupBy("card").transformWithState(
        processor or Balance(), BALANCE, "update", "none", given, name="balance", **more
    )


def test_keys_begin_with_their_rows_and_what_they_drew_is_repeated() -> None:
    with OperatorDriver(balances()) as driver:
        rows = driver.feed([("b", 1), ("c", 7), ("b", 1), (None, 1)])
        assert [(row.card, row.balance) for row in rows] == [("b", 206), ("b", 207), ("c", 7), (None, 2)]
        assert rows[0].drawn is not None
        assert rows[2].drawn is None
        assert driver.kill() == []
        driver.end_epoch()
        assert driver.kill() == []
        assert [(row.card, row.balance) for row in driver.feed([("a", 1), ("b", 0)])] == [
            ("a", 101),
            ("b", 207),
        ]


def test_keys_without_records_begin_too_and_only_once() -> None:
    """A key that has no records has state, and its timers."""

    class Closes(Balance):
        def handleInitialState(self, key: Any, row: Any, times: Any) -> None:
            super().handleInitialState(key, row, times)
            self.handle.registerTimer(times.getCurrentProcessingTimeInMs() + 60_000)

        def init(self, handle: Any) -> None:
            self.handle = handle
            super().init(handle)

        def handleExpiredTimer(self, key: Any, times: Any, expired: Any) -> Any:
            yield *key, *self.balance.get()

    made = PAID.groupBy("card").transformWithState(
        Closes(), BALANCE, "update", "ProcessingTime", OPENING.group_by(["card"])
    )
    with OperatorDriver(made) as driver:
        assert driver.advance(1) == []
        assert driver.state("a") is not None
        assert driver.kill() == []
        rows = driver.advance(60)
        assert sorted((str(row.card), row.balance) for row in rows) == [("None", 1), ("a", 100), ("b", 205)]
        driver.end_epoch()
        assert driver.kill() == []


def test_with_one_call_per_batch_keys_begin_at_its_end_before_the_records() -> None:
    with OperatorDriver(balances(per="batch")) as driver:
        assert driver.feed([("b", 1), ("a", 1)]) == []
        assert [(row.card, row.balance) for row in driver.end_epoch()] == [("a", 101), ("b", 206)]
        assert driver.kill() == []
        assert driver.end_epoch() == []


def test_frames_have_all_rows_of_a_key() -> None:
    class InFrames(Balance):
        def handleInitialState(self, key: Any, frame: Any, times: Any) -> None:
            assert list(frame.columns) == ["card", "opening"]
            self.balance.update((int(frame.opening.sum()), float(len(frame))))

        def handleInputRows(self, key: Any, frames: Any, times: Any) -> Any:
            for frame in frames:
                before, rows = self.balance.get()
                yield pd.DataFrame({"card": key, "balance": before + frame.amount, "drawn": rows})

    made = PAID.groupBy("card").transformWithStateInPandas(
        InFrames(), BALANCE, "update", "none", OPENING.group_by("card")
    )
    with OperatorDriver(made) as driver:
        assert [tuple(row) for row in driver.feed([("b", 1), ("a", 1)])] == [("b", 206, 2.0), ("a", 101, 1.0)]


def test_each_instance_has_the_rows_of_its_keys_and_all_have_all() -> None:
    """Keys of the types whose form in a row and in the routing differ."""
    at = [dt.datetime(2024, 11, 3, hour, 30, tzinfo=dt.UTC) for hour in range(24)]
    table = pa.table({"n": list(range(24)), "at": pa.array(at, pa.timestamp("us", "UTC"))})
    by = RowsByInstance(FixedTable(table), table.schema, [1], 3, "America/New_York")
    found = [by.of(instance) for instance in range(3)]
    assert sorted(row[0] for each in found for rows in each.values() for row in rows) == list(range(24))
    assert sum(map(len, found)) == 24, "the two instants of a repeated hour are two keys"
    assert all(found)


def test_an_error_names_the_function_and_the_key() -> None:
    class Fails(Balance):
        def handleInitialState(self, key: Any, row: Any, times: Any) -> None:
            raise ValueError("no such card")

    with (
        pytest.raises(UserFunctionError, match=r"handleInitialState, key \('b',\)"),
        OperatorDriver(balances(Fails())) as driver,
    ):
        driver.feed([("a", 1)])


def test_what_cannot_be_an_initial_state_is_refused() -> None:
    class Without:
        init = handleInputRows = lambda *given: None

    for make, says in (
        (lambda: balances(initial=OPENING), "is Table, or grouped from a stream"),
        (lambda: balances(key="opening"), r"\['string'\] in the stream and \['int'\] in the initialState"),
        (lambda: balances(initial=OPENING.group_by(["card", "opening"])), "in the initialState"),
        (lambda: balances(Without()), "a StatefulProcessor with init, handleInputRows, handleInitialState"),
    ):
        with pytest.raises(QueryDefinitionError, match=says):
            make()
