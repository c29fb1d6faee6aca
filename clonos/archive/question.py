"""When two functions ask the same: which question a call or an effect is."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from types import CodeType, MethodType
from typing import Any, Final

from clonos.values.canonical_text import canonical

_MAIN: Final = "__main__"


def said(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> str:
    """As people read it."""
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    given = [*map(repr, args), *(f"{key}={value!r}" for key, value in (kwargs or {}).items())]
    return f"{name}({', '.join(given)})"


def identity_of(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """By which two questions are the same (`is_same`), in whatever process they are asked. An object without a text of
    its own is no other's."""
    named = tuple(sorted((key, canonical(each)) for key, each in (kwargs or {}).items()))
    return (*_function(fn), tuple(map(canonical, args)), named)


def is_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """A function of a module is the same if it is found under its name there, or its code is; that of a script is known
    by its name alone. A function within another one is the same if its code is, and what it closes over."""
    kind, module, name, code, *rest = one
    other_kind, other_module, other_name, other_code, *other_rest = other
    if (kind, name, rest) != (other_kind, other_name, other_rest):
        return False
    if kind == "function" and (module == other_module or _MAIN in (module, other_module)):
        return True
    return bool(code) and code == other_code


def _function(fn: Any) -> tuple[Any, ...]:
    """Its kind, module, name and code, and what else it is made of."""
    if isinstance(fn, functools.partial):
        return ("function", "", "partial", "", identity_of(fn.func, fn.args, fn.keywords))
    if isinstance(fn, MethodType):
        kind, module, name, code, *more = _function(fn.__func__)
        return (kind, module, name, code, *more, canonical(fn.__self__))
    module, name = getattr(fn, "__module__", None) or "", getattr(fn, "__qualname__", None) or canonical(fn)
    code = getattr(fn, "__code__", None)
    if code is None:
        return ("function", module, name, "")
    if "<" not in name:
        return ("function", module, name, _code(code))
    cells = tuple(canonical(cell.cell_contents) for cell in fn.__closure__ or ())
    return ("closure", module, name, _code(code), cells, canonical(fn.__defaults__))


def _code(code: CodeType) -> str:
    constants = [_code(each) if isinstance(each, CodeType) else canonical(each) for each in code.co_consts]
    return hashlib.sha256(repr((code.co_code, code.co_names, constants)).encode()).hexdigest()
