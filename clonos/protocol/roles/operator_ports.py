"""What an operator's instance asks of the runtime that drives it, from one conduit to the next."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from clonos.protocol.engine.instance import InstanceSnapshot
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.line.snapshot_name import Since, SnapshotName
from clonos.protocol.ports import Bundle, Emit, Encoded, Row
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.rollback.rounds import StoredRound
from clonos.protocol.recovery.uncoordinated.sent_log import SentLog
from clonos.protocol.roles.incarnation_ports import IncarnationPorts
from clonos.protocol.roles.record_quarantine import QuarantinePorts
from clonos.protocol.roles.steps import Steps

S = TypeVar("S")
PendingT = TypeVar("PendingT")
FrameT = TypeVar("FrameT")


class Moment(Enum):
    """Between two things that a session does. A process may die at any of them, so faults strike there."""

    IS_ABOUT_TO_SAVE = "is about to save"
    IS_ABOUT_TO_EMIT = "is about to emit"
    BUNDLE_TAKEN = "has taken a bundle"
    INPUT_ENDED = "is at the end of its input"
    SNAPSHOT_BEGINS = "begins a snapshot"
    LAST_SNAPSHOT_BEGUN = "has begun its last snapshot"
    LAST_SNAPSHOT_STORED = "has finished its last snapshot"


@dataclass(frozen=True, slots=True)
class SnapshotStored:
    """A snapshot that was stored in the background is durable, unless there is an `error`; `cost` is the processor time
    that it took, in seconds."""

    error: Exception | None = None
    cost: float = 0.0


class OperatorPorts(IncarnationPorts[S], QuarantinePorts, Generic[S, PendingT, FrameT]):
    """`PendingT` is a snapshot that was begun, `FrameT` an OUTPUT frame."""

    # ------------------------------------------------- the function's surroundings

    @abstractmethod
    def clock(self) -> int:
        """Microseconds."""

    @abstractmethod
    def entropy(self) -> int:
        """64 random bits."""

    @abstractmethod
    def encode(self, rows: list[Row]) -> Encoded:
        """As `protocol.ports.InstancePorts.encode`."""

    # ------------------------------------------------------------------ log store

    @abstractmethod
    def keep_plan(self, epoch: Epoch) -> Steps:
        """What Spark has written down of an epoch before it began, where it ends in the sources, is durable."""

    @abstractmethod
    def write_log(self, deltas: Sequence[bytes], own: Segment | None) -> None:
        """In one batch: logs that were received, and an increment of the own log with its offset."""

    @abstractmethod
    def sync_log(self) -> None:
        """For an effect: what was written outlives a power failure, and the store says that its log tells of one."""

    @abstractmethod
    def fold_log(self) -> None:
        """Put small entries together."""

    @abstractmethod
    def truncate_log(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        """What lies before these offsets is not asked for any more."""

    # -------------------------------------------------------------------- effects

    @abstractmethod
    def send_ahead(self, frames: Sequence[FrameT]) -> None:
        """In the middle of a step: rows of the steps before it. Or when what they waited for has been stored."""

    @abstractmethod
    def keep_that_effects_are_used(self) -> None:
        """In the checkpoint, durably. Raises StorageUnavailable."""

    @abstractmethod
    def show_log(self, log_start: LogOffset, log: bytes) -> None:
        """To the conduit, which shows it to the standby; until it has answered. Raises ProtocolError."""

    @abstractmethod
    def check_claim(self) -> None:
        """That no other incarnation has claimed the snapshots since. Raises Fenced."""

    # -------------------------------------------------------------------- conduit

    @abstractmethod
    def frame(self, acked_input: int, emit: Emit, ingested: int | None) -> FrameT:
        """OUTPUT: bundles up to `acked_input` have been taken, and these rows are due. `ingested` is when the oldest
        row that they may be made of entered the query (`protocol.ingestion`); None where they are made of state alone,
        as those of timers, and begin to exist now."""

    @abstractmethod
    def send(self, frames: Sequence[FrameT]) -> Steps:
        """In one write."""

    @abstractmethod
    def acknowledge(self, acked_input: int, emitted_output: OutputNumber, log_offset: LogOffset) -> None:
        """OUTPUT without rows."""

    @abstractmethod
    def send_checkpointed(self, acked_input: int, log_offset: LogOffset) -> None:
        """CHECKPOINTED: a durable snapshot covers the bundles, and the log, up to here."""

    # ------------------------------------------------------- rounds of checkpoints

    @abstractmethod
    def marker_frame(self, round: Round, emitted_output: OutputNumber) -> FrameT:
        """OUTPUT: a marker for each reader, behind that row."""

    @abstractmethod
    def round_stored(self, stored: StoredRound) -> None:
        """To the driver: the checkpoint is durable."""

    @property
    @abstractmethod
    def sent_log(self) -> SentLog[FrameT]:
        """Part of the state that was restored last."""

    # ------------------------------------------------------------------ snapshots

    @abstractmethod
    def steady_clock(self) -> float:
        """Seconds."""

    @abstractmethod
    def work(self) -> float:
        """Processor time of this thread, in seconds."""

    @abstractmethod
    def prepare_snapshot(self) -> bool:
        """A part of the work that the state has before a snapshot can be begun; whether all of it is done."""

    @abstractmethod
    def begin_snapshot(self, name: SnapshotName, content: InstanceSnapshot, *, covered: int) -> PendingT:
        """Fix the state as it is now. `covered` is the last bundle of the task attempt that it covers."""

    @abstractmethod
    def kept_records(self, records: Bundle) -> bytes:
        """As a snapshot has them (`InstanceSnapshot.channel_state`)."""

    @abstractmethod
    def with_content(self, pending: PendingT, content: InstanceSnapshot, *, covered: int) -> PendingT:
        """The same state, of which the instance says this."""

    @abstractmethod
    def abandon_snapshot(self, pending: PendingT) -> None:
        """It is not stored."""

    @abstractmethod
    def store_snapshot(self, pending: PendingT) -> Steps:
        """Under this incarnation's claim, until it is durable. Raises Fenced, StorageUnavailable."""

    @abstractmethod
    def store_in_background(self, pending: PendingT) -> None:
        """The same while the instance goes on; `OperatorSession.hear_stored` is told."""

    @abstractmethod
    def await_stored(self) -> Steps:
        """Until what is stored in the background is; a `SnapshotStored`, of which the session is not told again."""

    @abstractmethod
    def forget_snapshots(self, epoch: Epoch, since: Since | None) -> None:
        """Those of epochs before."""

    # ---------------------------------------------------------------------- hooks

    def at(self, moment: Moment) -> Steps:
        """A process may die here."""
        yield from ()

    def carries_out(self) -> None:
        """Actions of the instance are about to be carried out."""

    def repeats(self, emit: Emit) -> None:
        """A standby has come so far; its rows stay here."""
