"""Where all instances go back to together, where none repeats what it did.

The line is the newest consistent one through checkpoints of which nothing is orphan, and, unless senders keep what they
have sent, nothing is lost (`consistent_line`): with coordinated checkpoints that is the last complete round. A sink
begins there, too, with what it holds (`protocol.recovery.rollback.held_output`).

The output rule is checked here: what is visible may not lie behind the line, since what is made again may be something
else. That it does can only be where a part of the checkpoint is older than another, or was made by another program.
"""

from __future__ import annotations

from collections.abc import Mapping

from clonos.errors import CheckpointMismatch, SnapshotCorrupt
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, Origin, channel_origin
from clonos.protocol.line.recovery_line import Point, RecoveryLine, Standing, beginnings, recovery_line
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import NodeKind, Topology

Cursors = Mapping[Origin, Mapping[int, int]]
"""By sink's instance and channel, the last position that is visible."""


def rollback_line(
    topology: Topology,
    standings: Mapping[Origin, Standing],
    cursors: Cursors,
    *,
    generation: Generation,
    epoch: Epoch,
    resumes: bool,
    recovery: RecoveryKind,
) -> RecoveryLine:
    """`standings` are those of operators' and sinks' instances, `resumes`: whether they may begin inside the epoch.
    Raises CheckpointMismatch, SnapshotCorrupt."""
    _check_bases(topology, standings)
    if resumes:
        line = rollback_target(
            topology, standings, cursors, generation=generation, epoch=epoch, recovery=recovery
        )
    else:
        bases = {origin: one.base for origin, one in standings.items() if one.base is not None}
        line = RecoveryLine(generation, epoch, **beginnings(bases))
    _check_visible(topology, line, standings, cursors)
    return line


def rollback_target(
    topology: Topology,
    standings: Mapping[Origin, Standing],
    cursors: Cursors,
    *,
    generation: Generation,
    epoch: Epoch,
    recovery: RecoveryKind,
) -> RecoveryLine:
    """The line, whatever is visible. A sink that does not begin at a checkpoint begins where its store has come."""
    sinks = {
        origin: standings[origin].reached if origin in standings else cursors.get(origin, {})
        for origin in topology.instances(NodeKind.SINK)
    }
    return recovery_line(topology, standings, sinks, generation=generation, epoch=epoch, recovery=recovery)


def _check_bases(topology: Topology, standings: Mapping[Origin, Standing]) -> None:
    """Whoever has received rows in an epoch that has committed has a sender that ended one. In micro-batch an instance
    without input leaves no checkpoint, so that one is gone shows here."""
    for receiver, standing in standings.items():
        for channel, at in standing.reached.items():
            sender = channel_origin(channel)
            to = topology.destination(sender.node, receiver)
            if sender in standings and to is not None and at > standings[sender].sent.get(to, -1):
                raise SnapshotCorrupt(
                    f"instance {receiver.instance} of {topology.node(receiver.node).name!r} has received rows up to "
                    f"{at} of instance {sender.instance} of {topology.node(sender.node).name!r}, and no checkpoint is "
                    "there with which that ended the epoch",
                    hint="Restore the checkpoint as it was after that epoch",
                )


def _check_visible(
    topology: Topology, line: RecoveryLine, standings: Mapping[Origin, Standing], cursors: Cursors
) -> None:
    operators = {node.number for node in topology.nodes if node.kind is NodeKind.OPERATOR}

    def begins(origin: Origin) -> Point | None:
        return standings[origin].begins(line.resumes.get(origin))

    def reached(sink: Origin, channel: int) -> int:
        """Up to where rows of the channel are not made again."""
        if sink in standings:
            point = begins(sink)
            return point.reached.get(channel, -1) if point is not None else -1
        sender = channel_origin(channel)
        to, point = topology.destination(sender.node, sink), begins(sender) if sender in standings else None
        return point.sent.get(to, -1) if point is not None and to is not None else -1

    for origin in topology.instances(NodeKind.SINK):
        for channel, at in cursors.get(origin, {}).items():
            if channel_origin(channel).node in operators and (last := reached(origin, channel)) < at:
                raise CheckpointMismatch(
                    f"sink {topology.node(origin.node).name!r}, instance {origin.instance}, shows rows of channel "
                    f"{channel} up to {at}, and the newest checkpoints that fit together end at "
                    f"{last if last >= 0 else 'none'}: rows behind that would be made again, and differently",
                    hint="Restore the checkpoint as it was last; a new program begins where an epoch has ended: let "
                    "the old one run until one has, or begin anew with a new checkpoint and a new sink",
                )
