"""Whether the user's function is running in this thread, and what answers it then.

What answers is the thread's own: the same function called by another thread gets the real clock and real entropy.
While the runtime does something for the function (reads the clock to record it, runs a recorded closure, makes the log
durable) nothing is answered, so all of that sees the real ones, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from clonos.operators.intercept.answers import Answers

Result = TypeVar("Result")


class _Thread(threading.local):
    answers: Answers | None = None
    interrupted: Answers | None = None  # by a collection of garbage


thread = _Thread()


def answered_by(answers: Answers, work: Callable[..., Result], *args: object) -> Result:
    """Run `work`, which calls the user's function."""
    before, thread.answers = thread.answers, answers
    try:
        return work(*args)
    finally:
        thread.answers = before


def unanswered(work: Callable[..., Result], *args: object, **kwargs: object) -> Result:
    """Run `work` of the runtime, which the user's function has asked for."""
    before, thread.answers = thread.answers, None
    try:
        return work(*args, **kwargs)
    finally:
        thread.answers = before
