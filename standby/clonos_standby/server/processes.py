"""What the supervisor asks of the operating system about processes.

Nothing may outlive the driver: a replica that keeps running after its server was killed would hold state, sockets and
files that its successor needs. On Linux the kernel kills a child with its parent (PR_SET_PDEATHSIG); elsewhere the end
of the control line does it, as soon as the child looks. Each replica leads a process group of its own, so that
processes which the user's function has started go with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PF_EXITING = 0x4


def die_with_parent(parent: int) -> None:
    """Asks to be killed when the parent dies, and exits if it has died already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def go_on_when_parent_dies() -> None:
    """Asks to be continued when the parent dies: a process that was stopped by a signal cannot notice it by itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)


def thread_count() -> int:
    """All threads of this process, also those that Python does not know of; 1 where there is no /proc."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def close_descriptors(keep: set[int]) -> None:
    """Closes every descriptor but those to keep."""
    try:
        open_ones = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        open_ones = list(range(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    for fd in open_ones:
        if fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)


def kill_group(pid: int, number: int = signal.SIGKILL) -> None:
    """Signals a child that has not been reaped yet, and what it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def wait_for(pid: int) -> tuple[int, int] | None:
    """Wait status and peak memory in KiB of a child that has ended, None while it runs. What the child has started is
    killed before it is reaped, as long as its process group cannot be another one's."""
    try:
        if hasattr(os, "waitid"):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        reaped, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return 0, 0
    return (status, usage.ru_maxrss) if reaped else None


@dataclass(frozen=True, slots=True)
class Look:
    """What /proc says of a process: `stopped` cannot run a handler, `exiting` is dying by itself."""

    stopped: bool = False
    exiting: bool = False


def look_at(pid: int) -> Look:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return Look()
    fields = text[text.rfind(")") + 2 :].split()
    state, flags = fields[0], int(fields[6])
    return Look(stopped=state in "Tt", exiting=state in "ZX" or bool(flags & _PF_EXITING))


def resident_bytes(pid: int) -> int | None:
    """Memory that a process has in RAM, what it shares with others included; None where /proc does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * resource.getpagesize()


def oom_kills() -> int:
    """How often the kernel has killed for want of memory, as far as this process may see."""
    total = 0
    for path in _oom_files():
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    total += int(value)
    return total


def _oom_files() -> list[Path]:
    files = [Path("/proc/vmstat")]
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return files
    root = Path("/sys/fs/cgroup")
    for line in lines:
        _, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if controllers == "":
            files += [root / inside / "memory.events", root / "unified" / inside / "memory.events"]
        elif "memory" in controllers.split(","):
            files.append(root / "memory" / inside / "memory.oom_control")
    return files
