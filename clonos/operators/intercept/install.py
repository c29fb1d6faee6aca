"""Puts the intercepted functions in the place of the real ones, for the whole process.

It has to be done before the user's modules are loaded and functions are unpickled: what `from time import time` binds
is then the intercepted one.

`datetime.now` and its like are methods of types that are written in C, which Python code cannot assign to. A subclass
in their place, as test libraries have it, would not be what C code makes and pickles, and `type(moment) is datetime`
would not hold. So the method is replaced in the type's own dictionary. The types stay what they are, and code that has
bound them before, C code among it, sees the other method, too.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from types import ModuleType
from typing import Any, Final

import numpy as np

from clonos.errors import ConfigurationError
from clonos.operators.intercept import clock, randomness, surroundings
from clonos.operators.intercept.intercepted import Answer, Intercepted


@dataclass(frozen=True, slots=True)
class _Replaced:
    """What stood where before."""

    names: dict[str, Any]
    name: str
    before: Any
    owner: type | None = None  # whose attributes are cached

    def undo(self) -> None:
        self.names[self.name] = self.before
        if self.owner is not None:
            _forget_cached(self.owner)


_BIND_THEIR_OWN: Final = frozenset({"clonos", "clonos_standby", "numpy"})

_replaced: list[_Replaced] = []
_users = 0


@cache
def tables() -> Mapping[ModuleType, Mapping[str, Answer]]:
    """By module, the functions that are replaced: once they are, it cannot be seen any more which ones."""
    return {
        time: clock.of_time(),
        random: randomness.of_random(),
        os: randomness.of_os(),
        uuid: randomness.of_uuid(),
        np.random: randomness.of_numpy(),
    }


def names() -> list[str]:
    """All that is intercepted, as users write it."""
    functions = [
        f"{module.__name__}.{name}"
        for module, answers in tables().items()
        for name in answers
        if not name.startswith("_")
    ]
    return functions + [f"{kind.__module__}.{kind.__name__}.{name}" for kind, name, _ in clock.CLASS_METHODS]


def is_installed() -> bool:
    """Whether the intercepted functions stand where the real ones were."""
    return bool(_replaced)


def install() -> None:
    """As often as it is called, `uninstall` has to be. Raises ConfigurationError where this Python cannot do it."""
    global _users
    _users += 1
    if _users > 1:
        return
    for module, answers in tables().items():
        for name, answer in answers.items():
            real = getattr(module, name)
            _replace(vars(module), name, Intercepted(module.__name__, name, real, answer))
    _replace(vars(np.random.mtrand), "_rand", randomness.global_generator())
    bootstrap, name = surroundings.IMPORT
    _replace(vars(bootstrap), name, surroundings.unanswered_method(getattr(bootstrap, name)))
    for owner, name in surroundings.LOGGING:
        _replace_in(owner, name, surroundings.unanswered_method(vars(owner)[name]))
    gc.callbacks.insert(0, surroundings.before_collection)
    gc.callbacks.append(surroundings.after_collection)
    _replace_in(random.Random, "seed", randomness.seeding(random.Random.seed))
    for kind, name, of in clock.CLASS_METHODS:
        _replace_in(kind, name, classmethod(of(vars(kind)[name])))
    if not hasattr(datetime.now, "__func__"):
        uninstall()
        raise ConfigurationError(
            f"spark.clonos.intercept cannot replace datetime.now in {sys.implementation.name} {sys.version.split()[0]}",
            hint="Set spark.clonos.intercept to false, and use ctx.now() in the function",
        )


def uninstall() -> None:
    """Put the real ones back, unless others still need what was installed. What was bound meanwhile stays bound."""
    global _users
    _users -= 1
    if _users == 0:
        gc.callbacks.remove(surroundings.before_collection)
        gc.callbacks.remove(surroundings.after_collection)
    while _users == 0 and _replaced:
        _replaced.pop().undo()


def rebind() -> None:
    """Give modules that are loaded already the intercepted functions under the names that they have bound.

    A replica installs them before it loads any module of the user; in a test these are there before. What holds the
    real one elsewhere, as the default of an argument does, keeps it.
    """
    ours = {
        id(now.__wrapped__): now
        for each in _replaced
        if isinstance(now := each.names.get(each.name), Intercepted)
    }
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        if package in sys.stdlib_module_names or package in _BIND_THEIR_OWN:
            continue
        for bound, value in list(getattr(module, "__dict__", {}).items()):
            if callable(value) and id(value) in ours and ours[id(value)].__wrapped__ is value:
                _replace(module.__dict__, bound, ours[id(value)])


def _replace(where: dict[str, Any], name: str, by: Any) -> None:
    _replaced.append(_Replaced(where, name, where[name]))
    where[name] = by


def _replace_in(owner: type, name: str, by: Any) -> None:
    """In a type that may be written in C: what it hands out is a view of its dictionary, which leads to that."""
    (own,) = gc.get_referents(vars(owner))
    _replaced.append(_Replaced(own, name, own[name], owner))
    own[name] = by
    _forget_cached(owner)


def _forget_cached(owner: type) -> None:
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))
