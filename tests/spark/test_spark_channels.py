"""Source channels that have names: numbered once and for all, asked for by tasks, kept by the checkpoint; and identity
that is taken where the source is, whatever the query leaves out."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from modes import mostly
from streams import Place

import clonos
from clonos.errors import CheckpointMismatch, ConfigurationError, Fenced, InputError
from clonos.protocol.source_channels import Numbered
from clonos.protocol.topology import Node, NodeKind, Topology
from clonos.spark import session as sessions
from clonos.spark.channels import numbers_without_pages
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.failure import translate
from clonos.spark.identity import carried, only_topic
from clonos.tools.checkpoint.describe import described, render

pytestmark = pytest.mark.spark

SCHEMA = "shop string, line long"


def counted(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield row.shop, row.line, ctx.state["n"], ctx.random.random()


def counting(place: Place) -> Any:
    source = place.read(SCHEMA, partitions=1)
    stream = clonos.causal(source, channel="shop", position="line")
    return stream.groupBy("shop").process(
        counted, "shop string, line long, n long, draw double", name="count"
    )


def sell(place: Place, shops: str, lines: range) -> None:
    """The same positions in every shop."""
    place.write([{"shop": shop, "line": line} for line in lines for shop in shops], partitions=1)


def numbers(place: Place) -> dict[str, int]:
    entries = Checkpoint(str(place.checkpoint)).channel_numbers().entries()
    return {one.name: one.number for one in entries if one.node == 1}


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_channels_with_names_are_told_apart_for_ever(place: Place, mode: str) -> None:
    """Their positions are the same; replicas die, the query starts again, and others come first then."""
    sell(place, "ab", range(5))
    place.start(counting(place), mode)
    before = place.await_rows(10)
    first = numbers(place)
    assert set(first) == {"a", "b"} and set(first.values()) == {0, 1}
    place.kill(node=2, instance=0)
    place.kill(node=2, instance=1)
    sell(place, "cab", range(5, 10))
    place.await_rows(25)
    place.stop()
    sell(place, "dc", range(10, 15))
    place.start(counting(place), mode)
    rows = place.await_rows(35)
    assert {(row["shop"], row["line"]): row["n"] for row in rows} == {
        **{(shop, line): line + 1 for shop in "ab" for line in range(10)},
        **{("c", line): line - 4 for line in range(5, 15)},
        **{("d", line): line - 9 for line in range(10, 15)},
    }
    draws = {(row["shop"], row["line"]): row["draw"] for row in rows}
    assert all(draws[row["shop"], row["line"]] == row["draw"] for row in before)
    after = numbers(place)
    assert first.items() <= after.items() and sorted(after.values()) == [0, 1, 2, 3]


def test_an_older_copy_of_a_checkpoint_does_not_number_anew(place: Place) -> None:
    """Rows of the open epoch are visible, by numbers that the copy does not know; its last commit is the sink's."""
    sell(place, "z", range(3))
    place.start(counting(place))
    place.await_rows(3)
    place.until(lambda: Checkpoint(str(place.checkpoint)).committed() >= 0, "a commit")
    place.stop()
    shutil.copytree(place.checkpoint, place.base / "copy")
    place.query = place.writer(counting(place), "realtime").trigger(realTime="5 minutes").start()
    sell(place, "ab", range(3))
    place.await_rows(9)
    place.stop()
    shutil.rmtree(place.checkpoint)
    shutil.copytree(place.base / "copy", place.checkpoint)
    for _ in range(2):
        with pytest.raises(CheckpointMismatch, match=r"up to start \d+ .* the sink has heard of start \d+"):
            place.start(counting(place), "realtime")


def test_a_record_of_a_channel_comes_once(place: Place) -> None:
    sell(place, "ab", range(3))
    place.start(counting(place))
    place.await_rows(6)
    sell(place, "b", range(2, 3))
    with pytest.raises(
        InputError,
        match=r"position 2 came on the channel from node 1, partition \d \('b'\), which had come to 2",
    ):
        place.query.awaitTermination(60)


def test_a_channel_without_a_name_ends_the_query(place: Place) -> None:
    place.write([{"line": 1}], partitions=1)
    place.start(counting(place))
    with pytest.raises(
        InputError, match=r"a record has the channel null, which names no place: .*LogSourceProvider"
    ):
        place.query.awaitTermination(60)


def test_a_name_that_is_no_text_ends_the_query(place: Place) -> None:
    """Two of those would look alike."""
    from pyspark.sql import functions as f

    sell(place, "a", range(1))
    source = place.read(SCHEMA, partitions=1).withColumn("latin", f.expr("cast(X'636166e9' as string)"))
    stream = clonos.causal(source, channel="latin", position="line")
    place.start(stream.map(lambda row: (row.line,), "line long", name="m", pure=True))
    with pytest.raises(InputError, match="name that is not UTF-8"):
        place.query.awaitTermination(60)
    assert place.query.restarts == []


def test_names_are_shown_on_one_line(place: Place) -> None:
    names = ["a\nb", "", " ", "x" * 5_000]
    place.write([{"shop": name, "line": 1} for name in names], partitions=1)
    place.start(counting(place))
    place.await_rows(len(names))
    place.stop()
    shown = list(render(described(Checkpoint(str(place.checkpoint)))))
    table = shown[next(at for at, line in enumerate(shown) if line.startswith("source node")) + 1 :]
    assert len(table) >= len(names) and all("\n" not in line and len(line) < 150 for line in table)
    assert any(repr("a\nb") in line for line in table)


def test_one_channel_for_everything(place: Place) -> None:
    """Spark computes what is constant in the driver."""
    from pyspark.sql import functions as f

    place.write([{"line": line} for line in range(4)], partitions=1)
    source = place.read("line long", partitions=1)
    stream = clonos.causal(source, channel=f.lit("all"), position="line")
    place.start(stream.map(lambda row: row, "line long", name="m", pure=True))
    assert {row["line"] for row in place.await_rows(4)} == set(range(4))
    assert numbers(place) == {"all": 0}


def test_names_need_the_plugins_class(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from clonos.api import writer

    def told_of_nothing(spark: Any, why: str) -> None:
        monkeypatch.setattr(sessions, "PLUGIN", "another.Plugin")
        sessions.require_plugin(spark, why)

    monkeypatch.setattr(writer, "require_plugin", told_of_nothing)
    with pytest.raises(ConfigurationError, match=r"channels have names.* not in spark.plugins.*configure"):
        place.start(counting(place))


def test_only_the_newest_start_is_answered(spark: Any) -> None:
    numbering = spark._jvm.org.clonos.spark.executor.Numbering
    number = spark._jvm.org.clonos.spark.executor.ChannelNumbers.number
    text = spark._jvm.org.apache.spark.unsafe.types.UTF8String.fromString

    def answer(open_desk: Any, say: str) -> threading.Thread:
        def one() -> None:
            request = open_desk.next()
            request.answer([request.name(), say])

        thread = threading.Thread(target=one)
        thread.start()
        return thread

    first = numbering.open("q", 1)
    told = answer(first, "7")
    assert number(text("q/1/3"), text("a")) == 7
    told.join()
    assert number(text("q/1/3"), text("a")) == 7, "it is known here"
    second = numbering.open("q", 2)
    with pytest.raises(Exception, match="not the last any more") as refused:
        number(text("q/1/3"), text("b"))
    assert isinstance(translate(refused.value), Fenced)
    told = answer(second, "8")
    assert number(text("q/2/3"), text("a")) == 8, "an older start's table does not count"
    told.join()
    second.close()
    with pytest.raises(Exception, match="not the last any more"):
        number(text("q/2/3"), text("b"))


def test_identity_is_carried_from_the_leaf(place: Place) -> None:
    from pyspark.sql import functions as f

    place.write([{"n": n} for n in range(6)])
    raw = place.spark.readStream.format("clonos").load(str(place.base / "in"))
    narrow = raw.filter("length(value) > 0").select(f.col("value").cast("string").alias("text"))
    narrow.createOrReplaceTempView("narrow")
    for df in (
        narrow,
        narrow.alias("other").where("other.text <> ''"),
        place.spark.table("narrow").withColumn("at", f.to_timestamp(f.lit(0).cast("timestamp"))),
        place.spark.sql("select upper(text) as partition from narrow"),
        raw.select("value", "timestamp").withWatermark("timestamp", "1 second").select("value"),
        raw.selectExpr("cast(value as string) as offset", "1 as partition").coalesce(1),
    ):
        wide = carried(df, {"partition": "_where", "position": "_place"})
        assert wide.columns == [*df.columns, "_where", "_place"]
        query = wide.writeStream.format("memory").queryName("carried").trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        found = place.spark.table("carried").select("_where", "_place").collect()
        assert len(found) == len({tuple(row) for row in found}) == 6
        assert {row._where for row in found} == {0, 1}


@pytest.mark.parametrize(
    ("options", "topic"),
    [
        ({"subscribe": " cards "}, "cards"),
        ({"subscribe": "cards,shops"}, None),
        ({"SubscribePattern": "card.*"}, None),
        ({"assign": '{"cards": [0, 1]}'}, "cards"),
        ({"assign": '{"cards": [0], "shops": [0]}'}, None),
    ],
)
def test_a_topic_that_is_read_alone(options: dict[str, str], topic: str | None) -> None:
    assert only_topic(options) == topic


def reading(**options: str) -> Topology:
    return Topology((Node(1, NodeKind.SOURCE, "source-1", 0, source={"kind": "kafka", **options}),))


def test_a_topic_that_was_read_alone_keeps_the_numbers_of_its_partitions(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    alone, more = reading(subscribe="cards"), reading(subscribe="cards,shops")
    assert numbers_without_pages(checkpoint, alone, alone) == []
    with pytest.raises(
        CheckpointMismatch, match=r"it is not known which partitions of 'cards' .*alone until"
    ):
        numbers_without_pages(checkpoint, alone, more)
    for folder, text in (
        ("offsets", 'v1\n{"batchWatermarkMs":0}\n-\n' + json.dumps({"cards": {"0": 7, "2": 3, "1": 9}})),
        ("commits", "v1\n{}"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "4").write_text(text)
    found = numbers_without_pages(checkpoint, alone, more)
    assert found == [Numbered(1, at, f"cards/{at}") for at in range(3)]
    assert numbers_without_pages(checkpoint, more, more) == []
    assert numbers_without_pages(checkpoint, alone, reading(subscribePattern="c.*")) == found
