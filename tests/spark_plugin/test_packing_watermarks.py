"""Watermarks of a source: what its packing tells every destination, and how conduits carry it on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from modes import mostly

pytest.importorskip("pyspark")

from conduit_harness import OPERATOR, SINK, Rig, plugin_session
from pyspark.sql import DataFrame, SparkSession

from clonos.protocol.ids import Epoch
from clonos.protocol.ingestion import UNKNOWN
from clonos.sources import LogWriter
from clonos.spark import plugin_stages
from clonos.spark.plan import EventTime
from clonos.spark.plugin_stages import TimedReader
from clonos.spark.settings import read_settings
from clonos.wire.block import Block, Kind, pack_block, parse_block, watermark_block

NUMBER = "cast(cast(value as string) as int)"
# Reader 0 has no event time; reader 1 is at the partitions 1, 2 and 3, reader 2 at 4 and 5.
EVENTS = EventTime("at", 0)  # the column is made here
TIMED = [TimedReader(2, 4, 2, EVENTS), TimedReader(1, 1, 3, EVENTS)]


@pytest.fixture(scope="module")
def spark(plugin_jar: Path) -> SparkSession:
    return plugin_session(plugin_jar)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    with LogWriter(tmp_path / "log", 1) as writer:
        yield writer


def source(spark: SparkSession, path: Path, *columns: str, spread: str = "0") -> DataFrame:
    """Everything is for destination 0 of each reader, or `spread` further. The channels are 1 and 65, in turn."""
    identity = [
        f"cast({NUMBER} % 2 as bigint) * 64 + 1 as _clonos_channel",
        "_clonos_source_position as _clonos_position",
        *(
            f"cast({partition} + {spread} as int) as _clonos_destination_{reader}"
            for reader, partition in enumerate((0, 1, 4))
        ),
    ]
    return spark.readStream.format("clonos").load(str(path)).selectExpr(*identity, *columns)


def packed(frame: DataFrame, *, bundle_rows: int = 4096) -> list[tuple[int, Block]]:
    """The blocks of one task, in their order, with their destinations."""
    settings = read_settings({"spark.clonos.bundle.rows": str(bundle_rows)})
    blocks = plugin_stages.packed(frame, 3, TIMED, settings)
    query = blocks.writeStream.format("memory").queryName("packed").trigger(availableNow=True).start()
    query.awaitTermination(90)
    rows = frame.sparkSession.table("packed").collect()
    return [(row[0], parse_block(memoryview(bytes(row[1])))) for row in rows]


def told(blocks: list[tuple[int, Block]], destination: int, channel: int) -> list[int | None]:
    return [block.watermark for to, block in blocks if to == destination and block.sender == channel]


def times(expression: str) -> list[str]:
    """Reader 2 has half the delay of reader 1."""
    event_time = f"cast({expression} as bigint)"
    return [f"{event_time} - 5 as _clonos_event_time_2", f"{event_time} - 10 as _clonos_event_time_1"]


def test_every_destination_is_told(spark: SparkSession, tmp_path: Path, log: LogWriter) -> None:
    """The rows go back in time, and every fifth has none."""
    log.append_many(0, [b"%d" % number for number in range(1000)])
    event_time = f"if({NUMBER} % 5 = 0, null, 5000 - {NUMBER})"
    blocks = packed(source(spark, tmp_path / "log", *times(event_time), f"{NUMBER} as n"), bundle_rows=50)
    rows = [(to, block) for to, block in blocks if block.kind is Kind.ROWS]
    marks = [(to, block) for to, block in blocks if block.kind is Kind.WATERMARK]
    assert {to for to, _ in rows} == {0, 1, 4} and {to for to, _ in marks} <= {1, 2, 3, 4, 5}
    for to in (0, 1, 4):
        assert sum(block.count for at, block in rows if at == to) == 1000
    # Of channel 1 the first row with a time is the third one, whose number is 2.
    for channel, highest in ((1, 5000 - 2), (65, 5000 - 1)):
        assert set(told(blocks, 0, channel)) == {None}
        for to, delay in ((1, 10), (2, 10), (3, 10), (4, 5), (5, 5)):
            assert told(blocks, to, channel)[-1] == highest - delay
        for to, delay in ((2, 10), (3, 10), (5, 5)):
            assert set(told(blocks, to, channel)) == {
                highest - delay
            }  # it has not advanced again, but rows come


def test_a_destination_hears_of_later_rows_that_went_to_others(
    spark: SparkSession, tmp_path: Path, log: LogWriter
) -> None:
    """Also where it has just been told by a row of its own."""
    log.append_many(0, [b"%d" % number for number in range(60)])
    frame = source(spark, tmp_path / "log", *times(NUMBER), f"{NUMBER} as n", spread=f"floor({NUMBER} / 30)")
    blocks = packed(frame, bundle_rows=1)
    for channel, highest in ((1, 58), (65, 59)):
        for to, delay in ((1, 10), (2, 10), (3, 10), (4, 5), (5, 5)):
            assert told(blocks, to, channel)[-1] == highest - delay


def test_a_block_says_when_its_first_row_came(spark: SparkSession, tmp_path: Path, log: LogWriter) -> None:
    """Row by row, as the task is slow to hand each of them on. A block without rows is of none."""
    log.append_many(0, [b"%d" % number for number in range(60)])
    rest = "java_method('java.lang.Thread', 'sleep', 5L) as rest"
    begin = time.time_ns() // 1000
    blocks = packed(source(spark, tmp_path / "log", *times(NUMBER), rest))
    end = time.time_ns() // 1000
    for to in (0, 1, 4):
        came = [block.ingested for at, block in blocks if at == to and block.kind is Kind.ROWS]
        assert begin <= came[0] and came == sorted(came) and came[-1] <= end
        assert came[-1] - came[0] > 10_000, "rows that come apart have times apart"
    assert {block.ingested for _, block in blocks if block.kind is Kind.WATERMARK} == {UNKNOWN}


def test_without_event_times_nothing_is_told(spark: SparkSession, tmp_path: Path, log: LogWriter) -> None:
    log.append_many(0, [b"%d" % number for number in range(20)])
    blocks = packed(source(spark, tmp_path / "log", *times("null"), f"{NUMBER} as n"))
    assert {block.kind for _, block in blocks} == {Kind.ROWS}
    assert {block.watermark for _, block in blocks} == {None}


def test_others_are_told_from_time_to_time(spark: SparkSession, tmp_path: Path, log: LogWriter) -> None:
    """The input rests before its last row; until then the others have heard of all before it."""
    log.append_many(0, [b"%d" % number for number in range(0, 4000, 2)])
    rest = f"if({NUMBER} = 3998, java_method('java.lang.Thread', 'sleep', 1500L), null) as rest"
    begin = time.monotonic()
    blocks = packed(source(spark, tmp_path / "log", *times(NUMBER), rest), bundle_rows=1)
    rounds = (time.monotonic() - begin) / 0.1 + 2
    assert len(told(blocks, 1, 1)) >= 2000
    for to, delay in ((2, 10), (3, 10), (5, 5)):
        heard = told(blocks, to, 1)
        assert heard[-2:] == [3996 - delay, 3998 - delay]
        assert heard == sorted(heard, key=lambda watermark: watermark or 0) and len(heard) <= rounds


def test_what_does_not_fit_is_said(spark: SparkSession, tmp_path: Path, log: LogWriter) -> None:
    frame = source(spark, tmp_path / "log", *times(NUMBER), f"{NUMBER} as n")
    settings = read_settings({})
    with pytest.raises(
        Exception, match=r"a source's rows begin with the columns .*_clonos_event_time_1 bigint"
    ):
        plugin_stages.packed(frame, 3, TIMED[::-1], settings)
    for wrong in ([(-1, 1, 1)], [(1, 1, 0)], [(1, -1, 1)], [(1, 1, 1), (1, 1, 1)]):
        with pytest.raises(Exception, match="have event time, at partitions from"):
            plugin_stages.packed(frame, 3, [TimedReader(*each, EVENTS) for each in wrong], settings)


def test_a_block_of_a_watermark_is_the_same_from_both_sides(spark: SparkSession) -> None:
    assert spark._jvm is not None
    made = spark._jvm.org.clonos.spark.block.Block.watermark(3, 65, -(2**63) + 1)
    assert bytes(made) == pack_block(watermark_block(Epoch(3), 65, -(2**63) + 1))


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_watermarks_pass_through_conduits_while_replicas_die(
    spark: SparkSession, tmp_path: Path, log: LogWriter, mode: str
) -> None:
    """All rows are for one instance of the operator: the other gets watermarks alone, and hands them on alone."""
    died: set[tuple[int, int, int]] = set()

    def script(node: int, instance: int, attempt: int, bundles: int) -> str | None:
        who = (node, instance, bundles)
        if bundles in (1, 2) and who not in died:
            died.add(who)
            return {1: "die", 2: "die_after"}[bundles]
        return None

    rig = Rig(spark, tmp_path, mode, inflight_bytes=100)
    frame = spark.readStream.format("clonos").load(str(tmp_path / "log"))
    identity = [
        "1L as _clonos_channel",
        "_clonos_source_position as _clonos_position",
        "0 as _clonos_destination_0",
        f"cast({NUMBER} as bigint) as _clonos_event_time_0",
    ]
    rig.start_on(
        frame.selectExpr(*identity, f"{NUMBER} as number"), timed=True, script=script, realtime="5 seconds"
    )
    for number in range(50):
        log.append(0, b"%d" % number)
        time.sleep(0.02)
    of = rig.replicas.instances

    def heard(node: int, instance: int) -> set[tuple[int, int]]:
        return set(of[node, instance].watermarks) if (node, instance) in of else set()

    def is_told(node: int, senders: set[int]) -> Callable[[], bool]:
        wanted = {(sender, 49) for sender in senders}
        return lambda: all(wanted <= heard(node, instance) for instance in (0, 1))

    rig.wait(lambda: len(rig.rows) >= 50)
    rig.wait(is_told(OPERATOR, {1}))
    rig.wait(is_told(SINK, {OPERATOR, 64 + OPERATOR}))
    rig.wait(lambda: len(rig.committed()) > 0)
    rig.stop()
    assert sorted(row["number"] for row in rig.rows) == list(range(50))
    assert of[OPERATOR, 1].rows == 0 and of[OPERATOR, 1].bundles > 0
    assert rig.replicas.violations == []
    assert {who[:2] for who in died} == {(OPERATOR, 0), (OPERATOR, 1), (SINK, 0), (SINK, 1)}
