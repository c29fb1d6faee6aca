"""A Spark task attempt: input from the exchange, the core's conduit, output to the exchange.

Mirrors the plugin's loop: one event at a time into the protocol, its actions carried out in order, the bundle under
construction filled by the puller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from clonos.protocol.engine.instance import Bundle
from clonos.protocol.fence import Fence, Generation
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.ingestion import Ingested
from clonos.protocol.recovery.marker import Marker
from clonos.protocol.roles import conduit_model as rules
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.sim.frames import BundleFrame, OutputFrame
from clonos.sim.kernel import Process
from clonos.sim.network import End, Link
from clonos.sim.records import Given, Mark, Record, RoundMark

if TYPE_CHECKING:
    from clonos.sim.world import Wires, World

TURN = 5_000  # microseconds between two looks at the clock
HEARTBEAT_MS = 150
CONNECT_MS = 600
TICK_MS = 20
ROW_BYTES = 40


class Task(Process):
    """One attempt. `over` is told how it ended: None, or the error's name, message and whether Spark may retry."""

    def __init__(
        self,
        world: World,
        origin: Origin,
        *,
        epoch: Epoch,
        generation: Generation,
        attempt: int,
        is_retry: bool,
        channels: list[int],
        wires: Wires | None,
        over: Callable[[Task, tuple[str, str] | None], None],
    ) -> None:
        super().__init__(world.kernel, f"task {origin}#{attempt}")
        self.world = world
        self.origin = origin
        self.epoch = epoch
        self.generation = generation
        self.is_retry = is_retry
        self.host = world.host()
        self.result: tuple[str, str] | None = None
        self.finished = False
        self.taken_position: dict[int, int] = {}
        self.kept: dict[int, Bundle] = {}
        self.spilled: set[int] = set()
        self._open_channels = set(channels)
        self._queues: dict[int, deque[Given]] = {}
        self._wires = wires
        self.written: list[tuple[int, Given]] = []  # the shuffle file of a micro-batch
        self._over = over
        self._building: list[tuple[int, Given]] = []
        self._exhausted = False
        self._launched = self._pulling = False
        self._link: Link | None = None
        self._hello: rules.Hello | None = None
        self._standby: Link | None = None
        self._standby_hello: rules.StandbyHello | None = None
        self._standby_greeted: Link | None = None
        self._standby_asked = 0
        self._unread: list[Any] | None = None  # what arrived while Spark took nothing
        standbys = world.standbys_of(origin)
        limits = rules.Limits(
            fence=Fence.of(
                generation, Fence.first(generation, attempt).attempt, world.plan.first_replacement
            ),
            bundle_rows=world.plan.bundle,
            inflight_bytes=world.plan.inflight_bytes,
            heartbeat_ms=HEARTBEAT_MS,
            connect_ms=CONNECT_MS,
            tick_ms=TICK_MS,
            standbys=standbys,
            passive=world.plan.passive,
            settle_ms=0,  # more can coincide
            first_server=world.home(origin, self.host if standbys else 0),
        )
        self.conduit = rules.Conduit(limits)

    def launch(self) -> None:
        self.world.trace(self.name, f"begins epoch {self.epoch}")
        self._launched = True
        self.world.begins(self)
        self.call(self._happen, rules.Start())
        self.kernel.after(TURN, self.call, self._turn)
        self._pull_soon()

    # ---------------------------------------------------------------- input

    def arrive(self, channel: int, record: Given) -> None:
        self._queues.setdefault(channel, deque()).append(record)
        self._pull_soon()

    def end_of(self, channel: int) -> None:
        self._open_channels.discard(channel)
        self._pull_soon()

    def _pull_soon(self) -> None:
        if self._pulling or not self._launched:
            return
        self._pulling = True
        self.kernel.after(self.world.choices.schedule.randint(20, 400), self.call, self._pull)

    def _pull(self) -> None:
        """The puller takes what has come, from one channel after another."""
        self._pulling = False
        if self._exhausted or self.result or self.finished:
            return
        rng = self.world.choices.schedule
        ready = [channel for channel, queue in self._queues.items() if queue]
        if ready:
            for _ in range(rng.randint(1, 2 * self.world.plan.bundle)):
                channel = rng.choice(ready)
                self._building.append((channel, self._queues[channel].popleft()))
                ready = [channel for channel in ready if self._queues[channel]]
                if not ready:
                    break
            rows = sum(isinstance(one, Record) for _, one in self._building)
            self._happen(rules.Rows(rows, ROW_BYTES * len(self._building)))
            self._pull_soon()
        elif not self._open_channels:
            self._exhausted = True
            self._happen(rules.Exhausted())

    def _seal(self, seq: int) -> None:
        rng = self.world.choices.schedule
        rounds = self._markers()
        given = [
            (channel if one.channel is None else one.channel, one)
            for channel, one in self._building
            if not isinstance(one, RoundMark)
        ]
        channels = [channel for channel, one in given if isinstance(one, Record)]
        records = [one for _, one in given if isinstance(one, Record)]
        marks = {channel: one.watermark for channel, one in given if isinstance(one, Mark)}
        positions = [record.position for record in records]
        rows = [record.row for record in records]
        deltas = [record.delta for record in records if record.delta is not None]
        ingested = [
            Ingested(channel, 1, record.ingested) for channel, record in zip(channels, records, strict=True)
        ]
        self._building = []
        if rng.random() < 0.5 and rows:  # the runtime gives long columns as arrays
            columns = np.array(channels, np.int64), np.array(positions, np.int64)
            bundle = Bundle(*columns, rows, deltas, marks, ingested, rounds)
        else:
            bundle = Bundle(channels, positions, rows, deltas, marks, ingested, rounds)
        self.kept[seq] = bundle
        size = ROW_BYTES * len(given) + sum(map(len, deltas))
        self._happen(rules.Sealed(seq, len(rows), size))

    def _markers(self) -> list[Marker]:
        """Of the bundle that is being built."""
        found: list[Marker] = []
        behind = 0
        for channel, one in self._building:
            if isinstance(one, RoundMark):
                found.append(Marker(channel, one.round, behind))
            behind += isinstance(one, Record)
        return found

    # ----------------------------------------------------------- the protocol

    def _turn(self) -> None:
        if self.result or self.finished:
            return
        self.world.faults.at_task(self)
        due = self.conduit.next_time
        if due is not None and due <= self.world.clocks[self.host].elapsed // 1000:
            self._happen(rules.Time())
        self.kernel.after(TURN, self.call, self._turn)

    def interrupt(self) -> None:
        """Spark kills the attempt."""
        self._happen(rules.Stop())
        self.kill()

    def _happen(self, event: rules.Event, frame: OutputFrame | None = None) -> None:
        for action in self.conduit.handle(event, self.world.clocks[self.host].elapsed // 1000):
            self.world.faults.at_action(self)
            self._perform(action, frame)
        if isinstance(event, rules.Sealed):
            self.world.checks.bounded(self)

    def _perform(self, action: rules.Action, frame: OutputFrame | None) -> None:
        match action:
            case rules.Connect(delay_ms=delay_ms, server=server):
                delay = delay_ms * 1000 + self.world.choices.schedule.randint(10, 200)
                self.kernel.after(delay, self.call, self._connect, server)
            case rules.ConnectStandby(delay_ms, server):
                self._standby_asked += 1
                delay = delay_ms * 1000 + self.world.choices.schedule.randint(10, 200)
                self.kernel.after(delay, self.call, self._connect_standby, server, self._standby_asked)
            case rules.StandbyHello():
                self._standby_hello = action
            case rules.StandbyResume():
                self._greet_standby(action)
            case rules.SendStandby(seq):
                self._send_standby(BundleFrame(seq, self.kept[seq]))
            case rules.Follow():
                self._send_standby(action)
            case rules.EndStandby(seq):
                self._send_standby(rules.End(seq))
            case rules.CloseStandby():
                assert self._standby is not None
                self._standby.close("the conduit closed the connection to its standby", by=self)
                self._standby = None
            case rules.Promote():
                self._link, self._standby = self._standby, None
                self._unread = None
                self._send(action)
            case rules.Hello():
                self._hello = action
            case rules.Resume():
                self._greet(action)
            case rules.Seal(seq):
                self._seal(seq)
            case rules.Spill(seq):
                self.spilled.add(seq)
            case rules.Send(seq):
                self._send(BundleFrame(seq, self.kept[seq]))
            case rules.End() | rules.Tick() | rules.LogFlushed():
                self._send(action)
            case rules.PassOn():
                assert frame is not None
                self.world.checks.passed_on(self, frame)
                self._emit(frame)
            case rules.Forget(seq):
                self.world.checks.forgets(self, seq)
                for old in [kept for kept in self.kept if kept <= seq]:
                    del self.kept[old]
            case rules.Close():
                assert self._link is not None
                self._link.close("the conduit closed the connection", by=self)
            case rules.Finish():
                self.finished = True
                self.world.homes[self.origin] = self.conduit.server
                if self._wires is not None:
                    self._wires.end(self.origin)
                self._end(None)
            case rules.Fail(error, message):
                self.world.checks.fails(self, error, message)
                self._end((error, message))

    def _emit(self, frame: OutputFrame) -> None:
        given: list[tuple[int, Given]] = [*frame.records, *frame.marks]
        if self._wires is None:
            self.written += given
            return
        for destination, record in given:
            self._wires.send(self.origin, destination, record)

    def _end(self, result: tuple[str, str] | None) -> None:
        self.result = result
        self.world.trace(self.name, "finished" if result is None else f"failed: {result[0]}: {result[1]}")
        self._over(self, result)

    # ------------------------------------------------------------ connection

    def _connect(self, at: int) -> None:
        if self.conduit.state is not rules.State.CONNECTING:
            return
        link = self._open(at)
        if link is None:
            self._happen(rules.ConnectFailed("no server listens"))
            return
        self._link, self._unread = link, None
        self._happen(rules.Connected())

    def _connect_standby(self, at: int, asked: int) -> None:
        if asked != self._standby_asked or self.result or self.finished:
            return
        link = self._open(at)
        if link is None:
            self._happen(rules.StandbyLost("no server listens"))
            return
        self._standby = link
        self._happen(rules.StandbyConnected())

    def _open(self, at: int) -> Link | None:
        server = self._server = self.world.servers[at]
        ways = self.world.ways
        if not server.alive or not ways.answers(self.host, at):
            return None
        end = End(self, lambda _: None, lambda _: None)
        link = Link(self.kernel, self.world.choices.schedule, end, ways, (self.host, at))
        link._conduit.receive = lambda received: self._receive(link, received)
        link._conduit.broken = lambda reason: self._broken(link, reason)
        return link

    def _greet(self, resume: rules.Resume) -> None:
        hello, link = self._hello, self._link
        assert hello is not None and link is not None
        self._say_hello(link, hello, resume, standby=False)

    def _greet_standby(self, resume: rules.StandbyResume) -> None:
        hello, link = self._standby_hello, self._standby
        assert hello is not None and link is not None
        self._say_hello(link, hello, resume, standby=True)

    def _say_hello(
        self,
        link: Link,
        hello: rules.Hello | rules.StandbyHello,
        resume: rules.Resume | rules.StandbyResume,
        *,
        standby: bool,
    ) -> None:
        self.world.checks.fencing.shown(self.origin, hello.fence, self.conduit.limits.fence)
        said = AttachRequest(
            self.origin,
            self.epoch,
            hello.fence,
            hello.fresh,
            self.is_retry,
            resume.emitted_output,
            resume.log_start,
            resume.log,
            standby,
            hello.failovers,
            hello.recovered,
            self.world.plan.realtime,
        )
        if standby and self._standby_greeted is link:
            self._send_standby(said)
            return
        self._standby_greeted = link if standby else self._standby_greeted
        server = self._server
        server.mourners.append(lambda: link.close("the replica server is gone"))
        delay = self.world.choices.schedule.randint(10, 300) + self.world.held(self.host, server.at)
        self.kernel.after(delay, server.call, server.connect, link, said)

    def _send(self, frame: Any) -> None:
        assert self._link is not None
        self.world.faults.at_link(self._link, self)
        self._link.send_up(frame)

    def _send_standby(self, frame: Any) -> None:
        assert self._standby is not None
        self.world.faults.at_link(self._standby, self)
        self._standby.send_up(frame)

    def _broken(self, link: Link, reason: str) -> None:
        if link is self._standby:
            self._happen(rules.StandbyLost(reason))
            return
        if link is not self._link:
            return
        if self._unread is not None and not link.was_cut:
            # The end of the stream is read behind what was sent before
            self._unread.append(rules.Lost(reason))
        else:
            self._happen(rules.Lost(reason))

    def _hear_standby(self, frame: Any) -> None:
        self._happen(rules.StandbyHeard())
        match frame:
            case rules.Welcome(window, window_bytes):
                self._happen(rules.StandbyWelcome(window, window_bytes))
            case OutputFrame():
                self._happen(rules.StandbyAcked(frame.output.acked_input))
            case rules.ReplicaError():
                self._happen(rules.StandbyLost(frame.message))

    def _receive(self, link: Link, frame: Any) -> None:
        if link is self._standby:
            self._hear_standby(frame)
            return
        if link is not self._link:
            return
        if self._unread is not None:
            self._unread.append(frame)
            return
        self._happen(rules.Heard())
        if isinstance(frame, OutputFrame):
            self.world.checks.told(self, frame.output.log_start, frame.output.log)
            self._happen(frame.output, frame)
            if frame.marks and not frame.records:
                self._happen(rules.Watermarks(), frame)
            return
        if isinstance(frame, rules.FlushLog):
            self.world.checks.told(self, frame.log_start, frame.log)
        self._happen(frame)

    def pause(self, duration: int) -> None:
        """Spark takes no output for a while, so nothing is read."""
        if self._unread is None and self._link is not None and self._link.open:
            self._unread = []
            self._happen(rules.Paused())
            self.kernel.after(duration, self.call, self._resume_reading, self._link)

    def _resume_reading(self, link: Link) -> None:
        if link is not self._link or self._unread is None:
            return
        unread, self._unread = self._unread, None
        self._happen(rules.Resumed())
        for frame in unread:
            self._receive(link, frame)

    def lose_host(self) -> None:
        """What it had sent does not arrive."""
        for link in (self._link, self._standby):
            if link is not None:
                link.cut("the task's host is lost")
        self.kill()

    def died(self) -> None:
        for link in (self._link, self._standby):
            if link is not None:
                link.close("the task is gone", by=self)

    @property
    def memory(self) -> int:
        """Bytes of bundles that are not spilled."""
        return sum(
            ROW_BYTES * len(bundle.rows) + sum(map(len, bundle.deltas))
            for seq, bundle in self.kept.items()
            if seq not in self.spilled
        )
