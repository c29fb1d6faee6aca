"""A piece of what an instance did in an epoch, as the archive has it: input that came, and the log that was recorded.

One is cut whenever a checkpoint is begun, and is durable before that is: from then on the conduit forgets the input,
and no other process is sent it again. Processes that take each other's place begin at a checkpoint, so their segments
overlap and never leave anything out. The last segment of an epoch says how it ended. Where the epoch was begun anew,
not all count (`protocol.archive.counting_segments`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber, log_after


@dataclass(frozen=True, slots=True)
class RanOn:
    """Where a process of the instance was. What is in the log before the offset `since`, it has repeated."""

    host: str
    pid: int
    since: LogOffset


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """How the epoch ended for the instance."""

    log_end: LogOffset
    emitted_output: OutputNumber


@dataclass(frozen=True, slots=True)
class Began:
    """Where in the epoch a process began."""

    inside: LogOffset | None = None
    """At a checkpoint inside it, at this offset of the log; None: with the epoch, all of whose input came to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSegment:
    """See the module."""

    origin: Origin
    epoch: Epoch
    fence: Fence  # of the process that has written it
    number: int  # among those of that process in the epoch
    written_at: int  # microseconds since 1970
    realtime: bool
    program: str  # which program ran it, by the digest of what a replica is told of the operator
    code: str = (
        ""  # what the code of the user's functions was (`operators.function_code`), where that is known
    )
    intercept: bool = False  # what functions ask of Python's own clocks and generators was recorded
    epoch_start: LogOffset
    log_start: LogOffset
    log: bytes
    blocks: Sequence[bytes] = field(default=())  # as they came, without what rode along
    ended: EpochEnded | None = None
    erased_at: int | None = None
    """When the epoch was erased, in microseconds since 1970: all that is left is how it ended."""
    lineage: bytes | None = None  # of the steps of `log` (`step_lineage`); None where it was not recorded
    ran_on: RanOn | None = None  # where the process was; older versions have not said so
    began: Began | None = None  # nor this

    @property
    def log_end(self) -> LogOffset:
        return log_after(self.log_start, self.log)
