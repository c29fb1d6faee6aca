"""The context of the function that is running now.

Functions with PySpark's signatures have no parameter for the causal services; `clonos.current()` gives it to them. A
replica runs one instance in one thread, so the running function is a single variable: setting it costs nothing that
would show per record. While a *pure* function runs there is no context, on purpose.

What is recorded is repeated in its order, and no replay can repeat the order of two threads. So the services belong to
the thread that runs the function, and are refused in any other.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from clonos.errors import PurityError, QueryDefinitionError

if TYPE_CHECKING:
    from clonos.operators.context import Context

_running: Any = None
_thread = 0


class _Pure:
    """Stands where a context would, while a function declared pure runs."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, service: str) -> Any:
        raise PurityError(
            f"{self.name!r} is declared pure, but asked for ctx.{service}",
            hint="Take (row, ctx) instead of (row) to use causal services",
        )


def current() -> Context:
    """The context of the running operator function: clock, random numbers, recorded calls and effects."""
    if _running is None:
        raise QueryDefinitionError(
            "clonos.current() was called outside a running operator function",
            hint="Call it inside the function given to process, applyInPandasWithState or transformWithState, "
            "in the thread that runs it",
        )
    if type(_running) is _Pure:
        raise PurityError(
            f"{_running.name!r} is declared pure, but asked for clonos.current()",
            hint="Take (row, ctx) instead of (row) to use causal services",
        )
    only_here("clonos.current()")
    return _running  # type: ignore[no-any-return]


def only_here(what: str) -> None:
    """Raises QueryDefinitionError in any other thread than the one that runs the function."""
    if get_ident() != _thread:
        raise QueryDefinitionError(
            f"{what} was used in another thread than the one that runs the function",
            hint="The order of threads cannot be repeated. Do the parallel work inside one recorded call, and use no "
            "ctx in its threads: ctx.call(lambda: list(pool.map(lookup, values)))",
        )


def enter(context: Context) -> Any:
    """Make this the running context, of this thread; returns what `leave` must be given."""
    global _running, _thread
    before = _running
    _running, _thread = context, get_ident()
    return before


def enter_pure(name: str) -> Any:
    """As `enter`, for a function declared pure."""
    global _running
    before = _running
    _running = _Pure(name)
    return before


def leave(before: Any) -> None:
    global _running
    _running = before
