"""Processes of a side: started with their words in a file, found as a tree, ended as a tree."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import defaultdict
from pathlib import Path

_GRACE_S = 10.0


def launch(command: list[str], words: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a command; what it says goes behind what `words` holds."""
    with words.open("a") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env=os.environ | environment,
        )


def tree(root: int) -> dict[int, str]:
    """The command lines of a process's descendants, and of it, by process id."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (entry / "stat").read_text()
            children[int(stat.rpartition(")")[2].split()[1])].append(int(entry.name))
    found, left = {}, [root]
    while left:
        pid = left.pop()
        left += children[pid]
        with contextlib.suppress(OSError):
            found[pid] = (
                Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
    return found


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def end(process: subprocess.Popen[str]) -> None:
    """Ask the process to stop; processes of its tree that are still there after a while are killed."""
    family = tree(process.pid)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    deadline = time.monotonic() + _GRACE_S
    while (left := [pid for pid in family if _is(pid, family[pid])]) and time.monotonic() < deadline:
        for pid in left:
            kill(pid)
        time.sleep(0.05)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _is(pid: int, command: str) -> bool:
    """Whether the process is still the one that was seen, and not only waiting to be reaped."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            == command
            != ""
        )
    except OSError:
        return False
