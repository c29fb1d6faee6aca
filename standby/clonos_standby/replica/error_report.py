"""Says of an error what its message leaves out: the traceback, which the conduit and the log get behind it."""

from __future__ import annotations

import traceback

from clonos.errors import ClonosError, SinkError, SinkUnavailable


def traceback_of(error: Exception) -> str:
    """Empty where there is nothing to add. What a sink meets lies in data, in a database or on a disk, so which lines
    of Clonos found it is left out; where a function of the user's raised, that is shown."""
    shown: BaseException | None = error
    if isinstance(error, SinkError | SinkUnavailable):
        while isinstance(shown, ClonosError):
            shown = shown.__cause__
    return "" if shown is None else "".join(traceback.format_exception(shown))
