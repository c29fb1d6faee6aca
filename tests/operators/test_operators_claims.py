"""What functions claim of themselves is held against them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import clonos
from clonos.errors import ClonosError, PurityError, QueryDefinitionError
from clonos.operators.claims import claimed_by
from clonos.protocol.recovery.dependence import Determinism
from clonos.testing.driver import OperatorDriver, stream

CARDS = stream("card string, amount long")
OUT = "card string, total long"


@clonos.claim("deterministic")
def total(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    ctx.state["total"] = ctx.state.get("total", 0) + row.amount
    yield key[0], ctx.state["total"]


@clonos.claim("hidden")
def hidden(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    yield from total(key, row, ctx)


def recorded(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    yield from total(key, row, ctx)


def asking(asks: Callable[[Any], Any]) -> Any:
    @clonos.claim("deterministic")
    def function(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        asks(ctx)
        yield from total(key, row, ctx)

    return function


def claims(made: Any) -> Determinism:
    (plan,) = made.plan
    return plan.binding.claims  # type: ignore[no-any-return]


def test_an_operator_has_the_claims_of_its_functions() -> None:
    grouped = CARDS.groupBy("card")
    assert claims(grouped.process(total, OUT, name="a")) is Determinism.DETERMINISTIC
    assert claims(grouped.process(total, OUT, name="a", on_timer=recorded)) is Determinism.RECORDED
    assert claims(grouped.process(total, OUT, name="a", on_timer=hidden)) is Determinism.HIDDEN
    assert claims(grouped.process(recorded, OUT, name="a")) is Determinism.RECORDED
    assert claimed_by((total, None, total)) is Determinism.DETERMINISTIC
    assert claimed_by(()) is Determinism.RECORDED


@pytest.mark.parametrize(
    "made",
    [
        lambda fn: CARDS.map(fn, OUT, name="a"),
        lambda fn: CARDS.flat_map(fn, OUT, name="a"),
        lambda fn: CARDS.filter(fn, name="a"),
        lambda fn: CARDS.map_batches(fn, OUT, name="a"),
        lambda fn: clonos.connect(CARDS, CARDS).groupBy("card").process(fn, recorded, OUT, name="a"),
        lambda fn: CARDS.groupBy("card").applyInPandasWithState(fn, OUT, "total long", "append", "NoTimeout"),
    ],
)
@pytest.mark.parametrize("kind", ["hidden", "deterministic"])
def test_every_method_heeds_them(made: Callable[[Any], Any], kind: str) -> None:
    def function(row: Any, ctx: Any, _: Any = None) -> Any:
        return row

    assert claims(made(function)) is Determinism.RECORDED
    found = claims(made(clonos.claim(kind)(function)))
    assert found is Determinism(kind) or found is Determinism.RECORDED, "the other function claims nothing"
    if kind == "hidden":
        assert found is Determinism.HIDDEN


def test_a_deterministic_function_has_its_state() -> None:
    with OperatorDriver(CARDS.groupBy("card").process(total, OUT, name="a")) as driver:
        assert [row.total for row in driver.feed([("a", 5), ("a", 2)])] == [5, 7]
        driver.kill()
        assert [row.total for row in driver.feed([("a", 1)])] == [8]


@pytest.mark.parametrize(
    ("asks", "what"),
    [
        (lambda ctx: ctx.now(), "the time"),
        (lambda ctx: ctx.now(exact=True), "the time"),
        (lambda ctx: ctx.random.random(), "random numbers"),
        (lambda ctx: ctx.call(int), "a call"),
        (lambda ctx: ctx.effect(int, key="a"), "an effect"),
    ],
)
def test_one_that_asks_for_more_is_found_out(asks: Callable[[Any], Any], what: str) -> None:
    with (
        OperatorDriver(CARDS.groupBy("card").process(asking(asks), OUT, name="a")) as driver,
        pytest.raises(ClonosError) as raised,
    ):
        driver.feed([("a", 5)])
    error: BaseException | None = raised.value
    while error is not None and not isinstance(error, PurityError):
        error = error.__cause__
    assert error is not None and f"asks for {what}" in str(error) and "Claim 'recorded'" in str(error)


def test_the_hint_works() -> None:
    function = clonos.claim("recorded")(asking(lambda ctx: ctx.now()))
    with OperatorDriver(CARDS.groupBy("card").process(function, OUT, name="a")) as driver:
        assert [row.total for row in driver.feed([("a", 5)])] == [5]


def test_a_word_that_is_no_claim_is_refused() -> None:
    with pytest.raises(QueryDefinitionError, match=r"'pure'.*'deterministic', 'recorded', 'hidden'"):
        clonos.claim("pure")


class Scorer:
    @clonos.claim("hidden")
    def __call__(self, key: Any, row: Any, ctx: Any) -> Any:
        """Called as a function."""


class Half:
    """Of the two, one says nothing."""

    @clonos.claim("deterministic")
    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Any:
        """The rows of a key."""

    def handleExpiredTimer(self, key: Any, timers: Any, expired: Any) -> Any:
        """A timer."""


class Whole(Half):
    @clonos.claim("deterministic")
    def handleExpiredTimer(self, key: Any, timers: Any, expired: Any) -> Any:
        """A timer."""


class Static:
    @clonos.claim("hidden")
    @staticmethod
    def function(key: Any, row: Any, ctx: Any) -> Any:
        """It needs no object."""

    @clonos.claim("hidden")
    def method(self, key: Any, row: Any, ctx: Any) -> Any:
        """It does."""


@pytest.mark.parametrize(
    ("function", "claimed"),
    [
        (partial(partial(hidden, 1)), Determinism.HIDDEN),
        (partial(Static().method), Determinism.HIDDEN),
        (Static.function, Determinism.HIDDEN),
        (Scorer(), Determinism.HIDDEN),
        (Half, Determinism.RECORDED),
        (Half(), Determinism.RECORDED),
        (Whole(), Determinism.DETERMINISTIC),
        (lambda key, row, ctx: [], Determinism.RECORDED),
        (len, Determinism.RECORDED),
    ],
)
def test_a_claim_is_found_however_a_function_is_given(function: Any, claimed: Determinism) -> None:
    assert claimed_by([function]) is claimed


def test_what_cannot_be_marked_is_refused() -> None:
    for function in (len, Static().method):
        with pytest.raises(
            QueryDefinitionError, match=r"cannot be marked.*where the function or the method is"
        ):
            clonos.claim("hidden")(function)
