"""Counters at their ends: what fits is done, what comes after the last number is refused."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from harness import ORIGIN, Bench, chunk_ends

from clonos.errors import CheckpointMismatch, CounterExhausted, InputError, Where
from clonos.protocol.counters import LAST_LONG
from clonos.protocol.engine.bundle_gap_detector import BundleGapDetector
from clonos.protocol.engine.instance import Bundle
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.fence import Fence
from clonos.protocol.frontier import Arrivals, Frontier, runs_of
from clonos.protocol.ids import LOCAL_MAX, NODE_MAX, channel_id, channel_origin
from clonos.protocol.line.kept_commit import KeptCommit
from clonos.protocol.recovery.causal.delta import decode_delta, encode_delta, encode_entry
from clonos.protocol.source_channels import ChannelNumbers, Numbered

CHANNEL = channel_id(1, 0)
ROW = ("a", 0, ("clock", "emit"))
STEP = Bundle([CHANNEL], [2], [ROW], [])


def stood() -> tuple[InstanceSnapshot, int]:
    """An instance after one step, and how long the log of a step like it is."""
    bench = Bench(random.Random(1))
    bench.restore(b"")
    bench.open()
    bench.take([(CHANNEL, 1, ROW)])
    ends = chunk_ends(bench.log)
    return bench.instance.snapshot(), ends[-1] - ends[-2]


def resumed(snapshot: InstanceSnapshot) -> Bench:
    bench = Bench(random.Random(2))
    bench.saved = [(snapshot.log_offset, b"")]
    bench.restore(b"", snapshot)
    bench.open(snapshot.epoch)
    return bench


def test_the_log_ends_at_the_last_offset() -> None:
    snapshot, length = stood()
    last = LAST_LONG - length
    fits = resumed(replace(snapshot, log_offset=last, epoch_log_offset=last))
    fits.take([(CHANNEL, 2, ROW)])
    assert fits.instance.log_offset == LAST_LONG and len(fits.rows) == 1
    full = resumed(replace(snapshot, log_offset=last + 1, epoch_log_offset=last + 1))
    with pytest.raises(CounterExhausted, match=r"the offset in the causal log would go beyond \d+.*epoch 0"):
        full.instance.take(STEP)


def test_the_last_output_row_has_the_last_number() -> None:
    snapshot, _ = stood()
    fits = resumed(replace(snapshot, emitted=LAST_LONG - 1))
    fits.take([(CHANNEL, 2, ROW)])
    assert fits.instance.emitted_output == LAST_LONG and len(fits.rows) == 1
    with pytest.raises(CounterExhausted, match="the number of the output row would go beyond"):
        fits.instance.take(replace(STEP, positions=[3]))


@pytest.mark.parametrize("as_array", [False, True])
def test_the_last_positions_of_the_last_channel_are_told_apart(as_array: bool) -> None:
    channel = channel_id(NODE_MAX, LOCAL_MAX)
    assert channel < LAST_LONG and channel_origin(channel) == (NODE_MAX, LOCAL_MAX)
    arrivals, frontier = Arrivals(Where("op", 0)), Frontier()
    for first in (LAST_LONG - 3, LAST_LONG - 1):
        channels, positions = [channel] * 2, [first, first + 1]
        runs = runs_of(np.array(channels) if as_array else channels)
        if as_array:
            assert arrivals.check_columns(np.array(channels), np.array(positions)) == {channel: first}
        else:
            arrivals.check(channel, positions)
        assert frontier.uncovered_from(channel, positions) == 0
        frontier.cover(runs, np.array(positions) if as_array else positions)
    assert frontier.covered == {channel: LAST_LONG}
    assert frontier.uncovered_from(channel, [LAST_LONG - 1, LAST_LONG]) == 2
    with pytest.raises(InputError, match="the same position twice"):
        arrivals.check(channel, [LAST_LONG])


def test_the_last_name_has_the_last_channel_number() -> None:
    numbers = ChannelNumbers([Numbered(1, LOCAL_MAX - 1, "the one before")])
    (last,) = numbers.assign([(1, "last")])
    assert last.number == LOCAL_MAX
    numbers.add([last])
    assert numbers.assign([(1, "last")]) == []
    with pytest.raises(CheckpointMismatch, match="source node 1 has no channel number left for 'one more'"):
        numbers.assign([(1, "one more")])


def test_the_last_bundle_is_taken_and_none_after_it() -> None:
    bundles, where = BundleGapDetector(LAST_LONG - 1), Where("op", 0)
    bundles.take(LAST_LONG, where)
    assert bundles.upto == LAST_LONG
    with pytest.raises(CounterExhausted, match="the number of the bundle would go beyond"):
        bundles.take(LAST_LONG + 1, where)


def test_a_delta_holds_the_last_offset() -> None:
    raw = encode_delta(
        [encode_entry(ORIGIN, LAST_LONG - 3, 3, 1, b"end"), encode_entry(ORIGIN, 0, LAST_LONG, 2, None)]
    )
    assert [(entry.start, entry.end) for entry in decode_delta(raw)] == [
        (LAST_LONG - 3, LAST_LONG),
        (0, LAST_LONG),
    ]


def test_the_last_epoch_is_kept_by_a_sink_and_none_after_it() -> None:
    last = KeptCommit(Fence.of(1), LAST_LONG, b"record")
    assert KeptCommit.unpack(last.pack(), "the sink") == last
    with pytest.raises(CounterExhausted, match="the epoch would go beyond"):
        replace(last, epoch=LAST_LONG + 1).pack()
