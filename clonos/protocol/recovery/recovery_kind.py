"""The recoveries that a query can choose from."""

from __future__ import annotations

from enum import Enum


class RecoveryKind(Enum):
    """What is kept of a run, and so what has to be done again after a failure, and from when on output may be seen."""

    CAUSAL = "causal"
    """Outcomes of nondeterministic events travel with the rows that depend on them. A lost process is replaced and
    repeats them alone; rows are seen at once. (`protocol.recovery.causal`)"""

    COORDINATED = "coordinated"
    """Markers cut the query into rounds. After a failure all instances go back to the last complete round; rows are
    seen when their round is complete. (`protocol.recovery.coordinated`)"""

    UNCOORDINATED = "uncoordinated"
    """Each instance takes its own checkpoints, and keeps what it has sent. After a failure instances go back to
    checkpoints that fit together; rows are seen when no failure can lead behind them.
    (`protocol.recovery.uncoordinated`)"""

    @property
    def repeats(self) -> bool:
        """Whether an instance repeats what it did before a failure exactly, so that nothing that depends on it has to
        be undone, and its output may be seen at once."""
        return self is RecoveryKind.CAUSAL

    @property
    def logs_messages(self) -> bool:
        """Whether senders keep what they have sent, so that what a line cuts through can be sent again."""
        return self is RecoveryKind.UNCOORDINATED
