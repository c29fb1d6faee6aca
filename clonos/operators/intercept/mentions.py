"""Which names of the world outside a user's function mentions: for the message of an error.

It is read off the byte code of the function and of the user's functions that it refers to. What it finds is a
suspicion; what it does not find, as behind `getattr` or in a library, may be asked for all the same.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from datetime import date
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from clonos.operators.closure import contents_of
from clonos.operators.intercept import clock
from clonos.operators.intercept.install import tables

_GENERATORS: Final = (
    "random.Random random.SystemRandom secrets.choice secrets.randbelow secrets.randbits secrets.token_bytes "
    "secrets.token_hex secrets.token_urlsafe numpy.random.default_rng numpy.random.RandomState "
    "numpy.random.SeedSequence"
).split()
_UNCOVERED: Final = (
    "builtins.open builtins.id builtins.hash os.getpid os.environ os.getenv os.listdir os.times numpy.datetime64 "
    "socket.socket socket.create_connection socket.gethostname subprocess.run subprocess.Popen "
    "subprocess.check_output threading.Thread urllib.request.urlopen uuid.getnode"
).split()
_NOT_THE_USERS: Final = sys.stdlib_module_names | {
    "clonos",
    "clonos_standby",
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark",
}
_NAMES: Final = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FAST")
_MOST: Final = 5_000
"""Objects that are looked at: a message is not worth more."""


def mentioned(made_of: Any) -> tuple[list[str], list[str]]:
    """Of an operator, or of what makes one: the names that interception covers, and others that are not recorded."""
    found = set(_Walk(made_of).names())
    covered = {name for _, name in _covered()}
    return sorted(found & covered), sorted(found - covered)


def _covered() -> Iterator[tuple[Any, str]]:
    """Objects and their names."""
    for module, answers in tables().items():
        for name in answers:
            if not name.startswith("_"):
                yield vars(module)[name], f"{module.__name__}.{name}"
    for kind, name, _ in clock.CLASS_METHODS:
        yield None, f"{kind.__module__}.{kind.__name__}.{name}"
    yield from _named(_GENERATORS)


def _named(names: list[str]) -> Iterator[tuple[Any, str]]:
    for name in names:
        module, _, attribute = name.rpartition(".")
        if module in sys.modules and hasattr(sys.modules[module], attribute):
            yield getattr(sys.modules[module], attribute), name.removeprefix("builtins.")


class _Walk:
    """Over all that the user has given, each object once."""

    def __init__(self, begin: Any) -> None:
        self._left = [begin]
        self._seen: dict[int, Any] = {}
        self._known: dict[int, str] = {}
        for found, name in (*_covered(), *_named(_UNCOVERED)):
            if found is not None:
                self._known[id(found)] = self._known[id(getattr(found, "__wrapped__", found))] = name

    def names(self) -> Iterator[str]:
        while self._left and len(self._seen) < _MOST:
            each = self._left.pop()
            if id(each) not in self._seen:
                self._seen[id(each)] = each
                yield from self._in(each)

    def _in(self, each: Any) -> Iterator[str]:
        if id(each) in self._known:
            yield self._known[id(each)]
        elif isinstance(each, FunctionType):
            self._left += [*(each.__defaults__ or ()), *(each.__kwdefaults__ or {}).values()]
            self._left += contents_of(each)
            if _is_users(each):
                yield from self._in_code(each.__code__, each)
        elif isinstance(each, MethodType):
            self._left += [each.__func__, each.__self__]
        elif isinstance(each, partial):
            self._left += [each.func, *each.args, *each.keywords.values()]
        elif type(each) in (list, tuple, set, frozenset):
            self._left += each
        elif type(each) is dict:
            self._left += each.values()
        elif isinstance(each, type):
            if _is_users(each):
                self._left += [getattr(value, "__func__", value) for value in vars(each).values()]
        elif not isinstance(each, ModuleType):
            self._left += [type(each), *getattr(each, "__dict__", {}).values()]

    def _in_code(self, code: CodeType, function: FunctionType) -> Iterator[str]:
        cells = dict(zip(function.__code__.co_freevars, contents_of(function), strict=False))
        scope = {**vars(sys.modules["builtins"]), **function.__globals__, **cells}
        at: Any = None  # what stands on the way of dots that is being followed
        imported: Any = None
        for step in dis.get_instructions(code):
            if step.opname.startswith(_NAMES):
                at = scope.get(step.argval)
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                if isinstance(at, type) and issubclass(at, date):
                    yield from _of_date(at, step.argval)
                at = vars(at).get(step.argval) if isinstance(at, ModuleType | type) else None
            elif step.opname == "IMPORT_NAME":
                at = imported = sys.modules.get(step.argval)
            elif step.opname == "IMPORT_FROM":
                at = getattr(imported, "__dict__", {}).get(step.argval)
            elif step.opname in ("STORE_FAST", "STORE_DEREF") and at is not None:
                scope[step.argval], at = at, None
            else:
                at = None
            if id(at) in self._known:
                yield self._known[id(at)]
            elif isinstance(at, FunctionType | type):
                self._left.append(at)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from self._in_code(constant, function)


def _of_date(kind: type[date], name: str) -> Iterator[str]:
    for owner, method, _ in clock.CLASS_METHODS:
        if method == name and issubclass(kind, owner):
            yield f"{owner.__module__}.{owner.__name__}.{name}"
            return


def _is_users(each: FunctionType | type) -> bool:
    return str(each.__module__).partition(".")[0] not in _NOT_THE_USERS
