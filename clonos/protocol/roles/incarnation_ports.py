"""What the beginning of an incarnation asks of the runtime that drives it: to read, to claim and to write."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import TypeVar

from clonos.protocol.engine.instance import Instance, InstanceSnapshot
from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.line.recovery_line import Resume
from clonos.protocol.line.unrecorded_commit import UnrecordedCommit
from clonos.protocol.ports import InstancePorts
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.kept_deltas import KeptDeltas
from clonos.protocol.recovery.causal.own_log import Writer
from clonos.protocol.recovery.causal.retrieval import OpenedLog, Recovered
from clonos.protocol.roles.snapshot_candidate import Candidate
from clonos.protocol.roles.snapshot_ports import SnapshotPorts
from clonos.protocol.roles.steps import Steps

S = TypeVar("S")


class Reached(Enum):
    """How far a restoration has come."""

    STATE = "has restored its state"
    LOG = "knows its log"
    BEGINNING = "has begun where it resumes"
    FUNCTION = "is there again"


class IncarnationPorts(SnapshotPorts[S]):
    """`S` is a snapshot as the runtime keeps it."""

    @abstractmethod
    def commit_record(self) -> CommitRecord | None:
        """The newest in the checkpoint."""

    @abstractmethod
    def unrecorded_commit(self) -> UnrecordedCommit | None:
        """The last that the driver could not record, by the checkpoint."""

    @abstractmethod
    def await_commit(self) -> Steps:
        """A newer one may come. Raises RecoveryTimeout."""

    @abstractmethod
    def candidate(self, found: S) -> Candidate: ...

    @abstractmethod
    def restore_state(self, found: S | None) -> InstanceSnapshot | None:
        """Keyed state and timers, and the rest. Raises SnapshotCorrupt."""

    @abstractmethod
    def resume(self, found: S, resume: Resume) -> Steps:
        """Keep it as this attempt's own; the snapshot under its new name."""

    @abstractmethod
    def open_log(self) -> OpenedLog:
        """What this host has kept. A damaged store is set aside, and what can be read of it is in its place."""

    @abstractmethod
    def rewrite_log(self, at: LogOffset, pieces: Sequence[Segment], copied_by: Writer | None) -> None:
        """From an offset on the log store holds these, and says which incarnation has copied them: both in one write,
        or what was there before would count as that incarnation's where the process dies in between, or the disk is
        full."""

    @abstractmethod
    def log_is_whole(self, since: LogOffset) -> None:
        """From this offset on the store lacks nothing that the instance wrote, whatever was damaged before. To be kept
        with it, durably."""

    @property
    @abstractmethod
    def log_end(self) -> LogOffset:
        """Of the log store."""

    @abstractmethod
    def begin_log(self, writer: Writer) -> None:
        """From its offset on the log store holds what that incarnation writes, or a copy of it."""

    @abstractmethod
    def ask(self, origin: Origin, base: LogOffset) -> Steps:
        """Every other holder about an instance; a list of replies. Raises RecoveryTimeout."""

    @abstractmethod
    def await_holder(self, origin: Origin) -> Steps:
        """An instance that begins, too, may bring what is known of this one's log. Raises RecoveryTimeout."""

    @property
    @abstractmethod
    def kept_deltas(self) -> KeptDeltas:
        """Part of the state that was restored last."""

    @property
    @abstractmethod
    def effects_are_used(self) -> bool:
        """Whether an instance of the query has acted on the outside, by the checkpoint."""

    @abstractmethod
    def make_instance(self, ports: InstancePorts) -> Instance:
        """With the state that was restored, before it returns to a snapshot."""

    @abstractmethod
    def let_go(self) -> None:
        """Of what is in memory, if anything is."""

    def reached(self, how_far: Reached) -> Steps:
        """A restoration has come so far."""
        yield from ()

    def restored(self, found: S | None, recovered: Recovered) -> None:
        """There is an instance, which is about to return to this."""

    def goes_on(self) -> None:
        """It begins an epoch as it stands in memory."""

    def promoted(self, known: LogOffset) -> None:
        """It is the replica, and its own log begins at what was known."""

    def log_too_short(self) -> None:
        """The log store lacks what the conduit has seen."""
