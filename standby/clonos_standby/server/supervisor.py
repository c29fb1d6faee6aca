"""The supervisor: starts, watches, kills and reaps the processes that `protocol.roles.host_placement` places.

It is the only place that knows all replicas of this host. The role decides which process serves which connection,
which one is killed and why, and when the next one takes over; the supervisor does that and tells it what happens.

A replica that hangs is asked for a dump of its threads before it is killed, which only one that can still run will
write. Where replicas do not even start, connections are refused.

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clonos.errors import (
    ClonosError,
    ConfigurationError,
    ProtocolError,
    ReplicaLost,
    StorageUnavailable,
)
from clonos.protocol.fence import Fence, Generation
from clonos.protocol.ids import Epoch, LogOffset, Origin
from clonos.protocol.recovery.rollback.round_relay import RoundRelay
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos.protocol.roles.death import Death, classify_death
from clonos.protocol.roles.host_placement import HostPlacement
from clonos.protocol.roles.spare_pool import PROVEN_SECONDS, SparePool
from clonos.wire.messages import Hello
from clonos.wire.server_status import FailureReport, ReplicaStatus, SupervisorStatus
from clonos_standby.server.acceptor import Acceptor
from clonos_standby.server.control import ControlChannel
from clonos_standby.server.control_messages import (
    AskPromotion,
    Assign,
    AtEnd,
    CheckpointStored,
    Committed,
    Connect,
    Failed,
    Figures,
    Follows,
    Granted,
    Recovered,
    RoundsSaid,
    pack_control,
    parse_control,
)
from clonos_standby.server.death import DeathLog, ending_of
from clonos_standby.server.death_notice import DeathNotice
from clonos_standby.server.event_loop import READ, WRITE, Loop, Timer
from clonos_standby.server.fences import FenceTable
from clonos_standby.server.lifeline import Lifelines
from clonos_standby.server.log import log
from clonos_standby.server.processes import kill_group, look_at, oom_kills, resident_bytes, wait_for
from clonos_standby.server.server_stats import HandOver, ServerStats
from clonos_standby.server.spares import Spare, fork_spare

DUMP_SECONDS = 0.25
_QUIET_SECONDS = 0.02
_REAP_SECONDS = 20.0
_FAILURES_KEPT = 32
_LIFELINES = 1024


@dataclass(eq=False)
class Replica:
    """A child process; a spare as long as it has no origin."""

    spare: Spare
    lifeline: int | None = None
    connection: socket.socket | None = None
    origin: Origin | None = None
    busy: Epoch | None = None
    follows: Epoch | None = None
    kill_timer: Timer | None = None

    @property
    def pid(self) -> int:
        return self.spare.pid

    @property
    def control(self) -> ControlChannel:
        return self.spare.control

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


@dataclass(frozen=True, eq=False)
class _Connection:
    """The connection of a conduit that has shown a good token."""

    sock: socket.socket
    said: Hello
    since: float


class Supervisor:
    """Owns the replica processes, and carries out what the role asks for. All methods run on the loop's thread."""

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
        self._fence_table = FenceTable(data / "fences")
        self.deaths = DeathLog(data / "deaths.jsonl")
        self.failures: deque[FailureReport] = deque(maxlen=_FAILURES_KEPT)
        self.stats = ServerStats(data / "recoveries.jsonl")
        self.started_at = time.time()
        self._loop = loop
        self._data = data
        self._entry = entry
        self._spec_path = spec_path
        self._pool = SparePool(spares)
        self._children: dict[int, Replica] = {}
        self._placement: HostPlacement[Replica, _Connection] = HostPlacement(self, self._fence_table.fences)
        self._rounds = RoundRelay()
        self._recovering: set[Origin] = set()
        self._given: dict[Origin, HandOver] = {}
        self._oom_seen = oom_kills()
        lifelines = Lifelines.if_possible(_LIFELINES)
        self._notice = None if lifelines is None else DeathNotice(loop, lifelines, self._dying, self._living)
        (data / "replicas").mkdir(parents=True, exist_ok=True)

    # -- connections -------------------------------------------------------------------------------------------

    def connect(self, sock: socket.socket, hello: Hello) -> None:
        """A conduit with a good token."""
        connection = _Connection(sock, hello, time.time())
        try:
            self._placement.connects(connection)
        except OSError as error:
            self.refuse(connection, _short_of_something(error))

    def take(self, origin: Origin) -> Replica:
        """For the role."""
        with _shortage_is_told():
            replica = self._take_spare()
            replica.origin = origin
            replica.spare.output.name(self._data / "replicas" / f"{origin.node}-{origin.instance}.err")
            with contextlib.suppress(ProtocolError):  # it is dead; the hand-over finds out
                replica.control.send(pack_control(Assign(origin)))
            return replica

    def catch_up(self, process: Replica) -> None:
        """For the role."""
        self._hear(process)

    def hand_over(self, process: Replica, connection: _Connection, previous: Death | None) -> bool:
        """For the role."""
        sock, hello = connection.sock, connection.said
        process.busy = hello.epoch
        if not hello.fresh and not hello.standby:
            self._recovering.add(hello.origin)
        if not hello.standby:
            self._given[hello.origin] = HandOver(connection.since, time.time())
        with _shortage_is_told():
            sock.setblocking(True)
            try:
                process.control.send(pack_control(Connect(hello, previous)), [sock.fileno()])
            except ProtocolError:
                return False
        if self._notice is not None:
            process.keep(sock)
        else:
            sock.close()
        if (rounds := self._rounds.first_told(hello.generation)) is not None:
            self._tell(process, RoundsSaid(rounds))
        self._watch_control(process)
        return True

    def refuse(self, connection: _Connection, error: ClonosError) -> None:
        """For the role."""
        said = connection.said
        log(
            "connection_refused",
            f"operator {said.node}, instance {said.instance}: {error}",
            node=said.node,
            instance=said.instance,
            epoch=said.epoch,
        )
        if self.acceptor is not None:
            self.acceptor.refuse(connection.sock, error)
        else:
            connection.sock.close()

    # -- spares ------------------------------------------------------------------------------------------------

    def _spares(self) -> list[Replica]:
        return [child for child in self._children.values() if child.origin is None]

    def idle(self) -> bool:
        """Forks one missing spare, if it is time for that; whether more are missing."""
        now, recovering = time.monotonic(), bool(self._recovering)
        if not self._pool.starts_one(len(self._spares()), now, recovering=recovering):
            return False
        with contextlib.suppress(ReplicaLost):
            self._fork()
            return self._pool.lacks(len(self._spares()))
        return False

    def _take_spare(self) -> Replica:
        now = time.monotonic()
        for spare in self._spares():
            if self._pool.may_serve(spare.spare.started, now) and not look_at(spare.pid).exiting:
                return spare
        if self._pool.has_given_up:
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
            self._look_again(self._pool.cannot_start(time.monotonic()))
            raise ReplicaLost(f"no process can be started on this host: {error}") from None
        self._children[replica.pid] = replica
        if self._pool.doubts:
            self._loop.later(PROVEN_SECONDS, lambda: self._proven(replica))
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
        if replica.pid in self._children and self._placement.killed_for(replica) is None:
            self._pool.lives()

    def _look_again(self, pause: float) -> None:
        """The loop becomes idle then."""
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
            message = parse_control(control.message)
            if isinstance(message, Failed):
                self.failed(replica.origin, message.generation, message.error, message.message)
            elif isinstance(message, Follows):
                replica.follows = message.epoch
            elif isinstance(message, AskPromotion):
                self._promote(replica, message.hello)
            elif isinstance(message, CheckpointStored) and replica.origin is not None:
                self._rounds.stored(message.generation, replica.origin, message.stored)
            elif isinstance(message, AtEnd):
                self._placement.stands_at_end(replica, message.epoch)
                replica.busy = None
            if isinstance(message, AtEnd | Figures | Recovered) and replica.origin is not None:
                self._count(replica, replica.origin, message)

    def _count(self, replica: Replica, origin: Origin, message: AtEnd | Figures | Recovered) -> None:
        """For the status and the metrics: nothing here depends on them."""
        self._recovering.discard(origin)
        if isinstance(message, Recovered):
            death, given = self._placement.last_death(origin), self._given.pop(origin, None)
            self.stats.recovered(origin, message.said, death, given)
            return
        figures = message.figures if isinstance(message, AtEnd) else message.said
        if figures is not None:
            self.stats.heard(origin, replica.pid, figures)

    def _promote(self, replica: Replica, hello: Hello) -> None:
        try:
            now = time.time()
            answer = Granted(self._placement.promotes(replica, hello))
            self._given[hello.origin] = HandOver(now, now)
        except StorageUnavailable as error:
            answer = Granted(False, cannot=error.message)
        with contextlib.suppress(ProtocolError):  # it is dead, which shows by itself
            replica.control.send(pack_control(answer))
            self._watch_control(replica)

    def failed(
        self,
        origin: Origin | None,
        generation: Generation,
        error: str,
        message: str,
        epoch: Epoch | None = None,
    ) -> None:
        """A replica or a conduit has told why it fails its task; `epoch` where a conduit has."""
        report: FailureReport = {
            "at": time.time(),
            "node": None if origin is None else origin.node,
            "instance": None if origin is None else origin.instance,
            "generation": generation,
            "error": error,
            "message": message,
        }
        if epoch is not None:
            report["epoch"] = epoch
        self.failures.append(report)
        self.stats.failures[error] += 1

    def _watch_output(self, replica: Replica) -> None:
        output = replica.spare.output

        def ready(_events: int) -> None:
            output.read()
            if output.eof:
                self._loop.forget(output.fd)
            elif replica.kill_timer is not None:
                self._kill_later(replica, _QUIET_SECONDS)

        self._loop.watch(output.fd, ready)

    def commit(self, epoch: Epoch, truncation_points: Mapping[Origin, LogOffset]) -> int:
        """Tells every replica that serves an instance; how many there are."""
        self.stats.committed = epoch
        serving = len(self._placement.serving)
        for replica in self._placement.not_given_up:
            self._tell(replica, Committed(epoch, truncation_points))
        return serving

    def exchange_rounds(self, generation: Generation, rounds: Rounds) -> Mapping[Origin, StoredRound]:
        """How far the rounds of a start of the query are, by its driver; which checkpoints are durable here."""
        before = self._rounds.rounds
        if self._rounds.say(generation, rounds):
            if self._rounds.rounds.shows_more_than(before):
                self.stats.round_at = time.time()
            for replica in self._placement.not_given_up:
                self._tell(replica, RoundsSaid(self._rounds.rounds))
        return self._rounds.stored_of(generation)

    def _tell(self, replica: Replica, message: Committed | RoundsSaid) -> None:
        try:
            replica.control.send(pack_control(message))
        except ProtocolError:
            self._placement.is_deaf(replica)
        else:
            self._watch_control(replica)

    # -- death -------------------------------------------------------------------------------------------------

    def _living(self) -> list[tuple[int, int]]:
        return [(child.lifeline, pid) for pid, child in self._children.items() if child.lifeline is not None]

    def _dying(self, pid: int) -> None:
        """It does nothing any more, but has not ended yet."""
        if pid in self._children:
            self._children[pid].disconnect()

    def is_ending(self, process: Replica) -> bool:
        """For the role."""
        return look_at(process.pid).exiting

    def kill_process(self, process: Replica, *, asks_for_stacks: bool) -> None:
        """For the role. One that cannot answer is not asked."""
        if asks_for_stacks and not look_at(process.pid).stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGUSR1)
            self._kill_later(process, DUMP_SECONDS)
        else:
            self._kill(process)

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
        if replica.pid in self._children:
            self._placement.cannot_be_killed(replica, f"process {replica.pid}")

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
        death = self._classify_death(replica, status, max_rss)
        del self._children[replica.pid]
        if replica.kill_timer is not None:
            replica.kill_timer.cancel()
        self._loop.forget(replica.control.fileno())
        self._loop.forget(replica.spare.output.fd)
        replica.control.close()
        replica.spare.output.close()
        self.stats.died(death)
        if not death.expected:
            log("replica_died", death.message, node=death.node, instance=death.instance)
            self.deaths.add(death)
        if replica.origin is None:
            pause = self._pool.died(death, time.monotonic())
            if pause is not None:
                self._look_again(pause)
        else:
            self._recovering.discard(replica.origin)
        self._placement.on_reaped(replica, death)

    def _classify_death(self, replica: Replica, status: int, max_rss: int) -> Death:
        replica.spare.output.drain()
        seen = oom_kills()
        ending = ending_of(
            replica.origin,
            replica.pid,
            status,
            killed_for=self._placement.killed_for(replica),
            standby=self._placement.stands_by(replica),
            started=replica.spare.started,
            max_rss_kib=max_rss,
            oom_kills=seen - self._oom_seen,
            stderr=replica.spare.output.tail(),
        )
        self._oom_seen = seen
        return classify_death(ending)

    # -- the driver --------------------------------------------------------------------------------------------

    def set_generation(self, generation: Generation, done: Callable[[], None]) -> None:
        """From now on only this generation: older replicas are dead when `done` is called."""
        self._placement.begins(generation, done)

    def status(self) -> SupervisorStatus:
        replicas: list[ReplicaStatus] = []
        for served in sorted(self._placement.serving, key=lambda served: served.origin):
            replica, origin = served.process, served.origin
            hello, work = served.said, self.stats.work.get(origin)
            replicas.append(
                {
                    "node": origin.node,
                    "instance": origin.instance,
                    "pid": replica.pid,
                    "at_end": served.at_end,
                    "busy": replica.busy,
                    "epoch": hello.epoch if hello else None,
                    "generation": hello.generation if hello else None,
                    "standby": hello.standby if hello else False,
                    "follows": bool(hello and hello.standby and replica.follows == hello.epoch),
                    "fence": Fence(hello.fence).text if hello else None,
                    "dying": served.killed_for.value if served.killed_for else None,
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
            "generation": self._fence_table.fences.generation,
            "replicas": replicas,
            "resident": resident_bytes(os.getpid()),
            "spares": [spare.pid for spare in self._spares()],
            "waiting": len(self._placement.waiting),
            "round_at": self.stats.round_at,
            "deaths": self.deaths.total,
            "failures": list(self.failures),
            "recoveries": list(self.stats.recoveries),
            "recent_deaths": [death.to_dict() for death in self.deaths.recent[-8:]],
        }

    def close(self) -> None:
        """Kills and reaps every child."""
        for replica in self._children.values():
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
        for connection in self._placement.waiting:
            connection.sock.close()
        if self._notice is not None:
            self._notice.close()
        self._fence_table.close()


@contextlib.contextmanager
def _shortage_is_told() -> Iterator[None]:
    """Raises StorageUnavailable where this host lacks something."""
    try:
        yield
    except OSError as error:
        raise _short_of_something(error) from None


def _short_of_something(error: OSError) -> ClonosError:
    """This host lacks disk space, descriptors or memory just now: nothing that another attempt could not mend."""
    return StorageUnavailable(f"the replica server cannot serve a connection now: {error}")
