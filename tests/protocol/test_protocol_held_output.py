"""Held output: seen in order, with its round or its epoch, and once."""

from __future__ import annotations

from hypothesis import given, strategies as st

from clonos.protocol.engine.output_commit import Write
from clonos.protocol.ids import NO_EPOCH, Epoch, Origin
from clonos.protocol.ingestion import Ingested
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.rollback.held_output import HeldOutput, SinkCheckpoint
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos.protocol.recovery.rollback.sink_progress import SinkEnd, with_held

CHANNEL = 2


def write(*positions: int) -> Write:
    rows = [(f"row {at}",) for at in positions]
    ids = [f"2-0-{at}" for at in positions]
    return Write(rows, ids, {CHANNEL: positions[-1]}, [], [Ingested(CHANNEL, len(positions), 7)])


def marked(epoch: int, round: int) -> StoredRound:
    return StoredRound(Epoch(epoch), Round(round))


def numbers(shown: Write | None) -> list[str]:
    return [] if shown is None else shown.ids


def taken(held: HeldOutput, rounds: Rounds) -> Write | None:
    return held.take(rounds.committed, rounds.safe_for(Origin.of(4, 0)))


def test_rows_are_seen_with_their_round() -> None:
    held = HeldOutput()
    held.hold(write(1, 2), Epoch(0))
    held.mark(marked(0, 1))
    held.hold(write(3), Epoch(0))
    assert taken(held, Rounds(Round(1))) is None
    shown = taken(held, Rounds(Round(2), marked(0, 1)))
    assert numbers(shown) == ["2-0-1", "2-0-2"] and held.rows == 1
    held.mark(marked(0, 2))
    assert numbers(taken(held, Rounds(Round(3), marked(0, 3)))) == ["2-0-3"], "a later round has it, too"


def test_rows_are_seen_with_their_epoch() -> None:
    held = HeldOutput()
    held.hold(write(1), Epoch(0))
    held.hold(write(2), Epoch(1))
    assert numbers(taken(held, Rounds(committed=Epoch(0)))) == ["2-0-1"]
    assert taken(held, Rounds(committed=Epoch(0))) is None
    assert numbers(held.take_all()) == ["2-0-2"]


def test_a_round_that_was_complete_in_an_earlier_epoch_shows_nothing_of_a_later_one() -> None:
    """A process that took the place of another between two epochs has taken its checkpoint of the round again."""
    held = HeldOutput()
    held.hold(write(1), Epoch(0))
    held.mark(marked(1, 1))
    assert taken(held, Rounds(Round(1), marked(0, 1))) is None
    assert numbers(taken(held, Rounds(Round(2), marked(1, 2)))) == ["2-0-1"]


def test_what_is_shown_together_is_one_write() -> None:
    held = HeldOutput()
    held.hold(write(1, 2), Epoch(0))
    held.hold(write(5), Epoch(0))
    shown = taken(held, Rounds(committed=Epoch(0)))
    assert shown == Write(
        [("row 1",), ("row 2",), ("row 5",)],
        ["2-0-1", "2-0-2", "2-0-5"],
        {CHANNEL: 5},
        [],
        [Ingested(CHANNEL, 2, 7), Ingested(CHANNEL, 1, 7)],
    )


@given(
    writes=st.lists(st.integers(1, 3), max_size=12),
    epochs=st.lists(st.booleans(), min_size=12, max_size=12),
    marks=st.lists(st.booleans(), min_size=12, max_size=12),
    says=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(-1, 5)), max_size=12),
)
def test_whatever_is_said_rows_come_in_their_order_and_once(
    writes: list[int], epochs: list[bool], marks: list[bool], says: list[tuple[int, int, int]]
) -> None:
    held, last, epoch, round = HeldOutput(), 0, 0, 0
    for count, ends, is_marked in zip(writes, epochs, marks, strict=False):
        held.hold(write(*range(last + 1, last + count + 1)), Epoch(epoch))
        last += count
        if is_marked:
            round += 1
            held.mark(marked(epoch, round))
        epoch += ends
    seen: list[str] = []
    for inside, complete, committed in says:
        seen += numbers(taken(held, Rounds(Round(9), marked(inside, complete), Epoch(committed))))
        restored = HeldOutput(held.writes)  # a process ends, and another goes on from the checkpoint
        restored.seen({CHANNEL: len(seen)})
        assert restored.writes == held.writes
        held = restored
    seen += numbers(held.take_all())
    assert seen == [f"2-0-{at}" for at in range(1, last + 1)]


def test_what_a_store_has_is_not_held_any_more() -> None:
    held = HeldOutput()
    held.hold(write(1, 2), Epoch(0))
    held.hold(write(3), Epoch(0))
    held.seen({CHANNEL: 2})
    assert numbers(held.take_all()) == ["2-0-3"]


def test_a_sink_has_come_as_far_as_it_holds() -> None:
    checkpoint = SinkCheckpoint(Epoch(0), shown={CHANNEL: 2}, covered={CHANNEL: 5})
    assert checkpoint.reached({CHANNEL: 2}) == checkpoint.reached({CHANNEL: 7}) == {CHANNEL: 5}
    assert checkpoint.reached({CHANNEL: 1}) == {CHANNEL: 1}, "what the store has lost is lost"
    assert checkpoint.reached({}) == {}


def test_what_is_certain_to_be_seen_counts_as_visible() -> None:
    sink, other = Origin.of(4, 0), Origin.of(4, 1)
    end = SinkEnd("name", SinkCheckpoint(Epoch(0), covered={CHANNEL: 5}))
    assert with_held({other: {CHANNEL: 3}}, {sink: end}) == {sink: {CHANNEL: 5}, other: {CHANNEL: 3}}
    assert with_held({sink: {CHANNEL: 9}}, {sink: end}) == {sink: {CHANNEL: 9}}
    assert Rounds().committed == NO_EPOCH
