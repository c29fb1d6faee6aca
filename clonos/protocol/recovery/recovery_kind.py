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

    UNALIGNED = "unaligned"
    """Coordinated checkpoints, to which what is under way on a channel belongs, too: so no channel is held until the
    others have come as far. (`protocol.recovery.coordinated.channel_states`)"""

    UNCOORDINATED = "uncoordinated"
    """Each instance takes its own checkpoints, and keeps what it has sent. After a failure instances go back to
    checkpoints that fit together; rows are seen when no failure can lead behind them.
    (`protocol.recovery.uncoordinated`)"""

    COMMUNICATION_INDUCED = "communication_induced"
    """Uncoordinated checkpoints, and more of them, which rows that come force, so that none is useless. What instances
    know of each other's checkpoints rides along with the rows. (`protocol.recovery.communication_induced`)"""

    EAGER = "eager"
    """Nothing leaves an instance before a checkpoint that has it is durable. So no failure makes an orphan of anything,
    whatever the instance depended on: a lost process is replaced and goes on from its last checkpoint alone, and sends
    again what its conduit lacks; rows are seen at once. The eager regime of Isard and Abadi, "Falkirk Wheel: Rollback
    Recovery for Dataflow Systems", 2015, section 2.3, and pessimistic logging (Elnozahy et al., "A Survey of
    Rollback-Recovery Protocols in Message-Passing Systems", 2002, section 4.1). (`protocol.roles.operator_session`)"""

    EVENT_LOG = "event_log"
    """Eager, but that what leaves is logged: each step of an instance, what it has taken, changed and sent, is one
    transaction in a log of its own, on files or in a database. (`protocol.recovery.event_log`)"""

    BATCH = "batch"
    """Nothing is kept inside an epoch: after a failure the epoch is done again as a whole, and its rows are seen when
    it has committed. The batch regime of Isard and Abadi, section 2.3, with the state that each epoch ends with."""

    @property
    def repeats(self) -> bool:
        """Whether steps are recorded, so that another process can repeat them in the place of a lost one."""
        return self is RecoveryKind.CAUSAL

    @property
    def replaces(self) -> bool:
        """Whether a lost process is replaced, and nothing that others have of it is undone. So output may be seen at
        once."""
        return self in (RecoveryKind.CAUSAL, RecoveryKind.EAGER, RecoveryKind.EVENT_LOG)

    @property
    def checkpoints_alone(self) -> bool:
        """Whether an instance takes checkpoints inside an epoch whenever its own work, or time, is reason enough."""
        return not (self.has_rounds or self.begins_epochs_again)

    @property
    def begins_epochs_again(self) -> bool:
        """Whether an instance begins where the epoch does, after any failure."""
        return self is RecoveryKind.BATCH

    @property
    def has_rounds(self) -> bool:
        """Whether instances take checkpoints together."""
        return self in (RecoveryKind.COORDINATED, RecoveryKind.UNALIGNED)

    @property
    def in_micro_batch(self) -> bool:
        """Whether it is to be had where Spark runs the stages of an epoch one after another, and lost tasks again."""
        return self in (RecoveryKind.CAUSAL, RecoveryKind.BATCH)

    def goes_with(self, other: RecoveryKind) -> bool:
        """Whether operators of both may be in one query (`recovery.recoveries`): where none is ever undone; where each
        keeps what it has sent, or begins where the epoch does; or where one takes checkpoints in rounds, and the other
        is never undone beside it, or stores before it sends. Where rows force checkpoints they have to force those of
        all that go back, or some would be useless."""
        if self is other or (self.replaces and other.replaces):
            return True
        if self.repeats or other.repeats:
            return False
        if self.has_rounds or other.has_rounds:
            return self.sends_late or other.sends_late
        return self.forces_checkpoints == other.forces_checkpoints or not (
            self.begins_at_older_ones and other.begins_at_older_ones
        )

    @property
    def forces_checkpoints(self) -> bool:
        """Whether an instance takes checkpoints for the sake of what comes, too."""
        return self is RecoveryKind.COMMUNICATION_INDUCED

    @property
    def begins_at_older_ones(self) -> bool:
        """Whether a line may lie before the newest checkpoints that an instance has taken alone, and before those of
        instances behind it (`recoveries.goes_back`)."""
        return self in (RecoveryKind.UNCOORDINATED, RecoveryKind.COMMUNICATION_INDUCED)

    @property
    def sends_late(self) -> bool:
        """Whether checkpoints follow each other without a pause, as nothing leaves an instance before it is stored."""
        return self in (RecoveryKind.EAGER, RecoveryKind.EVENT_LOG)

    @property
    def appends(self) -> bool:
        """Whether most checkpoints are transactions in a log, behind a whole one."""
        return self is RecoveryKind.EVENT_LOG

    @property
    def logs_messages(self) -> bool:
        """Whether senders keep what they have sent, as part of their state, so that what a line cuts through can be
        sent again."""
        return self.begins_at_older_ones or self.sends_late
