"""One cell of the matrix: what is run, protected how, and what is done to it. A value, with a name that is its key."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from clonos.errors import ConfigurationError
from clonos.nexmark.queries import QUERIES
from clonos.nexmark.query import Query
from clonos.nexmark.workload import Hot


class Mode(Enum):
    MICROBATCH = "microbatch"
    REALTIME = "realtime"


class Protection(Enum):
    """`NONE` is the native job."""

    NONE = "none"
    CLONOS = "clonos"
    HOT = "hot"


class Failure(Enum):
    """`REPLICA` is the SIGKILL of one process that runs the user's function."""

    NONE = "none"
    REPLICA = "replica"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One configuration."""

    query: str
    mode: Mode
    protection: Protection
    failure: Failure
    rate: int  # events per second
    seconds: int  # of measuring, after the warm-up; a failure strikes in the middle
    warm_up: int
    skew: float | None = None  # None: the standard ratios

    def __post_init__(self) -> None:
        if self.query not in QUERIES:
            raise ConfigurationError(f"there is no query {self.query!r}; there are {', '.join(QUERIES)}")
        if self.rate < 1 or self.seconds < 4 or self.warm_up < 1:
            raise ConfigurationError(
                f"{self.rate} events per second for {self.seconds} s after {self.warm_up} s",
                hint="At least one event per second, 4 s of measuring and 1 s of warming up",
            )

    @property
    def what(self) -> Query:
        return QUERIES[self.query]

    @property
    def hot(self) -> Hot:
        return Hot() if self.skew is None else Hot.skew(self.skew)

    @property
    def name(self) -> str:
        skew = "" if self.skew is None else f" skew {self.skew:g}"
        parts = (self.query, self.mode.value, self.protection.value, f"failure {self.failure.value}")
        return f"{' '.join(parts)} {self.rate}/s {self.seconds} s{skew}"

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
    if cell.protection is Protection.HOT and not any(stage.key for stage in cell.what.stages):
        return f"{cell.query} has no operator that can have a standby"
    return None
