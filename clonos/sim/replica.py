"""A replica process: its loop, and what a connection brings. Mirrors `clonos_standby.replica.process`.

Single-threaded and event-driven: frames from the conduit, words from the server, finished background work. An error
that the protocol foresees goes to the conduit; then the process ends, because what it holds in memory is no longer
trusted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from clonos.errors import ClonosError, Fenced, ReplicaLost, ResumeFailed
from clonos.protocol.ids import Origin
from clonos.protocol.roles.conduit_model import (
    End,
    Ended,
    EndStandby,
    Follow,
    Heartbeat,
    Output,
    Promote,
    ReplicaError,
    Secure,
    Secured,
    Tick,
    Welcome,
)
from clonos.protocol.roles.incarnation import AttachRequest
from clonos.sim import network
from clonos.sim.frames import BundleFrame, OutputFrame
from clonos.sim.kernel import Died, Process, Steps
from clonos.sim.network import Link
from clonos.sim.operator_host import OperatorHost
from clonos.sim.sink_host import SinkHost

if TYPE_CHECKING:
    from clonos.sim.server import ReplicaServer
    from clonos.sim.world import World

HEARTBEAT = 40_000
WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Connect:
    hello: AttachRequest
    link: Link


@dataclass(frozen=True, slots=True)
class Commit:
    """An epoch has committed; logs before these offsets may go."""

    epoch: int
    stable: Mapping[Origin, int]


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A snapshot has become durable in the background."""

    seq: int
    log_offset: int
    error: ClonosError | None = None


class Gone(Exception):
    """The conduit is gone, or another one has come."""


class Replica(Process):
    """One incarnation of one instance of an operator or sink."""

    def __init__(self, world: World, origin: Origin, server: ReplicaServer, *, sink: bool) -> None:
        super().__init__(world.kernel, f"replica {origin}")
        self.world = world
        self.origin = origin
        self.number = world.next_number("replica")
        self.name += f".{self.number}"
        self.fence = 0
        self.server = server
        self.host: OperatorHost | SinkHost = (SinkHost if sink else OperatorHost)(world, self)
        self._inbox: deque[Any] = deque()
        self._link: Link | None = None
        self._secured = 0

    def launch(self) -> None:
        self.begin(self._run())
        self.kernel.after(HEARTBEAT, self.call, self._beat)

    # ----------------------------------------------------------------- inbox

    def hear(self, word: Any) -> None:
        self._inbox.append(word)
        self.wake()

    def _beat(self) -> None:
        if self._link is not None:
            self._link.send_down(Heartbeat(self.host.progress))
        self.kernel.after(HEARTBEAT, self.call, self._beat)

    def _receive(self, link: Link, frame: Any) -> None:
        if link is not self._link:
            return
        if isinstance(frame, Secured):
            self._secured = frame.log_end
        else:
            self.hear(frame)

    def _broken(self, link: Link, reason: str) -> None:
        if link is self._link:
            self.hear(Gone(reason))

    # ------------------------------------------------------------------ loop

    def pause(self, label: str) -> Steps:
        """Between two things that this process does: it may crash here, or be slow."""
        self.world.faults.at_replica(self, label)
        yield self.world.faults.slowness(self)

    def point(self, label: str) -> None:
        """In the middle of something: it may crash here."""
        self.world.faults.in_replica(self, label)

    def send(self, frame: Any) -> None:
        if self._link is not None:
            self._link.send_down(frame)

    def secure(self, log_start: int, log: bytes) -> None:
        """Wait in the middle of a step until the conduit has this of the log; without it the process ends."""
        self._secured = 0
        self.send(Secure(log_start, log))
        self.until(lambda: self._secured >= log_start + len(log) or self._is_given_up)
        if self._is_given_up:
            self.world.trace(self.name, "ends, because its conduit is gone in the middle of a step")
            raise Died

    @property
    def _is_given_up(self) -> bool:
        gone = any(isinstance(word, (Gone, Connect)) for word in self._inbox)
        return gone or self.world.outcome is not None

    def _run(self) -> Steps:
        while True:
            word = yield from self._next()
            if isinstance(word, Connect):
                yield from self._serve(word)
            elif isinstance(word, Commit):
                self.host.commit(word.epoch, word.stable)
            elif isinstance(word, Uploaded):
                try:
                    self.host.uploaded(word)
                except ClonosError:
                    return

    def _next(self) -> Steps:
        while not self._inbox:
            yield None
        return self._inbox.popleft()

    def _serve(self, word: Connect) -> Steps:
        link = self._link = word.link
        self.fence = word.hello.fence
        link.attach(
            network.End(
                self, lambda frame: self._receive(link, frame), lambda reason: self._broken(link, reason)
            )
        )
        if not link.open:
            return
        try:
            yield from self._converse(word.hello)
        except Gone:
            self._link = None
        except ClonosError as error:
            self.world.trace(self.name, f"fails: {type(error).__name__}: {error}")
            self.world.checks.replica_failed(self, error)
            retryable = error.retryable and not isinstance(error, ResumeFailed)
            self.send(ReplicaError(type(error).__name__, str(error), retryable))
            self.kill()
            yield None

    def _converse(self, hello: AttachRequest) -> Steps:
        host = self.host
        if hello.standby:
            hello = yield from self._stand_by(hello)
            if hello.standby:
                return
        else:
            yield from host.open(hello)
            self.send(Welcome(self.world.plan.window, WINDOW_BYTES, host.recovered_end))
            yield from host.start()
        while True:
            word = yield from self._next()
            if isinstance(word, Gone):
                raise word
            if isinstance(word, Connect):
                self._inbox.appendleft(word)
                raise Gone("another connection has come")
            if isinstance(word, Commit):
                host.commit(word.epoch, word.stable)
            elif isinstance(word, Uploaded):
                host.uploaded(word)
            elif isinstance(word, BundleFrame):
                yield from host.bundle(word)
            elif isinstance(word, Tick):
                yield from host.tick()
            elif isinstance(word, End):
                passed = yield from host.end(word.seq)
                self.server.call(self.server.at_end, self, hello.epoch)
                self.send(Ended(passed))
                self._link = None
                return

    def _stand_by(self, hello: AttachRequest) -> Steps:
        """Until the epoch is over, or it is the replica; under which HELLO."""
        host = self.host
        assert not isinstance(host, SinkHost)
        next_one: Connect | None = None
        yield from host.stand_by(hello)
        self.send(Welcome(self.world.plan.window, WINDOW_BYTES, host.recovered_end))
        while True:
            word = yield from self._next()
            if isinstance(word, Gone):
                raise ReplicaLost("the conduit has let go of its standby")
            if isinstance(word, Commit):
                host.commit(word.epoch, word.stable)
            elif isinstance(word, Connect):
                next_one = word  # it still has the end of this epoch before it
            elif isinstance(word, BundleFrame):
                yield from host.bundle(word)
            elif isinstance(word, Follow):
                yield from host.follow(word)
            elif isinstance(word, AttachRequest):  # from a newer snapshot
                hello = word
                yield from host.stand_by(hello)
                self.send(OutputFrame(Output(0, host.live.passed, host.live.log_offset, b"", 0, 0, 0), ()))
            elif isinstance(word, Promote):
                promoted = replace(hello, fence=word.fence, passed=word.passed, standby=False)
                yield from self._until_server_goes_on()
                if not self.server.promoted(self, promoted):
                    raise Fenced(f"fence {word.fence:x} of {self.origin} has been overtaken")
                self.fence = word.fence
                self.send(Welcome(self.world.plan.window, WINDOW_BYTES, host.recovered_end))
                yield from host.take_over(promoted)
                return promoted
            elif isinstance(word, EndStandby):
                host.end_standby(word.seq)
                self.server.call(self.server.at_end, self, hello.epoch)
                self._link = None
                if next_one is not None:
                    self._inbox.appendleft(next_one)
                return hello

    def _until_server_goes_on(self) -> Steps:
        """One that stands still hears nothing."""
        while self.server.stopped:
            yield 500

    def died(self) -> None:
        if self._link is not None:
            self._link.close("the replica is gone", by=self)
        self.world.checks.replica_died(self)
