"""One cell of the matrix: what is run, protected how, and what is done to it. A value, with a name that is its key."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from clonos.errors import ConfigurationError
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.tools.nexmark.queries import QUERIES
from clonos.tools.nexmark.query import Query
from clonos.tools.nexmark.workload import Hot


class Mode(Enum):
    MICROBATCH = "microbatch"
    REALTIME = "realtime"


class Protection(Enum):
    """`NONE` is the native job, `CLONOS` causal logging without standbys; with `PASSIVE` and `HOT` each instance has
    one. The others are further recoveries (docs/recoveries.md), but for those that differ from another one only where
    several operators follow one another: the queries have one."""

    NONE = "none"
    CLONOS = "clonos"
    PASSIVE = "passive"
    HOT = "hot"
    EAGER = "eager"
    EVENT_LOG = "event_log"
    COORDINATED = "coordinated"
    UNCOORDINATED = "uncoordinated"
    BATCH = "batch"

    @property
    def recovery(self) -> RecoveryKind:
        """Of the causal side."""
        return RecoveryKind(self.value) if self.value in _RECOVERIES else RecoveryKind.CAUSAL

    @property
    def stands_by(self) -> bool:
        return self in (Protection.PASSIVE, Protection.HOT)


_RECOVERIES = frozenset(kind.value for kind in RecoveryKind)


class Failure(Enum):
    """`REPLICA`: SIGKILL of a process that runs the user's function (or, after those, a sink). `TASK`: an error in a
    Spark task. `QUERY`: an error that ends the Spark query."""

    NONE = "none"
    REPLICA = "replica"
    TASK = "task"
    QUERY = "query"


class Pattern(Enum):
    """How many failures, and when."""

    SINGLE = "single"  # in the middle
    STAGGERED = "staggered"  # three, at a third, in the middle, at two thirds
    TOGETHER = "together"  # three at once, in the middle


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One configuration."""

    query: str
    mode: Mode
    protection: Protection
    failure: Failure
    rate: int  # events per second
    seconds: int  # of measuring, after the warm-up
    warm_up: int
    pattern: Pattern = Pattern.SINGLE
    skew: float | None = None  # None: the standard ratios
    probe: bool = False  # whether it is of a search, which asks for the pace alone

    def __post_init__(self) -> None:
        if self.query not in QUERIES:
            raise ConfigurationError(f"there is no query {self.query!r}; there are {', '.join(QUERIES)}")
        if self.rate < 1 or self.seconds < 4 or self.warm_up < 1:
            raise ConfigurationError(
                f"{self.rate} events per second for {self.seconds} s after {self.warm_up} s",
                hint="At least one event per second, 4 s of measuring and 1 s of warming up",
            )
        if self.failure is Failure.NONE and self.pattern is not Pattern.SINGLE:
            raise ConfigurationError(f"no failure is not to be had {self.pattern.value}")

    @property
    def what(self) -> Query:
        return QUERIES[self.query]

    @property
    def hot(self) -> Hot:
        return Hot() if self.skew is None else Hot.skew(self.skew)

    @property
    def name(self) -> str:
        skew = "" if self.skew is None else f" skew {self.skew:g}"
        how = "" if self.pattern is Pattern.SINGLE else f" {self.pattern.value}"
        what = "search" if self.probe else f"failure {self.failure.value}{how}"
        parts = (self.query, self.mode.value, self.protection.value, what)
        return f"{' '.join(parts)} {self.rate}/s {self.seconds} s{skew}"

    @property
    def moments(self) -> tuple[float, ...]:
        """When something fails, in seconds from the beginning of the measuring."""
        if self.failure is Failure.NONE:
            return ()
        if self.pattern is Pattern.STAGGERED:
            return self.seconds / 3, self.seconds / 2, self.seconds * 2 / 3
        return (self.seconds / 2,)

    def to_json(self) -> dict[str, Any]:
        return {
            name: value.value if isinstance(value, Enum) else value for name, value in asdict(self).items()
        }


def why_not(cell: Cell) -> str | None:
    """Why Spark cannot run the cell; None if it can."""
    if cell.protection is Protection.NONE:
        native = cell.what.native
        realtime = cell.mode is Mode.REALTIME
        if native is None or (realtime and native.realtime is None):
            return f"Spark has no job for {cell.query} in {cell.mode.value} mode"
        python = native.realtime is not native.build if realtime else native.python
        if cell.failure is Failure.REPLICA and not python:
            return f"the native job of {cell.query} has no process of the user's to kill"
    if cell.mode is Mode.MICROBATCH and not cell.protection.recovery.in_micro_batch:
        return f"{cell.protection.value} checkpoints are for real time"
    if cell.pattern is Pattern.TOGETHER and cell.failure is not Failure.REPLICA:
        return f"three failures of a {cell.failure.value} at once are one"
    if cell.protection.stands_by and not any(stage.key for stage in cell.what.stages):
        return f"{cell.query} has no operator that can have a standby"
    return None
