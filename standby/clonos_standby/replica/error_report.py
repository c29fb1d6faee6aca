"""Says of an error what its message leaves out: the traceback, which the conduit and the log get behind it."""

from __future__ import annotations

import traceback
from types import TracebackType

from clonos.errors import (
    ClonosError,
    PurityError,
    SinkError,
    SinkUnavailable,
    StateError,
    UserFunctionError,
)

_OF_THE_FUNCTION = (UserFunctionError, PurityError, StateError, SinkError, SinkUnavailable)


def traceback_of(error: Exception) -> str:
    """Empty where there is nothing to add. What a sink meets lies in data, in a database or on a disk, so which lines
    of Clonos found it is left out; where a function of the user's raised, that is shown."""
    if not isinstance(error, SinkError | SinkUnavailable):
        return "".join(traceback.format_exception(error))
    cause: BaseException | None = error
    while isinstance(cause, ClonosError):
        cause = cause.__cause__
    return (
        "" if cause is None else "".join(traceback.format_exception(type(cause), cause, _from_outside(cause)))
    )


def shows_traceback(error: ClonosError) -> bool:
    """Whether the user is shown the traceback, too: where a function of the user's is wrong it says in which line. All
    other errors say themselves what is wrong; the log keeps where it was found."""
    return isinstance(error, _OF_THE_FUNCTION)


def _from_outside(error: BaseException) -> TracebackType | None:
    """The traceback from the first line on that is not of Clonos."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_globals.get("__name__", "").startswith("clonos."):
        at = at.tb_next
    return at
