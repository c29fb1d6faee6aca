"""How much of an epoch is run again after the Spark query has failed.

Stock Spark begins it anew. Clonos goes on from snapshots inside it (`clonos.protocol.line.recovery_line`), and
repeats what was recorded behind them. Both parts are in the causal side's recoveries, in bytes of log.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from clonos.tools.demo.job import Job

__all__ = ["RunAgain", "run_again"]


@dataclass(frozen=True, slots=True)
class RunAgain:
    """What operators' instances had recorded in epochs that were begun again, in bytes of log: what lay before
    the snapshots that they went on from, and what they repeated."""

    skipped: int
    repeated: int

    @property
    def share(self) -> float:
        """What was run again, from 0 to 1."""
        return self.repeated / (self.skipped + self.repeated)


def run_again(job: Job) -> RunAgain | None:
    """What the causal side ran again, when its driver has ended; None if it had recorded nothing of such epochs."""
    path = Path(job.recoveries)
    lines = path.read_text().splitlines() if path.exists() else []
    begun = [one for one in map(json.loads, lines) if one["fresh"]]
    skipped, repeated = sum(one["resumed"] or 0 for one in begun), sum(one["repeated"] for one in begun)
    return RunAgain(skipped, repeated) if skipped + repeated else None
