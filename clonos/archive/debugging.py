"""Stops in the user's function, at the record of which a row was made, with state, input and `ctx` as they were."""

from __future__ import annotations

import pdb  # noqa: T100 - it is what the command is for
from collections.abc import Callable
from inspect import isgenerator
from typing import Any

from clonos.archive.tracing import Row, TracedCall, Watcher
from clonos.operators.function_code import has_function

Debugger = Callable[[Any, Callable[[], list[Row]]], list[Row]]
"""Runs a call of an operator's, and stops in the user's function; gives the rows of the call."""


class Stop(Watcher):
    """Runs the call that has made a row under a debugger. `found` is that call, of an earlier repetition."""

    keeps_state = False
    speaks = True

    def __init__(self, found: TracedCall, debugger: Debugger) -> None:
        super().__init__()
        self._found = found
        self._debugger = debugger
        self.is_on = True
        self.has_stopped = False

    def runs(self, call: TracedCall, operator: Any, run: Callable[[], list[Row]]) -> list[Row]:
        if self.has_stopped or not call.is_again(self._found):
            return run()
        self.has_stopped = True
        return self._debugger(operator, run)

    def ended(self, call: TracedCall) -> None:
        """What was looked for is over then."""
        if self.has_stopped:
            raise StoppedThere


class StoppedThere(Exception):
    """Nothing further has to be repeated."""


def under_pdb(operator: Any, run: Callable[[], list[Row]]) -> list[Row]:
    """In this process's terminal. Where the operator has functions of the user's, in these; else from its beginning."""
    inner = has_function(operator)
    names = [name for name in ("_fn", "_on_timer") if callable(getattr(inner, name, None))]
    debugger = pdb.Pdb()
    if not names:
        return debugger.runcall(run) or []
    before = {name: getattr(inner, name) for name in names}
    try:
        for name, fn in before.items():
            setattr(inner, name, _stopping(debugger, fn))
        return run()
    finally:
        for name, fn in before.items():
            setattr(inner, name, fn)


def _stopping(debugger: pdb.Pdb, fn: Callable[..., Any]) -> Callable[..., Any]:
    def stopping(*args: Any, **kwargs: Any) -> Any:
        given = debugger.runcall(fn, *args, **kwargs)
        return debugger.runcall(list, given) if isgenerator(given) else given

    return stopping
