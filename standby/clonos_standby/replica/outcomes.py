"""Outcomes of calls and effects as bytes: results, and exceptions.

A result is kept by the value codec of the keyed state, so what a replay sees is exactly what the first run saw: both
get the decoded value. An exception is kept as its class and arguments. It is raised again as the same class where that
can be imported and built from its arguments, else as `RecordedError`, whose text names the original.
"""

from __future__ import annotations

import builtins
import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from clonos.errors import RecordedError, StateError
from clonos.protocol.recovery.causal.determinant import Outcome
from clonos.values import state_codec as values


class Outcomes:
    """See the module. `is_timed`: how long what is captured took is part of it."""

    def __init__(self, *, is_timed: bool = False) -> None:
        self._is_timed = is_timed

    def capture(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        took: int | None = None,
    ) -> Outcome:
        begun = time.monotonic_ns()
        try:
            result = fn(*args, **kwargs)
        except Exception as error:
            return Outcome(name, False, _encode_exception(error), self._took(begun, took))
        took = self._took(begun, took)
        try:
            return Outcome(name, True, values.encode(result), took)
        except StateError as error:
            raise StateError(
                f"the result of {name} cannot be recorded: {error.message}",
                hint="Return plain values from a recorded call: numbers, text, bytes, lists, dicts, datetimes",
            ) from error

    def _took(self, begun: int, known: int | None) -> int | None:
        if not self._is_timed:
            return None
        return (time.monotonic_ns() - begun) // 1000 if known is None else known

    def reveal(self, outcome: Outcome) -> Any:
        if outcome.ok:
            return values.decode(outcome.payload)
        raise _decode_exception(outcome)


def _encode_exception(error: Exception) -> bytes:
    kind = type(error)
    try:
        arguments = values.encode(list(error.args))
    except StateError:
        arguments = values.encode([str(error)])
    return values.encode([kind.__module__, kind.__qualname__, arguments, str(error)])


def _decode_exception(outcome: Outcome) -> Exception:
    module, qualname, arguments, text = values.decode(outcome.payload)
    try:
        found: Any = builtins if module == "builtins" else importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
        if isinstance(found, type) and issubclass(found, Exception):
            rebuilt = found(*values.decode(arguments))
            if str(rebuilt) == text:
                return rebuilt
    except Exception:  # whatever a foreign constructor raises: the text below says what happened
        pass
    return RecordedError(
        f"{outcome.name} raised {module}.{qualname}: {text}",
        hint=f"To catch it as {qualname}, define that class in a module that replicas can import (not in the script "
        "that is run, nor in a function), so that its arguments build it again",
    )
