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
from enum import StrEnum
from pathlib import Path
from typing import Any

from clonos.protocol.ids import NO_EPOCH, Origin
from clonos.protocol.roles.death import Death
from clonos_standby.server.death import append_bounded
from clonos_standby.server.histogram import FAILOVER_SECONDS, Histogram

KEPT = 32
PLACES = ("log_bytes", "watermark", "held_rows")
"""Figures that say where an instance stands; all others grow with the work of a process, from zero."""

UNASKED = ("exit", "signal", "oom", "hang")
"""Kinds of unexpected deaths (`Death.expected`); they are shown also as long as there are none."""

WATCHED = ("DivergenceError", "GapError", "LogConflict", "PoisonRecord")
"""Errors of failed tasks that a query cannot go on from exactly; shown also as long as there are none."""


NOTICE, REPLACE = "notice", "replace"
"""Phases of a recovery before the process that replaces another begins."""


class RecoveryKind(StrEnum):
    """What made an instance recover."""

    REPLACED = "replaced"  # its process was lost within the task
    PROMOTED = "promoted"  # the same, and its standby took over
    TASK = "task"  # the task, or the query, was executed anew


@dataclass(frozen=True, slots=True)
class HandOver:
    """When a conduit came without its process, and when it was given another one; in seconds since 1970."""

    noticed: float
    replaced: float


@dataclass
class Work:
    """What one instance has done, over all its processes."""

    pid: int = 0
    told: dict[str, float] = field(default_factory=dict)
    total: dict[str, float] = field(default_factory=dict)
    log_bytes: int | None = None  # a sink has no log of its own
    watermark: float | None = None  # in seconds since 1970
    held_rows: int | None = None  # of a sink that shows rows with their round


class ServerStats:
    """See the module. Recoveries are also appended to a file, as JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work: dict[Origin, Work] = {}
        self.deaths = Counter(dict.fromkeys(UNASKED, 0))
        self.failures = Counter(dict.fromkeys(WATCHED, 0))
        self.recoveries: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.recovered_by = Counter(dict.fromkeys(RecoveryKind, 0))
        self.phases: dict[str, tuple[int, float]] = {}
        self.repeated = 0  # bytes of log
        self.failovers = Histogram(FAILOVER_SECONDS)
        self.committed = NO_EPOCH
        self.round_at: float | None = None  # when this server heard last that checkpoints make more visible

    def heard(self, origin: Origin, pid: int, figures: Mapping[str, float]) -> None:
        """A replica has told how far it is."""
        work = self.work.setdefault(origin, Work())
        if work.pid != pid:
            work.pid, work.told = pid, {}
        for name, figure in figures.items():
            if name not in PLACES:
                more = max(0, figure - work.told.get(name, 0))
                work.total[name] = work.total.get(name, 0) + more
        work.told = dict(figures)
        if "log_bytes" in figures:
            work.log_bytes = int(figures["log_bytes"])
        work.watermark = figures.get("watermark", work.watermark)
        if "held_rows" in figures:
            work.held_rows = int(figures["held_rows"])

    def died(self, death: Death) -> None:
        self.deaths[death.kind] += 1

    def recovered(
        self, origin: Origin, said: Mapping[str, Any], death: Death | None, given: HandOver | None = None
    ) -> None:
        """An instance is live again. The time since the death of the process before counts, where one was lost: it
        also holds what the conduit took to notice. A standby was promoted for a death on another server."""
        now = time.time()
        found = {"at": now, "node": origin.node, "instance": origin.instance, **said, "since_death_ms": None}
        if death is not None and not said["fresh"] and not said["promoted"]:
            since = max(now - death.at, said["ms"] / 1000)
            found["since_death_ms"] = round(since * 1000, 1)
            found["death"] = {"kind": death.kind, "pid": death.pid, "at": death.at}
            self.failovers.observe(since)
        if given is not None:
            found |= {"noticed_at": given.noticed, "replaced_at": given.replaced}
        self._count(found)
        self.recoveries.append(found)
        append_bounded(self.path, json.dumps(found).encode() + b"\n")

    def _count(self, found: Mapping[str, Any]) -> None:
        self.recovered_by[kind_of(found)] += 1
        self.repeated += found["repeated"]
        for phase, seconds in phases_of(found).items():
            count, total = self.phases.get(phase, (0, 0.0))
            self.phases[phase] = count + 1, total + seconds


def kind_of(recovery: Mapping[str, Any]) -> RecoveryKind:
    if recovery["promoted"]:
        return RecoveryKind.PROMOTED
    return RecoveryKind.TASK if recovery["fresh"] else RecoveryKind.REPLACED


def phases_of(recovery: Mapping[str, Any]) -> dict[str, float]:
    """The phases of a recovery in their order, in seconds, as far as they are known: `notice`, from the death until its
    conduit comes; `replace`, until another process has the connection; then what that process did."""
    found = {}
    noticed, death = recovery.get("noticed_at"), recovery.get("death")
    if noticed is not None:
        if death is not None:
            found[NOTICE] = max(0.0, noticed - death["at"])
        found[REPLACE] = max(0.0, recovery["replaced_at"] - noticed)
    return found | {phase: ms / 1000 for phase, ms in recovery["phases"].items()}
