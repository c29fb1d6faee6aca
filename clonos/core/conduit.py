"""The conduit's rules (docs/wire.md) as a state machine: events and the time go in, actions come out.

Bundles are numbered once per task attempt and kept until the replica's state is stable beyond them. Three marks walk
along the numbers: `stable` (forgotten up to here), `taken` (this replica has them) and `sent` (on this connection).
Losing a replica sets the last two back to the first; nothing else changes, so a replacement sees the same bundles
under the same numbers.

The plugin's `ConduitProtocol` is the same machine in Java; the scenarios of `tests/scenarios/` run against both.
Times are milliseconds on any steady clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

MAX_REPLACEMENTS = 0xFFFF
MAX_CONNECT_DELAY = 500
MAX_REPLACE_DELAY = 2000


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
    above it a bundle leaves when it is full or `flush_ms` old. `attempts` is how many replacements without progress
    are tried; `connect_ms` the time from asking for a replica to its WELCOME.
    """

    fence_base: int = 0
    bundle_rows: int = 4096
    bundle_bytes: int = 1 << 20
    idle_bundles: int = 1
    flush_ms: int = 5
    inflight_bytes: int = 64 << 20
    tick_ms: int = 20
    heartbeat_ms: int = 10_000
    connect_ms: int = 60_000
    attempts: int = 3


# Events: the replica's frames, the task's input, the connection, the clock and the task's end.


@dataclass(frozen=True, slots=True)
class Start:
    """The task attempt begins."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The connection asked for stands."""


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    reason: str


@dataclass(frozen=True, slots=True)
class Welcome:
    window: int
    window_bytes: int


@dataclass(frozen=True, slots=True)
class Rows:
    """The bundle under construction now holds this much."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """The bundle under construction was taken and serialized, as `Seal` asked."""

    seq: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The input of this epoch is exhausted; the last `Rows` said what still waits."""


@dataclass(frozen=True, slots=True)
class Output:
    """`first` and `last` are the positions of its first and last row, 0 without rows."""

    taken: int
    passed: int
    log_start: int
    log: bytes
    rows: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Stable:
    seq: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class Ended:
    passed: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    progress: int


@dataclass(frozen=True, slots=True)
class ReplicaError:
    error: str
    message: str
    retryable: bool
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Heard:
    """Bytes arrived, perhaps not yet a whole frame."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream broke, or a frame was damaged."""

    reason: str


@dataclass(frozen=True, slots=True)
class Paused:
    """Reading stopped because Spark has not taken what was read; silence means nothing meanwhile."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Reading goes on."""


@dataclass(frozen=True, slots=True)
class Time:
    """Time went by."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The task completed or was interrupted."""


Event = (
    Start
    | Connected
    | ConnectFailed
    | Welcome
    | Rows
    | Sealed
    | Exhausted
    | Output
    | Stable
    | Ended
    | Heartbeat
    | ReplicaError
    | Heard
    | Lost
    | Paused
    | Resumed
    | Time
    | Stop
)


# Actions.


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect after a delay; `fresh` until a replica of this task attempt has said WELCOME."""

    fence: int
    fresh: bool
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Hello:
    fence: int
    fresh: bool


@dataclass(frozen=True, slots=True)
class Resume:
    passed: int
    log_start: int
    log: bytes


@dataclass(frozen=True, slots=True)
class Seal:
    """Take the bundle under construction, serialize it under this number and answer `Sealed`."""

    seq: int


@dataclass(frozen=True, slots=True)
class Spill:
    """Move a kept bundle from memory to the spill file."""

    seq: int


@dataclass(frozen=True, slots=True)
class Send:
    seq: int


@dataclass(frozen=True, slots=True)
class End:
    seq: int


@dataclass(frozen=True, slots=True)
class Tick:
    pass


@dataclass(frozen=True, slots=True)
class PassOn:
    """Hand the rows of the OUTPUT just seen on to Spark."""

    rows: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop kept bundles up to this number."""

    seq: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The epoch is done: no more rows come."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail the task."""

    error: str
    message: str


Action = Connect | Hello | Resume | Seal | Spill | Send | End | Tick | PassOn | Forget | Close | Finish | Fail


@dataclass(slots=True)
class KeptLog:
    """A contiguous run of the instance's own causal log, opaque bytes, from the last STABLE offset on."""

    start: int = 0
    data: bytearray = field(default_factory=bytearray)
    known: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def leaves_hole(self, offset: int) -> bool:
        return self.known and offset > self.end

    def append(self, offset: int, increment: bytes) -> None:
        """Increments that come again are recognised by their offset and dropped."""
        if not increment:
            return
        if not self.known:
            self.known, self.start = True, offset
        self.data += increment[self.end - offset :]

    def forget_before(self, offset: int) -> None:
        if not self.known or offset >= self.end:
            self.start, self.known = max(offset, self.end if self.known else 0), True
            self.data.clear()
        elif offset > self.start:
            del self.data[: offset - self.start]
            self.start = offset


class Conduit:
    """One task attempt. `handle` takes one event at a time and says what is to be done."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.state = State.CONNECTING
        self.replacement = 0
        self._actions: list[Action] = []
        self._connected = False
        self._fresh = True
        self._connect_failures = 0
        self._connecting_since = 0
        self._window = 0
        self._window_bytes = 0
        self._sizes: dict[int, int] = {}
        self._stable = self._taken = self._sent = self._last = 0
        self._under_way = 0
        self._passed = 0
        self._log = KeptLog()
        self._pending_rows = self._pending_bytes = self._pending_since = 0
        self._sealing = False
        self._exhausted = False
        self._unspilled_from = 1
        self._memory = 0
        self._paused = False
        self._heard_at = self._ticked_at = 0
        self._losses = 0
        self._taken_mark = self._passed_mark = 0
        self._stable_since_loss = False
        self._last_loss = ""

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
                self._actions.append(Connect(self._fence(), True, 0))
            case ConnectFailed(reason):
                self._connect_failed(reason, now)
            case Connected():
                self._on_connected(now)
            case Stop():
                self._close()
                self.state = State.FAILED
            case _ if self._connected:
                self._heard_at = now
                self._connection_event(event, now)
        return self._actions

    def _connection_event(self, event: Event, now: int) -> None:
        match event:
            case Output():
                self._output(event, now)
            case Stable(seq, log_offset):
                self._on_stable(seq, log_offset, now)
            case Welcome(window, window_bytes):
                self._welcome(window, window_bytes, now)
            case Ended(passed):
                self._ended(passed)
            case ReplicaError():
                self._replica_error(event, now)
            case Lost(reason):
                self._lost(reason, now)
            case Paused():
                self._paused = True
            case Resumed():
                self._paused = False

    def _fence(self) -> int:
        return self.limits.fence_base | self.replacement

    def _on_connected(self, now: int) -> None:
        self._connected = True
        self._paused = False
        self._connect_failures = 0
        self._heard_at = self._ticked_at = now
        self._actions.append(Hello(self._fence(), self._fresh))
        self._actions.append(Resume(self._passed, self._log.start, bytes(self._log.data)))

    def _connect_failed(self, reason: str, now: int) -> None:
        self._last_loss = reason
        if now - self._connecting_since >= self.limits.connect_ms:
            self._connect_deadline()
            return
        delay = min(MAX_CONNECT_DELAY, 50 << min(self._connect_failures, 4))
        self._connect_failures += 1
        self._actions.append(Connect(self._fence(), self._fresh, delay))

    def _welcome(self, window: int, window_bytes: int, now: int) -> None:
        if self.state is not State.CONNECTING:
            self._protocol_error("WELCOME on a connection that is already open")
            return
        if window < 1 or window_bytes < 1:
            self._protocol_error(f"WELCOME with window {window} and window_bytes {window_bytes}")
            return
        self._window, self._window_bytes = window, window_bytes
        # Only now has a replica of this attempt recovered, and saved what it recovered; one that was lost before leaves
        # its successor everything to do, and everybody to ask.
        self._fresh = False
        self.state = State.OPEN
        self._pump(now)

    def _rows(self, rows: int, size: int, now: int) -> None:
        if self._pending_rows == 0 and rows > 0:
            self._pending_since = now
        self._pending_rows, self._pending_bytes = rows, size
        self._pump(now)

    def _sealed(self, bundle: Sealed, now: int) -> None:
        self._last += 1
        self._sizes[self._last] = bundle.bytes
        self._memory += bundle.bytes
        self._sealing = False
        self._pending_rows = self._pending_bytes = 0
        while self._memory > self.limits.inflight_bytes and self._unspilled_from <= self._last:
            self._actions.append(Spill(self._unspilled_from))
            self._memory -= self._sizes[self._unspilled_from]
            self._unspilled_from += 1
        self._pump(now)

    def _pump(self, now: int) -> None:
        """Send what the window allows: kept bundles first, then the one under construction, then END."""
        if self.state is not State.OPEN:
            return
        while self._sent < self._last:
            size = self._sizes[self._sent + 1]
            if not self._room_for(size):
                return
            self._sent += 1
            self._under_way += size
            self._actions.append(Send(self._sent))
        if self._sealing:
            return
        if self._pending_rows > 0:
            if self._due(now) and self._room_for(self._pending_bytes):
                self._sealing = True
                self._actions.append(Seal(self._last + 1))
        elif self._exhausted:
            self._actions.append(End(self._last))
            self.state = State.ENDING

    def _room_for(self, size: int) -> bool:
        fits = self._under_way == 0 or self._under_way + size <= self._window_bytes
        return self._sent - self._taken < self._window and fits

    def _due(self, now: int) -> bool:
        return (
            self._sent - self._taken < self.limits.idle_bundles
            or self._pending_rows >= self.limits.bundle_rows
            or self._pending_bytes >= self.limits.bundle_bytes
            or self._exhausted
            or now - self._pending_since >= self.limits.flush_ms
        )

    def _output(self, output: Output, now: int) -> None:
        if output.taken > self._last:
            self._protocol_error(f"OUTPUT says bundle {output.taken} is taken, the last one is {self._last}")
        elif output.log and self._log.leaves_hole(output.log_start):
            self._protocol_error(f"OUTPUT leaves a hole in the causal log before offset {output.log_start}")
        elif output.rows > 0 and output.first <= self._passed:
            self._protocol_error(
                f"OUTPUT begins at {output.first}, output up to {self._passed} is passed on already"
            )
        elif output.rows > 0 and output.last > output.passed:
            self._protocol_error(f"OUTPUT ends at {output.last} but says it passed {output.passed}")
        else:
            self._log.append(output.log_start, output.log)
            self._passed = max(self._passed, output.passed)
            if output.rows > 0:
                self._actions.append(PassOn(output.rows))
            self._take(output.taken)
            self._pump(now)

    def _take(self, upto: int) -> None:
        """A replacement may say at once that it has bundles which were never sent to it."""
        if upto > self._sent:
            self._sent = self._taken = upto
            self._under_way = 0
        while self._taken < upto:
            self._taken += 1
            self._under_way -= self._sizes[self._taken]

    def _on_stable(self, seq: int, log_offset: int, now: int) -> None:
        if seq > self._last:
            self._protocol_error(f"STABLE for bundle {seq}, the last one is {self._last}")
            return
        self._log.forget_before(log_offset)
        self._stable_since_loss = True
        if seq > self._stable:
            self._take(seq)
            while self._unspilled_from <= seq:
                self._memory -= self._sizes[self._unspilled_from]
                self._unspilled_from += 1
            while self._stable < seq:
                self._stable += 1
                del self._sizes[self._stable]
            self._actions.append(Forget(seq))
        self._pump(now)

    def _ended(self, passed: int) -> None:
        if self.state is not State.ENDING:
            self._protocol_error("ENDED before END was sent")
        elif passed < self._passed:
            self._protocol_error(
                f"ENDED at output {passed}, output up to {self._passed} is passed on already"
            )
        else:
            self._close()
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
            self._stable_since_loss or self._taken > self._taken_mark or self._passed > self._passed_mark
        )
        self._losses = 1 if progress else self._losses + 1
        self._taken_mark = max(self._taken_mark, self._taken)
        self._passed_mark = max(self._passed_mark, self._passed)
        self._stable_since_loss = False
        self._last_loss = reason
        first_not_taken = self._taken + 1
        self._taken = self._sent = self._stable
        self._under_way = 0
        self.replacement += 1
        self._connecting_since = now
        self.state = State.CONNECTING
        if self._losses > self.limits.attempts or self.replacement > MAX_REPLACEMENTS:
            self._fail(
                "ReplicaLost",
                f"the replica was lost {self._losses} times without progress; the first bundle not taken is "
                f"{first_not_taken}; last reason: {reason}",
            )
            return
        delay = 0 if self._losses == 1 else min(MAX_REPLACE_DELAY, 100 << min(self._losses - 2, 5))
        self._actions.append(Connect(self._fence(), self._fresh, delay))

    def _time(self, now: int) -> None:
        silence = now - self._heard_at
        if self.state is State.CONNECTING and now - self._connecting_since >= self.limits.connect_ms:
            self._connect_deadline()
        elif self._connected and not self._paused and silence >= self.limits.heartbeat_ms:
            self._lost(f"nothing was heard from the replica for {silence} ms", now)
        else:
            if self._connected and now - self._ticked_at >= self.limits.tick_ms:
                self._ticked_at = now
                self._actions.append(Tick())
            self._pump(now)

    def _connect_deadline(self) -> None:
        self._fail(
            "ReplicaLost",
            f"no replica was ready within {self.limits.connect_ms} ms; the first bundle not taken is "
            f"{self._taken + 1}; last reason: {self._last_loss or 'no answer'}",
        )

    def _protocol_error(self, message: str) -> None:
        self._fail("ProtocolError", message)

    def _fail(self, error: str, message: str) -> None:
        self._close()
        self.state = State.FAILED
        self._actions.append(Fail(error, message))

    def _close(self) -> None:
        if self._connected:
            self._connected = False
            self._actions.append(Close())
