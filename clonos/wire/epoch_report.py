"""What a replica tells of its instance at the end of an epoch, for the progress that the query shows.

It stands in ENDED, as one JSON object (docs/wire.md); the conduit brings it to the driver.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from clonos.protocol.engine.epoch_counts import Counted


@dataclass(frozen=True, slots=True)
class EpochReport:
    """Of an operator's instance; a sink's has nothing to tell."""

    counted: Counted
    entries: int
    """Of its keyed state, as the database estimates them."""
    watermark: int | None
    """With which it began the epoch, in microseconds since 1970; None before there is one."""

    def encode(self) -> bytes:
        return json.dumps(
            {**asdict(self.counted), "entries": self.entries, "watermark": self.watermark}
        ).encode()
