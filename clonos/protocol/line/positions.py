"""How far instances are where a start of the query begins: what tells a failure that comes again from another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clonos.protocol.ids import NO_EPOCH, Epoch, Origin
from clonos.protocol.line.recovery_line import RecoveryLine, Standing


@dataclass(frozen=True, slots=True)
class Positions:
    """`taken`: by instance, the sum of the positions that it has reached on its channels; it only grows."""

    epoch: Epoch = NO_EPOCH
    taken: Mapping[Origin, int] = field(default_factory=dict)


def positions_at(
    line: RecoveryLine, standings: Mapping[Origin, Standing], cursors: Mapping[Origin, Mapping[int, int]]
) -> Positions:
    """Where the line is. A sink that begins at no snapshot begins where its store has come, by `cursors`."""
    reached = dict(cursors)
    for origin, standing in standings.items():
        point = standing.begins(line.resumes.get(origin))
        reached[origin] = point.reached if point is not None else {}
    return Positions(line.epoch, {origin: sum(channels.values()) for origin, channels in reached.items()})
