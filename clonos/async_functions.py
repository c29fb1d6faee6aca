"""Which of the user's functions are async: calling one gives what must be awaited, and where nothing awaits it, nothing
would happen."""

from __future__ import annotations

import inspect
from typing import Any

from clonos.errors import QueryDefinitionError


def is_async(fn: Any) -> bool:
    """Whether calling it gives an awaitable, or what `async for` goes over."""
    given = (fn, type(fn).__call__)  # of a function, or of an object that is called like one
    return any(map(inspect.iscoroutinefunction, given)) or any(map(inspect.isasyncgenfunction, given))


def refuse_async(fn: Any, what: str) -> None:
    """Raises QueryDefinitionError where `fn` is async; `what` takes it."""
    if is_async(fn):
        raise QueryDefinitionError(
            f"{what} is given an async function, {fn!r}, which nothing would await",
            hint="process, connect, map, flat_map and filter take async functions; here, give one that is not",
        )


def refuse_generators(fn: Any, name: str, hint: str) -> None:
    """Raises QueryDefinitionError where `fn` yields: what it returns is a generator then, whatever it yields."""
    yields = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(asks(each) for asks in yields for each in (fn, type(fn).__call__)):
        raise QueryDefinitionError(f"the function of {name!r} yields rows, {fn!r}", hint=hint)
