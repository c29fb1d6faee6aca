"""How replicas die, and what is kept of it.

A replica can end in ways that ask for different answers: the user's function broke the interpreter (a signal such as
SIGSEGV), the kernel took it for want of memory, it ended on its own (an exit code), somebody killed it, or it is alive
but its conduit has given up on it (a hang). The wait status alone does not tell the last three apart, so the
supervisor remembers what it did itself and looks at the kernel's counters. What the process wrote before it died is
the other half of the answer: its output goes through a pipe whose last part is kept, here and in a file of bounded
size, however much it prints.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TAIL_BYTES = 16 * 1024
TAIL_LINES = 200
"""The stacks of all threads, and what was said before them."""

_FILE_BYTES = 1024 * 1024
_READ = 64 * 1024


@dataclass(frozen=True, slots=True)
class Death:
    """One death of a replica. `kind` is exit, signal, oom, hang, replaced, fenced or stopped."""

    kind: str
    message: str
    node: int | None
    instance: int | None
    pid: int
    at: float
    uptime: float
    code: int | None = None
    signal: str | None = None
    max_rss_kib: int = 0
    stderr: str = ""

    @property
    def expected(self) -> bool:
        """Whether the server wanted it, and for a reason that says nothing against the replica."""
        return self.kind in ("replaced", "fenced", "stopped")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known when a child has been reaped."""

    node: int | None
    instance: int | None
    pid: int
    status: int
    killed_for: str | None
    started: float
    max_rss_kib: int
    oom_kills: int
    stderr: str


_ASKED = {
    "hang": "was alive but its conduit had given up on it; killed",
    "replaced": "was replaced by another attempt",
    "fenced": "belonged to an older generation of the query",
    "stopped": "was stopped with its server",
    "deaf": "did not read its control line any more; killed",
}


def classify(ending: Ending) -> Death:
    """Names the cause of a death as well as it can be known."""
    code = os.waitstatus_to_exitcode(ending.status)
    name = _signal_name(-code) if code < 0 else None
    memory = f"its memory peaked at {ending.max_rss_kib // 1024} MiB"
    if ending.killed_for is not None and name == "SIGKILL":
        kind = "hang" if ending.killed_for == "deaf" else ending.killed_for
        message = _ASKED.get(ending.killed_for, f"was killed: {ending.killed_for}")
    elif name == "SIGKILL" and ending.oom_kills > 0:
        kind, message = "oom", f"was killed by the kernel for want of memory; {memory}"
    elif name == "SIGKILL":
        kind = "signal"
        message = f"was killed by SIGKILL, not sent by its server; {memory}"
    elif name is not None:
        kind, message = "signal", f"died of {name}; {memory}"
    else:
        kind, message = "exit", f"ended by itself with exit code {code}"
    who = (
        "a spare"
        if ending.node is None
        else f"the replica of operator {ending.node}, instance {ending.instance}"
    )
    return Death(
        kind=kind,
        message=f"{who} (process {ending.pid}) {message}",
        node=ending.node,
        instance=ending.instance,
        pid=ending.pid,
        at=time.time(),
        uptime=round(time.monotonic() - ending.started, 3),
        code=code if code >= 0 else None,
        signal=name,
        max_rss_kib=ending.max_rss_kib,
        stderr=ending.stderr,
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
    """`<data>/deaths.jsonl`: every death that nobody asked for, one JSON object per line."""

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
