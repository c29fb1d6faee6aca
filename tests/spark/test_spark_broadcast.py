"""Broadcast variables in functions of operators, and the objects of Spark that no such function may hold."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
from modes import mostly
from pyspark.core.broadcast import Broadcast
from pyspark.sql import functions as f
from streams import Place

import clonos
from clonos.errors import QueryDefinitionError, StorageUnavailable
from clonos.operators.broadcast import BroadcastVariable
from clonos.storage.broadcast_values import BroadcastValues, digest_of

pytestmark = pytest.mark.spark
SCHEMA = "k string, n long"
factor: Any = None
"""A broadcast variable that functions find under its name."""


class Named:
    """A function that is an object, with a broadcast variable as attribute."""

    def __init__(self, names: Any) -> None:
        self._names = names

    def __call__(self, row: Any, ctx: Any) -> tuple[Any, ...]:
        assert isinstance(self._names, Broadcast)
        return self._names.value[row.k], row.n * factor.value, row.draw


def files(place: Place) -> list[str]:
    return sorted(path.name for path in (place.checkpoint / "clonos" / "broadcasts").iterdir())


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_broadcast_variable_is_there_in_every_replica(
    place: Place, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a closure, under a global name and in an attribute; in standbys, replacements and another start."""
    context = place.spark.sparkContext
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:

        def started(by: int) -> None:
            allowed = context.broadcast({n for n in range(100) if n % 10})
            monkeypatch.setattr(sys.modules[__name__], "factor", context.broadcast(by))

            def drawn(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
                if row.n in allowed.value:
                    ctx.state["n"] = ctx.state.get("n", 0) + 1
                    yield key[0], row.n, ctx.random.random() < 2

            drawn_rows = (
                place.causal(SCHEMA)
                .groupBy("k")
                .process(drawn, "k string, n long, draw boolean", name="drawn", parallelism=1, standby="hot")
            )
            names = context.broadcast({"a": "A", "b": "B"})
            place.start(
                drawn_rows.map(Named(names), "k string, n long, draw boolean", name="named", parallelism=1),
                mode,
            )
            for each in (allowed, factor, names):
                each.destroy()

        def write(numbers: range) -> None:
            place.write([{"k": "ab"[n % 2], "n": n} for n in numbers])

        started(2)
        write(range(20))
        place.until(lambda: len(place.rows()) >= 18, "first rows")
        before = files(place)
        assert len(before) == 3
        place.kill(node=3)
        place.kill(node=2)
        write(range(20, 40))
        place.until(lambda: len(place.rows()) >= 36, "rows of replacements")
        started(2)
        assert files(place) == before
        write(range(40, 60))
        place.until(lambda: len(place.rows()) >= 54, "rows of another start")
        place.query.processAllAvailable()
        place.await_commit()
        started(3)
        assert len(set(files(place)) & set(before)) == 2 and len(files(place)) == 3
        write(range(60, 80))
        rows = place.await_rows(72)
        due = {n: n * (2 if n < 60 else 3) for n in range(80) if n % 10}
        assert sorted((row["k"], row["n"]) for row in rows) == sorted(
            ("AB"[n % 2], by) for n, by in due.items()
        )
        assert place.query.restarts == []
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_a_value_that_is_gone_is_told(place: Place) -> None:
    variable = place.spark.sparkContext.broadcast([1])

    def uses(row: Any, ctx: Any) -> Any:
        return (row.k, variable.value[0])

    stream = place.causal(SCHEMA).map(uses, SCHEMA, name="uses")
    variable.unpersist(blocking=True)  # which leaves it usable
    place.start(stream)
    place.write([{"k": "a", "n": 1}])
    place.await_rows(1)
    place.stop()
    (name,) = files(place)
    values = BroadcastValues(str(place.checkpoint))
    file = place.checkpoint / "clonos" / "broadcasts" / name
    assert digest_of(values.load(name)) == name
    file.write_bytes(b"other")
    with pytest.raises(StorageUnavailable, match=r"is damaged.*start the query again"):
        _ = BroadcastVariable(values, name).value
    file.unlink()
    with pytest.raises(StorageUnavailable, match=r"is not there.*writes it when the query starts"):
        _ = BroadcastVariable(values, name).value
    with pytest.raises(QueryDefinitionError, match="on the driver"):
        BroadcastVariable(values, name).destroy()
    variable.destroy()
    with pytest.raises(
        QueryDefinitionError,
        match=r"'uses' uses a broadcast variable whose value is not there any more.*"
        r"Was it destroyed.*Call spark\.sparkContext\.broadcast\(value\) again",
    ):
        place.start(stream)


def test_a_value_that_is_lost_is_written_again_with_the_next_restart(place: Place) -> None:
    variable = place.spark.sparkContext.broadcast([1])

    def uses(row: Any, ctx: Any) -> Any:
        return (row.k, variable.value[0] + row.n)

    place.start(place.causal(SCHEMA).map(uses, SCHEMA, name="uses", parallelism=1))
    place.write([{"k": "a", "n": 1}])
    place.await_rows(1)
    (name,) = files(place)
    (place.checkpoint / "clonos" / "broadcasts" / name).unlink()
    place.kill(node=2)  # its successor misses the value, and Spark's query starts again
    place.write([{"k": "a", "n": 2}])
    rows = place.await_rows(2)
    assert sorted(row["n"] for row in rows) == [2, 3] and files(place) == [name]


def test_a_broadcast_variable_inside_another_is_refused(place: Place) -> None:
    context = place.spark.sparkContext
    nested = context.broadcast({"inner": context.broadcast([1])})

    def uses(row: Any, ctx: Any) -> Any:
        return (row.k, nested.value["inner"].value[0])

    with pytest.raises(QueryDefinitionError, match=r"holds another broadcast variable.*side by side"):
        place.start(place.causal(SCHEMA).map(uses, SCHEMA, name="uses"))


def test_objects_of_the_driver_are_refused(place: Place) -> None:
    spark = place.spark
    context, table = spark.sparkContext, spark.range(1)

    @f.udf("long")
    def plus_one(n: int) -> int:
        return n + 1

    refused = {
        "an accumulator.*ctx.state": context.accumulator(0),
        "the SparkSession.*is the driver's": spark,
        "the SparkContext.*is the driver's": context,
        r"a DataFrame \(DataFrame\[id: bigint\]\).*stream.join": table,
        "a DataFrame.*stream.join": table.groupBy("id"),
        "an RDD.*collect": context.parallelize([1]),
        r"a Column.*only Spark evaluates": f.col("n") + 1,
        "a function that was made a UDF.*udf.func": plus_one,
        "an object of the JVM": spark._jvm.java.util.ArrayList(),
    }
    for says, held in refused.items():

        def uses(row: Any, ctx: Any, held: Any = held) -> Any:
            return (row.k, held)

        with pytest.raises(QueryDefinitionError, match=f"function or sink of 'uses' uses {says}"):
            place.start(place.causal(SCHEMA).map(uses, SCHEMA, name="uses"))
    counter = context.accumulator(0)
    with pytest.raises(QueryDefinitionError, match="of 'sink' uses an accumulator"):
        place.start(place.causal(SCHEMA), sink=clonos.sinks.call(lambda rows: counter.add(len(rows))))
    assert not place.checkpoint.exists()
