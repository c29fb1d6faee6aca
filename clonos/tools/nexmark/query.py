"""A query as a value: what it reads, the operators it consists of, the native job beside it, what its output must be.

A causal job is built from it in one place (`causal`): its inputs are read and cut to size by Spark's own expressions,
then united, and each stage is one operator of the library. Input columns are given twice, as Spark's expressions and as
a Python function of an event, so that the stages can be run, and the reference computed, without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from clonos.protocol.destination import destination
from clonos.tools.nexmark.events import events
from clonos.tools.nexmark.feed import log_of
from clonos.tools.nexmark.payload import ddl
from clonos.tools.nexmark.workload import Kind, Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from clonos.api.streams import CausalStream

Row: TypeAlias = Mapping[str, Any]

_PROBLEMS_KEPT = 10


@dataclass(frozen=True)
class Input:
    """One stream, cut to what the query needs of it. Inputs of one query have the same columns."""

    kind: Kind
    columns: tuple[str, ...]  # Spark's expressions
    row: Callable[[Row], dict[str, Any] | None]  # the same in Python; None for an event that is filtered out
    where: str = "true"


@dataclass(frozen=True)
class Stage:
    """One operator. Without a key it is a pure `map` of one row; with one, a `process` function."""

    name: str
    fn: Callable[..., Any]
    output: str
    key: tuple[str, ...] = ()
    on_timer: Callable[..., Any] | None = None
    watermark: tuple[str, int] | None = None  # column and delay in seconds

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.split()[0] for column in self.output.split(", "))


@dataclass(frozen=True)
class Native:
    """The best stock Spark job that computes the same."""

    build: Callable[[Source], DataFrame]
    output_mode: str
    realtime: Callable[[Source], DataFrame] | None = None  # for Real-Time Mode, where Spark has one
    differs: str = ""  # in what its output is not the causal job's
    python: bool = False  # the user's function runs in processes of Spark's in micro-batch mode too


@dataclass(frozen=True)
class Source:
    """The logs of a workload as Spark reads them; `at_most` so many records of a kind in a batch."""

    spark: SparkSession
    folder: str
    at_most: Mapping[Kind, int] = field(default_factory=dict)

    def read(self, given: Input) -> DataFrame:
        """The input's columns. The native job reads the same ones."""
        return self.all(given.kind).where(given.where).selectExpr(*given.columns)

    @property
    def workers(self) -> Path:
        """Where processes of the native side leave their numbers."""
        return Path(self.folder, "workers")

    def all(self, kind: Kind) -> DataFrame:
        """Every column of a kind, and `appended`, when the record was appended."""
        from pyspark.sql import functions as f

        reader = self.spark.readStream.format("clonos")
        if kind in self.at_most:
            reader = reader.option("maxRecordsPerBatch", self.at_most[kind])
        log = reader.load(str(log_of(self.folder, kind)))
        parsed: Any = f.from_json(f.col("value").cast("string"), ddl(kind))
        return log.select(parsed.alias("e"), f.col("timestamp").alias("appended")).select("e.*", "appended")


@dataclass(frozen=True)
class Run:
    """What was fed, and to whom: enough to say what must have come out."""

    workload: Workload
    count: int  # events, from number 0
    partitions: int = 2  # of each log
    parallelism: int = 2  # of each operator
    native: bool = False  # Spark sends its keys to workers, and its windows may come when they have ended

    def events(self, kind: Kind) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = events(self.workload, 0, self.count).batch(kind).to_pylist()
        return rows

    def owner(self, key: tuple[Any, ...]) -> Hashable:
        """What stands for the instance that a key goes to: two keys with the same owner share its order and its clock.
        Which keys share one of Spark's workers is not known."""
        return key if self.native else destination(key, self.parallelism)


@dataclass
class Judgement:
    """What an output is worth. Exact is one in which nothing is lost, repeated or contradicted."""

    outputs: int = 0
    lost: int = 0
    repeated: int = 0
    contradicted: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        return not (self.lost or self.repeated or self.contradicted)

    def note(self, kind: str, what: str) -> None:
        """Count one `lost`, `repeated` or `contradicted`."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.problems) < _PROBLEMS_KEPT:
            self.problems.append(f"{kind}: {what}")


Judge: TypeAlias = Callable[[Run, Iterable[Row]], Judgement]


@dataclass(frozen=True)
class Query:
    """One query of the suite. `origins` are the output columns that name the events a row comes from."""

    name: str
    title: str
    inputs: tuple[Input, ...]
    stages: tuple[Stage, ...]
    native: Native | None
    judge: Judge
    origins: tuple[str, ...] = ("event",)

    @property
    def kinds(self) -> frozenset[Kind]:
        return frozenset(given.kind for given in self.inputs)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.stages[-1].columns


def causal(
    query: Query,
    source: Source,
    parallelism: int,
    standby: str | None = None,
) -> CausalStream:
    """The query as a causal job, up to the sink."""
    import clonos

    first, *others = [clonos.causal(source.read(given)) for given in query.inputs]
    stream = first
    for other in others:
        stream = stream.union(other)
    for stage in query.stages:
        if stage.watermark is not None:
            column, seconds = stage.watermark
            stream = stream.withWatermark(column, f"{seconds} seconds")
        if stage.key:
            stream = stream.groupBy(*stage.key).process(
                stage.fn,
                stage.output,
                name=stage.name,
                on_timer=stage.on_timer,
                parallelism=parallelism,
                standby=standby,
            )
        else:
            stream = stream.map(stage.fn, stage.output, name=stage.name, pure=True, parallelism=parallelism)
    return stream
