"""Where all instances go back to together, where not all of them repeat what they did.

The line is the newest consistent one through checkpoints of which nothing is orphan, and, unless senders keep what they
have sent, nothing is lost (`consistent_line`): with coordinated checkpoints that is the last complete round. A sink
begins there, too, with what it holds (`protocol.recovery.rollback.held_output`).

The output rule is checked here: what is visible may not lie behind the line, since what is made again may be something
else. That it does can only be where a part of the checkpoint is older than another, or was made by another program.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from clonos.errors import CheckpointMismatch, SnapshotCorrupt
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, NodeId, Origin, channel_origin
from clonos.protocol.line.known_sinks import lost_output, sinks_with_rows
from clonos.protocol.line.recovery_line import Point, RecoveryLine, Standing, beginnings, recovery_line
from clonos.protocol.recovery.recoveries import Recoveries
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
    recoveries: Recoveries,
) -> RecoveryLine:
    """`standings` are those of operators' and sinks' instances, `resumes`: whether they may begin inside the epoch.
    Raises CheckpointMismatch, SnapshotCorrupt."""
    _check_bases(topology, standings, recoveries)
    if resumes:
        line = rollback_target(
            topology,
            _of_stores(standings, cursors),
            cursors,
            generation=generation,
            epoch=epoch,
            recoveries=recoveries,
        )
    else:
        bases = {origin: one.base for origin, one in standings.items() if one.base is not None}
        line = RecoveryLine(generation, epoch, **beginnings(bases))
    operators = [NodeId(node.number) for node in topology.nodes if node.kind is NodeKind.OPERATOR]
    anew = {node for node in operators if not (resumes and recoveries.repeats(node))}
    behind = _visible_behind(topology, line, standings, cursors, anew)
    if behind is not None:
        raise _lost_output(topology, standings, cursors) or behind
    return line


def rollback_target(
    topology: Topology,
    standings: Mapping[Origin, Standing],
    cursors: Cursors,
    *,
    generation: Generation,
    epoch: Epoch,
    recoveries: Recoveries,
) -> RecoveryLine:
    """The line, whatever is visible. A sink that does not begin at a checkpoint begins where its store has come."""
    sinks = {
        origin: standings[origin].reached if origin in standings else cursors.get(origin, {})
        for origin in topology.instances(NodeKind.SINK)
    }
    return recovery_line(
        topology, standings, sinks, generation=generation, epoch=epoch, recoveries=recoveries
    )


def _check_bases(topology: Topology, standings: Mapping[Origin, Standing], recoveries: Recoveries) -> None:
    """What has been received in epochs that have committed, a sender has ended them with, or repeats, and what it had
    sent has been received. In micro-batch an instance without input leaves no checkpoint, so that one is gone shows
    here."""

    def named(origin: Origin) -> str:
        return f"instance {origin.instance} of {topology.node(origin.node).name!r}"

    def gone(what: str, ended: Origin) -> SnapshotCorrupt:
        return SnapshotCorrupt(
            f"{what}, and no checkpoint is there with which {named(ended)} ended the epoch",
            hint="Restore the checkpoint as it was after that epoch",
        )

    for sender, standing in standings.items():
        for to, receiver in enumerate(topology.receivers(sender.node)):
            if receiver not in standings:
                continue
            is_sink = topology.node(receiver.node).kind is NodeKind.SINK  # of which its place is asked
            sent, had = standing.sent.get(to, -1), standings[receiver].reached.get(sender.channel, -1)
            if had > sent and not recoveries.repeats(sender.node):
                raise gone(f"{named(receiver)} has received rows up to {had} of {named(sender)}", sender)
            if had < sent and not is_sink:
                raise gone(f"{named(sender)} has sent rows up to {sent} to {named(receiver)}", receiver)


def _of_stores(standings: Mapping[Origin, Standing], cursors: Cursors) -> dict[Origin, Standing]:
    """Without the checkpoints of sinks whose store has not, or not any more, what they have shown. A new place need not
    have it."""
    known = sinks_with_rows(cursors)

    def has(origin: Origin, point: Point) -> bool:
        visible = cursors.get(origin, {})
        return origin.node not in known or all(
            visible.get(channel, -1) >= at for channel, at in point.shown.items()
        )

    return {
        origin: replace(standing, inside=[point for point in standing.inside if has(origin, point)])
        for origin, standing in standings.items()
    }


def _lost_output(
    topology: Topology, standings: Mapping[Origin, Standing], cursors: Cursors
) -> CheckpointMismatch | None:
    """Of a sink that has less in its place than it has shown there, or than its senders have cut from the logs of what
    they have sent."""
    known = sinks_with_rows(cursors)
    for origin, standing in standings.items():
        newest = standing.inside[-1] if standing.inside else None
        if newest is None:
            continue
        gone = [(origin, channel, at) for channel, at in newest.shown.items()]
        for to, reader in enumerate(topology.receivers(origin.node)):
            if topology.node(reader.node).kind is NodeKind.SINK and reader not in standings:
                gone.append((reader, origin.channel, newest.unkept.get(to, -1)))
        for sink, channel, number in gone:
            at = cursors.get(sink, {}).get(channel, -1)
            if sink.node in known and at < number:
                name = f"node {sink.node}, instance {sink.instance}"
                return lost_output(name, channel, number, "in the open epoch", at)
    return None


def _visible_behind(
    topology: Topology,
    line: RecoveryLine,
    standings: Mapping[Origin, Standing],
    cursors: Cursors,
    anew: Collection[NodeId],
) -> CheckpointMismatch | None:
    """What is refused where rows are visible that would be made again, and differently: of these operators."""

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
            if channel_origin(channel).node in anew and (last := reached(origin, channel)) < at:
                return CheckpointMismatch(
                    f"sink {topology.node(origin.node).name!r}, instance {origin.instance}, shows rows of channel "
                    f"{channel} up to {at}, and the newest checkpoints that fit together end at "
                    f"{last if last >= 0 else 'none'}: rows behind that would be made again, and differently",
                    hint="Restore the checkpoint as it was last; a new program begins where an epoch has ended: let "
                    "the old one run until one has, or begin anew with a new checkpoint and a new sink",
                )
    return None
