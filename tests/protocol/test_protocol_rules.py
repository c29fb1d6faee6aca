"""The small rules: destinations, frontiers, arrivals, recovery, sinks, the shape of a query."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from clonos.errors import GapError, InputError, LogConflict, Where
from clonos.protocol.engine.instance import Bundle
from clonos.protocol.engine.output_commit import SinkInstance
from clonos.protocol.event_time import is_late, later
from clonos.protocol.frontier import Arrivals, Frontier, runs_of
from clonos.protocol.ids import Origin, channel_id
from clonos.protocol.recovery.causal.delta import encode_delta, encode_entry
from clonos.protocol.recovery.causal.longest_prefix import HolderReply, longest_prefix

quick = settings(max_examples=60, deadline=None)


# ------------------------------------------------------- frontiers, arrivals


@quick
@given(st.lists(st.integers(1, 3), max_size=30))
def test_runs_are_run_lengths(channels: list[int]) -> None:
    wanted = [(channel, len(list(group))) for channel, group in groupby(channels)]
    assert runs_of(channels) == wanted
    assert runs_of(np.array(channels, np.int64)) == wanted


@quick
@given(st.integers(-5, 40) | st.none(), st.sets(st.integers(0, 40), min_size=1).map(sorted))
def test_uncovered_positions(covered: int | None, positions: list[int]) -> None:
    frontier = Frontier({} if covered is None else {7: covered})
    skip = frontier.uncovered_from(7, positions)
    assert positions[skip:] == [at for at in positions if covered is None or at > covered]


bundles = st.lists(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 15)), min_size=1, max_size=6), max_size=5
)


@quick
@given(bundles)
def test_arrivals_strictly_increase_on_every_channel(given_bundles: list[list[tuple[int, int]]]) -> None:
    """I5, for lists and for columns alike."""
    last: dict[int, int] = defaultdict(lambda: -1)
    by_list, by_column = Arrivals(Where("op", 0)), Arrivals(Where("op", 0))
    for bundle in given_bundles:
        wrong = False
        for channel, position in bundle:
            wrong = wrong or position <= last[channel]
            last[channel] = position
        channels, positions = zip(*bundle, strict=True)

        def check(channels: Any = channels, positions: Any = positions) -> None:
            at = 0
            for channel, count in runs_of(list(channels)):
                by_list.check(channel, positions[at : at + count])
                at += count

        def check_columns(channels: Any = channels, positions: Any = positions) -> None:
            by_column.check_columns(np.array(channels), np.array(positions))

        for way in (check, check_columns):
            if wrong:
                with pytest.raises(InputError):
                    way()
            else:
                way()
        if wrong:
            return


def test_refused_arrival_says_what_and_where() -> None:
    arrivals = Arrivals(Where("op", 3, 9))
    arrivals.check(channel_id(1, 4), [5, 6])
    with pytest.raises(
        InputError, match=r"the same position twice.*node 1, partition 4.*operator 'op'.*position 6"
    ):
        arrivals.check(channel_id(1, 4), [6])
    with pytest.raises(InputError, match="a step back from 6"):
        arrivals.check(channel_id(1, 4), [2])


# ------------------------------------------------------------------ recovery

LOG = bytes(range(100))
ORIGIN = Origin(2, 1)
HERE = Where("op", 1, 4)
held = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 60)), max_size=4), st.integers(0, 120)),
    max_size=4,
)


@quick
@given(held, st.integers(0, 60))
def test_longest_prefix_of_any_holders(replies: list[tuple[list[tuple[int, int]], int]], start: int) -> None:
    answers = [
        HolderReply(f"h{n}", [(at, LOG[at : at + length]) for at, length in pieces], required)
        for n, (pieces, required) in enumerate(replies)
    ]
    known = {at for answer in answers for s, data in answer.segments for at in range(s, s + len(data))}
    reached = start
    while reached in known:
        reached += 1
    required = max([start, *(at + 1 for at in known), *(answer.required for answer in answers)])
    if reached < required:
        with pytest.raises(GapError, match=f"log bytes {reached}..{required} of 2/1"):
            longest_prefix(ORIGIN, start, answers, where=HERE)
    else:
        assert longest_prefix(ORIGIN, start, answers, where=HERE) == LOG[start:reached]


def test_gap_says_who_was_asked_and_what_to_do() -> None:
    with pytest.raises(
        GapError, match=r"asked: sink, store.*operator 'op', instance 1, epoch 4.*at_least_once"
    ):
        longest_prefix(
            ORIGIN, 0, [HolderReply("sink", [], 10), HolderReply("store", [(0, LOG[:9])])], where=HERE
        )
    with pytest.raises(GapError, match="no holder has"):
        longest_prefix(ORIGIN, 0, [HolderReply("sink", [(1, b"a")])], where=HERE)


def test_conflicting_holders_are_named() -> None:
    replies = [HolderReply("a", [(0, b"abc")]), HolderReply("b", [(0, b"abX")])]
    with pytest.raises(LogConflict, match=r"holder b disagrees with a about the log of 2/1"):
        longest_prefix(ORIGIN, 0, replies, where=HERE)


def test_what_lies_before_the_snapshot_does_not_matter() -> None:
    replies = [HolderReply("a", [(0, b"abc")]), HolderReply("b", [(0, b"Xbc"), (2, b"cd")], 2)]
    assert longest_prefix(ORIGIN, 2, replies, where=HERE) == b"cd"
    assert longest_prefix(ORIGIN, 50, [], where=HERE) == b""


# --------------------------------------------------------------------- sinks


def delta(start: int, data: bytes) -> bytes:
    return encode_delta([encode_entry(Origin(2, 0), start, len(data), 1, data)])


def test_sink_writes_each_row_once_with_its_determinants() -> None:
    a, b = channel_id(2, 0), channel_id(2, 1)
    sink = SinkInstance("sink", 0, {a: 5})
    sink.open_epoch(0)
    write = sink.take(Bundle([a, a, b], [5, 6, 1], [("old",), ("new",), ("b",)], [delta(0, b"x")]))
    assert write is not None
    assert write.rows == [("new",), ("b",)]
    assert write.ids == ["2-0-6", "2-1-1"]
    assert write.cursors == {a: 6, b: 1}
    assert write.deltas == [delta(0, b"x")]


def test_sink_drops_what_is_visible_but_not_determinants_that_are_new() -> None:
    a = channel_id(2, 0)
    sink = SinkInstance("sink", 0, {a: 5}, [delta(0, b"xy")])
    sink.open_epoch(0)
    assert sink.take(Bundle([a], [4], [("old",)], [delta(0, b"xy")])) is None
    write = sink.take(Bundle([a], [5], [("old",)], [delta(2, b"z")]))
    assert write is not None
    assert (write.rows, write.cursors, write.deltas) == ([], {}, [delta(2, b"z")])


def test_sink_refuses_a_step_back_within_an_attempt() -> None:
    a = channel_id(2, 0)
    sink = SinkInstance("sink", 7, {})
    sink.open_epoch(3)
    sink.take(Bundle([a], [4], [("x",)]))
    with pytest.raises(InputError, match="operator 'sink', instance 7, epoch 3"):
        sink.take(Bundle([a], [3], [("x",)]))
    sink.open_epoch(3)
    assert sink.take(Bundle([a], [3], [("x",)])) is None


def test_late_is_at_or_before_the_watermark_in_milliseconds() -> None:
    assert not is_late(0, None)
    assert is_late(5_000, 5_999) and not is_late(5_001, 5_999)
    assert later(None, None) is None and later(None, 3) == 3 and later(5, 3) == 5 and later(5, 7) == 7
