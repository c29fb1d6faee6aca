"""Functions and other objects of users, as commands are told of them."""

from __future__ import annotations

import importlib
from typing import Any

from clonos.errors import ConfigurationError


def named_object(named: str) -> Any:
    """What is named `module:name`. Raises ConfigurationError."""
    module, colon, path = named.partition(":")
    if not colon or not module or not path:
        raise ConfigurationError(f"{named!r} does not name a function", hint="Give module:function")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"{named} cannot be loaded: {error}",
            hint="The module must be importable from the current directory",
        ) from error
    return found


def name_of(found: Any) -> str:
    """As `named_object` is told of it; "" where that would not find it."""
    module, path = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    if not module or not path or module == "__main__" or "<" in path:
        return ""
    named = f"{module}:{path}"
    try:
        return named if named_object(named) is found else ""
    except ConfigurationError:
        return ""
