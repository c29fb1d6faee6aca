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
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import clonos
from clonos.bench.stock import REALTIME_SETTINGS, create_table, shown, tune
from clonos.ledger import extend

FIRST = "k string, n bigint, id string, draw bigint, at bigint, prev string, hash string, sent bigint"
SECOND = f"b string, m bigint, ref string, draw2 bigint, at2 bigint, prev2 string, hash2 string, {FIRST}"
KEYS = 1000


def session(slots: int = 12, **settings: str) -> Any:
    """One session for both sides."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Spark's Python workers load this module by name.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    builder = clonos.configure(SparkSession.builder).master(f"local[{slots}]")
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
        .writeStream.to(clonos.sinks.sql(f"sqlite:///{folder}/out.db", "out"))
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


def _grouped(fn: Callable[..., Any], columns: list[str]) -> Callable[..., Any]:
    import pandas as pd

    def stage(key: Any, frames: Iterable[Any], state: Any) -> Iterator[Any]:
        kept = json.loads(state.get[0]) if state.exists else {}
        context = PlainContext(kept)
        for frame in frames:
            rows: list[Any] = []
            for values in frame.itertuples(index=False):
                rows.extend(fn(key, values, context))
            yield pd.DataFrame(rows, columns=columns)
        state.update((json.dumps(kept),))

    return stage


def _arrow(fn: Callable[..., Any], key_column: str, schema: Any) -> Callable[..., Any]:
    import pyarrow as pa

    def stage(batches: Iterable[Any]) -> Iterator[Any]:
        states: dict[str, dict[str, Any]] = {}
        for batch in batches:
            rows: list[Any] = []
            for given in batch.to_pylist():
                context = PlainContext(states.setdefault(given[key_column], {}))
                rows.extend(fn((given[key_column],), SimpleRow(**given), context))
            if rows:
                arrays = [
                    pa.array(c, field.type) for c, field in zip(zip(*rows, strict=True), schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return stage


class SimpleRow(SimpleNamespace):
    """Attribute access, and iteration in column order."""

    def __iter__(self) -> Iterator[Any]:
        return iter(vars(self).values())


def native_query(
    spark: Any, log: str, folder: str, trigger: dict[str, Any], instances: int = 2, **options: Any
) -> Any:
    """The stock side; output in <folder>/out.db."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    Path(folder).mkdir(parents=True, exist_ok=True)
    names = [column.split()[0] for column in SECOND.split(", ")]
    create_table(f"{folder}/out.db", "out", names)
    stream = source(spark, log, **options)
    realtime = "realTime" in trigger
    spark.conf.set("spark.sql.shuffle.partitions", str(instances))
    tune(spark, realtime=realtime)
    for fn, key, ddl in ((first, "k", FIRST), (second, "id", SECOND)):
        if realtime:
            schema = to_arrow_schema(StructType.fromDDL(ddl))
            stream = stream.repartition(instances, key).mapInArrow(_arrow(fn, key, schema), ddl)
        else:
            columns = [column.split()[0] for column in ddl.split(", ")]
            stage = _grouped(fn, columns)
            stream = stream.groupBy(key).applyInPandasWithState(
                stage, ddl, "value string", "append", "NoTimeout"
            )
            # Directly behind it an exchange or a foreach fails in Spark 4.3.0; a projection in between avoids that.
            stream = stream.withColumn("id", f.concat(f.col("id"), f.lit("")))
    writer = shown(stream, f"{folder}/out.db", "out", "append", each_row=realtime)
    return writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(**trigger).start()
