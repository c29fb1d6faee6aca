"""A replica process: a thin driver of `protocol.roles.replica_session`, as `clonos_standby.replica.process` is one.

Single-threaded and event-driven: frames from the conduit, words from the server, finished background work. An error
that the protocol foresees goes to the conduit; then the process ends, because what it holds in memory is no longer
trusted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from clonos.errors import ClonosError
from clonos.protocol.fence import LOWEST_FENCE
from clonos.protocol.ids import LOG_BEGIN, Epoch, LogOffset, Origin, OutputNumber, log_after
from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.conduit_model import Ended, FlushLog, Heartbeat, LogFlushed, ReplicaError, Welcome
from clonos.protocol.roles.death import KILLED, REPORTED, Death
from clonos.protocol.roles.operator_ports import SnapshotStored
from clonos.protocol.roles.replica_session import ReplicaSession, may_be_retried
from clonos.sim import network
from clonos.sim.frames import BundleFrame
from clonos.sim.holding_sink_host import HoldingSinkHost
from clonos.sim.kernel import Died, Process, Steps
from clonos.sim.network import Link
from clonos.sim.operator_host import OperatorHost
from clonos.sim.sink_host import SinkHost

if TYPE_CHECKING:
    from clonos.sim.server import ReplicaServer
    from clonos.sim.world import World

HEARTBEAT = 40_000


@dataclass(frozen=True, slots=True)
class Connect:
    hello: AttachRequest
    link: Link
    previous: Death | None


@dataclass(frozen=True, slots=True)
class Commit:
    """An epoch has committed; logs before these offsets may go."""

    epoch: Epoch
    truncation_points: Mapping[Origin, LogOffset]


@dataclass(frozen=True, slots=True)
class RoundsSaid:
    """How far the rounds of this start of the query are."""

    rounds: Rounds


@dataclass(frozen=True, slots=True)
class Gone:
    """The conduit is gone."""

    reason: str


class Replica(Process):
    """One incarnation of one instance of an operator or sink."""

    def __init__(self, world: World, origin: Origin, server: ReplicaServer, *, sink: bool) -> None:
        super().__init__(world.kernel, f"replica {origin}")
        self.world = world
        self.origin = origin
        self.number = world.next_number("replica")
        self.name += f".{self.number}"
        self.fence = LOWEST_FENCE
        self.server = server
        self.host: OperatorHost | SinkHost = self._made(sink=sink)
        self.session = ReplicaSession(self.host.session, self)
        self._inbox: deque[Any] = deque()
        self._link: Link | None = None
        self._flushed_upto = LOG_BEGIN
        self.exit_code: int | None = None
        self.signal: str | None = KILLED

    def _made(self, *, sink: bool) -> OperatorHost | SinkHost:
        if not sink:
            return OperatorHost(self.world, self)
        holds = self.world.recoveries.holds(self.origin.node)
        return (HoldingSinkHost if holds else SinkHost)(self.world, self)

    def launch(self) -> None:
        self.begin(self._run())
        self.kernel.after(HEARTBEAT, self.call, self._beat)

    # ----------------------------------------------------------------- inbox

    def hear(self, word: Any) -> None:
        self._inbox.append(word)
        self.wake()

    def _beat(self) -> None:
        if self._link is not None:
            self._link.send_down(Heartbeat(self.host.session.progress))
        self.kernel.after(HEARTBEAT, self.call, self._beat)

    def _receive(self, link: Link, frame: Any) -> None:
        if link is not self._link:
            return
        if isinstance(frame, LogFlushed):
            self._flushed_upto = frame.log_end
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

    def flush_log(self, log_start: LogOffset, log: bytes) -> None:
        """Wait in the middle of a step until the conduit has this of the log; without it the process ends."""
        self._flushed_upto = LOG_BEGIN
        self.send(FlushLog(log_start, log))
        self.until(lambda: self._flushed_upto >= log_after(log_start, log) or self._is_given_up)
        if self._is_given_up:
            self.world.trace(self.name, "ends, because its conduit is gone in the middle of a step")
            self._reports()
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
                self.session.commit(word.epoch, word.truncation_points)
            elif isinstance(word, RoundsSaid | SnapshotStored):
                try:
                    yield from self._hear_between_epochs(word)
                except ClonosError:
                    self._reports()
                    self.kill()
                    return

    def _hear_between_epochs(self, word: RoundsSaid | SnapshotStored) -> Steps:
        if isinstance(word, SnapshotStored):
            yield from self._stored(word)
        else:
            yield from self.session.hear_rounds(word.rounds)

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
            # Without poison the process is not told of the death before it, so no instance goes carefully, record by
            # record: the runs of seeds without poison stay as they are.
            previous = word.previous if self.world.plan.poison else None
            yield from self._converse(replace(word.hello, previous=previous))
        except ClonosError as error:
            self.world.trace(self.name, f"fails: {type(error).__name__}: {error}")
            self.world.checks.replica_failed(self, error)
            self.send(ReplicaError(type(error).__name__, str(error), may_be_retried(error)))
            self._reports()
            self.kill()
            yield None
        self._link = None

    def _converse(self, hello: AttachRequest) -> Steps:
        later: list[Connect] = []
        yield from self.session.attach(hello)
        while self.session.is_attached:
            word = yield from self._next()
            if isinstance(word, Connect):
                later.append(word)
                if self.session.gives_way:
                    self.session.conduit_is_gone()
            elif isinstance(word, Gone):
                self.session.conduit_is_gone()
            elif isinstance(word, Commit):
                self.session.commit(word.epoch, word.truncation_points)
            elif isinstance(word, RoundsSaid):
                yield from self.session.hear_rounds(word.rounds)
            elif isinstance(word, SnapshotStored):
                yield from self._stored(word)
            elif isinstance(word, BundleFrame):
                seq, bundle = self._with_those_behind(word)
                self.world.trace.took(self.name, self.origin, seq, bundle.channels, bundle.positions)
                if isinstance(self.host, OperatorHost):
                    self.host.archivist.take(self.host.hello, bundle)
                yield from self.session.bundle(seq, _read(bundle), word.seq)
            else:
                yield from self.session.hear(word)
        self._inbox.extendleft(reversed(later))

    def _with_those_behind(self, frame: BundleFrame) -> tuple[int, Bundle]:
        """The bundles that have come and may be taken as one, and the number of the last."""
        bundles, seq, rows = [frame.bundle], frame.seq, len(frame.bundle.rows)
        while (
            self._inbox
            and isinstance(behind := self._inbox[0], BundleFrame)
            and self.session.takes_another(rows)
        ):
            self._inbox.popleft()
            bundles.append(behind.bundle)
            seq, rows = behind.seq, rows + len(behind.bundle.rows)
        return seq, Bundle.joined(bundles) if len(bundles) > 1 else frame.bundle

    def _stored(self, word: SnapshotStored) -> Steps:
        assert isinstance(self.host, OperatorHost)
        yield from self.host.tell_stored(word)

    # ------------------------------------------------- for the role of the process

    def welcome(self, log_end: LogOffset) -> None:
        plan = self.world.plan
        self.send(Welcome(plan.window, plan.window_bytes, log_end))

    def follows(self, epoch: Epoch) -> None:
        """A server of the simulator need not know it."""

    def is_granted(self, promoted: AttachRequest) -> Steps:
        yield from self._until_server_goes_on()
        is_promoted = self.server.promoted(self, promoted)
        if is_promoted:
            self.fence = promoted.fence
        return is_promoted

    def round_stored(self, stored: StoredRound) -> None:
        delay = self.world.choices.schedule.randint(10, 300)
        generation = self.host.session.request.generation
        self.kernel.after(delay, self.server.call, self.server.round_stored, generation, self.origin, stored)

    def at_end(self, epoch: Epoch) -> None:
        self.server.call(self.server.at_end, self, epoch)

    def ended(self, emitted_output: OutputNumber) -> None:
        self.send(Ended(emitted_output))

    def _reports(self) -> None:
        """It ends by itself, and not because of a record."""
        self.exit_code, self.signal = REPORTED, None

    def struck(self) -> None:
        """Its server has found it dead, and had not wanted that."""
        if isinstance(self.host, OperatorHost) and self.host.in_hand is not None and self.exit_code is None:
            self.world.poison.struck(self.origin, self.host.in_hand)

    def _until_server_goes_on(self) -> Steps:
        """One that stands still hears nothing."""
        while self.server.stopped:
            yield 500

    def died(self) -> None:
        if self._link is not None:
            self._link.close("the replica is gone", by=self)
        self.world.checks.replica_died(self)


def _read(bundle: Bundle) -> Bundle:
    """Its rows have lists of their own, which functions may change."""
    return replace(bundle, rows=[(*row[:2], list(row[2]), *row[3:]) for row in bundle.rows])
