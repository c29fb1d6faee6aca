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

    EAGER = "eager"
    """Nothing leaves an instance before a checkpoint that has it is durable. A lost process is replaced and goes on
    from its last checkpoint alone; rows are seen at once. (`protocol.recovery.eager`)"""

    @property
    def repeats(self) -> bool:
        """Whether an instance repeats, from a record, what it did before a failure."""
        return self is RecoveryKind.CAUSAL

    @property
    def replaces(self) -> bool:
        """Whether a lost process is replaced, and nothing that others have of it is undone. So output may be seen at
        once."""
        return self in (RecoveryKind.CAUSAL, RecoveryKind.EAGER)

    @property
    def sends_late(self) -> bool:
        """Whether checkpoints follow each other without a pause, as nothing leaves an instance before it is stored."""
        return self is RecoveryKind.EAGER

    @property
    def logs_messages(self) -> bool:
        """Whether senders keep what they have sent, so that what a line cuts through can be sent again."""
        return self in (RecoveryKind.UNCOORDINATED, RecoveryKind.EAGER)
