"""Does one thing to one process of a query on this host.

Only a process that the status of the query's own server names is touched. Numbers of processes are used again, so the
process is taken hold of first (a pidfd) and the status asked once more: what both times plays the role is the one that
is held, and signals go to what is held, never to a number. Whatever is stopped goes on when the strike is over, however
it ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from clonos.errors import ClonosError, ConfigurationError
from clonos.protocol.ids import Origin
from clonos.wire.server_status import ReplicaStatus, ServerStatus
from clonos.wire.strikes import FaultCommand, Kind, NoProcess, Role
from clonos_standby.server.damage import damage

SLICE_SECONDS = 0.02
_STOP_SECONDS = 5.0
_LOOK_SECONDS = 0.001
_GONE_SECONDS = 0.1
ReplicaStatusT = TypeVar("ReplicaStatusT", bound=ReplicaStatus)


class GivenUp(ClonosError):
    """The command that asked for the strike is gone, or the service that carries it out ends."""


class Held:
    """A process that cannot be mistaken for another."""

    def __init__(self, pid: int, descriptor: int, gone: Callable[[], bool]) -> None:
        """`gone`: whether the strike is to be given up; looked at while it waits."""
        self.pid = pid
        self._descriptor = descriptor
        self._gone = gone

    def send(self, number: signal.Signals) -> None:
        """Raises ProcessLookupError where it has ended."""
        signal.pidfd_send_signal(self._descriptor, number)

    def ended_within(self, seconds: float) -> bool:
        """Wait for its end, so long at most. Raises GivenUp."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        deadline = time.monotonic() + seconds
        while not (ended := bool(poll.poll(_milliseconds(deadline)))) and time.monotonic() < deadline:
            if self._gone():
                raise GivenUp("the strike was given up")
        return ended

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        """Stopped, and for certain: none of its threads runs."""
        try:
            self.send(signal.SIGSTOP)
            deadline = time.monotonic() + _STOP_SECONDS
            while not _all_stopped(self.pid):
                if time.monotonic() > deadline:
                    raise NoProcess(f"process {self.pid} does not stop")
                time.sleep(_LOOK_SECONDS)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                self.send(signal.SIGCONT)


@contextlib.contextmanager
def hold(look: Callable[[], int], who: str, gone: Callable[[], bool] = lambda: False) -> Iterator[Held]:
    """The process that `look` names, before and after it is held. Raises NoProcess."""
    if not hasattr(os, "pidfd_open"):
        raise ConfigurationError("processes cannot be taken hold of on this system: this works on Linux")
    pid = look()
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        raise NoProcess(f"process {pid} of {who} has just ended") from None
    try:
        if look() != pid:
            raise NoProcess(f"{who} has just been given another process")
        yield Held(pid, descriptor, gone)
    finally:
        os.close(descriptor)


def playing(replicas: Iterable[ReplicaStatusT], origin: Origin, *, standby: bool) -> ReplicaStatusT | None:
    """The replica that is an instance's primary, or its standby, now. One that the instance has left behind on another
    server is idle, and has acted under an older fence."""
    mine = (one for one in replicas if (one["node"], one["instance"]) == origin and one["standby"] is standby)
    return max(mine, key=lambda one: (one["fence"] or "", one["busy"] is not None), default=None)


def pid_of(status: ServerStatus, command: FaultCommand, who: str) -> int:
    """The process that plays the role now, by a server's status. Raises NoProcess."""
    if command.role is Role.SERVER:
        return status["pid"]
    found = playing(status["replicas"], command.origin, standby=command.role is Role.STANDBY)
    if found is None:
        raise NoProcess(f"{who} has no process now")
    return found["pid"]


def strike(
    command: FaultCommand,
    status: Callable[[], ServerStatus],
    data: Path,
    who: str,
    gone: Callable[[], bool] = lambda: False,
) -> Iterator[str]:
    """Do it at the server with this status and data directory; what has been done, as it is done.

    Raises NoProcess, ConfigurationError; GivenUp when `gone` says so.
    """
    command.check()

    with hold(lambda: pid_of(status(), command, who), who, gone) as held:
        named = f"{who}, process {held.pid}"
        try:
            if command.kind is Kind.CORRUPT_LOG:
                folder = data / "logs" / str(command.node) / str(command.instance)
                hurt = _corrupt(held, folder)
                yield f"{named}: {hurt} files of its causal log damaged in {folder}, then killed"
            elif command.kind is Kind.KILL:
                held.send(signal.SIGKILL)
                yield f"{named}: killed"
            else:
                yield f"{named}: {_announced(command)}"
                yield f"{named}: {_lasting(command, held, status, gone)}"
        except ProcessLookupError:
            raise NoProcess(f"{named} has ended by itself") from None
        except PermissionError:
            raise ConfigurationError(f"{named} belongs to another user") from None


def _announced(command: FaultCommand) -> str:
    if command.kind is Kind.SLOW:
        return f"slowed {command.factor:g} times for {command.seconds:g} s"
    how = "stopped" if command.kind is Kind.STOP else "cut off, with all that it runs,"
    return f"{how} for {command.seconds:g} s"


def _lasting(
    command: FaultCommand, held: Held, status: Callable[[], ServerStatus], gone: Callable[[], bool]
) -> str:
    """How it has ended."""
    if command.kind is Kind.SLOW:
        return _slow(held, command.factor, command.seconds)
    with contextlib.ExitStack() as stack:
        if command.kind is Kind.PARTITION:
            for one in _hold_all(status, gone, stack):
                with contextlib.suppress(ProcessLookupError):
                    stack.enter_context(one.standing())
        stack.enter_context(held.standing())
        if held.ended_within(command.seconds):
            return "has been killed and replaced meanwhile"
    return "goes on"


def _hold_all(
    status: Callable[[], ServerStatus], gone: Callable[[], bool], stack: contextlib.ExitStack
) -> list[Held]:
    """What a server runs, until the stack is closed."""
    held = []
    for pid in _run_by(status()):
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            stack.callback(os.close, descriptor)
            held.append(Held(pid, descriptor, gone))
    still = set(_run_by(status()))
    return [one for one in held if one.pid in still]


def _run_by(status: ServerStatus) -> list[int]:
    found = [*(one["pid"] for one in status["replicas"]), *status["spares"], status["grpc_pid"]]
    return [pid for pid in found if pid is not None]


def _slow(held: Held, factor: float, seconds: float) -> str:
    """Lets the process run for one slice and stand for the rest."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with held.standing():
            if held.ended_within(SLICE_SECONDS * (1 - 1 / factor)):
                return "has ended meanwhile"
        if held.ended_within(SLICE_SECONDS / factor):
            return "has ended meanwhile"
    return "is as quick as before"


def _corrupt(held: Held, folder: Path) -> int:
    with held.standing():
        hurt = damage(folder)
        if not hurt:
            raise NoProcess(f"there is nothing yet in {folder} that could be damaged")
        held.send(signal.SIGKILL)
    return hurt


def _milliseconds(deadline: float) -> float:
    return max(0.0, min(_GONE_SECONDS, deadline - time.monotonic())) * 1000


def _all_stopped(pid: int) -> bool:
    """A process that is gone counts as stopped: the signal that is sent to it next fails."""
    try:
        for entry in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{entry}/stat").read_text()
            if text[text.rfind(")") + 2] not in "TtZX":
                return False
    except OSError:
        return not os.path.exists(f"/proc/{pid}")
    return True
