"""Exceptions of recorded calls: which are raised again as themselves, and what says the rest."""

from __future__ import annotations

import time

import pytest

from clonos.errors import RecordedError, StateError
from clonos_standby.replica.outcomes import Outcomes


class Refused(Exception):
    """Of a module that can be imported."""


def fails(kind: type[Exception], *arguments: object) -> None:
    raise kind(*arguments)


def test_an_exception_of_a_module_is_raised_again_as_itself() -> None:
    outcomes = Outcomes()
    with pytest.raises(Refused, match="card 7"):
        outcomes.reveal(outcomes.capture("fails", fails, (Refused, "card 7"), {}))


@pytest.mark.parametrize("of_the_script", [True, False])
def test_a_class_that_replicas_cannot_import_is_named_with_what_to_do(of_the_script: bool) -> None:
    class MyError(Exception):
        pass

    if of_the_script:
        MyError.__module__, MyError.__qualname__ = "__main__", "MyError"
    outcomes = Outcomes()
    with pytest.raises(RecordedError, match=r"fails raised .*MyError: card 7") as caught:
        outcomes.reveal(outcomes.capture("fails", fails, (MyError, "card 7"), {}))
    assert caught.value.hint is not None
    assert "define that class in a module that replicas can import" in caught.value.hint


def test_how_long_it_took_is_known_where_that_is_asked_for() -> None:
    at_least = 0.02
    for outcomes, is_timed in ((Outcomes(), False), (Outcomes(is_timed=True), True)):
        for fn in (time.sleep, sleeps_and_fails):
            outcome = outcomes.capture("slow", fn, (at_least,), {})
            assert (outcome.took is not None) == is_timed
            assert outcome.took is None or outcome.took >= at_least * 1e6
        known = outcomes.capture("ended before", int, (), {}, took=7)
        assert known.took == (7 if is_timed else None)


def sleeps_and_fails(seconds: float) -> None:
    time.sleep(seconds)
    raise ValueError


def test_a_result_that_cannot_be_recorded_is_refused() -> None:
    with pytest.raises(StateError, match="the result of object cannot be recorded"):
        Outcomes().capture("object", object, (), {})
