"""What happens to a conduit, and what it asks its runtime to do: the words of its rules
(`clonos.protocol.roles.conduit_model`)."""

from __future__ import annotations

from dataclasses import dataclass

from clonos.protocol.fence import Fence
from clonos.protocol.ids import LOG_BEGIN, LogOffset, OutputNumber
from clonos.protocol.recovery.causal.replacement import Failover

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
    """`log_end` is the offset up to which the replica has recovered the instance's log, whatever it had handed on."""

    window: int
    window_bytes: int
    log_end: LogOffset = LOG_BEGIN


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

    acked_input: int
    emitted_output: OutputNumber
    log_start: LogOffset
    log: bytes
    rows: int
    first: OutputNumber
    last: OutputNumber


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The OUTPUT just taken has no rows, but blocks with watermarks."""


@dataclass(frozen=True, slots=True)
class FlushLog:
    """Ahead of its rows: what an effect depends on. The replica waits until it is told that the conduit has it."""

    log_start: LogOffset
    log: bytes


@dataclass(frozen=True, slots=True)
class Checkpointed:
    seq: int
    log_offset: LogOffset


@dataclass(frozen=True, slots=True)
class Ended:
    emitted_output: OutputNumber


@dataclass(frozen=True, slots=True)
class Heartbeat:
    progress: int


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A record that ended processes is, for the first time on this host."""


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


@dataclass(frozen=True, slots=True)
class StandbyConnected:
    """The connection to a standby stands."""


@dataclass(frozen=True, slots=True)
class StandbyWelcome:
    """The standby is restored and follows."""

    window: int
    window_bytes: int


@dataclass(frozen=True, slots=True)
class StandbyAcked:
    """The standby has taken bundles up to this number."""

    acked_input: int


@dataclass(frozen=True, slots=True)
class StandbyHeard:
    """Bytes arrived from the standby."""


@dataclass(frozen=True, slots=True)
class StandbyLost:
    """There is no connection to a standby, or none any more."""

    reason: str


Event = (
    Start
    | Connected
    | ConnectFailed
    | Welcome
    | Rows
    | Sealed
    | Exhausted
    | Output
    | Watermarks
    | FlushLog
    | Checkpointed
    | Ended
    | Heartbeat
    | PassedOver
    | ReplicaError
    | Heard
    | Lost
    | Paused
    | Resumed
    | Time
    | Stop
    | StandbyConnected
    | StandbyWelcome
    | StandbyAcked
    | StandbyHeard
    | StandbyLost
)


# Actions.


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect after a delay; `fresh` until a replica of this task attempt has said WELCOME.

    `server` is 0 or 1: with standbys there are two, and the replica and its standby are never on the same.
    """

    fence: Fence
    fresh: bool
    delay_ms: int
    server: int = 0


@dataclass(frozen=True, slots=True)
class Hello:
    """`failovers` of this task attempt to another server: under which fence, and how far the log was common to both.
    `recovered` is the offset up to which a replica of this attempt has recovered the log."""

    fence: Fence
    fresh: bool
    failovers: tuple[Failover, ...] = ()
    recovered: LogOffset = LOG_BEGIN


@dataclass(frozen=True, slots=True)
class Resume:
    emitted_output: OutputNumber
    log_start: LogOffset
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
class LogFlushed:
    """Tell the replica up to where the conduit has its log."""

    log_end: LogOffset


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


@dataclass(frozen=True, slots=True)
class ConnectStandby:
    delay_ms: int
    server: int


@dataclass(frozen=True, slots=True)
class StandbyHello:
    """`fresh` while nothing of this task attempt has been forgotten: the standby starts from the end of the epoch
    before, or goes on with what it has in memory; else from the newest snapshot inside the epoch. `recovered` is the
    offset up to which its primary has recovered the log."""

    fence: Fence
    fresh: bool
    failovers: tuple[Failover, ...] = ()
    recovered: LogOffset = LOG_BEGIN


@dataclass(frozen=True, slots=True)
class StandbyResume:
    emitted_output: OutputNumber
    log_start: LogOffset
    log: bytes


@dataclass(frozen=True, slots=True)
class SendStandby:
    seq: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Tell the standby what the replica's log goes on with."""

    log_start: LogOffset
    log: bytes


@dataclass(frozen=True, slots=True)
class EndStandby:
    """The replica has ended the epoch; so may the standby."""

    seq: int


@dataclass(frozen=True, slots=True)
class CloseStandby:
    """Close the connection to the standby, behind what it was sent."""


@dataclass(frozen=True, slots=True)
class Promote:
    """The standby is the replica; its connection takes the place of the one that was closed."""

    fence: Fence
    emitted_output: OutputNumber


Action = (
    Connect
    | Hello
    | Resume
    | Seal
    | Spill
    | Send
    | End
    | Tick
    | PassOn
    | LogFlushed
    | Forget
    | Close
    | Finish
    | Fail
    | ConnectStandby
    | StandbyHello
    | StandbyResume
    | SendStandby
    | Follow
    | EndStandby
    | CloseStandby
    | Promote
)
