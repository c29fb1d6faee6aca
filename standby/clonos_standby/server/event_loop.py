"""A small event loop: descriptors, timers and signals on one thread.

The supervisor forks warm replicas, and a fork copies only the thread that calls it: a lock that another thread holds
at that moment stays locked in the child for ever. So the supervisor has one thread, and everything it waits for,
connections, control lines, the output of replicas, the death of children and the driver's pipe, is an event of this
loop. Work that can wait (forking the next spare) is done when a look at the descriptors finds nothing to do.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, Final

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE


class Timer:
    """A call that is due at some time, unless it is cancelled before."""

    __slots__ = ("callback", "due")

    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due = due
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Loop:
    """Runs callbacks until `stop`. Exceptions of callbacks come out of `run`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._stopped = False
        self._signals: dict[int, Callable[[], None]] = {}
        self._wake: tuple[socket.socket, socket.socket] | None = None

    def watch(self, fd: int, callback: Callable[[int], None], events: int = READ) -> None:
        """Calls `callback(events)` while the descriptor is ready; replaces an earlier watch of it."""
        if fd in self._selector.get_map():
            self._selector.modify(fd, events, callback)
        else:
            self._selector.register(fd, events, callback)

    def forget(self, fd: int) -> None:
        if fd >= 0 and fd in self._selector.get_map():
            self._selector.unregister(fd)

    def later(self, delay: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(time.monotonic() + delay, callback)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        return timer

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Runs the callback in the loop, not in the handler."""
        if self._wake is None:
            reader, writer = socket.socketpair()
            reader.setblocking(False)
            writer.setblocking(False)
            self._wake = (reader, writer)
            signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            self.watch(reader.fileno(), self._signalled)
        self._signals[number] = callback
        signal.signal(number, _ignore)

    def stop(self) -> None:
        self._stopped = True

    def run(self, idle: Callable[[], bool] | None = None) -> None:
        """Serves events; `idle` is called when there are none and says whether it has more to do."""
        busy = idle is not None
        while not self._stopped:
            timeout = 0.0 if busy else self._patience()
            events = self._selector.select(timeout)
            if not events and busy and idle is not None:
                busy = idle()
            for key, mask in events:
                callback: Callable[[int], None] = key.data
                if self._watching(key.fd) is callback:  # not when an earlier one has dropped or replaced it
                    callback(mask)
            if self._fire() or events:
                busy = idle is not None

    def close(self) -> None:
        if self._wake is not None:
            signal.set_wakeup_fd(-1)
            for number in self._signals:
                signal.signal(number, signal.SIG_DFL)
            for end in self._wake:
                end.close()
        self._selector.close()

    def _watching(self, fd: int) -> Any:
        key = self._selector.get_map().get(fd)
        return None if key is None else key.data

    def _patience(self) -> float | None:
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _fire(self) -> bool:
        now = time.monotonic()
        fired = False
        while self._timers and self._timers[0][0] <= now:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                callback()
                fired = True
        return fired

    def _signalled(self, _events: int) -> None:
        assert self._wake is not None
        try:
            numbers = set(self._wake[0].recv(4096))
        except BlockingIOError:
            return
        for number in numbers:
            callback = self._signals.get(number)
            if callback is not None:
                callback()


def _ignore(_number: int, _frame: Any) -> None:
    """A handler must exist for the wake-up descriptor to be written."""
