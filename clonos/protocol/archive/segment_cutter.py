"""What an instance leaves in the archive, and when: one segment or more for each checkpoint, with what has come and was
recorded since the one before.

They are written before the checkpoint is durable. A process that begins at a checkpoint leaves what comes behind it;
what the lost one had not left comes again, since the conduit has not forgotten it. A standby takes the same input, and
cuts nothing until it has taken over: what it leaves begins where it did, or with the epoch, if that began later. A
segment has nothing of the epochs before its own: who drops or erases these looks into their segments alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from clonos.errors import LogConflict
from clonos.protocol.archive.archive_segment import ArchiveSegment, Began, EpochEnded, RanOn
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.ids import LOG_BEGIN, NO_EPOCH, Epoch, LogOffset, Origin
from clonos.protocol.recovery.causal.causal_log import CausalLog, pieces_from
from clonos.protocol.roles.attach_request import AttachRequest


class InputSpool(ABC):
    """Input that no segment has yet, in order."""

    @abstractmethod
    def put(self, block: bytes) -> None: ...

    @abstractmethod
    def take(self) -> Sequence[Sequence[bytes]]:
        """All of it, in pieces of a segment each; one at least. It is empty behind that."""

    @abstractmethod
    def clear(self) -> None: ...


class SegmentCutter:
    """See the module. `program` says which one runs the instance."""

    def __init__(
        self,
        origin: Origin,
        program: str,
        spool: InputSpool,
        *,
        code: str = "",
        intercept: bool = False,
        lineage: bool = False,
    ) -> None:
        self._origin = origin
        self._program = program
        self._code = code
        self._intercept = intercept
        self._spool = spool
        self._lineage: deque[tuple[LogOffset, bytes]] | None = deque() if lineage else None
        self._epoch = NO_EPOCH
        self._began = NO_EPOCH, LOG_BEGIN  # at which checkpoint: its epoch, and its offset of the log
        self._log_upto = LOG_BEGIN
        self._log = CausalLog()
        self._number = 0

    def restored(self, log_offset: LogOffset, epoch: Epoch) -> None:
        """The instance begins here, at a checkpoint of an epoch, or with nothing (`NO_EPOCH`); what was before, other
        processes have left."""
        self._began = epoch, log_offset
        self._log_upto = log_offset
        self._log = CausalLog()
        self._spool.clear()
        if self._lineage is not None:
            self._lineage.clear()

    def note_lineage(self, stop: LogOffset, entry: bytes) -> None:
        """Of the step that ends at a log offset, whether it ran for the first time or was repeated."""
        assert self._lineage is not None
        if stop <= self._log_upto:
            return  # a standby has come behind what others have left
        while self._lineage and self._lineage[-1][0] >= stop:
            self._lineage.pop()  # of a history that was given up
        self._lineage.append((stop, entry))

    def record(self, start: LogOffset, data: bytes) -> None:
        """A piece of the instance's log is saved. The log need not be shared, so no other part of it may hold it."""
        try:
            self._log.merge(start, data)
        except LogConflict:  # a history was given up, and what is archived of it does not count
            self._log = CausalLog()
            self._log.merge(start, data)

    def truncate(self, log_offset: LogOffset) -> None:
        """An epoch has committed whose log ended there. A standby has followed it, and leaves nothing of it."""
        self._leave_to_others(log_offset)

    def _leave_to_others(self, log_offset: LogOffset) -> None:
        """What is before it, another process has left: none ends an epoch before that is durable."""
        if log_offset > self._log_upto:
            self._log_upto = log_offset
            self._keep_log_from(log_offset)
            self._take_lineage(log_offset)

    def take(self, epoch: Epoch, block: bytes) -> None:
        """Input has come."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._spool.clear()  # of an epoch that was given up
        self._spool.put(block)

    def cut(
        self,
        request: AttachRequest,
        content: InstanceSnapshot,
        *,
        written_at: int,
        is_end: bool,
        ran_on: RanOn | None = None,
    ) -> list[ArchiveSegment]:
        """A checkpoint has been begun with `content` by the process `ran_on`. The last one says that the epoch ended,
        if it did."""
        if request.epoch != self._epoch:
            self._spool.clear()
        self._leave_to_others(content.epoch_log_offset)
        log = self._log.prefix(self._log_upto)[: content.log_offset - self._log_upto]
        self._log_upto = content.log_offset
        lineage = self._take_lineage(content.log_offset)
        epoch, offset = self._began
        began = Began(offset if epoch == request.epoch else None)
        self._keep_log_from(content.log_offset)  # what is saved, and is repeated later
        pieces = self._spool.take()
        found: list[ArchiveSegment] = []
        if not (is_end or log or pieces[0]):
            return found
        for at, blocks in enumerate(pieces, 1):
            is_last = at == len(pieces)
            found.append(
                ArchiveSegment(
                    origin=self._origin,
                    epoch=request.epoch,
                    fence=request.fence,
                    number=self._number,
                    written_at=written_at,
                    realtime=request.realtime,
                    program=self._program,
                    code=self._code,
                    intercept=self._intercept,
                    epoch_start=content.epoch_log_offset,
                    log_start=LogOffset(content.log_offset - len(log)) if is_last else content.log_offset,
                    log=log if is_last else b"",
                    blocks=blocks,
                    ended=EpochEnded(content.log_offset, content.emitted) if is_end and is_last else None,
                    lineage=lineage if is_last else None,
                    ran_on=ran_on,
                    began=began,
                )
            )
            self._number += 1
        return found

    def _take_lineage(self, upto: LogOffset) -> bytes | None:
        """What is noted of the steps up to an offset, which is not kept any more."""
        if self._lineage is None:
            return None
        found: list[bytes] = []
        while self._lineage and self._lineage[0][0] <= upto:
            found.append(self._lineage.popleft()[1])
        return b"".join(found)

    def _keep_log_from(self, offset: LogOffset) -> None:
        later = pieces_from(self._log, offset)
        self._log = CausalLog()
        for piece in later:
            self._log.merge(*piece)
