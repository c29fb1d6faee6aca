"""Does one thing to one process of a query.

Only a process that the query's status names is touched. Numbers of processes are used again, so the process is taken
hold of first (a pidfd) and the status asked once more: what both times is the instance's process is the one that is
held, and signals go to what is held, never to a number. Whatever is stopped goes on when the strike is over, however it
ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from clonos.errors import ClonosError, ConfigurationError
from clonos.inject.damage import damage
from clonos.inject.plan import Kind, Strike, Target, can_suffer
from clonos.live_query import LiveQuery

SLICE_SECONDS = 0.02
_STOP_SECONDS = 5.0
_LOOK_SECONDS = 0.001


class NoProcess(ClonosError):
    """An instance has no process at the moment, or another one than a moment ago."""


class Held:
    """A process that cannot be mistaken for another."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def send(self, number: signal.Signals) -> None:
        """Raises ProcessLookupError where it has ended."""
        signal.pidfd_send_signal(self._descriptor, number)

    def ended_within(self, seconds: float) -> bool:
        """Wait for its end, so long at most."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

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


def strike(query: LiveQuery, what: Strike, say: Callable[[str], None]) -> None:
    """Do it, and `say` what has been done. Raises NoProcess, NotRunning, ConfigurationError."""
    kind, target = what.action.kind, what.target
    name = str(target) if target is not None else "replica server"
    if target is not None and not can_suffer(what.action, target):
        raise ConfigurationError(
            f"{name} is a sink: its log is kept with its output, not on this host's disk"
        )
    with hold(query, target) as held:
        who = f"{name}, process {held.pid}"
        try:
            if kind is Kind.STOP:
                say(f"{who}: stopped for {what.action.seconds:g} s")
                _stop(held, what.action.seconds, lambda text: say(f"{who}: {text}"))
            elif kind is Kind.SLOW:
                say(f"{who}: slowed {what.action.factor:g} times for {what.action.seconds:g} s")
                _slow(held, what.action.factor, what.action.seconds, lambda text: say(f"{who}: {text}"))
            elif kind is Kind.CORRUPT_LOG:
                assert target is not None
                folder = query.data / "logs" / str(target.node.number) / str(target.instance)
                hurt = _corrupt(held, folder)
                say(f"{who}: {hurt} files of its causal log damaged in {folder}, then killed")
            else:
                held.send(signal.SIGKILL)
                say(f"{who}: killed")
        except ProcessLookupError:
            raise NoProcess(f"{who} has ended by itself") from None
        except PermissionError:
            raise ConfigurationError(f"{who} belongs to another user") from None


@contextlib.contextmanager
def hold(query: LiveQuery, target: Target | None) -> Iterator[Held]:
    """The process that the status names for an instance, or the replica server's."""
    if not hasattr(os, "pidfd_open"):
        raise ConfigurationError("processes cannot be taken hold of on this system: this works on Linux")
    pid = _named(query.status(), target)
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        raise NoProcess(f"process {pid} of {target or 'the replica server'} has just ended") from None
    try:
        if _named(query.status(), target) != pid:
            raise NoProcess(f"{target or 'the replica server'} has just been given another process")
        yield Held(pid, descriptor)
    finally:
        os.close(descriptor)


def _named(status: dict[str, Any], target: Target | None) -> int:
    if target is None:
        return int(status["pid"])
    for replica in status["replicas"]:
        place = replica["node"], replica["instance"]
        if place == (target.node.number, target.instance) and not replica["standby"]:
            if replica.get("place"):
                raise NoProcess(f"{target} is on {replica['place']} now, out of reach from this host")
            return int(replica["pid"])
    raise NoProcess(f"{target} has no process now")


def _stop(held: Held, seconds: float, say: Callable[[str], None]) -> None:
    with held.standing():
        if held.ended_within(seconds):
            return say("has been killed and replaced meanwhile")
    return say("goes on")


def _slow(held: Held, factor: float, seconds: float, say: Callable[[str], None]) -> None:
    """Lets the process run for one slice and stand for the rest."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with held.standing():
            if held.ended_within(SLICE_SECONDS * (1 - 1 / factor)):
                return say("has ended meanwhile")
        if held.ended_within(SLICE_SECONDS / factor):
            return say("has ended meanwhile")
    return say("is as quick as before")


def _corrupt(held: Held, folder: Path) -> int:
    with held.standing():
        hurt = damage(folder)
        if not hurt:
            raise NoProcess(f"there is nothing yet in {folder} that could be damaged")
        held.send(signal.SIGKILL)
    return hurt


def _all_stopped(pid: int) -> bool:
    """A process that is gone counts as stopped: whoever signals it finds out."""
    try:
        for entry in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{entry}/stat").read_text()
            if text[text.rfind(")") + 2] not in "TtZX":
                return False
    except OSError:
        return not os.path.exists(f"/proc/{pid}")
    return True
