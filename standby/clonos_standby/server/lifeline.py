"""Lifelines: the end of a process shows before the kernel has cleared it away.

A process that dies gives back its memory first and closes its sockets after that. With a hundred megabytes, and others
that want the processor, tens of milliseconds lie between. One thing comes before both: the kernel walks the dying
thread's list of robust mutexes, marks each as left behind and wakes one that waits for it (set_robust_list(2),
pthread_mutexattr_setrobust(3)). So each replica takes a robust mutex of its own when it is forked, in memory that it
shares with its server, and never gives it back. The process that waits for the mutex knows of the death at once
(clonos_standby.server.death_notice).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import sys
from typing import Final

_SLOT_BYTES: Final = 64  # a mutex takes 40 to 48
_ATTRIBUTE_BYTES: Final = 64
_SHARED: Final = 1  # PTHREAD_PROCESS_SHARED
_ROBUST: Final = 1  # PTHREAD_MUTEX_ROBUST


class Lifelines:
    """Robust mutexes in shared memory, by number. Forks share them."""

    def __init__(self, count: int) -> None:
        self._libc = ctypes.CDLL(None)
        self._memory = mmap.mmap(-1, count * _SLOT_BYTES)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._free = list(range(count))
        attribute = ctypes.create_string_buffer(_ATTRIBUTE_BYTES)
        self._libc.pthread_mutexattr_init(attribute)
        self._libc.pthread_mutexattr_setpshared(attribute, _SHARED)
        self._libc.pthread_mutexattr_setrobust(attribute, _ROBUST)
        for number in self._free:
            self._libc.pthread_mutex_init(self._at(number), attribute)

    @classmethod
    def if_possible(cls, count: int) -> Lifelines | None:
        """None where the kernel is not one that is known to keep this order."""
        return cls(count) if sys.platform == "linux" else None

    def take(self) -> int | None:
        """A number that no living process has; None when all are taken."""
        return self._free.pop() if self._free else None

    def give_back(self, number: int) -> None:
        """Its process is dead and reaped."""
        self._free.append(number)

    def hold(self, number: int) -> None:
        """From now on this thread's end shows. A dead predecessor may have left the mutex."""
        if self._libc.pthread_mutex_lock(self._at(number)) == errno.EOWNERDEAD:
            self._libc.pthread_mutex_consistent(self._at(number))

    def wait(self, number: int) -> bool:
        """Until the process that holds it dies. False when no process holds it."""
        dead: bool = self._libc.pthread_mutex_lock(self._at(number)) == errno.EOWNERDEAD
        if dead:
            self._libc.pthread_mutex_consistent(self._at(number))
        self._libc.pthread_mutex_unlock(self._at(number))
        return dead

    def _at(self, number: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._base + number * _SLOT_BYTES)
