"""The recovery line, and what an instance must hold to resume from it."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace

import pytest
from harness import Bench

from clonos.errors import LogConflict, ResumeFailed, Where
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot, still_awaited
from clonos.protocol.fence import Fence, Generation
from clonos.protocol.ids import Epoch, NodeId, Origin
from clonos.protocol.line.recovery_line import (
    Point,
    RecoveryLine,
    Resume,
    Standing,
    recovery_line,
)
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.recovery.causal.delta import encode_delta, encode_entry
from clonos.protocol.recovery.causal.holding import HolderReply
from clonos.protocol.recovery.causal.own_log import OwnLog
from clonos.protocol.recovery.causal.resumption import check_resumable, check_same_history
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import Node, NodeKind, Topology

HERE = Where("op", 0, 5)
CHAIN = Topology(
    (
        Node(1, NodeKind.SOURCE, "in", 0),
        Node(2, NodeKind.OPERATOR, "first", 1, (1,)),
        Node(3, NodeKind.OPERATOR, "second", 1, (2,)),
        Node(4, NodeKind.SINK, "out", 1, (3,)),
    )
)
FIRST, SECOND, SINK = Origin(2, 0), Origin(3, 0), Origin(4, 0)
SOURCE = Origin(1, 0).channel


def first(name: str, sent: int) -> Point:
    return Point(name, sent * 10, {0: sent}, {SOURCE: sent})


def second(name: str, sent: int, reached: int) -> Point:
    return Point(name, sent * 10, {0: sent}, {FIRST.channel: reached})


def line(standings: dict[Origin, Standing], cursor: int | None) -> RecoveryLine:
    cursors = {SINK: {SECOND.channel: cursor}} if cursor is not None else {}
    return recovery_line(CHAIN, standings, cursors, generation=2, epoch=5)


def names(found: RecoveryLine) -> dict[Origin, str]:
    return {origin: one.name for origin, one in found.resumes.items()}


BASES = {FIRST: first("a", 10), SECOND: second("b", 8, 10)}


def standing(points: dict[Origin, list[Point]]) -> dict[Origin, Standing]:
    return {origin: Standing(base, points.get(origin, [])) for origin, base in BASES.items()}


def test_a_sender_begins_with_nothing_that_its_receiver_lacks() -> None:
    both = standing(
        {
            FIRST: [first("a1", 15), first("a2", 20), first("a3", 30)],
            SECOND: [second("b1", 9, 12), second("b2", 12, 21), second("b3", 20, 29)],
        }
    )
    assert names(line(both, 12)) == {FIRST: "a2", SECOND: "b2"}
    assert names(line(both, 20)) == {FIRST: "a2", SECOND: "b3"}
    assert names(line(both, 9)) == {SECOND: "b1"}  # the first would be ahead: it begins with the epoch


def test_a_line_says_how_far_logs_are_needed_for_its_snapshots() -> None:
    """Of those that are chosen; an instance that begins with the epoch depends on nothing inside it."""
    far, near = (
        replace(second("b2", 12, 15), received={FIRST: 150}),
        replace(second("b1", 9, 12), received={FIRST: 120}),
    )
    inside = {FIRST: [first("a1", 15)], SECOND: [near, far]}
    found = line(standing(inside), 12)
    assert names(found) == {FIRST: "a1", SECOND: "b2"} and found.needs == {FIRST: 150}
    assert found.needed(FIRST, generation=2, epoch=5) == 150
    assert found.needed(FIRST, generation=2, epoch=6) == found.needed(FIRST, generation=3, epoch=5) == 0
    assert line(standing(inside), 9).needs == {FIRST: 120}
    assert line(standing(inside), None).needs == {}


def test_a_sender_begins_with_nothing_that_one_of_its_receivers_lacks() -> None:
    """Two operators of two instances, and a sink, read the first one: its destinations are numbered through."""
    third, rows = Origin(4, 1), Origin(5, 0)
    diamond = Topology(
        (
            Node(1, NodeKind.SOURCE, "in", 0),
            Node(2, NodeKind.OPERATOR, "first", 1, (1,)),
            Node(3, NodeKind.OPERATOR, "second", 2, (2,)),
            Node(4, NodeKind.OPERATOR, "third", 2, (2,)),
            Node(5, NodeKind.SINK, "out", 1, (2, 3, 4)),
        )
    )
    assert [diamond.destination(2, origin) for origin in (SECOND, third, rows, FIRST)] == [0, 3, 4, None]
    assert [diamond.receiver(2, to) for to in range(6)] == [
        SECOND, Origin(3, 1), Origin(4, 0), third, rows, None,
    ]  # fmt: skip
    inside = [Point(f"a{n}", n * 10, {0: n, 3: n - 1, 4: n}, {SOURCE: n}) for n in (12, 15, 20)]

    def chosen(second: int, third_at: int, cursor: int) -> tuple[str | None, dict[int, int]]:
        standings = {
            FIRST: Standing(Point("a", 100, {0: 10, 3: 9, 4: 10}, {SOURCE: 10}), inside),
            SECOND: Standing(Point("b", 0, {}, {}), [Point("b1", 1, {}, {FIRST.channel: second})]),
            third: Standing(Point("c", 0, {}, {}), [Point("c1", 1, {}, {FIRST.channel: third_at})]),
        }
        cursors = {rows: {FIRST.channel: cursor}}
        found = recovery_line(diamond, standings, cursors, generation=2, epoch=5)
        return names(found).get(FIRST), dict(found.resumes[third].awaited_input)

    assert chosen(20, 19, 20) == ("a20", {})
    assert chosen(20, 14, 20) == ("a15", {})
    assert chosen(15, 19, 20) == ("a15", {FIRST.channel: 19})
    assert chosen(20, 19, 14) == ("a12", {FIRST.channel: 19})
    assert chosen(11, 19, 20) == (None, {FIRST.channel: 19})


def test_without_a_cursor_nothing_is_guessed() -> None:
    inside = {FIRST: [first("a1", 15)], SECOND: [second("b1", 9, 15)]}
    assert names(line(standing(inside), None)) == {}


def test_a_receiver_is_owed_what_its_sender_sends_again() -> None:
    inside = {FIRST: [first("a1", 12)], SECOND: [second("b1", 9, 20)]}
    found = line(standing(inside), 9)
    assert found.resumes[SECOND] == Resume("b1", {FIRST.channel: 20})
    assert found.resumes[FIRST].awaited_input == {}  # Spark reads sources again
    assert found.truncation_points == {FIRST: 100, SECOND: 80}
    exact = line(standing({FIRST: [first("a1", 12)], SECOND: [second("b1", 9, 12)]}), 9)
    assert exact.resumes[SECOND].awaited_input == {}
    alone = line(standing({SECOND: [second("b1", 9, 12)]}), 9)
    assert alone.resumes[SECOND].awaited_input == {FIRST.channel: 12}
    assert still_awaited({7: 12, 8: 3}, {7: 12}) == {8: 3}


def test_a_line_is_of_one_start_and_one_epoch() -> None:
    found = line(standing({SECOND: [second("b1", 8, 12)]}), 8)
    assert found.resume(SECOND, generation=2, epoch=5) is not None
    assert found.resume(SECOND, generation=3, epoch=5) is None
    assert found.resume(SECOND, generation=2, epoch=6) is None
    assert found.resume(FIRST, generation=2, epoch=5) is None


def inside(generation: int, sequence: int) -> Point:
    return first(str(SnapshotName(Epoch(5), Fence.of(generation, 1), sequence, False)), sequence)


def test_of_what_was_there_before_the_last_start_only_what_it_chose_may_be_begun_with() -> None:
    """What it ran from an earlier point, a newer snapshot of another instance depends on as it was before."""
    old, older, new = inside(1, 8), inside(1, 7), inside(2, 3)
    passed_over = RecoveryLine(Generation(2), Epoch(5))
    assert passed_over.counting(FIRST, [older, old, new]) == [new]
    chosen = replace(passed_over, resumes={FIRST: Resume(older.name)})
    assert chosen.counting(FIRST, [older, old, new]) == [older, new]
    assert chosen.counting(SECOND, [older, old]) == []


def snapshot(log: bytes, received: int) -> InstanceSnapshot:
    return InstanceSnapshot(
        epoch=5,
        covered={},
        emitted=0,
        log_offset=100 + len(log),
        epoch_log_offset=100,
        boundary=5,
        random_state=random.Random(1).getstate(),
        watermark=None,
        received={Origin(1, 0): received},
        log_digest=zlib.crc32(log),
    )


def held(start: int, stop: int) -> bytes:
    return encode_delta([encode_entry(Origin(1, 0), start, stop - start, 1, bytes(stop - start))])


def test_resuming_takes_all_that_the_state_depends_on() -> None:
    truncation_points = {Origin(1, 0): 40}
    taken = snapshot(b"history", 60)
    check_resumable(taken, [(90, b"before....history")], [held(30, 70)], truncation_points, where=HERE)
    check_resumable(
        taken, [(100, b"his"), (103, b"tory")], [held(40, 50), held(50, 60)], truncation_points, where=HERE
    )
    with pytest.raises(ResumeFailed, match="known up to 103, not 107"):
        check_resumable(taken, [(100, b"his")], [held(40, 60)], truncation_points, where=HERE)
    with pytest.raises(ResumeFailed, match="overtaken"):
        check_resumable(taken, [(100, b"another")], [held(40, 60)], truncation_points, where=HERE)
    for lacking in ([], [held(40, 59)], [held(45, 60)]):
        with pytest.raises(ResumeFailed, match="depends on the log of 1/0 up to 60"):
            check_resumable(taken, [(100, b"history")], lacking, truncation_points, where=HERE)
    check_resumable(snapshot(b"", 40), [], [], truncation_points, where=HERE)


def test_a_store_of_another_history_than_the_snapshot_ends_the_query_or_only_the_resumption() -> None:
    taken = snapshot(b"history", 60)
    check_same_history(taken, [(90, b"before....history and more")], resumes=False, where=HERE)
    check_same_history(taken, [(100, b"his"), (103, b"tory")], resumes=False, where=HERE)
    check_same_history(taken, [], resumes=False, where=HERE)
    # It does not reach as far as the snapshot
    check_same_history(taken, [(100, b"anoth")], resumes=False, where=HERE)
    # Of an older version
    check_same_history(replace(taken, log_digest=0), [(100, b"another")], resumes=False, where=HERE)
    with pytest.raises(ResumeFailed, match="another history of the epoch"):
        check_same_history(taken, [(90, b"before....another")], resumes=True, where=HERE)
    with pytest.raises(LogConflict, match="another history of epoch 5") as raised:
        check_same_history(taken, [(90, b"before....another")], resumes=False, where=HERE)
    assert "aside" in str(raised.value)


def records(*positions: int) -> list[tuple[int, int, tuple[object, ...]]]:
    return [(FIRST.channel, position, ("k", position, ("emit",))) for position in positions]


def test_an_epoch_does_not_end_before_what_it_was_resumed_from() -> None:
    before = Bench(random.Random(1))
    before.open(epoch=5)
    before.take(records(1, 2, 3))
    taken = before.instance.snapshot()
    taken.awaited_input = {FIRST.channel: 3}
    again = Bench(random.Random(2))
    again.saved = [(0, before.log)]
    again.restore(b"", taken)
    again.open(epoch=5)
    again.take(records(1, 2))
    assert again.instance.snapshot().awaited_input == {FIRST.channel: 3}
    with pytest.raises(ResumeFailed, match="has record 3 of 2/0, which the epoch ends before"):
        again.instance.end_epoch()
    again.take(records(3, 4))
    again.carry_out(again.instance.end_epoch())
    assert again.instance.snapshot().awaited_input == {}


def test_rows_count_as_sent_although_they_are_suppressed() -> None:
    before = Bench(random.Random(1))
    before.open(epoch=5)
    before.take(records(1, 2, 3))
    again = Bench(random.Random(2))
    again.restore(before.log)
    again.open(epoch=5, emitted_output=2)
    again.take(records(1, 2, 3))
    taken = again.instance.snapshot()
    assert taken.sent == before.instance.snapshot().sent
    assert max(taken.sent.values()) == 3
    assert taken.log_digest == before.instance.snapshot().log_digest == zlib.crc32(before.log)


def test_a_holder_of_another_history_is_believed_up_to_the_epoch_of_the_snapshot() -> None:
    mark = snapshot(b"history", 60).history
    mine, other = [(90, b"before....history and more")], [(90, b"before...."), (100, b"another and more")]
    for pieces in (mine, [(100, b"anoth")], [(107, b" and more")], []):
        reply = HolderReply("a store", pieces, required=120, own=(OwnLog(pieces),))
        assert reply.of_history(mark) == reply
        assert reply.of_history(None) == reply
    stale = HolderReply("a store", other, required=120, own=(OwnLog(other), OwnLog(mine))).of_history(mark)
    assert stale == HolderReply("a store", [other[0]], required=100, own=(OwnLog([other[0]]), OwnLog(mine)))
    both = HolderReply("a store", mine + other)
    assert both.of_history(mark) == both  # the recovery that puts the log together finds two histories in it


def beside_eager(standings: dict[Origin, Standing], eager: int, cursor: int = -1) -> RecoveryLine:
    recoveries = Recoveries.of(CHAIN, RecoveryKind.CAUSAL, {NodeId(eager): RecoveryKind.EAGER})
    cursors = {SINK: {SECOND.channel: cursor}}
    return recovery_line(CHAIN, standings, cursors, generation=2, epoch=5, recoveries=recoveries)


def test_a_sender_that_repeats_begins_before_what_an_eager_reader_has() -> None:
    """And repeats as much of its log as the reader's checkpoint depends on."""
    taken = replace(second("b2", 9, 14), received={FIRST: 140})
    found = beside_eager({FIRST: Standing(BASES[FIRST]), SECOND: Standing(BASES[SECOND], [taken])}, 3)
    assert names(found) == {SECOND: "b2"}
    assert found.resumes[SECOND].awaited_input == {FIRST.channel: 14}
    assert found.needs == {FIRST: 140}


def test_what_the_beginning_of_an_eager_instance_depends_on_is_repeated_too() -> None:
    """The epoch before may have come out shorter than its sender's log."""
    base = replace(BASES[SECOND], received={FIRST: 120})
    standings = {FIRST: Standing(BASES[FIRST]), SECOND: Standing(base)}
    assert beside_eager(standings, 3).needs == {FIRST: 120}
    assert line(standings, None).needs == {}, "one that repeats asks for it itself"


def test_an_eager_sender_is_not_repeated_and_sends_again_what_it_has_kept() -> None:
    """A reader that repeats begins no later than with what the sender's newest checkpoint has sent."""
    inside = [second("b1", 9, 12), second("b2", 11, 14)]
    found = beside_eager(
        {FIRST: Standing(BASES[FIRST], [first("a1", 13)]), SECOND: Standing(BASES[SECOND], inside)}, 2, 20
    )
    assert names(found) == {FIRST: "a1", SECOND: "b1"}
    assert found.resumes[FIRST].unread == 13
