"""What the code of users' functions depends on, module by module.

Functions and classes of modules are pickled by their names: who loads them later gets what stands there then. Those
names are followed, and the names that stand there, through all modules of the user. Of each name counts what the source
says of it (`module_source`); in a second walk, for modules whose source is not there, the byte code of functions. What
was pickled by its value, as a function of a script, is the same wherever it is loaded; what it names is followed.

What counts is collected as a set for each module, so that the order in which things are found does not matter.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from clonos.operators.closure import contents_of
from clonos.operators.module_source import (
    Chain,
    Imported,
    ModuleSource,
    Statement,
    code_said,
    enclosed_names_of,
    names_of,
    source_of,
)

_LIBRARY: Final = frozenset({"clonos", "clonos_standby", "pyspark", "py4j"})
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
# By parts of the library's operators, of the user
_HELD: Final = "_fn _left _right _on_timer _migrate _processor _contents _add _finish _merge".split()
_MOST: Final = 10_000
"""Values that are looked at: what is given may hold data."""
_DEEPEST: Final = 100


def parts_of(given: Iterable[Any], *, by_source: bool) -> dict[str, str] | None:
    """By module, a digest of all that counts in it; None where the source of one of them cannot be read."""
    walk = _Walk(list(given), by_source=by_source)
    try:
        walk.run()
    except RecursionError:  # of an expression that is nested too deeply
        return None
    if walk.lacks_source:
        return None
    return {module: _digest("\n".join(sorted(said))) for module, said in sorted(walk.said.items())}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]


class _Walk:
    """See the module."""

    def __init__(self, given: list[Any], *, by_source: bool) -> None:
        self.said: dict[str, set[str]] = {}
        self.lacks_source = False
        self._by_source = by_source
        self._values = deque(given)
        self._names: deque[tuple[ModuleType, str]] = deque()
        self._seen_values: dict[int, Any] = {}
        self._seen_names: set[tuple[str, str]] = set()
        self._homes = set(map(_top, _modules_of(given)))

    def run(self) -> None:
        while self._values or self._names:
            if self._values:
                value = self._values.popleft()
                if id(value) not in self._seen_values and len(self._seen_values) < _MOST:
                    self._seen_values[id(value)] = value
                    self._take_value(value)
                continue
            module, name = self._names.popleft()
            if (module.__name__, name) not in self._seen_names and self._is_users(module):
                self._seen_names.add((module.__name__, name))
                if self._by_source:
                    self._take_source(module, name)
                else:
                    self._take_code(module, name)

    def _say(self, module: str, *said: Any) -> None:
        self.said.setdefault(module, set()).add(_digest(repr(said)))

    def _is_users(self, module: ModuleType) -> bool:
        top = _top(module.__name__)
        if top in sys.stdlib_module_names or top in _LIBRARY or top == "__main__":
            return False
        file = getattr(module, "__file__", None)
        if not isinstance(file, str):
            return False
        return top in self._homes or _INSTALLED.isdisjoint(file.replace("\\", "/").split("/"))

    # ---------------------------------------------------------------- values, as they are in a pickle

    def _take_value(self, value: Any) -> None:
        if isinstance(value, ModuleType):
            return
        if (module := _named_in(value)) is not None:
            self._names.append((module, value.__qualname__.partition(".")[0]))
        if isinstance(value, functools.partial):
            self._values += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, MethodType):
            self._values += [value.__self__, value.__func__]
        elif type(value) in (list, tuple):
            self._values += value
        elif type(value) is dict:
            self._values += value.values()
        elif module is None:
            if isinstance(value, FunctionType):
                self._take_function(value)
            elif isinstance(value, type):
                self._take_class(value)
            else:
                self._take_object(value)

    def _take_object(self, value: Any) -> None:
        kind, held = type(value), getattr(value, "__dict__", None)
        self._values += _held(value)
        if _top(kind.__module__) not in _LIBRARY and self._is_users_class(kind):
            self._values.append(kind)
            self._values += held.values() if isinstance(held, dict) else ()

    def _is_users_class(self, kind: type) -> bool:
        """Also one that was pickled by its value."""
        module = sys.modules.get(str(kind.__module__))
        is_known = module is not None and kind.__module__ != "__main__"
        return self._is_users(module) if is_known and module is not None else True

    def _take_class(self, kind: type) -> None:
        """That was pickled by its value."""
        if self._is_users_class(kind):
            self._values += [*kind.__bases__, *_methods(kind)]

    def _take_function(self, function: FunctionType) -> None:
        """That was pickled by its value, with the globals that it names."""
        if _top(function.__module__) not in _LIBRARY:
            self._say(str(function.__module__), code_said(function.__code__))
        cells = dict(zip(function.__code__.co_freevars, contents_of(function), strict=True))
        self._values += [*cells.values(), *(function.__defaults__ or ())]
        self._values += (function.__kwdefaults__ or {}).values()
        self._values += [each for each in (_wrapped(function),) if each is not None]
        for chain in names_of(function.__code__):
            self._follow_value(function.__globals__, chain)
        for chain in enclosed_names_of(function.__code__):
            self._follow_value(cells, chain)

    def _follow_value(self, scope: Mapping[str, Any], chain: Chain) -> None:
        value = scope.get(chain[0])
        if isinstance(value, ModuleType):
            self._follow_attributes(value, chain[1:])
        elif value is not None:
            self._values.append(value)

    def _follow_attributes(self, module: ModuleType, attributes: Chain) -> None:
        """`pkg.mod.fn`, in the last module of that."""
        for attribute in attributes:
            found = vars(module).get(attribute)
            if not isinstance(found, ModuleType):
                self._names.append((module, attribute))
                return
            module = found

    def _follow(self, module: ModuleType, chain: Chain) -> None:
        """A name that stands in a module."""
        self._names.append((module, chain[0]))
        found = vars(module).get(chain[0])
        if isinstance(found, ModuleType):
            self._follow_attributes(found, chain[1:])

    # ---------------------------------------------------------------- names of modules, by their source

    def _take_source(self, module: ModuleType, name: str) -> None:
        source = source_of(module)
        if source is None:
            self.lacks_source = True
            return
        bound = source.bound.get(name, [])
        said = [each.said if isinstance(each, Statement) else each for each in bound]
        self._say(module.__name__, name, said, _other_code(module, name, bound))
        for each in bound:
            if isinstance(each, Statement):
                for chain in each.names:
                    self._follow(module, chain)
            elif each.own is not None:
                self._follow_import(each.module, each.own)
        if not bound:
            self._follow_stars(source, name)

    def _follow_import(self, module: str, name: str) -> None:
        found = sys.modules.get(module)
        if found is not None and not isinstance(vars(found).get(name), ModuleType):
            self._names.append((found, name))

    def _follow_stars(self, source: ModuleSource, name: str) -> None:
        for star in reversed(source.stars):
            if name in getattr(sys.modules.get(star), "__dict__", ()):
                self._follow_import(star, name)
                return

    # ---------------------------------------------------------------- names of modules, by byte code

    def _take_code(self, module: ModuleType, name: str) -> None:
        """Only what is called so itself: what was bound to a name later may be another one in every process."""
        for each in _unwrapped(vars(module).get(name)):
            if isinstance(each, type) and each.__qualname__ == name:
                for kind in each.__mro__:
                    self._take_code_of_class(kind)
            elif isinstance(each, FunctionType):
                self._take_code_of(each, name)

    def _take_code_of_class(self, kind: type) -> None:
        module = _named_in(kind)
        if module is not None and self._is_users(module):
            self._seen_names.add((module.__name__, kind.__qualname__))
            for method in _methods(kind):
                self._say(module.__name__, method.__qualname__, code_said(method.__code__))
                for chain in names_of(method.__code__):
                    self._follow(module, chain)

    def _take_code_of(self, function: FunctionType, name: str) -> None:
        module = sys.modules.get(str(function.__module__))
        if function.__qualname__ != name or module is None or vars(module) is not function.__globals__:
            return
        if self._is_users(module):
            self._say(module.__name__, name, code_said(function.__code__))
            for chain in names_of(function.__code__):
                self._follow(module, chain)


def _modules_of(given: Iterable[Any]) -> Iterator[str]:
    """Of what the user has given itself."""
    left, seen = deque(given), set[int]()
    while left:
        each = left.popleft()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, functools.partial):
            left.append(each.func)
        elif isinstance(each, MethodType):
            left.append(each.__self__)
        elif isinstance(each, FunctionType | type):
            yield str(each.__module__)
        else:
            yield str(type(each).__module__)
            left += _held(each)


def _held(value: Any) -> list[Any]:
    """Of a part of one of the library's operators, what it has of the user."""
    held = getattr(value, "__dict__", None)
    if _top(type(value).__module__) not in _LIBRARY or not isinstance(held, dict):
        return []
    return [held[name] for name in _HELD if held.get(name) is not None]


def _top(module: Any) -> str:
    return str(module).partition(".")[0]


def _named_in(value: Any) -> ModuleType | None:
    """The module by whose name something is pickled; None where it is pickled by its value."""
    module, name = (getattr(value, each, None) for each in ("__module__", "__qualname__"))
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    named = found
    for part in name.split("."):
        named = getattr(named, part, None)
    return found if named is value else None


def _unwrapped(value: Any) -> list[Any]:
    """A function or a class, and functions that it stands around, as a decorated one."""
    found: list[Any] = []
    left = deque([value])
    for _ in range(_DEEPEST):
        if not left:
            break
        each = left.popleft()
        if isinstance(each, functools.partial):
            left.append(each.func)
        elif isinstance(each, type):
            found.append(each)
        else:
            left += [one for one in (_wrapped(each),) if one is not None]
        if isinstance(each, FunctionType):
            left += [one for one in contents_of(each) if isinstance(one, FunctionType)]
            found.append(each)
    return found


def _other_code(module: ModuleType, name: str, bound: Iterable[Statement | Imported]) -> str:
    """Of a function that is not what the source of its module says: it was put there by other means, or the file has
    changed since the module was loaded. Else ""."""
    found = vars(module).get(name)
    if not isinstance(found, FunctionType) or found.__code__.co_name != name:
        return ""
    said = code_said(found.__code__)
    defined = [code for each in bound if isinstance(each, Statement) for code in each.defined(name)]
    return "" if not defined or said in map(code_said, defined) else said


def _wrapped(value: Any) -> Any:
    held = getattr(value, "__dict__", None)
    return held.get("__wrapped__") if isinstance(held, dict) else None


def _methods(kind: type) -> list[FunctionType]:
    """But for those that are made for it, as by `dataclass`."""
    found = []
    for value in vars(kind).values():
        inner = getattr(value, "__func__", value.fget if isinstance(value, property) else value)
        if isinstance(inner, FunctionType) and inner.__code__.co_filename != "<string>":
            found.append(inner)
    return found
