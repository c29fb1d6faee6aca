"""Virtual time, and processes that take steps in it.

A process is a generator that yields between any two things it does: a number of microseconds to let pass, or None to
wait until it is woken. Between two yields nothing else happens, so the yields are the points at which processes
interleave, crash and stop. Where the core calls out in the middle of a step (a port, a closure) a process cannot yield,
but it can die: `Died` takes it out through the core as a signal would. And it can wait there, while all other processes
go on (`Process.until`): one that begins to wait like this meanwhile is done first, and to the others this one is merely
slow.

Events of the same moment happen in the order in which they were planned; nothing depends on hashes or identities.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

Steps = Generator[int | None, None, Any]
"""What a process does: yields the time until it goes on, or None to be woken."""


class Died(BaseException):
    """The process is gone, in the middle of whatever it was doing."""


class Kernel:
    """The clock and what is planned. Times are microseconds."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.events = 0
        self.watch: Callable[[], None] = lambda: None
        self._planned: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def after(self, delay: int, act: Callable[..., None], *arguments: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._planned, (self.now + max(delay, 0), self._sequence, act, arguments))

    def step(self) -> bool:
        """Let the next event happen; False where nothing is planned any more."""
        if not self._planned:
            return False
        self.now, _, act, arguments = heapq.heappop(self._planned)
        self.events += 1
        act(*arguments)
        self.watch()
        return True


class Process:
    """Something that can crash, stop and go on. Subclasses start it with `begin` or are called back by `call`."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel = kernel
        self.name = name
        self.alive = True
        self.mourners: list[Callable[[], None]] = []
        self._stopped_until = 0
        self._held_back: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._steps: Steps | None = None
        self._sleeping = False
        self._waiting = False
        self._in_step = False

    # ---------------------------------------------------------------- life

    def begin(self, steps: Steps) -> None:
        self._steps = steps
        self._sleeping = True
        self.kernel.after(0, self.call, self._resume)

    def kill(self) -> None:
        """At once: nothing of it happens any more."""
        if not self.alive:
            return
        self.alive = False
        self._held_back.clear()
        steps, self._steps = self._steps, None
        if steps is not None and not self._in_step:
            steps.close()
        self.died()
        mourners, self.mourners = self.mourners, []
        for mourner in mourners:
            mourner()

    def died(self) -> None:
        """For subclasses: what the death of this process does to others."""

    def stop(self, duration: int) -> None:
        """Like SIGSTOP: whatever comes meanwhile waits, in order, until it goes on."""
        self._stopped_until = max(self._stopped_until, self.kernel.now + duration)
        self.kernel.after(duration, self._go_on)

    @property
    def stopped(self) -> bool:
        return self.kernel.now < self._stopped_until

    def wake(self) -> None:
        """What it waited for may have happened."""
        if self._waiting and not self._sleeping:
            self._waiting, self._sleeping = False, True
            self.kernel.after(0, self.call, self._resume)

    def call(self, act: Callable[..., None], *arguments: Any) -> None:
        """Let something happen inside this process."""
        if not self.alive:
            return
        if self.stopped or self._held_back:
            self._held_back.append((act, arguments))
            return
        self._within(act, arguments)

    def until(self, ready: Callable[[], bool]) -> None:
        """In the middle of a step: let others go on until something is so, unless this process dies of it."""
        while self.alive and (self.stopped or not ready()):
            if not self.kernel.step():
                raise Died
        if not self.alive:
            raise Died

    # ------------------------------------------------------------ internals

    def _go_on(self) -> None:
        while self.alive and not self.stopped and self._held_back:
            self._within(*self._held_back.popleft())

    def _within(self, act: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        try:
            act(*arguments)
        except Died:
            self.kill()

    def _resume(self) -> None:
        steps = self._steps
        if steps is None:
            return
        self._sleeping = False
        self._waiting = False
        self._in_step = True
        try:
            delay = steps.send(None)
        except StopIteration:
            self._steps = None
            self.kill()
            return
        finally:
            self._in_step = False
        if delay is None:
            self._waiting = True
        else:
            self._sleeping = True
            self.kernel.after(delay, self.call, self._resume)
