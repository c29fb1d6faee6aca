"""Where the user's functions of an operator begin."""

from __future__ import annotations

import functools
from typing import Any

import pyarrow as pa
import pytest

from clonos.operators.function_code import called_code, code_digest
from clonos.operators.process import ConnectOperator, MapOperator, ProcessOperator
from clonos.operators.window_contents import Aggregate, AllRows
from clonos.operators.window_operator import WindowOperator

OUT = ["n"]


def one(*given: Any) -> list[Any]:
    return [1]


def two(*given: Any) -> list[Any]:
    return [2]


def window(contents: Any) -> WindowOperator:
    anything: Any = None
    return WindowOperator(anything, contents, OUT, times=anything, late=None, name="x")


@pytest.mark.parametrize(
    ("operator", "functions"),
    [
        (ProcessOperator(one, OUT, name="x"), [one]),
        (ProcessOperator(one, OUT, name="x", on_timer=two), [one, two]),
        (ConnectOperator(one, two, OUT, name="x"), [one, two]),
        (window(AllRows(one, pa.schema([("n", pa.int64())]), None, "x")), [one]),
        (window(Aggregate(one, two)), [one, two]),
    ],
)
def test_it_is_that_of_what_the_user_has_given(operator: Any, functions: list[Any]) -> None:
    assert called_code(operator) == [each.__code__ for each in functions]


class Called:
    def __call__(self, *given: Any) -> list[Any]:
        return [3]


class CalledByInheritance(Called):
    pass


def test_an_object_is_called_by_what_it_has_inherited_too() -> None:
    for given in (Called(), CalledByInheritance(), functools.partial(CalledByInheritance(), 1)):
        assert called_code(ProcessOperator(given, OUT, name="x")) == [Called.__call__.__code__]
        assert code_digest(given)


def test_without_one_in_python_it_is_the_operators_own() -> None:
    operator = MapOperator(len, OUT, name="x", pure=True)
    assert called_code(operator) == [
        each.__code__ for each in (MapOperator.bundle, MapOperator.timers, MapOperator.gathered)
    ]
