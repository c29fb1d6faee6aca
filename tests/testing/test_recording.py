"""What one driver has recorded, another one repeats, as another process would."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clonos.errors import DivergenceError, UserFunctionError
from clonos.protocol.recovery.dependence import Service
from clonos.testing.driver import OperatorDriver, stream
from clonos.testing.driver.operator_driver import START
from clonos.testing.driver.recording import Recording

CARDS = stream("card string, amount long")
OUTPUT = "card string, amount long"
ROWS = [("a", 1), ("b", 2), ("a", 3)]


def driver_of(fn: Callable[..., Any], output: str = OUTPUT, **more: Any) -> OperatorDriver:
    return OperatorDriver(CARDS.groupBy("card").process(fn, output, name="review"), **more)


def recorded(fn: Callable[..., Any], output: str = OUTPUT) -> tuple[list[Any], Recording]:
    """The rows that a driver is fed, and what it records of them, as it comes to another process."""
    with driver_of(fn, output) as driver:
        driver.feed(ROWS[:2])
        driver.feed(ROWS[2:])
        _, recording = driver.end_with_recording()
    return ROWS, pickle.loads(pickle.dumps(recording))


def test_what_is_recorded_is_repeated_and_gone_on_from() -> None:
    def totals(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["total"] = ctx.state.get("total", 0) + row.amount
        yield key[0], ctx.state["total"], ctx.random.random(), ctx.now()

    output = "card string, total long, draw double, at timestamp"
    repeats = recorded(totals, output)
    later = START + dt.timedelta(days=1)
    with driver_of(totals, output, now=later, seed=9, repeats=repeats) as driver:
        assert driver.state("a") == {"total": 4} and driver.keys == (("a",), ("b",))
        (row,) = driver.feed([("a", 1)])
        assert row.total == 5 and row.at == later.replace(tzinfo=None)
    assert repeats[1].services == {Service.CLOCK, Service.RANDOM}


def test_a_row_that_differs_is_told_with_both_values() -> None:
    numbers = iter(range(100))

    def count(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        yield key[0], next(numbers)

    with pytest.raises(DivergenceError) as error:
        driver_of(count, repeats=recorded(count))
    assert "was Row(card='a', amount=0), the replay gives Row(card='a', amount=3)" in str(error.value)


def test_states_are_compared() -> None:
    numbers = iter(range(100))

    def keep(key: Any, row: Any, ctx: Any) -> None:
        ctx.state["n"] = next(numbers)

    with pytest.raises(DivergenceError) as error:
        driver_of(keep, repeats=recorded(keep))
    assert "state of key ('a',) was {'n': 2}, after the replay it is {'n': 5}" in str(error.value)


def test_a_dict_that_has_grown_in_another_order_is_another_state() -> None:
    names = iter(["x", "y", "y", "x"])

    def keep(key: Any, row: Any, ctx: Any) -> None:
        ctx.state[next(names)] = 1

    with driver_of(keep) as driver:
        driver.feed([("a", 1), ("a", 2)])
        with pytest.raises(DivergenceError, match="with its items in another order"):
            driver.kill()


def test_an_operator_that_gathers_an_epoch_is_repeated_with_its_end() -> None:
    def total(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        import pandas as pd

        state.update((sum(int(frame.amount.sum()) for frame in frames),))
        yield pd.DataFrame({"card": [key[0]], "amount": [state.get[0]]})

    gathered = CARDS.groupBy("card").applyInPandasWithState(
        total, OUTPUT, "n long", "update", "NoTimeout", name="total", per="batch"
    )
    with OperatorDriver(gathered) as driver:
        assert driver.feed(ROWS) == []
        rows, recording = driver.end_with_recording()
    assert sorted(rows) == [("a", 4), ("b", 2)]
    with OperatorDriver(gathered, repeats=(ROWS, recording)) as driver:
        assert driver.state("a") == (4,)


def test_what_a_replay_raises_leaves_no_folder(tmp_path: Any) -> None:
    alive = True

    def mortal(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        if not alive:
            raise ValueError("gone")
        yield key[0], row.amount

    repeats = recorded(mortal)
    alive = False
    with pytest.raises(UserFunctionError, match="gone"):
        driver_of(mortal, repeats=repeats, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
