"""What a divergence error says of the function, and that what it advises helps."""

from __future__ import annotations

import datetime as dates
import os
import random
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from random import randint
from typing import Any

import numpy as np
import pytest

import clonos
from clonos.errors import DivergenceError
from clonos.operators.intercept import install as interception
from clonos.operators.intercept.mentions import mentioned
from clonos.testing.driver import OperatorDriver, stream

ROWS = stream("k string, n long")


def helper() -> float:
    return time.monotonic() + np.random.normal()


class Callable_:
    def __init__(self, clock: Any) -> None:
        self.clock = clock

    def __call__(self, row: Any) -> Any:
        return self.clock(), self.draw()

    def draw(self) -> int:
        return randint(1, 6)


def outer() -> Any:
    ask = os.getpid

    def inner(row: Any) -> Any:
        return ask()

    return inner


def imports(row: Any) -> Any:
    import uuid
    from secrets import token_hex as token

    return uuid.uuid4(), token()


def harmless(row: Any, time: Any = None) -> Any:
    random_ = {"random": row.random, "now": row.time}
    return [datetime.fromtimestamp(0), row.uuid4, random_, time, len("time.time()"), sorted(row)]


MENTIONS: dict[str, tuple[Any, list[str], list[str]]] = {
    "a function of a module": (lambda row: time.time(), ["time.time"], []),
    "a bound name": (lambda row: randint(1, 6), ["random.randint"], []),
    "methods of datetime": (
        lambda row: (datetime.now(), dates.datetime.utcnow(), dates.date.today()),
        ["datetime.date.today", "datetime.datetime.now", "datetime.datetime.utcnow"],
        [],
    ),
    "a module of a package": (lambda row: np.random.default_rng(), ["numpy.random.default_rng"], []),
    "in another function": (lambda row: helper(), ["numpy.random.normal", "time.monotonic"], []),
    "inside": (lambda row: [time.time_ns() for _ in row], ["time.time_ns"], []),
    "a default": (partial(lambda row, clock=time.ctime: clock()), ["time.ctime"], []),
    "an object": (Callable_(time.perf_counter), ["random.randint", "time.perf_counter"], []),
    "a closure": (outer(), [], ["os.getpid"]),
    "imported there": (imports, ["secrets.token_hex", "uuid.uuid4"], []),
    "what nothing records": (
        lambda row: (subprocess.run(["date"]), open("x")),  # noqa: SIM115 - is not called
        [],
        ["open", "subprocess.run"],
    ),
    "nothing": (harmless, [], []),
}


@pytest.mark.parametrize("installed", [False, True], ids=["real", "intercepted"])
@pytest.mark.parametrize("name", MENTIONS)
def test_what_a_function_mentions(name: str, installed: bool) -> None:
    fn, covered, others = MENTIONS[name]
    if installed:
        interception.install()
    try:
        assert mentioned((fn,)) == (covered, others)
    finally:
        if installed:
            interception.uninstall()


OPERATORS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "map": lambda ask: ROWS.map(lambda row, ctx: (repr(ask()),), "said string", name="op"),
    "process": lambda ask: ROWS.groupBy("k").process(
        lambda key, row, ctx: [(repr(ask()),)], "said string", name="op"
    ),
    "connect": lambda ask: (
        clonos.connect(ROWS, ROWS)
        .groupBy("k")
        .process(
            lambda key, row, ctx: [(repr(ask()),)],
            lambda key, row, ctx: None,
            output="said string",
            name="op",
        )
    ),
}


@pytest.mark.parametrize("form", OPERATORS)
def test_the_advice_helps(form: str) -> None:
    operator = OPERATORS[form](lambda: [random.random(), time.perf_counter()])
    with OperatorDriver(operator) as driver:
        driver.feed([("a", 1), ("b", 2)])
        with pytest.raises(DivergenceError, match=r"mentions random.random, time.perf_counter: ") as caught:
            driver.kill()
    assert "or set spark.clonos.intercept to true" in str(caught.value)
    with OperatorDriver(operator, intercept=True) as driver:
        driver.feed([("a", 1), ("b", 2)])
        assert driver.kill() == []


@pytest.mark.parametrize("intercept", [False, True])
def test_what_nothing_records_goes_into_a_call(intercept: bool) -> None:
    def entropy() -> str:
        return subprocess.run(["date", "+%N"], capture_output=True, check=True).stdout.decode()

    asks = ROWS.map(lambda row, ctx: (entropy(),), "said string", name="op")
    with OperatorDriver(asks, intercept=intercept) as driver:
        driver.feed([("a", 1)])
        with pytest.raises(
            DivergenceError, match=r"mentions subprocess.run, which nothing records"
        ) as caught:
            driver.kill()
    assert "give that to ctx.call" in str(caught.value)
    assert ("spark.clonos.intercept" in str(caught.value)) is False
    calls = ROWS.map(lambda row, ctx: (ctx.call(entropy),), "said string", name="op")
    with OperatorDriver(calls, intercept=intercept) as driver:
        driver.feed([("a", 1)])
        assert driver.kill() == []
