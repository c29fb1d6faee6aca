"""A user function that makes no progress.

Heartbeats show that the process lives, not that the function gets anywhere: a deadlock, an endless loop, a call
without a timeout. So the heartbeat's thread also looks at how far the function has come, and ends the process when that
does not change for too long: the stacks of all threads go to the process's output, the reason to the conduit. Only the
time inside the function counts; waiting for a conduit that takes no output does not.

What the function has taken of a bundle is read off the iterator over the rows: it costs one object per bundle.
"""

from __future__ import annotations

import faulthandler
import operator
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

from clonos.protocol.engine.instance import Row
from clonos.protocol.roles.death import STUCK
from clonos_standby.server.log import Level, log


def end_stuck(why: str, before: Callable[[], None] = lambda: None) -> NoReturn:
    """End the process, with the stacks of all its threads in its output."""
    log("process_stuck", f"{why}; all threads:", level=Level.ERROR)
    faulthandler.dump_traceback(2, all_threads=True)
    before()
    os._exit(STUCK)


class _Rows(list[Row]):
    """Rows that know the iterator that is walking over them."""

    __slots__ = ("walk",)
    walk: Iterator[Row] | None

    def __iter__(self) -> Iterator[Row]:
        self.walk = super().__iter__()
        return self.walk


class Watchdog:
    """Watches one operator. `look` is called by the heartbeat's thread, everything else by the instance's."""

    def __init__(self, deadline: float) -> None:
        self.on_stuck: Callable[[int | None, str], None] = lambda row, why: None
        self.on_event_timers: Callable[[], None] = lambda: None
        self._deadline = deadline
        self._calls = 0
        self._rows: _Rows | None = None
        self._inside = False
        self._seen: tuple[int, int | None] = (0, None)
        self._seen_at = 0.0

    def watch(self, watched: Any) -> Any:
        """The operator, to be used in its place."""
        return _Watched(watched, self)

    def enter(self, rows: list[Row] | None = None) -> list[Row]:
        self._calls += 1
        self._rows = counted = _Rows(rows or ())
        counted.walk = None
        self._inside = True
        return counted

    def leave(self) -> None:
        self._inside = False

    def moved(self) -> None:
        """The function goes on with the answer of a call."""
        self._calls += 1

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Not for the function, but inside it."""
        self._inside = False
        yield
        self._inside = True

    def look(self) -> None:
        """Does not return where the function is stuck."""
        seen, now = (self._calls, self._row()), time.monotonic()
        if not self._inside or seen != self._seen:
            self._seen, self._seen_at = seen, now
        elif now - self._seen_at >= self._deadline:
            why = f"the function has made no progress for {self._deadline:g} s"
            end_stuck(why, lambda: self.on_stuck(seen[1], why))

    def _row(self) -> int | None:
        """Index of the row that the function has in hand, where that can be told."""
        rows = self._rows
        if rows is None or rows.walk is None:
            return None
        left = operator.length_hint(rows.walk)
        return len(rows) - left - 1 if left else None


class _Watched:
    """An operator whose calls are watched."""

    def __init__(self, watched: Any, watchdog: Watchdog) -> None:
        self._operator = watched
        self._watchdog = watchdog
        self.open = watched.open
        self.close = watched.close

    @property
    def record_at_a_time(self) -> bool:
        return bool(self._operator.record_at_a_time)

    def pieces(self) -> AbstractContextManager[None]:
        pieces: AbstractContextManager[None] = self._operator.pieces()
        return pieces

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        rows = self._watchdog.enter(rows)
        try:
            produced: list[Row] = self._operator.bundle(keys, rows)
            return produced
        finally:
            self._watchdog.leave()

    def gathered(self) -> list[Row]:
        self._watchdog.enter()
        try:
            produced: list[Row] = self._operator.gathered()
            return produced
        finally:
            self._watchdog.leave()

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[Row]:
        if event:
            self._watchdog.on_event_timers()
        self._watchdog.enter()
        try:
            produced: list[Row] = self._operator.timers(due, event)
            return produced
        finally:
            self._watchdog.leave()
