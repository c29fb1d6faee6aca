"""What replicas send and read: blocks by destination, their limits, the largest numbers, and what is refused."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from clonos.errors import InputError, ProtocolError
from clonos.operators.types import arrow_schema
from clonos.protocol.counters import LAST_LONG
from clonos.protocol.destination import NOWHERE
from clonos.protocol.engine.instance import Bundle, Emit
from clonos.protocol.ids import LOCAL_MAX, NODE_MAX, Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.side_output import MAIN, OutputName, side_row_type
from clonos.wire.block import Block, pack_block, parse_block
from clonos.wire.messages import Bundle as BundleFrame, OutputBlock
from clonos_standby.replica import batches
from clonos_standby.replica.batches import BlockLimits, BundleReader, OutputWriter

SCHEMA = arrow_schema("n bigint, text string, many array<struct<at: timestamp, price: decimal(20, 3)>>")
EPOCH = Epoch(4)
LAST = Origin(NODE_MAX, LOCAL_MAX)
SENDER = Origin(3, 7)
USUAL = BlockLimits(4096, 1 << 20)


class Long(bytes):
    """As long as no test has memory for."""

    def __len__(self) -> int:
        return 1 << 33


def row(number: int) -> tuple[Any, ...]:
    at = datetime.datetime(2024, 1, 1, 0, 0, number % 60)
    return number, f"text {number}", [(at, None)] * (number % 3)


def emit(
    writer: OutputWriter, rows: list[Any], first: int, *destinations: list[int], deltas: Any = None
) -> Emit:
    encoded = writer.encode(rows)
    last = OutputNumber(first + len(rows) - 1)
    return Emit(OutputNumber(first), len(rows), encoded, destinations, deltas or {}, LogOffset(0), b"", last)


def sent(*destinations: list[int], limits: BlockLimits = USUAL) -> list[OutputBlock]:
    writer = OutputWriter({MAIN: SCHEMA}, "UTC", "op", SENDER, limits)
    return writer.blocks(emit(writer, [row(n) for n in range(len(destinations[0]))], 1, *destinations), EPOCH)


def read(blocks: list[Any], schema: pa.Schema = SCHEMA, rows: int | None = None) -> Bundle:
    raw = tuple(memoryview(block) for block in blocks)
    count = sum(parse_block(block).count for block in raw) if rows is None else rows
    return BundleReader(schema, "UTC").read(BundleFrame(1, count, raw), EPOCH)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=150))
def test_every_destination_gets_its_rows_in_order_with_their_numbers(destinations: list[int]) -> None:
    blocks = sent(destinations)
    assert len({to for to, _ in blocks}) == len(blocks) == len(set(destinations))
    for to, block in blocks:
        found = read([block])
        wanted = [n for n, destination in enumerate(destinations) if destination == to]
        assert [tuple(each)[:2] for each in found.rows] == [row(n)[:2] for n in wanted]
        assert np.asarray(found.positions).tolist() == [1 + n for n in wanted]
        assert set(np.asarray(found.channels).tolist()) == {SENDER.channel}


def test_every_reader_gets_all_rows() -> None:
    blocks = sent([0, 1, 0, 1], [2, 2, 2, 2])
    assert [(to, [each[0] for each in read([block]).rows]) for to, block in blocks] == [
        (0, [0, 2]), (1, [1, 3]), (2, [0, 1, 2, 3]),
    ]  # fmt: skip


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1)), min_size=1, max_size=150))
def test_every_reader_gets_the_rows_of_the_output_that_it_reads(given: list[tuple[bool, int]]) -> None:
    """Each with its number among all rows; readers 0 and 2 read the main output."""
    side, texts = OutputName("side"), pa.schema([("text", pa.string())])
    kind = side_row_type(side)
    rows = [kind((f"text {n}",)) if is_side else row(n) for n, (is_side, _) in enumerate(given)]
    where = [
        [NOWHERE if is_side else to for is_side, to in given],
        [2 if is_side else NOWHERE for is_side, _ in given],
    ]
    outputs = {MAIN: SCHEMA, side: texts}
    writer = OutputWriter(outputs, "UTC", "op", SENDER, USUAL, [MAIN, side, MAIN])
    said = emit(writer, rows, 1, *where, [NOWHERE if to == NOWHERE else 3 for to in where[0]])
    found: dict[int, list[Any]] = {0: [], 1: [], 2: [], 3: []}
    for to, block in writer.blocks(said, EPOCH):
        bundle = read([block], texts if to == 2 else SCHEMA)
        found[to] += zip(
            np.asarray(bundle.positions).tolist(), [each[0] for each in bundle.rows], strict=True
        )
    for to in (0, 1):
        wanted = [(1 + n, n) for n, (is_side, at) in enumerate(given) if not is_side and at == to]
        assert found[to] == wanted
    assert found[2] == [(1 + n, f"text {n}") for n, (is_side, _) in enumerate(given) if is_side]
    assert found[3] == [(1 + n, n) for n, (is_side, _) in enumerate(given) if not is_side]


def test_the_digest_covers_the_rows_of_all_outputs_and_which_is_which() -> None:
    side = OutputName("side")
    kind = side_row_type(side)
    writer = OutputWriter({MAIN: SCHEMA, side: SCHEMA}, "UTC", "op", SENDER)
    one, two = row(1), row(2)
    said = ([one, two], [kind(one), two], [one, kind(two)], [kind(two), one], [kind(one), kind(two)], [one])
    assert len({writer.encode(rows).digest for rows in said}) == len(said)
    assert writer.encode([kind(one), two]).digest == writer.encode([kind(one), two]).digest


def test_a_side_output_that_is_declared_changes_no_digest() -> None:
    """A function that gives it no rows is repeated by a program that has declared one since."""
    without = OutputWriter({MAIN: SCHEMA}, "UTC", "op", SENDER)
    declared = OutputWriter({MAIN: SCHEMA, OutputName("side"): SCHEMA}, "UTC", "op", SENDER)
    assert declared.encode([row(1), row(2)]).digest == without.encode([row(1), row(2)]).digest
    readers = OutputWriter(
        {MAIN: SCHEMA, OutputName("side"): SCHEMA}, "UTC", "op", SENDER, USUAL, [OutputName("side"), MAIN]
    )
    said = emit(readers, [row(1), row(2)], 1, [NOWHERE, NOWHERE], [1, 1])
    assert [to for to, _ in readers.blocks(said, EPOCH)] == [1]


@given(st.lists(st.integers(1, 90), min_size=1, max_size=6))
def test_the_blocks_of_a_bundle_are_read_in_their_order(sizes: list[int]) -> None:
    blocks = [block for size in sizes for _, block in sent([0] * size)]
    found = read(blocks)
    assert [tuple(each) for each in found.rows] == [row(n) for size in sizes for n in range(size)]
    assert np.asarray(found.positions).tolist() == [1 + n for size in sizes for n in range(size)]


def test_a_delta_rides_along_to_its_destination_once() -> None:
    writer = OutputWriter({MAIN: SCHEMA}, "UTC", "op", SENDER, BlockLimits(2, 1 << 20))
    said = emit(writer, [row(n) for n in range(8)], 1, [1, 0] * 4, deltas={1: b"for one", 0: b"for none"})
    blocks = writer.blocks(said, EPOCH)
    assert [(to, bytes(parse_block(memoryview(block)).ride_along)) for to, block in blocks] == [
        (0, b"for none"), (0, b""), (1, b"for one"), (1, b""),
    ]  # fmt: skip
    assert read([block for to, block in blocks if to == 1]).deltas == [b"for one"]


def test_every_block_has_the_time_of_the_oldest_input() -> None:
    """Whatever it is cut into; a reader has the times of the blocks, each with as many rows."""
    writer = OutputWriter({MAIN: SCHEMA}, "UTC", "op", SENDER, BlockLimits(2, 1 << 20))
    made = emit(writer, [row(n) for n in range(5)], 1, [0, 0, 0, 0, 0])
    blocks = [block for _, block in writer.blocks(made, EPOCH, 1_700_000_000_000_001)]
    later = [block for _, block in writer.blocks(made, EPOCH, 1_700_000_000_000_002)]
    channel = SENDER.channel
    assert [(each.channel, each.time) for each in read(blocks + later[:1]).ingested] == [
        *[(channel, 1_700_000_000_000_001)] * len(blocks),
        (channel, 1_700_000_000_000_002),
    ]
    assert sum(each.rows for each in read(blocks).ingested) == 5


@pytest.mark.parametrize(
    ("limits", "most"), [(BlockLimits(100, 1 << 20), 100), (BlockLimits(4096, 4000), 100)]
)
def test_a_block_is_no_larger_than_a_bundle_may_be(limits: BlockLimits, most: int) -> None:
    blocks = sent([0] * 1000, limits=limits)
    counts = [parse_block(memoryview(block)).count for _, block in blocks]
    assert sum(counts) == 1000 and max(counts) <= most and len(blocks) < 100
    assert [each[0] for each in read([block for _, block in blocks]).rows] == list(range(1000))


def test_a_row_that_is_larger_than_a_bundle_may_be_goes_alone() -> None:
    writer = OutputWriter({MAIN: arrow_schema("text string")}, "UTC", "op", SENDER, BlockLimits(4096, 1000))
    rows = [("x",), ("y" * 5000,), ("z",)]
    blocks = writer.blocks(emit(writer, rows, 1, [0] * 3), EPOCH)
    assert [parse_block(memoryview(block)).count for _, block in blocks] == [1, 1, 1]


@pytest.mark.parametrize("rows", [10, 100], ids=["packed", "arrow"])
@pytest.mark.parametrize("readers", [1, 2])
def test_rows_that_are_too_many_for_a_frame_are_refused_before_they_are_recorded(
    rows: int, readers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is recorded has to be sent again by every process that repeats it."""
    writer = OutputWriter({MAIN: arrow_schema("text string")}, "UTC", "op", SENDER, USUAL, [MAIN] * readers)
    given = [("x" * 1000,)] * rows
    size = writer.encode(given).size
    assert size >= 1000 * rows
    monkeypatch.setattr(batches, "_MOST_BYTES", size * readers)
    writer.encode(given)
    monkeypatch.setattr(batches, "_MOST_BYTES", size * readers - 1)
    with pytest.raises(
        ProtocolError, match=rf"{rows} output rows .* a frame takes .*spark.clonos.bundle.rows"
    ):
        writer.encode(given)
    writer.encode(given, lazily=True)


@pytest.mark.parametrize("destinations", [[0, 0, 0], [0, 1, 0]])
def test_rows_without_columns_are_counted(destinations: list[int]) -> None:
    nothing = pa.schema([])
    writer = OutputWriter({MAIN: nothing}, "UTC", "op", SENDER)
    blocks = writer.blocks(emit(writer, [()] * 3, 1, destinations), EPOCH)
    assert len(read([block for _, block in blocks], nothing).rows) == 3


@pytest.mark.parametrize("count", [1, 2, 100])
def test_the_last_numbers_of_the_last_channel_are_sent_as_they_are(count: int) -> None:
    writer = OutputWriter({MAIN: SCHEMA}, "UTC", "op", LAST)
    first = LAST_LONG - count + 1
    blocks = writer.blocks(
        emit(writer, [row(n) for n in range(count)], first, [0] * count, deltas={0: b"delta"}), EPOCH
    )
    found = read([block for _, block in blocks])
    assert np.asarray(found.channels).tolist() == [LAST.channel] * count
    assert np.asarray(found.positions).tolist() == list(range(first, LAST_LONG + 1))


@pytest.mark.parametrize("count", [1, 100])
def test_determinants_that_no_frame_holds_are_refused(count: int) -> None:
    writer = OutputWriter({MAIN: SCHEMA}, "UTC", "op", LAST)
    with pytest.raises(
        ProtocolError, match=r"larger than a frame.*operator 'op'.*spark\.clonos\.bundle\.rows"
    ):
        writer.blocks(emit(writer, [row(n) for n in range(count)], 1, [0] * count, deltas={0: Long()}), EPOCH)


def test_a_bundle_that_is_not_what_it_says_is_refused() -> None:
    ((_, block),) = sent([0, 0])
    with pytest.raises(ProtocolError, match="says it has 3 rows and has 2"):
        read([block], rows=3)
    with pytest.raises(ProtocolError, match="a block of epoch 4 in bundle 1 of epoch 5"):
        BundleReader(SCHEMA, "UTC").read(BundleFrame(1, 2, (memoryview(block),)), Epoch(5))
    with pytest.raises(InputError, match="does not fit the declared input schema"):
        read([block], arrow_schema("n bigint, a string, b string, c string, d string, e string"))
    rows = pa.RecordBatch.from_pydict({"n": [1, 2, 3]}).serialize()
    lie = pack_block(Block(EPOCH, 65, [1, 2], b"", memoryview(rows)))
    with pytest.raises(ProtocolError, match="a block says it has 2 rows and has 3"):
        read([lie], arrow_schema("n bigint"))
