"""What a function's code is, so that another one under the same name is told from it.

Functions of modules are pickled by their names: who loads them later gets what stands there then. Looked at are the
function's own code, and that of functions of its module that it names; what these reach otherwise is not. Code of
another release of Python has other bytes, so digests say which it is of, and tell nothing of another.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, MethodType
from typing import Any

from clonos.operators.process import OfBoth
from clonos.protocol.versions.programs import Programs

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def code_digest(*functions: Any) -> str:
    """Of some functions together; "" where one has no code of its own."""
    told = hashlib.sha256()
    seen: set[int] = set()
    for each in functions:
        code = _function(each)
        if each is not None and code is None:
            return ""
        if code is not None:
            _tell(code, told, seen)
    return f"{_PYTHON}:{told.hexdigest()}"


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
        holder = None if make is None else has_function(make())
    except Exception:  # of the user's, which shows where the operator is to run
        return ""
    return "" if holder is None else code_digest(*_functions(holder))


def called_code(operator: Any) -> list[CodeType]:
    """The code in which calls of the user's functions of an operator begin; where it has none in Python, the operator's
    own."""
    holder, innermost = has_function(operator), operator
    while (within := _within(innermost)) is not None:
        innermost = within
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
    """Whether two digests are known to be of different code."""
    comparable = then and now and then.partition(":")[0] == now.partition(":")[0]
    return bool(comparable) and then != now


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


def _tell(function: FunctionType, told: Any, seen: set[int]) -> None:
    """The function, and those of its module that it names."""
    if id(function) in seen:
        return
    seen.add(id(function))
    names: list[str] = []
    _tell_code(function.__code__, told, names)
    for name in names:
        named = function.__globals__.get(name)
        if isinstance(named, FunctionType) and named.__module__ == function.__module__:
            _tell(named, told, seen)


def _tell_code(code: CodeType, told: Any, names: list[str]) -> None:
    told.update(repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars)).encode())
    names += code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _tell_code(constant, told, names)
        elif isinstance(constant, frozenset):
            told.update(repr(sorted(map(repr, constant))).encode())
        else:
            told.update(repr(constant).encode())
