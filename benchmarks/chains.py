"""The job that the benchmarks run: two ledgers in a row, causal and as stock Spark has it.

Both sides run the same two functions over the same embedded log into the same kind of table in one Spark session.
The native side has the plain clock and random numbers instead of recorded ones. In micro-batch mode it is two
`applyInPandasWithState`, in Real-Time Mode, where Spark has no Python stateful operator, two `mapInArrow` with state in
the worker process, with every setting that makes those fast.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import clonos
from clonos.testing.ledger import extend
from clonos.tools.bench.stock import REALTIME_SETTINGS, create_table, shown, tune
from clonos.tools.nexmark.native import FUNCTION, at_work

FIRST = "k string, n bigint, id string, draw bigint, at bigint, prev string, hash string, sent bigint"
SECOND = f"b string, m bigint, ref string, draw2 bigint, at2 bigint, prev2 string, hash2 string, {FIRST}"
KEYS = 1000


def session(slots: int = 12, **settings: str) -> Any:
    """One session for both sides, in which Spark may run a task again."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Spark's Python workers load this module by name.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    builder = clonos.configure(SparkSession.builder).master(f"local[{slots},4]")
    for key, value in (REALTIME_SETTINGS | settings).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def record(number: int) -> bytes:
    """One input record, stamped with the time of its making in microseconds."""
    return json.dumps({"k": f"k{number % KEYS}", "id": str(number), "sent": time.time_ns() // 1000}).encode()


def first(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    entry = extend(ctx.state, key[0], row.id, ctx.random.getrandbits(48), ctx.now_us())
    yield (*entry.row(), row.sent)


def second(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    entry = extend(ctx.state, str(key[0]), row.hash, ctx.random.getrandbits(48), ctx.now_us())
    yield (*entry.row(), *row)


def source(spark: Any, log: str, **options: Any) -> Any:
    from pyspark.sql import functions as f

    raw = spark.readStream.format("clonos").options(**options).load(log)
    schema = "k string, id string, sent bigint"
    return raw.select(f.from_json(f.col("value").cast("string"), schema).alias("j")).select("j.*")


def causal_query(
    spark: Any, log: str, folder: str, trigger: dict[str, Any], instances: int = 2, **options: Any
) -> Any:
    """The causal side; output in <folder>/out.db."""
    return (
        clonos.causal(source(spark, log, **options))
        .groupBy("k")
        .process(first, FIRST, name="first", parallelism=instances)
        .groupBy("id")
        .process(second, SECOND, name="second", parallelism=instances)
        .writeStream.to(clonos.sinks.sql(f"sqlite:///{folder}/out.db", "out", durable=False))
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(**trigger)
        .start()
    )


class PlainContext:
    """The causal services done the plain way."""

    random = random.Random()

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def now_us(self) -> int:
        return time.time_ns() // 1000


@dataclass(frozen=True)
class Stage:
    """One of Spark's own Python stages: a function as for `process`, its key and its output."""

    fn: Callable[..., Any]
    key: str
    ddl: str

    @property
    def columns(self) -> list[str]:
        return [column.split()[0] for column in self.ddl.split(", ")]


def _grouped(stage: Stage, workers: Path | None) -> Callable[..., Any]:
    import pandas as pd

    def run(key: Any, frames: Iterable[Any], state: Any) -> Iterator[Any]:
        kept = json.loads(state.get[0]) if state.exists else {}
        context = PlainContext(kept)
        with _noted(workers):
            for frame in frames:
                rows: list[Any] = []
                for values in frame.itertuples(index=False):
                    rows.extend(stage.fn(key, values, context))
                yield pd.DataFrame(rows, columns=stage.columns)
        state.update((json.dumps(kept),))

    return run


def _arrow(stage: Stage, schema: Any, workers: Path | None) -> Callable[..., Any]:
    import pyarrow as pa

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        states: dict[str, dict[str, Any]] = {}
        with _noted(workers):
            for batch in batches:
                rows: list[Any] = []
                for given in batch.to_pylist():
                    context = PlainContext(states.setdefault(given[stage.key], {}))
                    rows.extend(stage.fn((given[stage.key],), SimpleRow(**given), context))
                if rows:
                    arrays = [
                        pa.array(c, field.type)
                        for c, field in zip(zip(*rows, strict=True), schema, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return run


def _noted(workers: Path | None) -> AbstractContextManager[None]:
    return nullcontext() if workers is None else at_work(workers, FUNCTION)


class SimpleRow(SimpleNamespace):
    """Attribute access, and iteration in column order."""

    def __iter__(self) -> Iterator[Any]:
        return iter(vars(self).values())


def native_stages(
    stream: Any, stages: Iterable[Stage], *, realtime: bool, instances: int, workers: Path | None = None
) -> Any:
    """The stages in a row; processes that run them leave their numbers among the workers."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    for stage in stages:
        if realtime:
            declared = StructType.fromDDL(stage.ddl)
            assert isinstance(declared, StructType)
            schema = to_arrow_schema(declared)
            run = _arrow(stage, schema, workers)
            stream = stream.repartition(instances, stage.key).mapInArrow(run, stage.ddl)
        else:
            stream = stream.groupBy(stage.key).applyInPandasWithState(
                _grouped(stage, workers), stage.ddl, "value string", "append", "NoTimeout"
            )
            # Directly behind it an exchange or a foreach fails in Spark 4.3.0; a projection in between avoids that.
            name = next(field.name for field in stream.schema if field.dataType.typeName() == "string")
            stream = stream.withColumn(name, f.concat(f.col(name), f.lit("")))
    return stream


def native_query(
    spark: Any, log: str, folder: str, trigger: dict[str, Any], instances: int = 2, **options: Any
) -> Any:
    """The stock side; output in <folder>/out.db."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    stages = (Stage(first, "k", FIRST), Stage(second, "id", SECOND))
    create_table(f"{folder}/out.db", "out", stages[-1].columns)
    realtime = "realTime" in trigger
    spark.conf.set("spark.sql.shuffle.partitions", str(instances))
    tune(spark, realtime=realtime)
    stream = native_stages(source(spark, log, **options), stages, realtime=realtime, instances=instances)
    writer = shown(stream, f"{folder}/out.db", "out", "append", each_row=realtime)
    return writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(**trigger).start()
