"""The supervisor: which process runs which instance, and what happens when it does not.

It is the only place that knows all replicas of this host. For every connection that shows a newer fence it makes sure
that exactly one process serves the instance: the one that already does, if it stands at the end of the epoch before;
otherwise a warm spare, and then only after the old process is dead and reaped. That order is what makes fencing true
here (I6): nothing written under an older fence can take effect when the process that would write it no longer exists,
and its locks and files are free for the next.

A conduit that comes back (`fresh` false) while its replica is alive has given up on it: that is how a hang shows. The
replica is asked for a dump of its threads, which only one that can still run will write, and is killed. Conduits count
attempts and decide when to stop; the supervisor refuses only what can never work (a fence that has been overtaken,
replicas that do not even start).

A conduit notices a death by the end of its connection. A dying process closes that late
(clonos_standby.server.lifeline), so the supervisor keeps every connection that it has handed over and shuts it down
when it hears of the death.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from clonos.errors import (
    ClonosError,
    ConfigurationError,
    Fenced,
    ProtocolError,
    ReplicaLost,
    StorageUnavailable,
)
from clonos.protocol.roles.admission import goes_on
from clonos.wire.messages import Hello
from clonos_standby.server.acceptor import Acceptor
from clonos_standby.server.control import ControlChannel
from clonos_standby.server.death import Death, DeathLog, Ending, classify
from clonos_standby.server.death_notice import DeathNotice
from clonos_standby.server.event_loop import READ, WRITE, Loop, Timer
from clonos_standby.server.fences import FenceTable
from clonos_standby.server.lifeline import Lifelines
from clonos_standby.server.log import log
from clonos_standby.server.processes import kill_group, look_at, oom_kills, resident_bytes, wait_for
from clonos_standby.server.server_stats import Account
from clonos_standby.server.spares import Spare, fork_spare

Key: TypeAlias = tuple[int, int]

DUMP_SECONDS = 0.25
_QUIET_SECONDS = 0.02
_REAP_SECONDS = 20.0
_GIVE_UP_AFTER = 3
_PROVEN_SECONDS = 1.0
_LONGEST_PAUSE = 5.0
_FAILURES_KEPT = 32
_LIFELINES = 1024


@dataclass(eq=False)
class Replica:
    """A child process; a spare as long as it has no key."""

    spare: Spare
    lifeline: int | None = None
    connection: socket.socket | None = None
    key: Key | None = None
    hello: Hello | None = None
    at_end: int | None = None
    busy: int | None = None
    follows: int | None = None
    killed_for: str | None = None
    kill_timer: Timer | None = None

    @property
    def pid(self) -> int:
        return self.spare.pid

    @property
    def control(self) -> ControlChannel:
        return self.spare.control

    def serves(self, hello: Hello) -> bool:
        """Whether this process may go on with what the HELLO begins."""
        return self.killed_for is None and goes_on(hello, last=self.hello, at_end=self.at_end)

    def keep(self, connection: socket.socket | None) -> None:
        """In place of the one before."""
        if self.connection is not None:
            self.connection.close()
        self.connection = connection

    def disconnect(self) -> None:
        """What has been sent arrives, and then the end."""
        if self.connection is not None:
            with contextlib.suppress(OSError):  # it has ended already
                self.connection.shutdown(socket.SHUT_RDWR)
            self.keep(None)


@dataclass(eq=False)
class _Pending:
    sock: socket.socket
    hello: Hello


class Supervisor:
    """Owns the replica processes. All methods run on the loop's thread."""

    def __init__(
        self,
        loop: Loop,
        acceptor_answers: Acceptor | None,
        data: Path,
        entry: str,
        spec_path: str,
        *,
        spares: int = 2,
    ) -> None:
        self.acceptor = acceptor_answers
        self.fences = FenceTable(data / "fences")
        self.deaths = DeathLog(data / "deaths.jsonl")
        self.failures: deque[dict[str, Any]] = deque(maxlen=_FAILURES_KEPT)
        self.account = Account(data / "recoveries.jsonl")
        self.started_at = time.time()
        self._loop = loop
        self._data = data
        self._entry = entry
        self._spec_path = spec_path
        self._wanted = spares
        self._children: dict[int, Replica] = {}
        self._serving: dict[Key, Replica] = {}
        self._pending: dict[Key, _Pending] = {}
        self._last_death: dict[Key, Death] = {}
        self._recovering: set[Key] = set()
        self._failures = 0
        self._next_fork = 0.0
        self._oom_seen = oom_kills()
        self._waiting_for_death: list[tuple[set[int], Any]] = []
        lifelines = Lifelines.if_possible(_LIFELINES)
        self._notice = None if lifelines is None else DeathNotice(loop, lifelines, self._dying, self._living)
        (data / "replicas").mkdir(parents=True, exist_ok=True)

    # -- connections -------------------------------------------------------------------------------------------

    def connect(self, sock: socket.socket, hello: Hello) -> None:
        """A conduit with a good token."""
        key = (hello.node, hello.instance)
        try:
            if hello.generation < self.fences.generation:
                raise Fenced(
                    f"generation {hello.generation} of operator {hello.node}, instance {hello.instance} "
                    f"is over; the query runs generation {self.fences.generation}"
                )
            admit = self.fences.admit_standby if hello.standby else self.fences.raise_to
            if not admit(*key, hello.fence):
                raise Fenced(
                    f"fence {hello.fence:x} of operator {hello.node}, instance {hello.instance}, epoch {hello.epoch} "
                    f"is not newer than {self.fences.fence(*key) or 0:x}, which a later attempt has shown"
                )
            self._place(key, _Pending(sock, hello))
        except ClonosError as error:
            log(
                "connection_refused",
                f"operator {hello.node}, instance {hello.instance}: {error}",
                node=hello.node,
                instance=hello.instance,
                epoch=hello.epoch,
            )
            self._refuse(sock, error)
        except OSError as error:
            self._refuse(sock, _short_of_something(error))

    def _place(self, key: Key, pending: _Pending) -> None:
        overtaken = self._pending.pop(key, None)
        if overtaken is not None:
            self._refuse(overtaken.sock, Fenced("a later attempt has connected"))
        current = self._serving.get(key)
        if current is not None:
            self._hear(current)  # what it reported before this connection came
            current = self._serving.get(key)
        if current is None:
            self._serve(key, pending)
        elif current.serves(pending.hello):
            self._hand_over(current, pending)
        else:
            self._pending[key] = pending
            self._doom(current, "replaced" if pending.hello.fresh else "hang")

    def _serve(self, key: Key, pending: _Pending) -> None:
        replica = self._take_spare()
        replica.key = key
        self._serving[key] = replica
        if not pending.hello.fresh and not pending.hello.standby:
            self._recovering.add(key)
        replica.spare.output.name(self._data / "replicas" / f"{key[0]}-{key[1]}.err")
        with contextlib.suppress(ProtocolError):  # it is dead; the hand-over finds out
            replica.control.send({"assign": {"node": key[0], "instance": key[1]}})
        self._hand_over(replica, pending)

    def _hand_over(self, replica: Replica, pending: _Pending) -> None:
        hello, sock = pending.hello, pending.sock
        assert replica.key is not None
        replica.hello, replica.at_end, replica.busy = hello, None, hello.epoch
        previous = self._last_death.get(replica.key)
        message = {"connect": hello.to_dict(), "previous": previous.to_dict() if previous else None}
        sock.setblocking(True)
        try:
            replica.control.send(message, [sock.fileno()])
        except ProtocolError:
            self._pending[replica.key] = pending
            self._doom(replica, "deaf")
            return
        if self._notice is not None:
            replica.keep(sock)
        else:
            sock.close()
        self._watch_control(replica)

    def _refuse(self, sock: socket.socket, error: ClonosError) -> None:
        if self.acceptor is not None:
            self.acceptor.refuse(sock, error)
        else:
            sock.close()

    # -- spares ------------------------------------------------------------------------------------------------

    def _spares(self) -> list[Replica]:
        return [child for child in self._children.values() if child.key is None and child.killed_for is None]

    def idle(self) -> bool:
        """Forks one missing spare; whether more are missing. What it imports would take processors from a recovery."""
        spares = len(self._spares())
        if spares >= self._wanted or (spares and self._recovering):
            return False
        if time.monotonic() < self._next_fork:
            return False
        with contextlib.suppress(ReplicaLost):
            self._fork()
            return len(self._spares()) < self._wanted
        return False

    def _take_spare(self) -> Replica:
        proven = time.monotonic() - (_PROVEN_SECONDS if self._failures >= _GIVE_UP_AFTER else 0.0)
        for spare in self._spares():
            if spare.spare.started <= proven and not look_at(spare.pid).exiting:
                return spare
        if self._failures >= _GIVE_UP_AFTER:
            last = self.deaths.recent[-1] if self.deaths.recent else None
            raise ConfigurationError(
                f"replica processes do not start: {last.message if last else 'no reason is known'}\n"
                f"{last.stderr if last else ''}".rstrip(),
                hint=f"See {self._data / 'deaths.jsonl'}",
            )
        return self._fork()

    def _fork(self) -> Replica:
        lifeline = self._notice.lifelines.take() if self._notice else None
        try:
            replica = Replica(
                fork_spare(self._entry, self._spec_path, partial(self._enroll, lifeline)), lifeline
            )
        except OSError as error:
            self._no_longer_held(lifeline)
            self._back_off()
            raise ReplicaLost(f"no process can be started on this host: {error}") from None
        self._children[replica.pid] = replica
        if self._failures:
            self._loop.later(_PROVEN_SECONDS, lambda: self._proven(replica))
        self._watch_control(replica)
        self._watch_output(replica)
        return replica

    def _enroll(self, lifeline: int | None) -> None:
        """In the forked process."""
        if self._notice is not None and lifeline is not None:
            self._notice.enroll(lifeline)

    def _no_longer_held(self, lifeline: int | None) -> None:
        if self._notice is not None and lifeline is not None:
            self._notice.lifelines.give_back(lifeline)

    def _proven(self, replica: Replica) -> None:
        """A spare that is still alive after a while means that replicas start again."""
        if replica.pid in self._children and replica.killed_for is None:
            self._failures = 0

    def _back_off(self) -> None:
        pause = min(0.05 * 2**self._failures, _LONGEST_PAUSE)
        self._next_fork = time.monotonic() + pause
        self._loop.later(pause, lambda: None)

    # -- what replicas say -------------------------------------------------------------------------------------

    def _watch_control(self, replica: Replica) -> None:
        events = READ | (WRITE if replica.control.wants_write else 0)
        self._loop.watch(replica.control.fileno(), lambda mask: self._control_ready(replica, mask), events)

    def _control_ready(self, replica: Replica, mask: int) -> None:
        if mask & WRITE:
            try:
                replica.control.flush()
            except ProtocolError:
                self._loop.forget(replica.control.fileno())
                return
            self._watch_control(replica)
        if mask & READ:
            self._hear(replica)

    def _hear(self, replica: Replica) -> None:
        try:
            said = replica.control.poll()
        except ProtocolError:
            self._loop.forget(replica.control.fileno())  # gone: its death is noticed on its own
            return
        for control in said:
            for fd in control.fds:
                os.close(fd)
            if "failed" in control.message:
                node, instance = replica.key if replica.key is not None else (None, None)
                place = {"node": node, "instance": instance}
                self.failed({"at": time.time(), **place, **control.message["failed"]})
            self._note(replica, control.message)
            if "follows" in control.message:
                replica.follows = control.message["follows"]
            if "promote" in control.message:
                self._promote(replica, Hello.from_dict(control.message["promote"]))
            for name in ("at_end", "busy"):
                epoch = control.message.get(name)
                if isinstance(epoch, int):
                    replica.at_end = epoch if name == "at_end" else None
                    replica.busy = epoch if name == "busy" else None

    def _note(self, replica: Replica, said: Mapping[str, Any]) -> None:
        """Words for whoever watches: nothing here depends on them."""
        if replica.key is not None:
            if "figures" in said:
                self.account.heard(replica.key, replica.pid, said["figures"])
            if said.keys() & {"recovered", "figures", "at_end"}:
                self._recovering.discard(replica.key)
            if "recovered" in said:
                self.account.recovered(replica.key, said["recovered"], self._last_death.get(replica.key))

    def _promote(self, replica: Replica, hello: Hello) -> None:
        """A standby has been told by its conduit that it is the replica; it acts when the fence is on disk."""
        current = replica.key is not None and self._serving.get(replica.key) is replica
        answer: dict[str, Any] = {"promoted": False}
        try:
            if current and self.fences.raise_to(hello.node, hello.instance, hello.fence):
                replica.hello = hello
                answer = {"promoted": True}
        except StorageUnavailable as error:
            answer["cannot"] = error.message
        with contextlib.suppress(ProtocolError):  # it is dead, which shows by itself
            replica.control.send(answer)
            self._watch_control(replica)

    def failed(self, failure: dict[str, Any]) -> None:
        """A replica or a conduit has told why it fails its task."""
        self.failures.append(failure)
        self.account.failures += 1

    def _watch_output(self, replica: Replica) -> None:
        output = replica.spare.output

        def ready(_events: int) -> None:
            output.read()
            if output.eof:
                self._loop.forget(output.fd)
            elif replica.kill_timer is not None:
                self._kill_later(replica, _QUIET_SECONDS)

        self._loop.watch(output.fd, ready)

    def broadcast(self, message: dict[str, Any]) -> int:
        """Tells every replica that serves an instance; how many there are."""
        self.account.committed = message.get("commit", self.account.committed)
        for replica in list(self._serving.values()):
            if replica.killed_for is None:
                try:
                    replica.control.send(message)
                except ProtocolError:
                    self._doom(replica, "deaf")
                else:
                    self._watch_control(replica)
        return len(self._serving)

    # -- death -------------------------------------------------------------------------------------------------

    def _living(self) -> list[tuple[int, int]]:
        return [(child.lifeline, pid) for pid, child in self._children.items() if child.lifeline is not None]

    def _dying(self, pid: int) -> None:
        """It does nothing any more, but has not ended yet."""
        if pid in self._children:
            self._children[pid].disconnect()

    def _doom(self, replica: Replica, reason: str) -> None:
        """Kills a process for a reason; one that hangs is asked for its stacks first, if it can still answer."""
        if replica.killed_for is not None:
            return
        look = look_at(replica.pid)
        if look.exiting:
            return  # it dies on its own account; reaping it serves who waits
        replica.killed_for = reason
        if reason == "hang" and not look.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(replica.pid, signal.SIGUSR1)
            self._kill_later(replica, DUMP_SECONDS)
        else:
            self._kill(replica)

    def _kill_later(self, replica: Replica, delay: float) -> None:
        due = time.monotonic() + delay
        if replica.kill_timer is not None:
            if replica.kill_timer.due <= due:
                return
            replica.kill_timer.cancel()
        replica.kill_timer = self._loop.later(delay, lambda: self._kill(replica))

    def _kill(self, replica: Replica) -> None:
        if replica.pid in self._children:
            kill_group(replica.pid)
            self._loop.later(_REAP_SECONDS, lambda: self._cannot_kill(replica))

    def _cannot_kill(self, replica: Replica) -> None:
        if replica.pid in self._children and replica.key is not None:
            pending = self._pending.pop(replica.key, None)
            if pending is not None:
                self._refuse(
                    pending.sock, ReplicaLost(f"process {replica.pid} of an earlier attempt cannot be killed")
                )

    def reap(self) -> None:
        """Some child has died: finds out which, and serves who waited for it."""
        for replica in list(self._children.values()):
            ended = wait_for(replica.pid)
            if ended is not None:
                self._buried(replica, *ended)

    def _buried(self, replica: Replica, status: int, max_rss: int) -> None:
        replica.disconnect()
        self._no_longer_held(replica.lifeline)
        self._hear(replica)  # its last words
        death = self._certify(replica, status, max_rss)
        del self._children[replica.pid]
        if replica.kill_timer is not None:
            replica.kill_timer.cancel()
        self._loop.forget(replica.control.fileno())
        self._loop.forget(replica.spare.output.fd)
        replica.control.close()
        replica.spare.output.close()
        self.account.died(death)
        if not death.expected:
            log("replica_died", death.message, node=death.node, instance=death.instance)
            self.deaths.add(death)
        if replica.key is None and not death.expected and death.signal != "SIGKILL":
            self._failures += 1
            self._back_off()
        self._after(replica, death)
        for pids, done in list(self._waiting_for_death):
            pids.discard(replica.pid)
            if not pids:
                self._waiting_for_death.remove((pids, done))
                done()

    def _certify(self, replica: Replica, status: int, max_rss: int) -> Death:
        replica.spare.output.drain()
        seen = oom_kills()
        node, instance = replica.key if replica.key is not None else (None, None)
        death = classify(
            Ending(
                node=node,
                instance=instance,
                pid=replica.pid,
                status=status,
                killed_for=replica.killed_for,
                started=replica.spare.started,
                max_rss_kib=max_rss,
                oom_kills=seen - self._oom_seen,
                stderr=replica.spare.output.tail(),
            )
        )
        self._oom_seen = seen
        return death

    def _after(self, replica: Replica, death: Death) -> None:
        key = replica.key
        if key is None or self._serving.get(key) is not replica:
            return
        del self._serving[key]
        self._recovering.discard(key)
        self._last_death[key] = death
        pending = self._pending.pop(key, None)
        if pending is not None:
            try:
                self._serve(key, pending)
            except ClonosError as error:
                self._refuse(pending.sock, error)
            except OSError as error:
                self._refuse(pending.sock, _short_of_something(error))

    # -- the driver --------------------------------------------------------------------------------------------

    def set_generation(self, generation: int, done: Any) -> None:
        """From now on only this generation: older replicas are dead when `done` is called."""
        self.fences.raise_generation(generation)
        for key, pending in list(self._pending.items()):
            if pending.hello.generation < generation:
                del self._pending[key]
                self._refuse(pending.sock, Fenced(f"the query runs generation {generation}"))
        pids = set()
        for replica in self._serving.values():
            if replica.hello is not None and replica.hello.generation < generation:
                pids.add(replica.pid)
        for replica in [child for pid, child in self._children.items() if pid in pids]:
            self._doom(replica, "fenced")
            self._kill(replica)
        if pids:
            self._waiting_for_death.append((pids, done))
        else:
            done()

    def status(self) -> dict[str, Any]:
        replicas = []
        for key, replica in sorted(self._serving.items()):
            hello, work = replica.hello, self.account.work.get(key)
            replicas.append(
                {
                    "node": key[0],
                    "instance": key[1],
                    "pid": replica.pid,
                    "at_end": replica.at_end,
                    "busy": replica.busy,
                    "epoch": hello.epoch if hello else None,
                    "generation": hello.generation if hello else None,
                    "standby": hello.standby if hello else False,
                    "follows": bool(hello and hello.standby and replica.follows == hello.epoch),
                    "fence": hello.fence.text if hello else None,
                    "dying": replica.killed_for,
                    "stopped": look_at(replica.pid).stopped,
                    "uptime": round(time.monotonic() - replica.spare.started, 3),
                    "resident": resident_bytes(replica.pid),
                    "records": int(work.total.get("records", 0)) if work else 0,
                    "log_bytes": work.log_bytes if work else None,
                    "done": dict(work.total) if work else {},
                }
            )
        return {
            "pid": os.getpid(),
            "started": self.started_at,
            "generation": self.fences.generation,
            "replicas": replicas,
            "resident": resident_bytes(os.getpid()),
            "spares": [spare.pid for spare in self._spares()],
            "waiting": len(self._pending),
            "deaths": self.deaths.total,
            "failures": list(self.failures),
            "recoveries": list(self.account.recoveries),
            "recent_deaths": [death.to_dict() for death in self.deaths.recent[-8:]],
        }

    def close(self) -> None:
        """Kills and reaps every child."""
        for replica in self._children.values():
            replica.killed_for = replica.killed_for or "stopped"
            kill_group(replica.pid)
        deadline = time.monotonic() + _REAP_SECONDS
        for pid in list(self._children):
            while time.monotonic() < deadline:
                try:
                    if os.waitpid(pid, os.WNOHANG)[0]:
                        break
                except ChildProcessError:
                    break
                time.sleep(0.002)
        for pending in self._pending.values():
            pending.sock.close()
        if self._notice is not None:
            self._notice.close()
        self.fences.close()


def _short_of_something(error: OSError) -> ClonosError:
    """This host lacks disk space, descriptors or memory just now: nothing that another attempt could not mend."""
    log("connection_not_served", f"a connection cannot be served: {error}")
    return StorageUnavailable(f"the replica server cannot serve a connection now: {error}")
