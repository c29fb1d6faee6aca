"""Stops in the user's function, at the record of which a row was made, with state, input and `ctx` as they were."""

from __future__ import annotations

import pdb  # noqa: T100 - it is what the command is for
from collections.abc import Callable
from inspect import isgenerator
from typing import Any

from clonos.archive.tracing import Row, TracedCall, Watcher
from clonos.operators.function_code import has_function


class Stop(Watcher):
    """Runs the call that has made a row under the debugger. `found` is that call, of an earlier repetition."""

    keeps_state = False
    speaks = True

    def __init__(self, found: TracedCall) -> None:
        super().__init__()
        self._found = found
        self.is_on = True
        self.has_stopped = False

    def runs(self, call: TracedCall, operator: Any, run: Callable[[], list[Row]]) -> list[Row]:
        if self.has_stopped or not self._is_it(call):
            return run()
        self.has_stopped = True
        return _debugged(operator, run)

    def _is_it(self, call: TracedCall) -> bool:
        def places(one: TracedCall) -> list[tuple[int, int]]:
            return [(record.channel, record.position) for record in one.inputs]

        found = self._found
        return (call.form, call.first, places(call), call.timers) == (
            found.form,
            found.first,
            places(found),
            found.timers,
        )

    def ended(self, call: TracedCall) -> None:
        """What was looked for is over then."""
        if self.has_stopped:
            raise StoppedThere


class StoppedThere(Exception):
    """Nothing further has to be repeated."""


def _debugged(operator: Any, run: Callable[[], list[Row]]) -> list[Row]:
    """Where the operator has functions of the user's, in these; else from its beginning."""
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
