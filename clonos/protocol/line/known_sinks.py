"""Which sinks have rows in their place, and what is said where rows are missing there.

A place that has nothing is new: the user has chosen it instead of another one, and it need not have what was shown
there. So it is not asked for rows that cannot be sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from clonos.errors import CheckpointMismatch
from clonos.protocol.ids import NodeId, Origin

_RESTORE: Final = (
    "Restore the sink as it was then or later. If it was in another place then, give it that one again, or a place "
    "where it has never been. Or begin anew with a new checkpoint"
)


def sinks_with_rows(cursors: Mapping[Origin, Mapping[int, int]]) -> set[NodeId]:
    """`cursors`: by sink's instance and channel, the last position that its place has."""
    return {origin.node for origin, channels in cursors.items() if channels}


def lost_output(sink: str, channel: int, number: int, when: str, at: int) -> CheckpointMismatch:
    """It had rows of the channel up to `number`, and has them up to `at`."""
    return CheckpointMismatch(
        f"the sink has lost output: {sink} of it had rows of channel {channel} up to number {number} {when}, and has "
        f"them up to {at}",
        hint=_RESTORE,
    )
