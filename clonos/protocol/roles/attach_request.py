"""What a conduit says when it connects to the process that is to serve its instance."""

from __future__ import annotations

from dataclasses import dataclass

from clonos.protocol.fence import Fence, Generation, generation_of
from clonos.protocol.ids import LOG_BEGIN, Epoch, LogOffset, Origin, OutputNumber, log_after
from clonos.protocol.recovery.causal.replacement import ConduitProgress, Failover
from clonos.protocol.roles.death import Death


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """HELLO and RESUME in one.

    `fresh`: the first incarnation of a task attempt. `is_retry`: not the epoch's first attempt. `emitted_output`: the
    last output row that the conduit has taken over, `log` what it keeps of the instance's log, from `log_start` on.
    `failovers`: where the instance went on on another server. `recovered`: as far as a replica of this attempt has
    recovered its log. `realtime`: Spark runs no task of the epoch again in this start of the query. `previous`, which
    the server adds: how the last process that has died here did.
    """

    origin: Origin
    epoch: Epoch
    fence: Fence
    fresh: bool
    is_retry: bool
    emitted_output: OutputNumber
    log_start: LogOffset
    log: bytes
    standby: bool = False
    failovers: tuple[Failover, ...] = ()
    recovered: LogOffset = LOG_BEGIN
    realtime: bool = False
    previous: Death | None = None

    @property
    def generation(self) -> Generation:
        return generation_of(self.fence)

    @property
    def progress(self) -> ConduitProgress:
        log_end = log_after(self.log_start, self.log)
        return ConduitProgress(self.fence, self.emitted_output, self.log_start, log_end, self.failovers)
