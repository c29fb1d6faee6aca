"""What the replicas of a server have done so far: the numbers behind the status and the metrics.

Replicas tell how far they are now and then, never per record; a process counts from zero, so what is added here is what
has come since the last word of the same process. Counts begin with the server, as `started` in its status says.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clonos.protocol.ids import NO_EPOCH, Origin
from clonos.protocol.roles.death import Death
from clonos_standby.server.death import append_bounded

KEPT = 32
COUNTED = ("records", "snapshots", "snapshot_seconds", "output_bytes", "delta_bytes")
"""Figures that grow with the work of a process; `log_bytes` is a place and goes on over its successors."""

UNASKED = ("exit", "signal", "oom", "hang")
"""Kinds of unexpected deaths (`Death.expected`); they are shown also as long as there are none."""

BUCKETS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the histogram of failovers, in seconds."""


@dataclass
class Work:
    """What one instance has done, over all its processes."""

    pid: int = 0
    told: dict[str, float] = field(default_factory=dict)
    total: dict[str, float] = field(default_factory=dict)
    log_bytes: int | None = None  # a sink has no log of its own


class ServerStats:
    """See the module. Recoveries are also appended to a file, as JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work: dict[Origin, Work] = {}
        self.deaths = Counter(dict.fromkeys(UNASKED, 0))
        self.failures = 0
        self.recoveries: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.failover_buckets = [0] * len(BUCKETS)
        self.failovers = 0
        self.failover_seconds = 0.0
        self.committed = NO_EPOCH

    def heard(self, origin: Origin, pid: int, figures: Mapping[str, float]) -> None:
        """A replica has told how far it is."""
        work = self.work.setdefault(origin, Work())
        if work.pid != pid:
            work.pid, work.told = pid, {}
        for name in COUNTED:
            if name in figures:
                more = max(0, figures[name] - work.told.get(name, 0))
                work.total[name] = work.total.get(name, 0) + more
        work.told = dict(figures)
        if "log_bytes" in figures:
            work.log_bytes = int(figures["log_bytes"])

    def died(self, death: Death) -> None:
        self.deaths[death.kind] += 1

    def recovered(self, origin: Origin, said: Mapping[str, Any], death: Death | None) -> None:
        """An instance is live again. The time since the death of the process before counts, where one was lost: it
        also holds what the conduit took to notice. A standby was promoted for a death on another server."""
        now = time.time()
        found = {"at": now, "node": origin.node, "instance": origin.instance, **said, "since_death_ms": None}
        if death is not None and not said["fresh"] and not said["promoted"]:
            since = max(now - death.at, said["ms"] / 1000)
            found["since_death_ms"] = round(since * 1000, 1)
            self.failovers += 1
            self.failover_seconds += since
            for at, bound in enumerate(BUCKETS):
                self.failover_buckets[at] += since <= bound
        self.recoveries.append(found)
        append_bounded(self.path, json.dumps(found).encode() + b"\n")
