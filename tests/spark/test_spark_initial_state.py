"""`initialState`: what Spark's own operator makes of it, and once for ever over kills and restarts."""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Any

import cloudpickle
import pandas as pd
import pyspark.cloudpickle
import pytest
from modes import mostly
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from streams import Place

import clonos
from clonos.errors import CheckpointMismatch, QueryDefinitionError

pytestmark = pytest.mark.spark
for pickler in (cloudpickle, pyspark.cloudpickle):  # workers cannot import this module
    pickler.register_pickle_by_value(sys.modules[__name__])

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PAID = "card string, branch int, amount int"
OPENING = "branch int, opening int, card string, tags array<string>"
OUT = "card string, branch int, said string"


class Balance(StatefulProcessor):
    """Says what it begins with, and what each call and each timer meets."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.balance = handle.getValueState("balance", "amount int, seen string")

    def handleInitialState(self, key: Any, row: Any, times: Any) -> None:
        before, seen = self.balance.get() or (0, "")
        self.balance.update((before + row.opening, f"{seen}{tuple(key)} {row.tags} "))
        if times.getCurrentProcessingTimeInMs() >= 0:
            self.handle.registerTimer(times.getCurrentProcessingTimeInMs() - 1)

    def handleInputRows(self, key: Any, rows: Any, times: Any) -> Any:
        before, seen = self.balance.get() or (0, "")
        amount = before + sum(row.amount for row in rows)
        self.balance.update((amount, seen))
        yield Row(card=key[0], branch=key[1], said=f"{amount} {seen}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        yield Row(card=key[0], branch=key[1], said=f"expired {tuple(self.balance.get())}")

    def close(self) -> None:
        pass


class BalanceInFrames(Balance):
    def handleInitialState(self, key: Any, frame: Any, times: Any) -> None:
        assert not self.balance.exists(), "one frame for a key"
        said = [f"{list(tags)}" for tags in frame.tags]
        self.balance.update((int(frame.opening.sum()), f"{tuple(key)} {said} {list(frame.dtypes)}"))

    def handleInputRows(self, key: Any, frames: Any, times: Any) -> Any:
        before, seen = self.balance.get() or (0, "")
        amount = before + sum(int(frame.amount.sum()) for frame in frames)
        self.balance.update((amount, seen))
        yield pd.DataFrame({"card": [key[0]], "branch": [key[1]], "said": [f"{amount} {seen}"]})


def said(rows: list[Any]) -> Counter[tuple[Any, ...]]:
    return Counter((row["card"], row["branch"], row["said"]) for row in rows)


@pytest.mark.parametrize("form", ["transformWithState", "transformWithStateInPandas"])
def test_keys_begin_as_in_spark(place: Place, form: str) -> None:
    """Keys with rows and without, with several rows and with none, in the first batch; then a batch more."""
    rng = random.Random(form)
    spark = place.spark
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    opening = [(rng.randrange(2), rng.randrange(100), rng.choice("abcd"), ["x"]) for _ in range(9)]
    initial = spark.createDataFrame(opening, OPENING).groupBy("card", "branch")
    processor = Balance() if form == "transformWithState" else BalanceInFrames()

    def apply(grouped: Any, **more: Any) -> Any:
        return getattr(grouped, form)(processor, OUT, "update", "None", initial, **more)

    def write() -> None:
        place.write(
            [{"card": rng.choice("abcz"), "branch": rng.randrange(2), "amount": 1} for _ in range(20)]
        )

    queries = []
    for number in range(2):
        write()
        own = apply(place.read(PAID).groupBy("card", "branch")).writeStream.outputMode("update")
        own = own.foreachBatch(lambda frame, _: queries.extend(frame.collect()))
        own = own.option("checkpointLocation", str(place.base / "own-checkpoint"))
        own.trigger(availableNow=True).start().awaitTermination()
        ours = apply(place.causal(PAID).groupBy("card", "branch"), per="batch", parallelism=2)
        place.writer(ours).trigger(availableNow=True).start().awaitTermination()
        assert said(place.rows()) == said(queries), number
    assert len(queries) > 8


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_it_is_read_once_whatever_dies_and_however_often_the_query_starts(place: Place, mode: str) -> None:
    spark = place.spark

    def balances(opening: int, **more: Any) -> Any:
        rows = [(0, opening, card, None) for card in "abcdef"]
        initial = spark.createDataFrame(rows, OPENING).groupBy("card", "branch")
        grouped = place.causal(PAID).groupBy("card", "branch")
        return grouped.transformWithState(
            Balance(), OUT, "update", "ProcessingTime", initial, parallelism=2, per="bundle", **more
        )

    place.start(balances(100), mode)
    place.until(lambda: len(place.rows()) >= 0, "the query")
    place.write([{"card": "a", "branch": 0, "amount": 1}])
    begun = [row["said"] for row in place.await_rows(7) if "expired" in row["said"]]
    assert len(begun) == 6, "keys without records, too"
    for instance in range(2):
        place.kill(node=2, instance=instance)
    place.write([{"card": "b", "branch": 0, "amount": 2}])
    place.await_rows(8)
    place.stop()
    place.start(balances(5_000), mode)
    place.write([{"card": "c", "branch": 0, "amount": 3}, {"card": "z", "branch": 0, "amount": 4}])
    amounts = [row["said"].split()[0] for row in place.await_rows(10) if "expired" not in row["said"]]
    assert sorted(map(int, amounts)) == [4, 101, 102, 103]


def test_keys_that_have_begun_without_it_do_not_begin_again(place: Place) -> None:
    def run(initial: Any) -> None:
        grouped = place.causal(PAID).groupBy("card", "branch")
        made = grouped.transformWithState(Balance(), OUT, "update", "ProcessingTime", initial, per="bundle")
        place.writer(made).trigger(availableNow=True).start().awaitTermination()

    place.write([{"card": "a", "branch": 0, "amount": 1}])
    run(None)
    rows = place.spark.createDataFrame([(0, 1, "a", None)], OPENING)
    with pytest.raises(
        CheckpointMismatch, match=r"initialState of node 2 .* is new: keys have begun without it"
    ):
        run(rows.groupBy("card", "branch"))
    run(None)


def test_what_groups_it_are_columns(place: Place) -> None:
    rows = place.spark.createDataFrame([(0, 1, "a", None)], OPENING)
    stream = clonos.causal(place.read(PAID))
    for initial, says in (
        (rows.groupBy(rows.branch + 1), "which is none of its columns"),
        (place.read(OPENING).groupBy("card"), "grouped from a stream"),
        (rows.groupBy("card"), "have the types"),
        (rows, "is DataFrame"),
    ):
        with pytest.raises(QueryDefinitionError, match=says):
            stream.groupBy("branch").transformWithState(Balance(), OUT, "update", "ProcessingTime", initial)
