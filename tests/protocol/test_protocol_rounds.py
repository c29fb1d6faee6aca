"""Rounds of coordinated checkpoints: when one begins, is complete, or comes to nothing."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, strategies as st

from clonos.protocol.ids import NO_EPOCH, Epoch, Origin, OutputNumber
from clonos.protocol.recovery.coordinated.round_coordinator import RoundCoordinator
from clonos.protocol.recovery.marker import NO_ROUND, Round
from clonos.protocol.recovery.rollback.round_relay import RoundRelay
from clonos.protocol.recovery.rollback.rounds import (
    NOTHING_STORED,
    Rounds,
    SafePoint,
    StoredRound,
)

ONE, TWO = Origin.of(2, 0), Origin.of(3, 0)
BOTH = [ONE, TWO]


def stored(epoch: int, round: int, *origins: Origin) -> dict[Origin, StoredRound]:
    return dict.fromkeys(origins, StoredRound(Epoch(epoch), Round(round)))


def test_a_round_is_complete_when_all_have_stored_it() -> None:
    rounds = RoundCoordinator(BOTH, interval=1.0)
    assert rounds.look(0.0, NO_EPOCH) == Rounds(begun=Round(1))
    rounds.told(stored(0, 1, ONE))
    assert rounds.look(5.0, NO_EPOCH).complete == NOTHING_STORED, "and no other one begins"
    rounds.told(stored(0, 1, TWO))
    assert rounds.look(5.0, NO_EPOCH) == Rounds(Round(2), StoredRound(Epoch(0), Round(1)))


def test_rounds_begin_at_the_interval() -> None:
    rounds = RoundCoordinator(BOTH, interval=2.0)
    rounds.look(0.0, NO_EPOCH)
    rounds.told(stored(0, 1, *BOTH))
    assert rounds.look(1.9, NO_EPOCH).begun == 1
    assert rounds.look(2.0, NO_EPOCH).begun == 2


def test_a_round_is_not_complete_while_spark_may_run_the_epoch_before_again() -> None:
    rounds = RoundCoordinator(BOTH, interval=1.0)
    rounds.look(0.0, NO_EPOCH)
    rounds.told(stored(1, 1, *BOTH))
    assert rounds.look(0.5, NO_EPOCH).complete == NOTHING_STORED
    assert rounds.look(0.5, Epoch(0)).complete == (1, 1)


@pytest.mark.parametrize(("told", "committed"), [([(0, ONE), (1, TWO)], NO_EPOCH), ([(0, ONE)], Epoch(0))])
def test_a_round_in_which_an_epoch_has_ended_comes_to_nothing(
    told: list[tuple[int, Origin]], committed: Epoch
) -> None:
    rounds = RoundCoordinator(BOTH, interval=1.0)
    rounds.look(0.0, NO_EPOCH)
    for epoch, origin in told:
        rounds.told(stored(epoch, 1, origin))
    after = rounds.look(1.0, committed)
    assert (after.begun, after.complete) == (2, NOTHING_STORED)
    rounds.told(stored(1, 1, *BOTH))
    assert rounds.look(1.0, Epoch(0)).complete == NOTHING_STORED, "what comes late of it is not believed"


def test_what_others_say_is_not_counted() -> None:
    rounds = RoundCoordinator(BOTH, interval=1.0)
    rounds.look(0.0, NO_EPOCH)
    rounds.told(stored(0, 1, ONE, Origin.of(9, 0)))
    assert rounds.look(1.0, NO_EPOCH).complete == NOTHING_STORED


@given(seed=st.integers(0, 1 << 32))
def test_complete_rounds_are_of_one_epoch_whose_predecessor_has_committed(seed: int) -> None:
    dice = Random(seed)
    instances = [Origin.of(2, at) for at in range(dice.randint(1, 4))]
    rounds = RoundCoordinator(instances, interval=1.0)
    at = dict.fromkeys(instances, 0)  # epochs
    last: dict[Origin, StoredRound] = {}
    committed, now, complete = -1, 0.0, NOTHING_STORED
    for _ in range(200):
        now += dice.random()
        said = rounds.look(now, Epoch(committed))
        if said.complete > complete:
            complete = said.complete
            assert complete.epoch - 1 <= committed
            assert all(last[origin].round >= complete.round for origin in instances)
        assert said.begun >= said.complete.round
        origin = dice.choice(instances)
        act = dice.random()
        if act < 0.5 and said.open > last.get(origin, NOTHING_STORED).round:
            last[origin] = StoredRound(Epoch(at[origin]), said.open)
        elif act < 0.6 and at[origin] <= min(at.values()):
            at[origin] += 1
        elif act < 0.7:
            committed = max(committed, min(at.values()) - 1)
        if dice.random() < 0.7:
            rounds.told(last)


def test_what_was_said_late_or_twice_changes_nothing() -> None:
    newer = Rounds(Round(3), StoredRound(Epoch(1), Round(2)), Epoch(0))
    older = Rounds(Round(2), StoredRound(Epoch(0), Round(1)), NO_EPOCH)
    assert newer.newest(older) == older.newest(newer) == newer.newest(newer) == newer
    assert (newer.open, Rounds(Round(3), StoredRound(Epoch(1), Round(3))).open) == (3, NO_ROUND)


def test_a_server_keeps_what_is_said_of_the_newest_start() -> None:
    relay = RoundRelay()
    assert relay.say(2, Rounds(Round(1)))
    assert not relay.say(2, Rounds(Round(1))), "nothing new"
    relay.stored(2, ONE, StoredRound(Epoch(0), Round(1)))
    assert not relay.say(1, Rounds(Round(9))) and relay.rounds == Rounds(Round(1), generation=2)
    relay.stored(1, TWO, StoredRound(Epoch(0), Round(9)))
    assert relay.stored_of(2) == stored(0, 1, ONE)
    assert relay.stored_of(1) == {}
    assert relay.say(3, Rounds(Round(1)))
    assert relay.stored_of(3) == {}, "rounds are numbered anew in each start"


@pytest.mark.parametrize(
    "said",
    [
        Rounds(begun=Round(1)),
        Rounds(committed=Epoch(3)),
        Rounds(safe={ONE: SafePoint(StoredRound(Epoch(0), Round(1)), OutputNumber(1))}),
    ],
)
def test_a_process_that_begins_to_serve_is_told_all_that_is_known(said: Rounds) -> None:
    """Where no rounds begin there is as much to be told: until it knows which epoch has committed, it sends nothing."""
    relay = RoundRelay()
    assert relay.first_told(1) is None
    relay.say(1, said)
    assert relay.first_told(1) == replace(said, generation=1)


def test_a_process_of_a_new_start_is_not_told_of_rounds_of_the_one_before() -> None:
    """Its own first round would be taken for that one's, which was complete, and its rows be seen before it is."""
    relay = RoundRelay()
    before = Rounds(Round(1), StoredRound(Epoch(0), Round(1)))
    relay.say(1, before)
    assert relay.first_told(2) is None
    relay.say(2, Rounds(Round(1)))
    assert relay.first_told(2) == Rounds(Round(1), generation=2)
    late = relay.rounds.newest(replace(before, generation=1))
    assert late == replace(before, generation=1).newest(relay.rounds) == relay.rounds
    assert late.in_start(2) == late and late.in_start(3) == Rounds(generation=3)


def test_of_two_safe_lines_the_later_point_of_each_instance_counts() -> None:
    def safe(epoch: int, number: int, unread: int) -> SafePoint:
        return SafePoint(StoredRound(Epoch(epoch), Round(number)), OutputNumber(unread))

    one, other = Rounds(safe={ONE: safe(0, 4, 7)}), Rounds(safe={ONE: safe(0, 2, 5), TWO: safe(0, 1, 0)})
    both = one.newest(other)
    assert both.safe == {ONE: safe(0, 4, 7), TWO: safe(0, 1, 0)} == other.newest(one).safe
    assert both.safe_for(TWO) == (0, 1) and Rounds().safe_for(TWO) == NOTHING_STORED
    assert Rounds(complete=StoredRound(Epoch(1), Round(3))).newest(both).safe_for(ONE) == (1, 3)
