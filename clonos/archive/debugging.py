"""Stops in the user's function, at the record of which a row was made, with state, input and `ctx` as they were."""

from __future__ import annotations

import bdb
import pdb  # noqa: T100 - it is what the command is for
from collections.abc import Callable
from types import FrameType
from typing import Any

from clonos.archive.tracing import Again, Row, TracedCall
from clonos.archive.user_frames import told_of_frames
from clonos.ending import interrupts_left_to_the_function
from clonos.operators.function_code import called_code

Debugger = Callable[[Any, Callable[[], list[Row]]], list[Row]]
"""Runs a call of an operator's, and stops in the user's function; gives the rows of the call."""


class Stop(Again):
    """Runs the call that has made a row under a debugger. `found` is that call, of an earlier repetition."""

    keeps_state = False
    speaks = True

    def __init__(self, found: TracedCall, debugger: Debugger) -> None:
        super().__init__(found)
        self._debugger = debugger
        self._has_stopped = False

    def runs(self, call: TracedCall, operator: Any, run: Callable[[], list[Row]]) -> list[Row]:
        if not self.is_again(call):
            return run()
        self._has_stopped = True
        return self._debugger(operator, run)

    def ended(self, call: TracedCall) -> None:
        """What was looked for is over then."""
        if self._has_stopped:
            raise StoppedThere


class StoppedThere(Exception):
    """Nothing further has to be repeated."""


def under_pdb(operator: Any, run: Callable[[], list[Row]]) -> list[Row]:
    """In this process's terminal: in each call of the user's functions; where the operator has none in Python, in its
    own. Raises StoppedThere where the user quits."""
    debugger = _Pdb()

    def stops(frame: FrameType) -> bool:
        debugger.set_trace(frame)
        return True

    try:
        with interrupts_left_to_the_function(), told_of_frames(called_code(operator), stops):
            return run()
    except _Quit:
        raise StoppedThere from None


class _Quit(BaseException):
    """The user quits the debugger: no error of the function, and nothing that the function may catch as one."""


class _Pdb(pdb.Pdb):
    def do_run(self, arg: str) -> bool | None:
        """It would begin the program again, which is the command."""
        self.message("There is no restart here: give the command again, and it stops at the same place.")
        return self.do_quit(arg)

    do_restart = do_run

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        try:
            return super().trace_dispatch(frame, event, arg)
        except bdb.BdbQuit:
            raise _Quit from None
