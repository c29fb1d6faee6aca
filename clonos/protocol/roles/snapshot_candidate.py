"""The snapshots of an instance, as far as an incarnation needs them to choose where it begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from clonos.protocol.fence import Fence
from clonos.protocol.ids import LOG_BEGIN, Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.line.snapshot_name import Since, SnapshotName
from clonos.protocol.recovery.causal.own_log import OwnLog, Writer

S_co = TypeVar("S_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A snapshot, as far as choosing needs it. `acked_input` is the last bundle of its task attempt that it covers,
    `log` what it holds of the instance's log, up to `log_offset`; `live_since`, from which offset on the incarnation
    that took it went its own way, which may be behind that; `received`, how far it had been sent others' logs."""

    name: SnapshotName
    log_offset: LogOffset
    emitted: OutputNumber
    acked_input: int
    log: bytes = b""
    received: Mapping[Origin, LogOffset] = field(default_factory=dict)
    live_since: LogOffset = LOG_BEGIN

    @property
    def own_log(self) -> OwnLog:
        """Written by the incarnation that took it, or believed by it."""
        start = LogOffset(self.log_offset - len(self.log))
        since = max(start, self.live_since)
        writers = (Writer(self.name.fence, since),)
        return OwnLog([(start, self.log)], writers) if self.log else OwnLog()


class Snapshots(Protocol[S_co]):
    """The instance's snapshots in checkpoint storage (`protocol.line.snapshot_name` has the rules)."""

    @property
    def corrupt(self) -> Sequence[str]:
        """What was found to be damaged, and passed over."""

    def latest(
        self,
        *,
        epoch: Epoch,
        fence: Fence,
        since: Since | None,
        final_only: bool,
        usable: Callable[[S_co], bool],
    ) -> S_co | None: ...

    def beginning(self, epoch: Epoch, fence: Fence, since: Since | None) -> S_co | None: ...

    def resumed(self, epoch: Epoch, fence: Fence) -> S_co | None: ...

    def named(self, text: str) -> S_co | None: ...

    def final(self, epoch: Epoch, since: Since | None) -> S_co | None: ...

    def keep_from(self, number: int) -> None:
        """Of the snapshots inside an epoch, those from this one on are kept by number, and not only the newest; it may
        be said again with a higher one."""

    def binding(self, epoch: Epoch, fence: Fence) -> S_co | None: ...
