"""Errors of a running query are Spark's, too: `except StreamingQueryException` catches them, as it does Spark's own."""

from __future__ import annotations

from typing import Any

from clonos.errors import ClonosError

CONDITION = "STREAM_FAILED"
"""Spark's error condition of a query that has failed, for whatever reason."""


def described(error: ClonosError) -> str:
    """With its class, as Spark's listeners are told of an exception."""
    return f"{type(error).__module__}.{type(error).__qualname__}: {error}"


def as_sparks_own(error: ClonosError) -> ClonosError:
    """The same object, of a class that inherits from its own and from PySpark's StreamingQueryException."""
    from pyspark.errors import StreamingQueryException

    if not isinstance(error, StreamingQueryException):
        text = str(error)
        error.__class__ = _both(type(error))
        # What PySpark's constructor sets: it would have to be called in place of ours.
        StreamingQueryException.__init__(error, text, CONDITION, {})  # type: ignore[arg-type]
    return error


def _both(kind: type[ClonosError]) -> type[ClonosError]:
    from pyspark.errors import StreamingQueryException

    def reduced(self: ClonosError) -> Any:
        return _again, (kind, self.message, self.where, self.hint)

    body = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "__str__": Exception.__str__,
        "__reduce__": reduced,
    }
    return type(kind.__name__, (kind, StreamingQueryException), body)


def _again(kind: type[ClonosError], message: str, where: Any, hint: str | None) -> ClonosError:
    return as_sparks_own(kind(message, where=where, hint=hint))
