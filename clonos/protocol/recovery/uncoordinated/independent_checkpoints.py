"""What uncoordinated checkpoints decide for an instance: all is taken as it comes, and checkpoints are taken alone.

Instances that began together would take all checkpoints at the same time, and load the storage all at once: each has an
interval of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from zlib import crc32

from clonos.protocol.ids import Origin
from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.policy import Decision, InstancePolicy
from clonos.protocol.roles.snapshot_schedule import SnapshotLimits

_APART: Final = 0.2
"""Of the interval, by which instances differ."""


class IndependentCheckpoints(InstancePolicy):
    """See the module."""

    repeats = False
    replaces = False
    sends_late = False
    checkpoints_alone = True
    logs_messages = True

    def begin_epoch(self) -> None:
        """Nothing is kept here."""

    def arrive(self, bundle: Bundle) -> Iterator[Decision]:
        yield bundle

    def begin_round(self, begun: Round) -> Iterator[Decision]:
        """There are no rounds."""
        yield from ()

    def end_input(self) -> Iterator[Decision]:
        yield from ()


def own_limits(origin: Origin, interval: float) -> SnapshotLimits:
    """When an instance takes a checkpoint, by time alone; in seconds."""
    share = crc32(f"{origin.node}/{origin.instance}".encode()) / 2**31 - 1  # from -1 to 1
    return SnapshotLimits(work=float("inf"), interval=interval * (1 + _APART * share))
