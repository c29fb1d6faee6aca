"""A signal ends a command that runs users' functions, whatever these catch.

Ctrl+C, SIGTERM and SIGHUP raise Ended where the command is. What a function raises is an error of the function, and
KeyboardInterrupt is among that (`operators.outputs.RAISED`): Ended is not. `finally` clauses run, so that nothing is
left of what the command had in the clear. A function may catch even Ended: `check`, behind each epoch that is repeated
and before anything is changed, raises it again, and where neither is come to, the process ends without them.

A function may also end the process itself, by `os._exit`: then that is said, and nothing is left either.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final, NoReturn

from clonos.storage.working_folders import remove_left, remove_open

GRACE_SECONDS: Final = 5.0
"""So long a command has for ending by itself."""
_EXIT: Final = os._exit
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """By a signal. `said` are lines about what was cut short."""

    def __init__(self, number: int, said: list[str]) -> None:
        super().__init__(f"by signal {number}")
        self.code: Final = 128 + number
        self.said: Final = said


class _Ending:
    """Of this process."""

    def __init__(self) -> None:
        self.ended: Ended | None = None
        self.cut_short: list[str] = []  # what is to be said if it ends now

    def heard(self, number: int, frame: FrameType | None) -> None:
        """A signal. The second one does not wait."""
        if self.ended is not None:
            self.end_now()
        self.ended = Ended(number, list(self.cut_short))
        last = threading.Timer(GRACE_SECONDS, self.end_now)
        last.daemon = True
        last.start()
        raise self.ended

    def end_now(self) -> None:
        """Whatever the process is in."""
        ended = self.ended
        if ended is None:  # it has come to its end meanwhile
            return
        try:
            with contextlib.suppress(OSError):
                os.write(2, "".join(f"{line}\n" for line in ended.said).encode())
            remove_open()
        finally:
            _EXIT(ended.code)


_ENDING: Final = _Ending()


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """In the main thread of a command's process: from now on a signal raises Ended. A signal that is ignored, as by
    `nohup`, stays so. What commands have left that were killed is removed."""
    remove_left()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    process = os.getpid()

    def exit_of_a_function(status: int) -> NoReturn:
        if os.getpid() == process:  # and not a fork of it
            with contextlib.suppress(OSError):
                os.write(2, f"clonos: a function has ended the process: os._exit({status})\n".encode())
            remove_open()
        _EXIT(status or 1)  # it has not done what it was asked for

    before = {
        number: signal.signal(number, _ENDING.heard)
        for number in _SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    os._exit = exit_of_a_function
    try:
        yield
    finally:
        os._exit = _EXIT
        if _ENDING.ended is not None:
            remove_open()  # it may have been heard while one was removed
        for number, handler in before.items():
            signal.signal(number, handler)
        _ENDING.ended = None


@contextlib.contextmanager
def interrupts_left_to_the_function() -> Iterator[None]:
    """Ctrl+C raises KeyboardInterrupt there, as a debugger expects that stops in it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def says_when_cut_short(line: str) -> Iterator[None]:
    """If a signal ends the command meanwhile."""
    _ENDING.cut_short.append(line)
    try:
        yield
    finally:
        _ENDING.cut_short.remove(line)


def check() -> None:
    """Raises Ended where a signal has ended the command, and a function has caught that."""
    if _ENDING.ended is not None:
        raise _ENDING.ended
