"""What one epoch of an instance has recorded, for a replay in another process."""

from __future__ import annotations

from dataclasses import dataclass

from clonos.protocol.ids import OutputNumber
from clonos.protocol.recovery.dependence import Service
from clonos.testing.driver.differences import Said, Seen


@dataclass(frozen=True, slots=True)
class Recording:
    """The log of an epoch from its beginning to its end, and what the replay must come to."""

    log: bytes
    said: tuple[Said, ...]  # by step
    seen: Seen  # at the end
    outputs: OutputNumber  # of the last row
    services: frozenset[Service]  # that the log tells of, and random numbers
