"""The process that waits for the death of others (clonos_standby.server.lifeline), and tells the replica server.

Waiting for a mutex takes a thread, and the server must have only one, since it forks. So it forks this process first:
one small thread for each replica, which sleeps. Replicas enroll themselves when they hold their lifeline; the server
hears the number of a dying process on a pipe. Nothing depends on it: without it a death shows when the process has been
reaped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import threading
from collections.abc import Callable, Iterable

from clonos_standby.server.event_loop import Loop
from clonos_standby.server.lifeline import Lifelines
from clonos_standby.server.log import log
from clonos_standby.server.processes import close_descriptors, die_with_parent

_ENROLLED = struct.Struct("=II")
_DYING = struct.Struct("=I")
_AGAIN_SECONDS = 1.0
_STACK_BYTES = 256 * 1024


class DeathNotice:
    """The server's end. `dying` is called in the loop with the number of a process; `living` says who holds which
    lifeline, for a watcher that takes over."""

    def __init__(
        self,
        loop: Loop,
        lifelines: Lifelines,
        dying: Callable[[int], None],
        living: Callable[[], Iterable[tuple[int, int]]],
    ) -> None:
        self.lifelines = lifelines
        self._loop = loop
        self._dying = dying
        self._living = living
        self.pid = self._to = self._from = -1
        self._start()

    def enroll(self, number: int) -> None:
        """In a forked process: from now on its death is told."""
        self.lifelines.hold(number)
        self._tell(number, os.getpid())

    def close(self) -> None:
        """The watcher ends with its pipe."""
        if self._to >= 0:
            self._loop.forget(self._from)
            os.close(self._to)
            os.close(self._from)
            self._to = self._from = -1
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)

    def _tell(self, number: int, pid: int) -> None:
        with contextlib.suppress(OSError):  # no watcher runs just now; the server will tell the next one
            os.write(self._to, _ENROLLED.pack(number, pid))

    def _start(self) -> None:
        parent = os.getpid()
        enrolled, self._to = os.pipe()
        self._from, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _become_watcher(parent, {2, enrolled, told})
                _watch(self.lifelines, enrolled, told)
            finally:
                os._exit(0)
        os.close(enrolled)
        os.close(told)
        os.set_blocking(self._from, False)
        self._loop.watch(self._from, lambda _events: self._told())
        for number, pid in self._living():
            self._tell(number, pid)

    def _told(self) -> None:
        try:
            data = os.read(self._from, 1024 * _DYING.size)
        except BlockingIOError:
            return
        if not data:
            self._lost()
            return
        for (pid,) in _DYING.iter_unpack(data):
            self._dying(pid)

    def _lost(self) -> None:
        log(
            "death_notice_lost", "deaths of replicas are noticed later until another process watches for them"
        )
        self.close()
        self._loop.later(_AGAIN_SECONDS, self._start)


def _become_watcher(parent: int, keep: set[int]) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    close_descriptors(keep)
    die_with_parent(parent)


def _watch(lifelines: Lifelines, enrolled: int, told: int) -> None:
    threading.stack_size(_STACK_BYTES)

    def wait(number: int, pid: int) -> None:
        if lifelines.wait(number):
            with contextlib.suppress(OSError):  # the server is gone, too
                os.write(told, _DYING.pack(pid))

    while data := os.read(enrolled, _ENROLLED.size):
        threading.Thread(target=wait, args=_ENROLLED.unpack(data), daemon=True).start()
