"""Where all instances go back to together, and that nothing visible lies behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, strategies as st

from clonos.errors import CheckpointMismatch, SnapshotCorrupt
from clonos.protocol.ids import LOG_BEGIN, Epoch, Origin, OutputNumber
from clonos.protocol.line.recovery_line import Point, RecoveryLine, Standing, first_unread
from clonos.protocol.line.rollback_line import rollback_line
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import Node, NodeKind, Topology

CHAIN = Topology(
    (
        Node(1, NodeKind.SOURCE, "in", 0),
        Node(2, NodeKind.OPERATOR, "first", 1, (1,)),
        Node(3, NodeKind.OPERATOR, "second", 1, (2,)),
        Node(4, NodeKind.SINK, "out", 1, (3,)),
    )
)
FIRST, SECOND, SINK = Origin.of(2, 0), Origin.of(3, 0), Origin.of(4, 0)
SOURCE = Origin.of(1, 0).channel


def point(name: str, sent: int | None, reached: dict[int, int]) -> Point:
    return Point(name, LOG_BEGIN, {} if sent is None else {0: OutputNumber(sent)}, reached)


def first(name: str, sent: int) -> Point:
    return point(name, sent, {SOURCE: 10 * sent})


def second(name: str, reached: int, sent: int) -> Point:
    return point(name, sent, {FIRST.channel: reached})


def sink(name: str, reached: int) -> Point:
    return point(name, None, {SECOND.channel: reached})


BASES = {FIRST: first("a", 2), SECOND: second("b", 2, 2), SINK: sink("c", 2)}


def line(
    inside: dict[Origin, list[Point]],
    visible: int,
    *,
    resumes: bool = True,
    recovery: RecoveryKind = RecoveryKind.COORDINATED,
) -> RecoveryLine:
    standings = {origin: Standing(base, inside.get(origin, [])) for origin, base in BASES.items()}
    cursors = {SINK: {SECOND.channel: visible}}
    return rollback_line(
        CHAIN, standings, cursors, generation=2, epoch=Epoch(1), resumes=resumes, recoveries=of(recovery)
    )


def of(recovery: RecoveryKind) -> Recoveries:
    return Recoveries.of(CHAIN, recovery)


def names(found: RecoveryLine) -> dict[Origin, str]:
    return {origin: one.name for origin, one in found.resumes.items()}


ROUND = {FIRST: [first("a1", 5)], SECOND: [second("b1", 5, 4)], SINK: [sink("c1", 4)]}


def test_all_begin_at_the_last_complete_round() -> None:
    later = {
        FIRST: [*ROUND[FIRST], first("a2", 9)],
        SECOND: [*ROUND[SECOND], second("b2", 9, 8)],
        SINK: ROUND[SINK],
    }
    assert names(line(ROUND, 4)) == names(line(later, 4)) == {FIRST: "a1", SECOND: "b1", SINK: "c1"}
    assert not line(ROUND, 4).resumes[SECOND].awaited_input, "nothing comes again that it has"


def test_without_a_complete_round_all_begin_where_the_epoch_does() -> None:
    found = line({FIRST: ROUND[FIRST], SINK: ROUND[SINK]}, 2)
    assert names(found) == {}
    assert found.bases == {FIRST: "a", SECOND: "b", SINK: "c"}


def test_a_receiver_does_not_begin_with_what_its_sender_would_make_again() -> None:
    """It would with causal logging, where the sender repeats exactly that."""
    assert names(line({SECOND: [second("b1", 5, 2)]}, 2)) == {}


@pytest.mark.parametrize(("inside", "resumes"), [({}, True), (ROUND, False)])
def test_what_is_visible_behind_the_line_is_never_made_again(
    inside: dict[Origin, list[Point]], resumes: bool
) -> None:
    with pytest.raises(CheckpointMismatch, match=r"sink 'out', instance 0, shows rows .* up to 4.* end at 2"):
        line(inside, 4, resumes=resumes)


def test_after_the_epoch_has_ended_as_the_hint_says_another_program_begins() -> None:
    ended = {FIRST: first("a", 5), SECOND: second("b", 5, 4), SINK: sink("c", 4)}
    standings = {origin: Standing(base) for origin, base in ended.items()}
    cursors = {SINK: {SECOND.channel: 4}}
    found = rollback_line(
        CHAIN,
        standings,
        cursors,
        generation=3,
        epoch=Epoch(2),
        resumes=False,
        recoveries=of(RecoveryKind.COORDINATED),
    )
    assert names(found) == {}


def test_a_sender_whose_checkpoint_is_gone_is_named() -> None:
    """An instance without input may have none in micro-batch, but not one whose rows others have, or that was sent
    some."""
    standings = {origin: Standing(base) for origin, base in BASES.items() if origin != FIRST}
    how = {"generation": 2, "epoch": Epoch(1), "resumes": True, "recoveries": of(RecoveryKind.BATCH)}
    with pytest.raises(SnapshotCorrupt, match="'second' has received rows up to 2 of instance 0 of 'first'"):
        rollback_line(CHAIN, {**standings, FIRST: Standing()}, {}, **how)
    idle = {FIRST: Standing(first("a", -1)), SECOND: Standing(), SINK: Standing()}
    assert rollback_line(CHAIN, idle, {}, **how).bases == {FIRST: "a"}


def test_a_receiver_whose_checkpoint_is_gone_is_named() -> None:
    standings = {origin: Standing(base) for origin, base in BASES.items()}
    how = {"generation": 2, "epoch": Epoch(1), "resumes": True, "recoveries": of(RecoveryKind.BATCH)}
    said = r"'first' has sent rows up to 2 to instance 0 of 'second', and no checkpoint .* 'second' ended the epoch"
    with pytest.raises(SnapshotCorrupt, match=said):
        rollback_line(CHAIN, {**standings, SECOND: Standing(second("b", 1, 2))}, {}, **how)


def test_rows_that_came_from_a_source_may_be_shown_again() -> None:
    """They are the same each time; the sink drops them."""
    direct = Topology((Node(1, NodeKind.SOURCE, "in", 0), Node(2, NodeKind.SINK, "out", 1, (1,))))
    standings = {Origin.of(2, 0): Standing()}
    cursors = {Origin.of(2, 0): {SOURCE: 9}}
    rollback_line(
        direct,
        standings,
        cursors,
        generation=2,
        epoch=Epoch(1),
        resumes=True,
        recoveries=of(RecoveryKind.COORDINATED),
    )


rising = st.lists(st.integers(0, 3), max_size=4).map(
    lambda steps: [sum(steps[: at + 1]) for at in range(len(steps))]
)


@given(sent=rising, taken=rising, passed=rising, held=rising)
def test_it_is_the_newest_line_of_which_nothing_is_lost_and_nothing_orphan(
    sent: list[int], taken: list[int], passed: list[int], held: list[int]
) -> None:
    points = _points(sent, taken, passed, held)
    newest = _newest(points, lambda sent, reached: sent == reached)
    assert names(line(points, 0)) == {origin: point.name for origin, point in newest.items()}


@given(sent=rising, taken=rising, passed=rising, held=rising)
def test_where_senders_keep_what_they_have_sent_nothing_is_orphan_and_the_rest_is_sent_again(
    sent: list[int], taken: list[int], passed: list[int], held: list[int]
) -> None:
    points = _points(sent, taken, passed, held)
    newest = _newest(points, lambda sent, reached: sent >= reached)
    found = line(points, 0, recovery=RecoveryKind.UNCOORDINATED)
    assert names(found) == {origin: point.name for origin, point in newest.items()}
    begins = {**BASES, **newest}
    for sender, reader in ((FIRST, SECOND), (SECOND, SINK)):
        if sender in newest:
            assert found.resumes[sender].unread == begins[reader].reached[sender.channel] + 1


def _points(
    sent: list[int], taken: list[int], passed: list[int], held: list[int]
) -> dict[Origin, list[Point]]:
    return {
        FIRST: [first(f"a{at}", 2 + number) for at, number in enumerate(sent)],
        SECOND: [
            second(f"b{at}", 2 + had, 2 + gave)
            for at, (had, gave) in enumerate(zip(taken, passed, strict=False))
        ],
        SINK: [sink(f"c{at}", 2 + number) for at, number in enumerate(held)],
    }


def _newest(points: dict[Origin, list[Point]], fits: Callable[[int, int], bool]) -> dict[Origin, Point]:
    """Of all lines whose channels fit, the newest, by the definition: those that begin inside the epoch."""
    choices = {origin: [BASES[origin], *points[origin]] for origin in BASES}
    consistent = []
    for picked in product(*(range(len(choices[origin])) for origin in BASES)):
        chosen = {origin: choices[origin][at] for origin, at in zip(BASES, picked, strict=True)}
        if all(
            fits(chosen[sender].sent[0], chosen[reader].reached[sender.channel])
            for sender, reader in ((FIRST, SECOND), (SECOND, SINK))
        ):
            consistent.append(picked)
    newest = tuple(max(each) for each in zip(*consistent, strict=True))
    assert newest in consistent, "there is one newest line"
    return {origin: choices[origin][at] for origin, at in zip(BASES, newest, strict=True) if at}


def cut(point: Point, upto: int) -> Point:
    """Its log of what was sent begins behind that row."""
    return replace(point, unkept={0: OutputNumber(upto)})


def test_a_sender_does_not_begin_where_it_has_cut_what_its_reader_lacks() -> None:
    """The reader's checkpoints are gone. From where the sender has all of it, it is sent again; else, it is made."""
    lacking = {FIRST: [first("a1", 4), cut(first("a2", 6), 4)], SINK: [sink("c1", 2)]}
    found = line(lacking, 2, recovery=RecoveryKind.UNCOORDINATED)
    assert names(found) == {FIRST: "a1", SINK: "c1"} and found.resumes[FIRST].unread == 3
    lacking[FIRST][0] = cut(first("a1", 4), 3)
    assert names(line(lacking, 2, recovery=RecoveryKind.UNCOORDINATED)) == {SINK: "c1"}


READING = {origin: BASES[origin] for origin in (FIRST, SECOND)}
"""The sink shows rows at once."""


def shown(visible: dict[int, int], cut_upto: int) -> RecoveryLine:
    inside = {FIRST: [first("a1", 6)], SECOND: [cut(second("b1", 6, 6), cut_upto)]}
    standings = {origin: Standing(base, inside[origin]) for origin, base in READING.items()}
    return rollback_line(
        CHAIN,
        standings,
        {SINK: visible},
        generation=2,
        epoch=Epoch(1),
        resumes=True,
        recoveries=of(RecoveryKind.EAGER),
    )


def test_a_sink_that_has_less_than_its_senders_have_kept_is_refused() -> None:
    """It was put back alone. What it lacks may be made again where nothing of the epoch is visible, and only there."""
    assert names(shown({SECOND.channel: 5}, cut_upto=5)) == {FIRST: "a1", SECOND: "b1"}
    said = rf"lost output: node 4, instance 0 .* channel {SECOND.channel} up to number 5 in the open epoch, .* to 4"
    with pytest.raises(CheckpointMismatch, match=said):
        shown({SECOND.channel: 4}, cut_upto=5)
    assert names(shown({SECOND.channel: 2}, cut_upto=5)) == {FIRST: "a1"}, "the second begins the epoch again"


def test_a_sink_that_has_lost_what_it_has_shown_of_a_round_is_refused() -> None:
    """What it holds begins behind that."""
    shows = replace(sink("c1", 6), shown={SECOND.channel: 5})
    inside = {FIRST: [first("a1", 6)], SECOND: [second("b1", 6, 6)], SINK: [shows]}
    assert names(line(inside, 5)) == {FIRST: "a1", SECOND: "b1", SINK: "c1"}
    said = rf"lost output: node 4, instance 0 .* channel {SECOND.channel} up to number 5 in the open epoch, .* to 4"
    with pytest.raises(CheckpointMismatch, match=said):
        line(inside, 4)
    assert names(line(inside, 2)) == {}, "nothing of the epoch is visible: it is done again"


def test_a_sink_in_a_new_place_need_not_have_what_was_shown_elsewhere() -> None:
    """As the hint says that a lost sink may be."""
    found = shown({}, cut_upto=5)
    assert names(found) == {FIRST: "a1", SECOND: "b1"}, "nothing is made again"
    assert found.resumes[SECOND].unread == 0, "what is kept is sent there"
    shows = replace(sink("c1", 6), shown={SECOND.channel: 5})
    inside = {FIRST: [first("a1", 6)], SECOND: [second("b1", 6, 6)], SINK: [shows]}
    standings = {origin: Standing(base, inside[origin]) for origin, base in BASES.items()}
    how = {"generation": 2, "epoch": Epoch(1), "resumes": True, "recoveries": of(RecoveryKind.COORDINATED)}
    found = rollback_line(CHAIN, standings, {SINK: {}}, **how)
    assert names(found) == {FIRST: "a1", SECOND: "b1", SINK: "c1"}, "where the sink holds its rows, too"


def test_rows_of_one_reader_are_not_sent_again_for_the_sake_of_another() -> None:
    assert first_unread({0: OutputNumber(9), 1: OutputNumber(4)}, [6, 4]) == 7
    assert first_unread({0: OutputNumber(9), 1: OutputNumber(4)}, [9, 2]) == 3
    assert first_unread({0: OutputNumber(9), 1: OutputNumber(4)}, [9, 4]) == 10, "none lacks any"
    assert first_unread({}, [-1]) == 1
    assert first_unread({0: OutputNumber(9), 5: OutputNumber(12)}, [9]) == 13, (
        "a reader that is not there any more"
    )
