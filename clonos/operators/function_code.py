"""What the code of an operator's functions is, so that another one under the same name is told from it.

Functions of modules are pickled by their names: who loads them later gets what stands there then. A digest tells, for
each module, what that code depends on there (`code_walk`). Byte code and syntax trees of another release of Python are
others, so digests say which it is of, and tell nothing of another; earlier versions looked at less, and theirs are not
compared with those of today. Neither is what only one of two digests has: where a module of the user is installed
elsewhere, or has no source, that is no other code.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from clonos.operators.code_walk import parts_of
from clonos.operators.process import OfBoth
from clonos.protocol.versions.programs import Programs

_PREFIX: Final = f"{sys.version_info.major}.{sys.version_info.minor}/2"


def code_digest(*functions: Any) -> str:
    """Of some functions together, or of objects that have them; "" where there is no code of the user's."""
    given = [each for each in functions if each is not None]
    by_source, by_code = (parts_of(given, by_source=which) for which in (True, False))
    if not by_source and not by_code:
        return ""
    return f"{_PREFIX}:{_joined(by_source or {})}|{_joined(by_code or {})}"


def _joined(parts: dict[str, str]) -> str:
    return ",".join(f"{module}={digest}" for module, digest in parts.items())


def has_function(operator: Any) -> Any | None:
    """Of an operator the part that calls the user's function, behind what stands around it: the choice of a version,
    the answers to Python's own clocks, what is derived of its rows. None where it has no such function."""
    while operator is not None and "_fn" not in vars(operator):
        operator = _within(operator)
    return operator


def _within(operator: Any) -> Any | None:
    """What an operator stands around, if it does."""
    return vars(operator).get("_running" if isinstance(operator, Programs) else "_operator")


def code_of(make: Callable[[], Any] | None) -> str:
    """Of the functions of an operator; "" where it has none of the user's."""
    try:
        return "" if make is None else code_digest(_innermost(make()))
    except Exception:  # of the user's, which shows where the operator is to run
        return ""


def _innermost(operator: Any) -> Any:
    while (within := _within(operator)) is not None:
        operator = within
    return operator


def called_code(operator: Any) -> list[CodeType]:
    """The code in which calls of the user's functions of an operator begin; where it has none in Python, the operator's
    own."""
    holder, innermost = has_function(operator), _innermost(operator)
    given = () if holder is None else _functions(holder)
    own = (getattr(innermost, name, None) for name in ("bundle", "timers", "gathered"))
    return _codes(_parts(innermost)) or _codes(given) or _codes(own)


def _codes(functions: Iterable[Any]) -> list[CodeType]:
    return [each.__code__ for each in map(_function, functions) if each is not None]


def _parts(operator: Any) -> tuple[Any, ...]:
    """Of an operator whose parts have its functions: methods of a stateful processor, functions of windows."""
    processor, contents = (getattr(operator, name, None) for name in ("_processor", "_contents"))
    handlers = ("handleInputRows", "handleExpiredTimer", "handleInitialState")
    of_windows = ("_fn", "_add", "_finish")
    return (
        *(getattr(processor, name, None) for name in handlers),
        *(getattr(contents, name, None) for name in of_windows),
    )


def is_another(then: str, now: str) -> bool:
    """Whether two digests are known to be of different code: by the source, where both have that."""
    (kind, _, told), (other, _, others) = (each.partition(":") for each in (then, now))
    if told == others or kind != other or kind != _PREFIX:
        return False
    pairs = list(zip(told.split("|"), others.split("|"), strict=True))
    of_source = [_parts_told(each) for each in pairs[0]]
    one, another = of_source if all(of_source) else map(_parts_told, pairs[1])
    return any(one[module] != another[module] for module in one.keys() & another.keys())


def _parts_told(text: str) -> dict[str, str]:
    return dict(each.split("=") for each in text.split(",") if each)


def _functions(holder: Any) -> tuple[Any, ...]:
    fn = holder._fn
    both = (fn._left, fn._right) if isinstance(fn, OfBoth) else (fn,)
    return (*both, getattr(holder, "_on_timer", None))


def _function(given: Any) -> FunctionType | None:
    while isinstance(given, functools.partial):
        given = given.func
    if isinstance(given, MethodType):
        given = given.__func__
    if not isinstance(given, FunctionType) and not isinstance(given, type) and given is not None:
        given = getattr(type(given), "__call__", None)  # noqa: B004 - an object that can be called
    return given if isinstance(given, FunctionType) else None
