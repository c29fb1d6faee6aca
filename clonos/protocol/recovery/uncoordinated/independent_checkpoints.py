"""When an instance that takes checkpoints alone, and repeats nothing, takes them.

Instances that began together would take all checkpoints at the same time, and load the storage all at once: each has an
interval of its own.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from clonos.protocol.ids import Origin
from clonos.protocol.roles.snapshot_schedule import SnapshotLimits

_APART: Final = 0.2
"""Of the interval, by which instances differ."""


def own_limits(origin: Origin, interval: float) -> SnapshotLimits:
    """When an instance takes a checkpoint, by time alone; in seconds."""
    share = crc32(f"{origin.node}/{origin.instance}".encode()) / 2**31 - 1  # from -1 to 1
    return SnapshotLimits(work=float("inf"), interval=interval * (1 + _APART * share))
