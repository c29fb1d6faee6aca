"""What happens below a user's function and is not its matter: imports, log lines, collections of garbage.

A module is imported once per process. After a recovery that is in another step than it was, or in none; so what it asks
for at its import cannot be part of a step. A log line has the time at which it was written, also in a replay, and
whether it is written depends on how logging is set up. Garbage is collected when enough of it is there, which is at
another moment in a replay, and finalizers and callbacks run then.
"""

from __future__ import annotations

import gc
import importlib
import logging
from collections.abc import Callable
from typing import Any, Final

from clonos.operators.intercept.active import thread, unanswered


def unanswered_method(real: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with nothing answered in it."""

    def called(*args: Any, **kwargs: Any) -> Any:
        if thread.answers is None:
            return real(*args, **kwargs)
        return unanswered(real, *args, **kwargs)

    return called


def before_collection(phase: str, info: dict[str, int]) -> None:
    """The first of `gc.callbacks`. It sees to it that the other one is the last."""
    if phase == "start":
        if gc.callbacks[-1] is not after_collection:
            gc.callbacks.remove(after_collection)
            gc.callbacks.append(after_collection)
        thread.interrupted, thread.answers = thread.answers, None


def after_collection(phase: str, info: dict[str, int]) -> None:
    """The last of `gc.callbacks`."""
    if phase == "stop":
        thread.answers, thread.interrupted = thread.interrupted, None


IMPORT: Final[tuple[Any, str]] = (getattr(importlib, "_bootstrap"), "_find_and_load")  # noqa: B009 - not in its stubs
"""Through which every way to import a module goes that is not there yet."""
LOGGING: Final[tuple[tuple[type, str], ...]] = (
    (logging.LogRecord, "__init__"),  # asks for the time
    (logging.Logger, "handle"),  # calls filters, formatters and handlers
)
