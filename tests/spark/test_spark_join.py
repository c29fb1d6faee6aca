"""Joins of two streams: what Spark's own stream-stream join gives, and every pair once although replicas die."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import Any

import pytest
from modes import mostly
from pyspark.sql import functions as f
from streams import Place

from clonos.errors import CheckpointMismatch

ORDERS = "id long, amount long, at timestamp"
PAYMENTS = "id long, paid long, paid_at timestamp"
START = dt.datetime(2024, 1, 1)


def second(moment: float) -> str:
    return str(START + dt.timedelta(seconds=round(moment)))


def batch(rng: random.Random, begin: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of half a minute, out of order, some of them late."""

    def rows(*names: str) -> list[dict[str, Any]]:
        values = [(rng.randrange(6), rng.randrange(10**9), rng.uniform(-20, 30)) for _ in range(25)]
        return [dict(zip(names, (*each[:2], second(begin + each[2])), strict=True)) for each in values]

    return rows("id", "amount", "at"), rows("id", "paid", "paid_at")


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_join_gives_what_sparks_own_gives(place: Place, how: str) -> None:
    """Batch by batch, with rows that are late, and left rows that meet none."""

    def native() -> Any:
        left = place.read(ORDERS, "orders", partitions=1).withWatermark("at", "5 seconds").alias("l")
        right = (
            place.read(PAYMENTS, "payments", partitions=1).withWatermark("paid_at", "5 seconds").alias("r")
        )
        near = "r.paid_at between l.at - interval 10 seconds and l.at + interval 10 seconds"
        return left.join(
            right, f.expr(f"l.id = r.id and {near}"), "left_outer" if how == "left" else how
        ).selectExpr("l.id", "amount", "at", "paid", "paid_at")

    def causal() -> Any:
        left = place.causal(ORDERS, "orders", partitions=1).withWatermark("at", "5 seconds")
        right = place.causal(PAYMENTS, "payments", partitions=1).withWatermark("paid_at", "5 seconds")
        return left.join(right, "id", how, within="10 seconds", parallelism=2)

    rng = random.Random(f"join {how}")
    place.spark.conf.set("spark.sql.shuffle.partitions", "2")  # of Spark's own
    for number in range(4):
        orders, payments = batch(rng, 30 * number)
        if number == 3:  # ends what is still waited for
            orders, payments = [], []
        orders.append({"id": 100 + number, "amount": 0, "at": second(30 * number + 31)})
        payments.append({"id": 200 + number, "paid": 0, "paid_at": second(30 * number + 31)})
        place.write(orders, "orders", partitions=1)
        place.write(payments, "payments", partitions=1)
        own = (
            native()
            .writeStream.format("parquet")
            .option("path", str(place.base / "native"))
            .option("checkpointLocation", str(place.base / "native-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        own.awaitTermination()
        query = place.writer(causal()).trigger(availableNow=True).start()
        query.awaitTermination()
    expected = Counter(
        (row.id, row.amount, str(row.at), row.paid, row.paid_at and str(row.paid_at))
        for row in place.spark.read.parquet(str(place.base / "native")).collect()
    )
    assert sum(expected.values()) > 40
    assert Counter(map(as_native, place.rows())) == expected


def as_native(row: dict[str, Any]) -> tuple[Any, ...]:
    moments = [row[name] and row[name].replace("T", " ")[:19] for name in ("at", "paid_at")]
    return row["id"], row["amount"], moments[0], row["paid"], moments[1]


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_every_pair_comes_once_although_replicas_die(place: Place, mode: str) -> None:
    """The rows carry a draw, so that a pair that came a second time would be another one."""
    drawn = (
        place.causal(ORDERS, "orders")
        .withWatermark("at", "1 second")
        .map(
            lambda row, ctx: (row.id, ctx.random.getrandbits(40), row.at),
            "id long, draw long, at timestamp",
            name="draw",
        )
    )
    payments = place.causal(PAYMENTS, "payments").withWatermark("paid_at", "1 second")
    stream = drawn.withWatermark("at", "1 second").join(
        payments, "id", "left", within="10 seconds", parallelism=2, name="match"
    )
    place.start(stream, mode)
    pairs = 0
    for number in range(4):
        ids = range(10 * number, 10 * number + 10)
        place.write([{"id": id_, "amount": id_, "at": second(number)} for id_ in ids], "orders")
        place.write(
            [{"id": id_, "paid": id_, "paid_at": second(number + 5)} for id_ in ids if id_ % 5], "payments"
        )
        pairs += 8
        place.await_rows(pairs)
        place.kill(node=2 + 2 * (number % 2), instance=number // 2)
    for log, ids, columns in (
        ("orders", (-1, -2), ("amount", "at")),
        ("payments", (-3, -4), ("paid", "paid_at")),
    ):
        place.write([dict(zip(("id", *columns), (id_, 0, second(60)), strict=True)) for id_ in ids], log)
    rows = place.await_rows(pairs + 8)
    assert Counter(row["id"] for row in rows) == Counter(range(40))
    assert {row["id"] for row in rows if row["paid"] is None} == set(range(0, 40, 5))
    assert all(row["paid"] in (None, row["id"]) for row in rows)
    assert len({row["draw"] for row in rows}) == 40


def end_of(place: Place, at: float, *logs: str) -> None:
    """A row without partner in each log, which brings its watermark on."""
    for log in logs:
        column = "at" if log == "orders" else "paid_at"
        place.write([{"id": -1, column: second(at)}], log, partitions=1)


def run(place: Place, stream: Any) -> None:
    place.writer(stream).trigger(availableNow=True).start().awaitTermination()


def of(place: Place, how: str, within: str, orders: str = ORDERS, **more: Any) -> Any:
    left = place.causal(orders, "orders", partitions=1).withWatermark("at", "0 seconds")
    right = place.causal(PAYMENTS, "payments", partitions=1).withWatermark("paid_at", "0 seconds")
    return left.join(right, "id", how, within=within, parallelism=1, **more)


def test_a_row_that_waits_goes_by_the_bound_that_the_query_has_now(place: Place) -> None:
    """`within` and `how` change over the checkpoint, for longer and for shorter; no row is lost by that."""
    place.write(
        [{"id": 1, "amount": 1, "at": second(0)}, {"id": 2, "amount": 2, "at": second(1)}], "orders", 1
    )
    end_of(place, 5, "orders", "payments")
    run(place, of(place, "inner", "10 seconds"))
    end_of(place, 30, "orders", "payments")
    run(place, of(place, "left", "60 seconds"))
    place.write([{"id": 1, "paid": 10, "paid_at": second(35)}], "payments", 1)
    run(place, of(place, "left", "60 seconds"))
    assert [(row["id"], row["paid"]) for row in place.rows() if row["id"] > 0] == [(1, 10)]
    end_of(place, 40, "orders", "payments")
    run(place, of(place, "left", "20 seconds"))
    end_of(place, 70, "orders", "payments")
    run(place, of(place, "left", "20 seconds"))
    found = Counter((row["id"], row["paid"]) for row in place.rows() if row["id"] > 0)
    assert found == {(1, 10): 1, (2, None): 1}


def test_a_column_that_is_added_is_null_in_the_rows_that_wait(place: Place) -> None:
    place.write([{"id": 1, "amount": 1, "at": second(0)}], "orders", 1)
    end_of(place, 1, "payments")
    run(place, of(place, "left", "10 seconds"))
    more = "id long, note string, amount long, at timestamp"
    place.write([{"id": 1, "note": "new", "amount": 2, "at": second(2)}], "orders", 1)
    place.write([{"id": 1, "paid": 10, "paid_at": second(3)}], "payments", 1)
    run(place, of(place, "left", "10 seconds", more))
    rows = sorted((row["amount"], row.get("note"), row["paid"]) for row in place.rows())
    assert rows == [(1, None, 10), (2, "new", 10)]


def test_the_event_time_of_the_second_input_is_bound(place: Place) -> None:
    end_of(place, 1, "orders", "payments")
    run(place, of(place, "left", "10 seconds"))
    left = place.causal(ORDERS, "orders", partitions=1).withWatermark("at", "0 seconds")
    payments = "id long, paid long, paid_at timestamp, seen_at timestamp"
    right = place.causal(payments, "payments", partitions=1).withWatermark("seen_at", "0 seconds")
    changed = left.join(right, "id", "left", within="10 seconds", parallelism=1)
    with pytest.raises(CheckpointMismatch, match="the watermark of the second input"):
        place.writer(changed).trigger(availableNow=True).start()


def test_a_join_of_a_join_loses_no_row_that_came_without_a_partner(place: Place) -> None:
    """As Spark's own chain of joins: such rows are behind others of the first join."""
    sent = "id long, sent long, sent_at timestamp"

    def streams(read: Any) -> list[Any]:
        return [
            read(schema, log, partitions=1).withWatermark(column, "5 seconds")
            for schema, log, column in (
                (ORDERS, "orders", "at"),
                (PAYMENTS, "payments", "paid_at"),
                (sent, "sent", "sent_at"),
            )
        ]

    def native() -> Any:
        orders, payments, shipped = (
            each.alias(name) for each, name in zip(streams(place.read), "lps", strict=True)
        )
        near = "{0} between l.at - interval 10 seconds and l.at + interval 10 seconds"
        first = orders.join(payments, f.expr(f"l.id = p.id and {near.format('p.paid_at')}"), "left_outer")
        both = first.join(shipped, f.expr(f"l.id = s.id and {near.format('s.sent_at')}"), "left_outer")
        return both.selectExpr("l.id", "amount", "paid", "sent")

    def causal() -> Any:
        orders, payments, shipped = streams(place.causal)
        first = orders.join(payments, "id", "left", within="10 seconds", parallelism=2)
        return first.join(shipped, "id", "left", within="10 seconds", parallelism=2, name="again")

    rng = random.Random("a join of a join")
    place.spark.conf.set("spark.sql.shuffle.partitions", "2")
    for number in range(4):
        for log, columns in (
            ("orders", ("amount", "at")),
            ("payments", ("paid", "paid_at")),
            ("sent", ("sent", "sent_at")),
        ):
            begin = 30 * number
            rows = [
                (rng.randrange(8), rng.randrange(10**9), second(begin + rng.uniform(0, 25)))
                for _ in range(15)
            ]
            rows = rows if number < 3 else []
            ends = [(1000 + 10 * number, 0, second(begin + 31))]
            place.write(
                [dict(zip(("id", *columns), row, strict=True)) for row in [*rows, *ends]], log, partitions=1
            )
        own = (
            native()
            .writeStream.format("parquet")
            .option("path", str(place.base / "native"))
            .option("checkpointLocation", str(place.base / "native-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        own.awaitTermination()
        run(place, causal())
    expected = Counter(
        (row.id, row.amount, row.paid, row.sent)
        for row in place.spark.read.parquet(str(place.base / "native")).collect()
        if row.id < 1000
    )
    assert sum(1 for row in expected if row[2] is None) > 3
    found = Counter(
        (row["id"], row["amount"], row["paid"], row["sent"]) for row in place.rows() if row["id"] < 1000
    )
    assert found == expected
