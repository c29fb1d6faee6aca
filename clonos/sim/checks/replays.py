"""I2: the state after a given piece of log is the same, whenever and in whichever replica it is reached.

Log bytes are compared as they are made (`Truth.extend`), rows as they leave (`Outputs`); this is the state: whenever a
snapshot is taken at a log offset at which one was taken before, both must be equal in everything a replay determines.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from clonos.sim.checkpoint import Snapshot
from clonos.sim.checks.truth import Truth
from clonos.sim.checks.violation import Violation

if TYPE_CHECKING:
    from clonos.sim.operator_host import OperatorHost


class Replays:
    """By log offset, a digest of the state."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def snapshot(self, host: OperatorHost, snapshot: Snapshot) -> None:
        instance = snapshot.instance
        parts = (
            sorted(host.contents().items()),
            host.timers.entries,
            host.event_timers.entries,
            sorted(instance.covered.items()),
            instance.emitted,
            instance.boundary,
            instance.watermark,
            zlib.crc32(repr(instance.random_state).encode()),
        )
        digest = repr(parts)
        states = self._truth.states[host.origin]
        known, _ = states.setdefault(instance.log_offset, (digest, dict(host.depends)))
        if known != digest:
            raise Violation(
                "I2",
                f"{host.origin} at log offset {instance.log_offset} is in another state than before:\n"
                f"  then {known[:600]}\n  now  {digest[:600]}",
            )
