"""foreachBatch, tables, console and memory: batches of final rows, each given with the rows that it had at first."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from modes import mostly
from streams import TRIGGERS, Place

import clonos
from clonos.errors import Fenced, QueryDefinitionError, UserFunctionError
from clonos.spark.batch_delivery import BatchFiles
from clonos.storage.embedded_log import MAGIC, encode_entries


class Given:
    """A function of foreachBatch that keeps what it was given; it fails when it is told to."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[Any]]] = []
        self.fails = False
        self._changed = threading.Condition()

    def __call__(self, df: Any, batch: int) -> None:
        rows = [tuple(row) for row in df.collect()]
        with self._changed:
            self.batches.append((batch, rows))
            self._changed.notify_all()
        if self.fails:
            raise ValueError("the other side is away")

    @property
    def rows(self) -> list[Any]:
        return [row for _, rows in self.batches for row in rows]

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.rows) >= count, 180), self.batches


def drawn(place: Place) -> Any:
    return place.causal("id long").map(
        lambda row, ctx: (row.id, ctx.random.getrandbits(40)), "id long, draw long", name="draw"
    )


def start(place: Place, writer: Any, mode: str = "microbatch") -> Any:
    writer = writer.option("checkpointLocation", str(place.checkpoint))
    place.query = writer.trigger(**({"availableNow": True} if mode == "once" else TRIGGERS[mode])).start()
    return place.query


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_each_row_is_in_one_batch_although_replicas_die(place: Place, mode: str) -> None:
    given, shown = Given(), Given()
    stream = drawn(place)
    writer = stream.writeStream.to(clonos.sinks.batches(given), name="given", parallelism=2)
    start(place, writer.to(clonos.sinks.batches(shown), name="shown"), mode)
    for number in range(3):
        place.write([{"id": id_} for id_ in range(10 * number, 10 * number + 10)])
        given.wait(10 * (number + 1))
        replica = place.replicas(5)[number]
        place.kill(replica["node"], replica["instance"])
    shown.wait(30)
    place.stop()
    assert Counter(row[0] for row in given.rows) == Counter(range(30))
    assert sorted(shown.rows) == sorted(given.rows), "both see the same draws"
    for each in (given, shown):
        assert [number for number, _ in each.batches] == list(range(len(each.batches)))
        assert all(rows for _, rows in each.batches)


def test_a_batch_whose_function_has_failed_is_given_again_with_the_same_rows(place: Place) -> None:
    given = Given()
    given.fails = True
    place.write([{"id": id_} for id_ in range(5)])
    query = start(place, drawn(place).writeStream.foreachBatch(given))
    with pytest.raises(UserFunctionError, match="raised ValueError for batch 0: the other side is away"):
        query.awaitTermination()
    place.write([{"id": id_} for id_ in range(5, 9)])
    given.fails = False
    start(place, drawn(place).writeStream.foreachBatch(given), "once").awaitTermination()
    first, again, *others = given.batches
    assert first == again and first[0] == 0
    assert [number for number, _ in others] == [1]
    assert sorted(row[0] for _, rows in (again, *others) for row in rows) == list(range(9))
    place.query = None


def test_all_is_given_when_the_query_has_ended_or_has_processed_all(place: Place) -> None:
    given = Given()
    for number in range(2):
        place.write([{"id": id_} for id_ in range(5 * number, 5 * number + 5)])
        start(place, drawn(place).writeStream.foreachBatch(given), "once").awaitTermination()
        assert len(given.rows) == 5 * (number + 1)
    query = start(place, drawn(place).writeStream.foreachBatch(given))
    place.write([{"id": 10}])
    query.processAllAvailable()
    assert sorted(row[0] for row in given.rows) == list(range(11))


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_a_function_that_exits_has_failed(place: Place, ends: type[BaseException]) -> None:
    """Also at the end of a query that ends by itself."""
    calls = []

    def leaves(df: Any, batch: int) -> None:
        calls.append(batch)
        raise ends

    place.write([{"id": 1}])
    query = start(place, drawn(place).writeStream.foreachBatch(leaves), "once")
    with pytest.raises(UserFunctionError, match=rf"raised {ends.__name__} for batch 0"):
        query.awaitTermination()
    assert isinstance(query.exception(), UserFunctionError) and calls == [0]
    place.query = None


@pytest.mark.parametrize("mode", ["microbatch", "once"])
def test_a_function_may_stop_its_query(place: Place, mode: str) -> None:
    given, is_known = Given(), threading.Event()

    def stops(df: Any, batch: int) -> None:
        assert is_known.wait(180)
        given(df, batch)
        with pytest.raises(QueryDefinitionError, match="waits for itself"):
            place.query.processAllAvailable()
        place.query.stop()

    place.write([{"id": 1}])
    start(place, drawn(place).writeStream.foreachBatch(stops), mode)
    is_known.set()
    given.wait(1)
    assert place.query.awaitTermination(180)
    assert place.query.exception() is None and [number for number, _ in given.batches] == [0]
    place.query = None


def test_a_batch_that_cannot_be_noted_is_tried_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from clonos.spark import batch_delivery

    given, failures = Given(), [OSError(28, "No space left on device")] * 2
    whole = batch_delivery.replace_file

    def fails(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        whole(*arguments)

    monkeypatch.setattr(batch_delivery, "replace_file", fails)
    place.write([{"id": 1}])
    start(place, drawn(place).writeStream.foreachBatch(given))
    given.wait(1)
    place.write([{"id": 2}])
    given.wait(2)
    assert [(number, len(rows)) for number, rows in given.batches] == [(0, 1), (1, 1)]


def test_values_come_back_as_they_are(place: Place) -> None:
    schema = (
        "id long, n decimal(30,10), x double, at timestamp, wall timestamp_ntz, day date, raw binary, "
        "of struct<a: array<int>, m: map<string, timestamp>>"
    )

    def made(row: Any, ctx: Any) -> Any:
        import datetime as dt
        from decimal import Decimal

        at = dt.datetime(1960, 2, 29, 23, 59, 59, 123456)
        yield (
            1,
            Decimal("12345678901234567890.0123456789"),
            float("nan"),
            at,
            at,
            at.date(),
            b"\x00\xff",
            ([1, None], {"é\n": at}),
        )
        yield 2, None, float("-inf"), None, None, None, b"", (None, {})

    given: list[Any] = []
    frames: list[Any] = []

    def keep(df: Any, batch: int) -> None:
        frames.append(df.schema)
        given.extend(df.orderBy("id").collect())

    place.write([{"id": 1}], partitions=1)
    stream = place.causal("id long", partitions=1).flat_map(made, schema, name="make")
    start(place, stream.writeStream.foreachBatch(keep), "once").awaitTermination()
    expected = place.spark.createDataFrame(list(made(None, None)), schema).collect()
    assert list(map(str, given)) == list(map(str, expected))
    assert frames[0].simpleString() == stream.schema.simpleString()
    place.query = None


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process's time zone, which is not the session's."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_view_has_the_instants_that_came_wherever_the_process_is(place: Place, in_berlin: None) -> None:
    place.spark.conf.set("spark.sql.session.timeZone", "UTC")
    moments = [
        dt.datetime(1, 1, 1),
        dt.datetime(1582, 10, 10),
        dt.datetime(1890, 1, 1, 1, 2, 3, 4),
        dt.datetime(2024, 3, 31, 2, 30),
        dt.datetime(2024, 10, 27, 0, 30),
        dt.datetime(2024, 10, 27, 1, 30),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
    ]
    schema = (
        "id long, at timestamp, wall timestamp_ntz, day date, span interval day to second, n decimal(30,10), "
        "x double, raw binary, s struct<a: array<timestamp>, m: map<string, timestamp>>"
    )

    def made(row: Any, ctx: Any) -> Any:
        at = moments[row.id]
        nested = ([at, None], {"m": at})
        span = dt.timedelta(days=-1, microseconds=1)
        return row.id, at, at, at.date(), span, Decimal("1.0000000001"), float("nan"), b"\x00\xff", nested

    def nothing(row: Any, ctx: Any) -> Any:
        return (row.id, *[None] * 8)

    place.write([{"id": id_} for id_ in range(len(moments))])
    source = place.causal("id long")
    stream = source.map(made, schema, name="made").union(source.map(nothing, schema, name="nothing"))
    query = start(place, stream.writeStream.format("memory").queryName("kept"))
    empty = place.spark.table("kept")
    query.processAllAvailable()
    place.write([{"id": 0}])
    query.processAllAvailable()
    view = place.spark.table("kept")
    assert view.schema == stream.schema and empty.count() == 0
    assert view.count() == 2 * len(moments) + 2
    shown = view.where("at is not null").selectExpr(
        "cast(at as string)",
        "cast(wall as string)",
        "cast(s.a[0] as string)",
        "cast(s.m['m'] as string)",
        "id",
    )
    expected = {(*[str(moments[i])] * 4, i) for i in range(len(moments))}
    assert {tuple(row) for row in shown.collect()} == expected
    others = view.where("at is not null").selectExpr(
        "cast(day as string) = substr(cast(wall as string), 1, 10)",
        "span = interval '-0 23:59:59.999999' day to second",
        "n = 1.0000000001",
        "isnan(x)",
        "hex(raw) = '00FF'",
        "s.a[1] is null",
    )
    assert {tuple(row) for row in others.collect()} == {(True,) * 6}
    assert view.alias("a").join(view.alias("b"), "id").where("a.at = b.at").count() == 4 + len(moments) - 1


def test_a_table_is_appended_to(place: Place) -> None:
    table = f"given_{place.base.name}"
    try:
        for number in range(2):
            place.write([{"id": id_} for id_ in range(5 * number, 5 * number + 5)])
            writer = drawn(place).writeStream.option("checkpointLocation", str(place.checkpoint))
            query = writer.trigger(availableNow=True).toTable(
                table, format="parquet", path=str(place.base / "table")
            )
            query.awaitTermination()
        assert sorted(row.id for row in place.spark.table(table).collect()) == list(range(10))
    finally:
        place.spark.sql(f"DROP TABLE IF EXISTS {table}")


def test_memory_and_console_show_what_has_come(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.write([{"id": id_} for id_ in range(5)])
    query = start(place, drawn(place).writeStream.format("memory").queryName("seen"))
    assert place.spark.table("seen").schema.simpleString() == "struct<id:bigint,draw:bigint>"
    query.processAllAvailable()
    assert sorted(row.id for row in place.spark.table("seen").collect()) == list(range(5))
    place.stop()
    place.write([{"id": 77_777}])
    place.write([{"id": 88_888}])
    with pytest.raises(QueryDefinitionError, match="numRows is 'many'"):
        start(place, drawn(place).writeStream.format("console").option("numRows", "many"), "once")
    writer = drawn(place).writeStream.format("console").option("numrows", 1)
    start(place, writer, "once").awaitTermination()
    said = capsys.readouterr().out
    assert "Batch: 1" in said and "only showing top 1 row" in said, "Spark does not mind the case of options"
    assert ("|77777|" in said) != ("|88888|" in said)
    place.query = None
    with pytest.raises(QueryDefinitionError, match=r"Call \.queryName"):
        start(place, drawn(place).writeStream.format("memory"))
    with pytest.raises(QueryDefinitionError, match=r"does not write 'delta' by itself.*foreachBatch"):
        drawn(place).writeStream.format("delta")


def test_functions_and_views_stand_beside_other_sinks(place: Place) -> None:
    """What the message of an unnamed one says works; what cannot be named has a name of its own."""
    given, seen = Given(), f"seen_{place.base.name}"
    place.write([{"id": id_} for id_ in range(5)])
    stream = drawn(place)
    jsonl = clonos.sinks.jsonl(place.output, durable=False)
    unnamed = stream.writeStream.foreachBatch(given).to(jsonl, name="lines")
    says = (
        r"2 sinks, and foreachBatch has no name\. Give each one, .*\.to\(clonos\.sinks\.batches\(fn\), name="
    )
    with pytest.raises(QueryDefinitionError, match=says):
        start(place, unnamed)
    named = stream.writeStream.to(clonos.sinks.batches(given), name="given").to(jsonl, name="lines")
    start(place, named, "once").awaitTermination()
    assert sorted(row[0] for row in given.rows) == [row["id"] for row in by_id(place)] == list(range(5))

    place.checkpoint = place.base / "of views"
    beside = stream.writeStream.format("memory").queryName(seen).to(jsonl, name="lines")
    start(place, beside, "once").awaitTermination()
    shown = {tuple(row) for row in place.spark.table(seen).collect()}
    assert len(shown) == 5 and shown <= {(row["id"], row["draw"]) for row in by_id(place)}

    place.checkpoint = place.base / "of the console"
    beside = stream.writeStream.format("console").to(jsonl, name="lines")
    start(place, beside, "once").awaitTermination()
    assert len(by_id(place)) == 15

    place.checkpoint = place.base / "of a table"
    table = f"default.beside_{place.base.name}"
    writer = stream.writeStream.to(jsonl, name="lines").option("checkpointLocation", str(place.checkpoint))
    try:
        query = writer.trigger(availableNow=True).toTable(
            table, format="parquet", path=str(place.base / "table")
        )
        query.awaitTermination()
        assert place.spark.table(table).count() == 5 and len(by_id(place)) == 20
    finally:
        place.spark.sql(f"DROP TABLE IF EXISTS {table}")
    place.query = None


def by_id(place: Place) -> list[Any]:
    return sorted(place.rows(), key=lambda row: row["id"])


def test_a_batch_that_is_not_known_to_have_been_given_comes_again_as_it_was(tmp_path: Path) -> None:
    files = [tmp_path / "3-0.log", tmp_path / "3-1.log"]
    state = tmp_path / "3.batch"

    def append(at: int, *payloads: bytes) -> None:
        begin = MAGIC if not files[at].exists() else b""
        with files[at].open("ab") as file:
            file.write(begin + encode_entries(list(payloads), 1))

    def due() -> tuple[int, list[bytes]] | None:
        found = BatchFiles(files, state).next()
        return None if found is None else (found[0].number, found[1])

    assert due() is None
    append(0, b"a", b"b")
    assert due() == (0, [b"a", b"b"])
    append(0, b"c")
    append(1, b"d" * 100_000)
    assert due() == (0, [b"a", b"b"]), "it is not known whether it has been given"
    known = BatchFiles(files, state)
    found = known.next()
    assert found is not None
    known.given(found[0])
    assert due() == (1, [b"c", b"d" * 100_000])
    length = files[1].stat().st_size
    found = known.next()
    assert found is not None
    known.given(found[0])
    assert due() is None and files[1].stat().st_size == length
    append(1, b"e")
    assert due() == (2, [b"e"])

    def deposed() -> None:
        raise Fenced("another driver leads")

    former = BatchFiles(files, state, deposed)
    found = former.next()
    assert found is not None and found[0].number == 2
    with pytest.raises(Fenced):
        former.given(found[0])
    assert due() == (2, [b"e"]), "what the other driver has written down stays"
