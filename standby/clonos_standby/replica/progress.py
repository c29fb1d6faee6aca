"""How far a recovery has come, and how long its parts took.

When it is over the replica says so twice: in a line of its output, for an operator who reads that, and to the
supervisor, which shows it in the query's status.
"""

from __future__ import annotations

import time
from typing import Any

from clonos.protocol.ids import Epoch
from clonos_standby.server.log import Level, log


class Recovery:
    """Starts with its creation; `done` names what has just been done. `fresh`: a task was executed anew, in contrast to
    a replica that was lost. `promoted`: it was a standby's, which had most of it behind it."""

    def __init__(self, epoch: Epoch, *, fresh: bool, promoted: bool = False) -> None:
        self._epoch = epoch
        self._fresh = fresh
        self._promoted = promoted
        self.resumed: int | None = (
            None  # log bytes of the epoch before the snapshot in it that a task began with
        )
        self._began = self._last = time.monotonic()
        self._parts: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def done(self, part: str) -> None:
        now = time.monotonic()
        self._parts[part] = round((now - self._last) * 1000, 1)
        self._last = now

    def live(self, repeated: int, records: int) -> dict[str, Any]:
        """The instance goes on with new records; `repeated` is the bytes of log it has repeated, `records` how many
        records it was given until then. What to report."""
        self.done("replay")
        spent = (self._last - self._began) * 1000
        parts = ", ".join(f"{name} {ms:.0f}" for name, ms in self._parts.items())
        if self.resumed is not None:
            parts += f"; resumed {self.resumed} bytes of log into the epoch"
        said = f"epoch {self._epoch}: live after {spent:.0f} ms ({parts}; {records} records, {repeated} bytes repeated)"
        log("recovered", said, level=Level.INFO, epoch=self._epoch)
        return {
            "epoch": self._epoch,
            "fresh": self._fresh,
            "promoted": self._promoted,
            "ms": round(spent, 1),
            "phases": self._parts,
            "repeated": repeated,
            "records": records,
            "resumed": self.resumed,
        }
