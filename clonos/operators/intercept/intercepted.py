"""A function of a module, with another one for calls of the user's function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from clonos.operators.intercept.active import thread
from clonos.operators.intercept.answers import Answers
from clonos.operators.intercept.callers import asked_by_user

Answer = Callable[..., Any]
"""Takes the `Answers` and what the caller has given."""


def answers_for_caller(above: str = "") -> Answers | None:
    """What answers the caller of the function that asks this; None where it gets the real one. A caller in the module
    `above` asks for its own one."""
    answers = thread.answers
    if answers is None:
        return None
    frame = sys._getframe(2)
    if frame.f_back is not None and frame.f_globals.get("__name__") == above:
        frame = frame.f_back
    return answers if asked_by_user(frame) else None


class Intercepted:
    """Stands in the module under the function's name.

    It is an object and not a function, because a function that is an attribute of a class becomes a method there, and
    the built-in one that it replaces does not. It is pickled and copied by its name, as that one is.
    """

    def __init__(self, module: str, name: str, real: Callable[..., Any], answer: Answer) -> None:
        self.__module__ = module
        self.__name__ = self.__qualname__ = name
        self.__doc__ = real.__doc__
        self.__wrapped__ = real
        self._answer = answer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        answers = thread.answers
        if answers is None or not asked_by_user(sys._getframe(1)):
            return self.__wrapped__(*args, **kwargs)
        return self._answer(answers, *args, **kwargs)

    def __reduce__(self) -> str:
        return self.__name__

    def __repr__(self) -> str:
        return f"<{self.__module__}.{self.__name__}, intercepted>"
