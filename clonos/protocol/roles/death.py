"""How a replica process died, as the server of its host classifies it.

A process can end in ways that ask for different answers: the user's function broke the interpreter (a signal such as
SIGSEGV), the kernel took it for want of memory, it ended on its own (an exit code), another program killed it, or it is
alive but its conduit has given up on it (a hang). The wait status alone does not tell the last three apart. So the
certificate also counts what the server did itself, and what the kernel's counters say.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from clonos.protocol.ids import InstanceId, NodeId, Origin

KILLED: Final = "SIGKILL"
REPORTED: Final = 70
"""Exit code of a process that has told its conduit why it ends."""
LET_GO: Final = 71
"""Exit code of a standby whose conduit needs it no more: the epoch, or the query, is over."""
STUCK: Final = 71
"""Exit code of another process that made no progress for too long."""
RELEASED: Final = "released"


class KillReason(StrEnum):
    """Why a server kills a process of its own."""

    HANG = "hang"  # its conduit has given up on it
    DEAF = "deaf"  # it does not read what the server says
    REPLACED = "replaced"  # another task attempt runs the instance
    FENCED = "fenced"  # another start of the query runs


_WHAT: Final = {
    KillReason.HANG: "was alive but its conduit had given up on it; killed",
    KillReason.DEAF: "did not read its control line any more; killed",
    KillReason.REPLACED: "was replaced by another attempt",
    KillReason.FENCED: "belonged to an older generation of the query",
}


@dataclass(frozen=True, slots=True)
class Death:
    """One death of a replica. `kind` is exit, signal, oom, hang, replaced, fenced or released."""

    kind: str
    message: str
    node: NodeId | None
    instance: InstanceId | None
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
        return self.kind in (KillReason.REPLACED, KillReason.FENCED, RELEASED)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known when a process has been reaped.

    `origin` is None for a spare. Either its exit code is known, or the name of the signal that ended it.
    `oom_kills` is how often the kernel has killed for want of memory since the last death. `standby`: it stood by when
    it ended.
    """

    origin: Origin | None
    pid: int
    code: int | None
    signal: str | None
    killed_for: KillReason | None
    at: float
    uptime: float
    max_rss_kib: int = 0
    oom_kills: int = 0
    standby: bool = False
    stderr: str = ""


def classify_death(ending: Ending) -> Death:
    """Names the cause of a death as well as it can be known."""
    kind, what = _cause(ending)
    node, instance = ending.origin if ending.origin is not None else (None, None)
    process = "a spare" if node is None else f"the replica of operator {node}, instance {instance}"
    return Death(
        kind=kind,
        message=f"{process} (process {ending.pid}) {what}",
        node=node,
        instance=instance,
        pid=ending.pid,
        at=ending.at,
        uptime=ending.uptime,
        code=ending.code,
        signal=ending.signal,
        max_rss_kib=ending.max_rss_kib,
        stderr=ending.stderr,
    )


def _cause(ending: Ending) -> tuple[str, str]:
    memory = f"its memory peaked at {ending.max_rss_kib // 1024} MiB"
    reason = ending.killed_for
    if ending.code == LET_GO and ending.standby:
        return RELEASED, "was a standby that its conduit has let go of"
    if ending.code == STUCK:
        return "exit", f"ended by itself, as it made no progress for too long (exit code {STUCK})"
    if ending.signal is None:
        return "exit", f"ended by itself with exit code {ending.code}"
    if ending.signal != KILLED:
        return "signal", f"died of {ending.signal}; {memory}"
    if reason is not None:
        return (KillReason.HANG if reason is KillReason.DEAF else reason).value, _WHAT[reason]
    if ending.oom_kills > 0:
        return "oom", f"was killed by the kernel for want of memory; {memory}"
    return "signal", f"was killed by {KILLED}, not sent by its server; {memory}"
