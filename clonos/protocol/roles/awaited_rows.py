"""Which epoch's rows the driver waits for, where sinks hold rows and none may be served for long: until when it leaves
them to a process that serves a sink, and when it shows them itself (`query_coordinator.show_committed`)."""

from __future__ import annotations

from clonos.protocol.ids import NO_EPOCH, Epoch


class AwaitedRows:
    """Of one driver. Times are of any steady clock, and in its unit; so is `deadline`, the longest that a process may
    take."""

    def __init__(self, *, deadline: float) -> None:
        self._deadline = deadline
        self._since = 0.0
        self.committed = NO_EPOCH
        self.visible = NO_EPOCH  # everything up to the end of this epoch

    @property
    def are_due(self) -> bool:
        """Whether something that has committed is not known to be visible."""
        return self.committed > self.visible

    def commit(self, epoch: Epoch, now: float) -> bool:
        """It is recorded to have committed; whether that is new."""
        is_new = epoch > self.committed
        if is_new:
            self.committed, self._since = epoch, now
        return is_new

    def takes_over(self, now: float) -> bool:
        """Whether the driver shows them although a process serves the sink."""
        return now - self._since > self._deadline
