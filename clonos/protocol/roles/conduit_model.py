"""The conduit's rules (docs/wire.md) as a state machine: events and the time go in, actions come out.

Bundles are numbered once per task attempt and kept until a durable snapshot covers them. Three marks walk
along the numbers: `checkpointed` (a durable snapshot covers them), `acked` (this replica has them) and `sent` (on this
connection). Losing a replica sets the last two back to the first; nothing else changes, so a replacement sees the same
bundles under the same numbers.

With a standby the conduit holds a second connection. The standby is sent every bundle that the replica was sent, and
every increment of its log. When the replica is lost, a standby that follows becomes the replica: it is told the raised
fence and what has been emitted, and nothing is sent again. Bundles are kept until the standby has them; one
that is so far behind that the memory for bundles is used up is given up, and begins anew from the newest snapshot.

The plugin's `ConduitProtocol` is the same machine in Java; the scenarios of `tests/scenarios/` run against both.
Times are milliseconds on any steady clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from clonos.protocol.fence import NO_GENERATION, Fence
from clonos.protocol.ids import LOG_BEGIN, NO_OUTPUT, LogOffset, OutputNumber, log_after
from clonos.protocol.messages import (
    Action as Action,
    Checkpointed as Checkpointed,
    Close as Close,
    CloseStandby as CloseStandby,
    Connect as Connect,
    Connected as Connected,
    ConnectFailed as ConnectFailed,
    ConnectStandby as ConnectStandby,
    End as End,
    Ended as Ended,
    EndStandby as EndStandby,
    Event as Event,
    Exhausted as Exhausted,
    Fail as Fail,
    Finish as Finish,
    FlushLog as FlushLog,
    Follow as Follow,
    Forget as Forget,
    Heard as Heard,
    Heartbeat as Heartbeat,
    Hello as Hello,
    LogFlushed as LogFlushed,
    Lost as Lost,
    Output as Output,
    PassedOver as PassedOver,
    PassOn as PassOn,
    Paused as Paused,
    Promote as Promote,
    ReplicaError as ReplicaError,
    Resume as Resume,
    Resumed as Resumed,
    Rows as Rows,
    Seal as Seal,
    Sealed as Sealed,
    Send as Send,
    SendStandby as SendStandby,
    Spill as Spill,
    StandbyAcked as StandbyAcked,
    StandbyConnected as StandbyConnected,
    StandbyHeard as StandbyHeard,
    StandbyHello as StandbyHello,
    StandbyLost as StandbyLost,
    StandbyResume as StandbyResume,
    StandbyWelcome as StandbyWelcome,
    Start as Start,
    Stop as Stop,
    Tick as Tick,
    Time as Time,
    Watermarks as Watermarks,
    Welcome as Welcome,
)
from clonos.protocol.recovery.causal.replacement import Failover
from clonos.protocol.roles.peer_link import PeerLink

FIRST_FENCE = Fence.first(NO_GENERATION, 0)
MAX_CONNECT_DELAY = 500
MAX_REPLACE_DELAY = 2000
MAX_STANDBY_DELAY = 2000


class State(Enum):
    CONNECTING = "connecting"
    OPEN = "open"
    ENDING = "ending"
    ENDED = "ended"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers a conduit works with.

    `idle_bundles` is how many bundles may be under way before rows wait for company: below it a row leaves at once,
    from there on a bundle leaves when it is full, or `flush_ms` old, and as much older for every further one under
    way. `attempts` is how many replacements without progress are tried: a first SIGKILL, or a standby in the place of
    its primary, says nothing of the record, so up to four die before one is passed over. `connect_ms` is the time from
    asking for a replica to its WELCOME. `standbys` is 0 or 1, and `passive`
    one is not sent what the replica is sent. `settle_ms` is how long, after a loss, the replica's own first work goes
    before another standby, which restores and repeats. `first_server` is where the instance was when it was last seen.
    `fence` is the task attempt's first.
    """

    fence: Fence = FIRST_FENCE
    bundle_rows: int = 4096
    bundle_bytes: int = 1 << 20
    idle_bundles: int = 1
    flush_ms: int = 5
    inflight_bytes: int = 64 << 20
    tick_ms: int = 20
    heartbeat_ms: int = 10_000
    connect_ms: int = 60_000
    attempts: int = 4
    standbys: int = 0
    passive: bool = False
    settle_ms: int = 200
    first_server: int = 0


@dataclass(slots=True)
class KeptLog:
    """A contiguous run of the instance's own causal log, opaque bytes, from the last CHECKPOINTED offset on."""

    start: LogOffset = LOG_BEGIN
    data: bytearray = field(default_factory=bytearray)
    known: bool = False

    @property
    def end(self) -> LogOffset:
        return log_after(self.start, self.data)

    def leaves_hole(self, offset: LogOffset) -> bool:
        return self.known and offset > self.end

    def append(self, offset: LogOffset, increment: bytes) -> None:
        """Increments that come again are recognised by their offset and dropped."""
        if not increment:
            return
        if not self.known:
            self.known, self.start = True, offset
        self.data += increment[self.end - offset :]

    def forget_before(self, offset: LogOffset) -> None:
        if not self.known or offset >= self.end:
            self.start, self.known = max(offset, self.end if self.known else LOG_BEGIN), True
            self.data.clear()
        elif offset > self.start:
            del self.data[: offset - self.start]
            self.start = offset


@dataclass(slots=True)
class _Standby:
    """Asked for, and its process restored; `failures` in a row to have one."""

    link: PeerLink = field(default_factory=PeerLink)
    wanted: bool = False
    follows: bool = False
    restoring: bool = False  # a newer snapshot, in place of the one it was at
    failures: int = 0


class Conduit:
    """One task attempt. `handle` takes one event at a time and says what is to be done."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.state = State.CONNECTING
        self.fence = limits.fence
        self._actions: list[Action] = []
        self._replica = PeerLink()
        self._fresh = True
        self._connect_failures = 0
        self._connecting_since = 0
        self._sizes: dict[int, int] = {}
        self._checkpointed = self._last = 0
        self._emitted_output = NO_OUTPUT
        self._log = KeptLog()
        self._pending_rows = self._pending_bytes = self._pending_since = 0
        self._sealing = False
        self._exhausted = False
        self._unspilled_from = 1
        self._memory = 0
        self._ticked_at = 0
        self._losses = 0
        self._acked_mark = 0
        self._emitted_mark = NO_OUTPUT
        self._progress_since_loss = False
        self._doubtful = 0  # the bundle in which a record was passed over last
        self._last_loss = ""
        self._server = limits.first_server
        self._home: int | None = None  # where the last replica that recovered was
        self._failovers: list[Failover] = []
        self._recovered = LOG_BEGIN
        self._standby = _Standby()
        self._snapshotted = False
        self._forgotten = 0

    @property
    def server(self) -> int:
        """Of the replica, or of the one that is asked for."""
        return self._server

    @property
    def next_time(self) -> int | None:
        """When the next `Time` can matter, for a runtime that sleeps; None: only another event does."""
        limits, link = self.limits, self._replica
        times = [link.silent_at(limits.heartbeat_ms), self._standby.link.silent_at(limits.heartbeat_ms)]
        if link.connected:
            times.append(self._ticked_at + limits.tick_ms)
        if self.state is State.CONNECTING:
            times.append(self._connecting_since + limits.connect_ms)
        waits = self._pending_bytes > 0 and link.sent == self._last
        if self.state is State.OPEN and waits and link.has_room_for(self._pending_bytes):
            times.append(self._pending_since + self._patience)
        return min((time for time in times if time is not None), default=None)

    def handle(self, event: Event, now: int) -> list[Action]:
        if self.state in (State.ENDED, State.FAILED):
            return []
        self._actions = []
        match event:
            case Rows(rows, size):
                self._rows(rows, size, now)
            case Sealed():
                self._sealed(event, now)
            case Exhausted():
                self._exhausted = True
                self._pump(now)
            case Time():
                self._time(now)
            case Start():
                self._connecting_since = now
                self._actions.append(Connect(self.fence, True, 0, self._server))
            case ConnectFailed(reason):
                self._connect_failed(reason, now)
            case Connected():
                self._on_connected(now)
            case Stop():
                self._close()
                self._close_standby()
                self.state = State.FAILED
            case StandbyConnected():
                self._standby_connected(now)
            case StandbyLost():
                self._standby_lost()
            case StandbyWelcome() | StandbyAcked() | StandbyHeard() if self._standby.link.connected:
                self._standby.link.heard_at = now
                self._standby_event(event)
            case StandbyWelcome() | StandbyAcked() | StandbyHeard():
                pass
            case _ if self._replica.connected:
                self._replica.heard_at = now
                self._connection_event(event, now)
        return self._actions

    def _connection_event(self, event: Event, now: int) -> None:
        match event:
            case Output():
                self._output(event, now)
            case Watermarks():
                self._actions.append(PassOn(0))
            case FlushLog(log_start, log):
                self._flush_log(log_start, log)
            case Checkpointed(seq, log_offset):
                self._on_checkpointed(seq, log_offset, now)
            case PassedOver():
                self._progress_since_loss = True
                self._doubtful = self._replica.acked + 1
            case Welcome():
                self._welcome(event, now)
            case Ended(emitted_output):
                self._ended(emitted_output)
            case ReplicaError():
                self._replica_error(event, now)
            case Lost(reason):
                self._lost(reason, now)
            case Paused():
                self._replica.paused = True
            case Resumed():
                self._replica.paused = False

    def _on_connected(self, now: int) -> None:
        self._replica.open(now)
        self._connect_failures = 0
        self._ticked_at = now
        self._actions.append(Hello(self.fence, self._fresh, tuple(self._failovers), self._recovered))
        self._actions.append(Resume(self._emitted_output, self._log.start, bytes(self._log.data)))

    def _connect_failed(self, reason: str, now: int) -> None:
        self._last_loss = reason
        if now - self._connecting_since >= self.limits.connect_ms:
            self._connect_deadline()
            return
        delay = min(MAX_CONNECT_DELAY, 50 << min(self._connect_failures, 4))
        self._connect_failures += 1
        self._turn_to_other_server()
        self._actions.append(Connect(self.fence, self._fresh, delay, self._server))

    def _turn_to_other_server(self) -> None:
        """The one that was asked cannot be reached, or does not answer: a stopped server's socket still accepts."""
        if self.limits.standbys:
            self._server = 1 - self._server

    def _welcome(self, welcome: Welcome, now: int) -> None:
        if self.state is not State.CONNECTING:
            self._protocol_error("WELCOME on a connection that is already open")
            return
        if welcome.window < 1 or welcome.window_bytes < 1:
            self._protocol_error(
                f"WELCOME with window {welcome.window} and window_bytes {welcome.window_bytes}"
            )
            return
        self._replica.window, self._replica.window_bytes = welcome.window, welcome.window_bytes
        self._recovered = welcome.log_end
        # Only now has a replica of this attempt recovered, and saved what it recovered; one that was lost before leaves
        # its successor everything to do, and every holder to ask.
        self._fresh = False
        self._record_failover(self._server)
        self.state = State.OPEN
        self._want_standby(self.limits.settle_ms if self.fence > self.limits.fence else 0)
        self._pump(now)

    def _rows(self, rows: int, size: int, now: int) -> None:
        if self._pending_bytes == 0 and size > 0:
            self._pending_since = now
        self._pending_rows, self._pending_bytes = rows, size
        self._pump(now)

    def _sealed(self, bundle: Sealed, now: int) -> None:
        self._last += 1
        self._sizes[self._last] = bundle.bytes
        self._memory += bundle.bytes
        self._sealing = False
        self._pending_rows = self._pending_bytes = 0
        if self._memory > self.limits.inflight_bytes and self._forgotten < self._checkpointed:
            self._close_standby()
            self._want_standby(0)
            self._forget()
        while self._memory > self.limits.inflight_bytes and self._unspilled_from <= self._last:
            self._actions.append(Spill(self._unspilled_from))
            self._memory -= self._sizes[self._unspilled_from]
            self._unspilled_from += 1
        self._pump(now)

    def _pump(self, now: int) -> None:
        """Send what the window allows: kept bundles first, then the one under construction, then END."""
        if self.state is not State.OPEN:
            return
        link = self._replica
        while link.sent < self._last:
            size = self._sizes[link.sent + 1]
            if not link.has_room_again_for(size):
                self._pump_standby()
                return
            self._actions.append(Send(link.send(size)))
        self._pump_standby()
        if self._sealing:
            return
        if self._pending_bytes > 0:  # also of blocks that have watermarks and no rows
            if self._due(now) and link.has_room_for(self._pending_bytes):
                self._sealing = True
                self._actions.append(Seal(self._last + 1))
        elif self._exhausted:
            self._actions.append(End(self._last))
            self.state = State.ENDING

    def _due(self, now: int) -> bool:
        return (
            self._under_way < self.limits.idle_bundles
            or self._pending_rows >= self.limits.bundle_rows
            or self._pending_bytes >= self.limits.bundle_bytes
            or self._exhausted
            or now >= self._pending_since + self._patience
        )

    @property
    def _patience(self) -> int:
        """How long blocks wait for company: the longer the further the replica is behind. One more small bundle would
        only wait there, and cost it a wake-up and a log entry; so load makes bundles larger, not more."""
        return self.limits.flush_ms * (self._under_way - self.limits.idle_bundles + 1)

    @property
    def _under_way(self) -> int:
        """Bundles that the replica was sent and has not acknowledged yet."""
        return self._replica.sent - self._replica.acked

    def _output(self, output: Output, now: int) -> None:
        if output.acked_input > self._last:
            self._protocol_error(
                f"OUTPUT acknowledges bundle {output.acked_input}, the last one is {self._last}"
            )
        elif output.log and self._log.leaves_hole(output.log_start):
            self._protocol_error(f"OUTPUT leaves a hole in the causal log before offset {output.log_start}")
        elif output.rows > 0 and output.first <= self._emitted_output:
            self._protocol_error(
                f"OUTPUT begins at {output.first}, output up to {self._emitted_output} is emitted already"
            )
        elif output.rows > 0 and output.last > output.emitted_output:
            self._protocol_error(f"OUTPUT ends at {output.last} but says it emitted {output.emitted_output}")
        else:
            self._learn(output.log_start, output.log)
            self._emitted_output = max(self._emitted_output, output.emitted_output)
            if output.rows > 0:
                self._actions.append(PassOn(output.rows))
            self._replica.acknowledge(output.acked_input, self._sizes)
            self._forget()
            self._pump(now)

    def _flush_log(self, log_start: LogOffset, log: bytes) -> None:
        """The standby is shown it before the replica hears that it may go on, and acts."""
        if self._log.leaves_hole(log_start):
            self._protocol_error(f"FLUSH_LOG leaves a hole in the causal log before offset {log_start}")
            return
        self._learn(log_start, log)
        self._actions.append(LogFlushed(self._log.end))

    def _on_checkpointed(self, seq: int, log_offset: LogOffset, now: int) -> None:
        if seq > self._last:
            self._protocol_error(f"CHECKPOINTED for bundle {seq}, the last one is {self._last}")
            return
        self._log.forget_before(log_offset)
        self._snapshotted = True
        self._progress_since_loss = True
        if seq > self._checkpointed:
            self._replica.acknowledge(seq, self._sizes)
            self._checkpointed = seq
            self._forget()
            self._advance_standby()
        self._pump(now)

    def _forget(self) -> None:
        """What neither a replacement, nor the standby, nor a standby that was behind when promoted needs any more."""
        upto = min(self._checkpointed, self._replica.acked)
        if self._standby.link.connected:
            upto = min(upto, self._standby.link.acked)
        if upto <= self._forgotten:
            return
        while self._forgotten < upto:
            self._forgotten += 1
            size = self._sizes.pop(self._forgotten)
            if self._forgotten >= self._unspilled_from:
                self._memory -= size
                self._unspilled_from = self._forgotten + 1
        self._actions.append(Forget(upto))

    def _learn(self, start: LogOffset, increment: bytes) -> None:
        """Increments that come again are recognised by their offset and dropped."""
        if not increment:
            return
        known = self._log.end if self._log.known else start
        self._log.append(start, increment)
        if self._standby.link.connected and self._log.end > known:
            self._actions.append(Follow(known, increment[known - start :]))

    def _ended(self, emitted_output: OutputNumber) -> None:
        if self.state is not State.ENDING:
            self._protocol_error("ENDED before END was sent")
        elif emitted_output < self._emitted_output:
            self._protocol_error(
                f"ENDED at output {emitted_output}, output up to {self._emitted_output} is emitted already"
            )
        else:
            self._close()
            self._end_standby()
            self.state = State.ENDED
            self._actions.append(Finish())

    def _replica_error(self, error: ReplicaError, now: int) -> None:
        text = f"{error.message}\n{error.traceback}" if error.traceback else error.message
        if error.retryable:
            self._lost(f"{error.error}: {text}", now)
        else:
            self._fail(error.error, text)

    def _lost(self, reason: str, now: int) -> None:
        self._close()
        progress = (
            self._progress_since_loss
            or self._replica.acked > self._acked_mark
            or self._emitted_output > self._emitted_mark
        )
        self._losses = 1 if progress else self._losses + 1
        self._acked_mark = max(self._acked_mark, self._replica.acked)
        self._emitted_mark = max(self._emitted_mark, self._emitted_output)
        self._progress_since_loss = False
        self._last_loss = reason
        first_not_acked = self._replica.acked + 1
        self._replica.begin_after(self._checkpointed)
        self._connecting_since = now
        self.state = State.CONNECTING
        why = ""
        if self._losses > self.limits.attempts:
            why = f"the replica was lost {self._losses} times without progress"
        elif self.fence.is_last:
            why = "the replica was replaced as often as one task attempt can count"
        if why:
            self._fail(
                "ReplicaLost",
                f"{why}; the first bundle not acknowledged is {first_not_acked}; last reason: {reason}",
            )
            return
        self.fence = self.fence.next()
        if self._standby_takes_over(first_not_acked):
            self._promote()
            return
        self._close_standby()
        delay = 0 if self._losses == 1 else min(MAX_REPLACE_DELAY, 100 << min(self._losses - 2, 5))
        self._actions.append(Connect(self.fence, self._fresh, delay, self._server))

    # ------------------------------------------------------------ the standby

    def _standby_takes_over(self, first_not_acked: int) -> bool:
        """Unless the replica was lost where the one before was, or in a bundle in which a record was passed over: then
        a record may be the cause. A standby knows nothing of it, and would die in its turn; the server where the last
        one died knows how, and its next one is careful."""
        return self._standby.follows and self._losses == 1 and first_not_acked > self._doubtful

    def _want_standby(self, delay: int) -> None:
        if self.limits.standbys and not self._standby.wanted:
            self._standby.wanted = True
            self._actions.append(ConnectStandby(delay, 1 - self._server))

    def _standby_connected(self, now: int) -> None:
        standby = self._standby
        if not standby.wanted or self.state not in (State.OPEN, State.ENDING):
            self._actions.append(CloseStandby())
            standby.wanted = False
            return
        self._standby = _Standby(wanted=True, failures=standby.failures)
        self._standby.link.open(now)
        self._begin_standby()
        self._pump_standby()

    def _begin_standby(self) -> None:
        """It restores the newest snapshot, and hears what is known beyond."""
        self._standby.link.begin_after(self._checkpointed)
        fresh = not self._snapshotted
        self._actions.append(StandbyHello(self.fence, fresh, tuple(self._failovers), self._recovered))
        self._actions.append(StandbyResume(self._emitted_output, self._log.start, bytes(self._log.data)))

    def _advance_standby(self) -> None:
        """A passive standby goes from snapshot to snapshot, one after the other."""
        standby = self._standby
        if (
            self.limits.passive
            and standby.follows
            and not standby.restoring
            and standby.link.acked < self._checkpointed
        ):
            standby.restoring = True
            self._begin_standby()

    def _standby_event(self, event: Event) -> None:
        standby = self._standby
        match event:
            case StandbyWelcome(window, window_bytes):
                standby.link.window, standby.link.window_bytes = max(window, 1), max(window_bytes, 1)
                standby.follows, standby.failures = True, 0
            case StandbyAcked(acked_input):
                standby.restoring = False
                standby.link.acknowledge(min(acked_input, standby.link.sent), self._sizes)
        self._advance_standby()
        self._pump_standby()

    def _pump_standby(self) -> None:
        """Everything that the replica was sent, as the standby's own window allows; some of it while it restores."""
        link = self._standby.link
        if not link.connected:
            return
        while link.sent < self._replica.sent and not self.limits.passive:
            size = self._sizes[link.sent + 1]
            if not link.has_room_for(size):
                break
            self._actions.append(SendStandby(link.send(size)))
        self._forget()

    def _standby_lost(self) -> None:
        if not self._standby.wanted:
            return
        failures = self._standby.failures + 1
        self._close_standby()
        self._standby.failures = failures
        self._forget()
        if self.state is State.OPEN:
            self._want_standby(min(MAX_STANDBY_DELAY, 50 << min(failures - 1, 6)))

    def _end_standby(self) -> None:
        """If it has been sent all there is, it goes on from there in the next epoch, else it restores."""
        if self._standby.link.connected:
            self._actions.append(EndStandby(self._last))
        self._close_standby()

    def _close_standby(self) -> None:
        if self._standby.link.connected:
            self._actions.append(CloseStandby())
        self._standby = _Standby()

    def _record_failover(self, server: int) -> None:
        """What the last replica had recovered its successor elsewhere has, too, though this task was not told of it."""
        if self._home not in (None, server):
            self._failovers.append(Failover(self.fence, max(self._log.end, self._recovered)))
        self._home = server

    def _promote(self) -> None:
        """Its connection is the replica's now, and what it was sent it need not be sent again."""
        standby, self._standby = self._standby, _Standby()
        self._server = 1 - self._server
        self._record_failover(self._server)
        self._replica = standby.link
        # Its snapshots take the place of the lost replica's, and may reach less far: what they need is kept.
        self._checkpointed = min(self._checkpointed, standby.link.acked)
        self._actions.append(Promote(self.fence, self._emitted_output))

    def _time(self, now: int) -> None:
        if self.state is State.CONNECTING and now - self._connecting_since >= self.limits.connect_ms:
            self._connect_deadline()
        elif self._replica.is_silent(now, self.limits.heartbeat_ms):
            if self.state is State.CONNECTING:
                self._turn_to_other_server()
            self._lost(f"nothing was heard from the replica for {now - self._replica.heard_at} ms", now)
        else:
            if self._standby.link.is_silent(now, self.limits.heartbeat_ms):
                self._standby_lost()
            if self._replica.connected and now - self._ticked_at >= self.limits.tick_ms:
                self._ticked_at = now
                self._actions.append(Tick())
            self._pump(now)

    def _connect_deadline(self) -> None:
        self._fail(
            "ReplicaLost",
            f"no replica was ready within {self.limits.connect_ms} ms; the first bundle not acknowledged is "
            f"{self._replica.acked + 1}; last reason: {self._last_loss or 'no answer'}",
        )

    def _protocol_error(self, message: str) -> None:
        self._fail("ProtocolError", message)

    def _fail(self, error: str, message: str) -> None:
        self._close()
        self._close_standby()
        self.state = State.FAILED
        self._actions.append(Fail(error, message))

    def _close(self) -> None:
        if self._replica.connected:
            self._replica.connected = False
            self._actions.append(Close())
