"""The snapshot with which an instance ended an epoch, or the last one before that it ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clonos.protocol.ids import Epoch, Origin, OutputNumber
from clonos.protocol.line.commit_record import Ended
from clonos.protocol.line.missing_end import check_no_end_is_missing
from clonos.protocol.line.recovery_line import Point, RecoveryLine, ran_in_real_time
from clonos.protocol.topology import Topology


@dataclass(frozen=True, slots=True)
class FinalSnapshot:
    """`emitted` is the number of the last output row before it."""

    point: Point
    emitted: OutputNumber

    @property
    def ended(self) -> Ended:
        """What a commit record says of it."""
        return Ended(self.point.name, self.point.log_offset, self.emitted)


FinalSnapshots = Mapping[Origin, FinalSnapshot]
"""Of all instances that have run."""


def check_finals(
    topology: Topology, finals: FinalSnapshots, *, line: RecoveryLine | None, epoch: Epoch
) -> None:
    """That no instance which has run is without one at the end of an epoch that has committed; `line` is the newest
    there is. Raises SnapshotCorrupt."""
    reached = {origin: final.point.reached for origin, final in finals.items()}
    check_no_end_is_missing(topology, reached, epoch=epoch, realtime=ran_in_real_time(line, epoch))
