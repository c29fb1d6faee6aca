"""What is kept of how replicas die (`protocol.roles.death` certifies it).

What a process wrote before it died is half of the answer: its output goes through a pipe whose last part is kept, here
and in a file of bounded size, however much it prints.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

from clonos.protocol.ids import Origin
from clonos.protocol.roles.death import Death, Ending, KillReason

TAIL_BYTES = 16 * 1024
TAIL_LINES = 200
"""The stacks of all threads, and what was said before them."""

_FILE_BYTES = 1024 * 1024
_READ = 64 * 1024


def ending_of(
    origin: Origin | None,
    pid: int,
    status: int,
    *,
    killed_for: KillReason | None,
    started: float,
    max_rss_kib: int,
    oom_kills: int,
    stderr: str,
    standby: bool = False,
) -> Ending:
    """How a child ended that was reaped with this wait status, and started at this time of the monotonic clock."""
    code = os.waitstatus_to_exitcode(status)
    return Ending(
        origin,
        pid,
        code if code >= 0 else None,
        _signal_name(-code) if code < 0 else None,
        killed_for,
        at=time.time(),
        uptime=round(time.monotonic() - started, 3),
        max_rss_kib=max_rss_kib,
        oom_kills=oom_kills,
        stderr=stderr,
        standby=standby,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def append_bounded(path: Path, data: bytes, limit: int = _FILE_BYTES) -> None:
    """Appends to a file that is set aside as `.1` when it grows beyond the limit."""
    with contextlib.suppress(OSError):  # a full disk must not stop the supervisor
        with path.open("ab") as file:
            file.write(data)
            size = file.tell()
        if size > limit:
            path.replace(path.with_name(path.name + ".1"))


class DeathLog:
    """`<data>/deaths.jsonl`: every unexpected death of a replica (`Death.expected`), one JSON object per line."""

    def __init__(self, path: Path, keep: int = 32) -> None:
        self.path = path
        self.recent: list[Death] = []
        self.total = 0
        self._keep = keep

    def add(self, death: Death) -> None:
        self.total += 1
        self.recent = [*self.recent[-self._keep + 1 :], death]
        append_bounded(self.path, json.dumps(death.to_dict()).encode() + b"\n")


class Output:
    """The read end of a replica's stdout and stderr: the last part in memory, a bounded amount in a file."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.path: Path | None = None
        self.eof = False
        os.set_blocking(fd, False)
        self._tail = bytearray()

    def name(self, path: Path) -> None:
        """From now on also written to a file."""
        self.path = path
        if self._tail:
            append_bounded(path, bytes(self._tail))

    def read(self) -> bool:
        """Takes one piece; False when there is none now, or, with `eof`, will be none any more."""
        try:
            data = os.read(self.fd, _READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.eof = True
            return False
        self._tail += data
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]
        if self.path is not None:
            append_bounded(self.path, data)
        return True

    def drain(self) -> None:
        """Takes what a dead process has left; bounded, because its own children may go on writing."""
        for _ in range(32):
            if not self.read():
                break

    def tail(self) -> str:
        text = bytes(self._tail[-TAIL_BYTES:]).decode(errors="replace")
        return "\n".join(text.splitlines()[-TAIL_LINES:])

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
