"""A hot standby: it repeats what its primary is known to have done, and no more, until it is the primary."""

from __future__ import annotations

import random
from typing import Any

import pytest
from harness import Bench, chunk_ends
from hypothesis import given, settings, strategies as st
from test_protocol_replay import feed, interleaved, programs, records_of

from clonos.errors import LogConflict, ReplicaLost
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.longest_prefix import RecoveryState


def standby(seed: int) -> Bench:
    bench = Bench(random.Random(seed))
    bench.instance.begin_following()
    bench.open()
    return bench


def show(bench: Bench, start: int, log: bytes) -> None:
    bench.carry_out(bench.instance.follow(start, log))


@settings(max_examples=60, deadline=None)
@given(programs, st.integers(0, 10**6))
def test_it_takes_over_wherever_its_primary_is_lost(program: Any, seed: int) -> None:
    records = records_of(program)
    rng = random.Random(seed)
    first = Bench(random.Random(seed + 1))
    first.open()
    feed(first, records, rng)
    ends = chunk_ends(first.log)
    lost_at = rng.choice(ends)
    steps = [step for step in codec.decode_steps(first.log[:lost_at], 0) if step.complete]
    passed = sum(step.outputs for step in steps)

    second = standby(seed + 2)
    coming = interleaved(records, rng)
    shown = 0
    for at in range(0, len(coming), 3):
        second.take(coming[at : at + 3])
        upto = rng.choice([end for end in ends if shown <= end <= lost_at])
        show(second, shown, first.log[shown:upto])
        shown = upto
    show(second, shown, first.log[shown:lost_at])
    assert second.rows == [] and second.performed == [], "nothing of a standby leaves"
    assert second.instance.log_offset <= lost_at

    second.carry_out(second.instance.go_live(passed))
    assert second.instance.state is RecoveryState.LIVE
    assert second.log[:lost_at] == first.log[:lost_at]
    repeated = sum(count for step in steps for _, count in step.runs)
    assert second.services.state.get("order", [])[:repeated] == first.services.state["order"][:repeated]
    consumed = [number for number, _ in second.services.state["order"]]
    assert sorted(consumed) == list(range(len(records)))
    if lost_at == len(first.log):
        assert second.services.state == first.services.state
        assert second.services.random.getstate() == first.services.random.getstate()
        assert second.rows == []
        assert second.instance.counted == first.instance.counted


def test_it_does_not_run_what_is_recorded_beyond_what_the_conduit_knows() -> None:
    first = Bench(random.Random(1))
    first.open()
    records = records_of([(0, "a", ("draw", "emit")), (0, "b", ("clock", "emit"))])
    first.take(records[:1])
    known = len(first.log)
    first.take(records[1:])

    second = Bench(random.Random(2))
    second.restore(first.log)  # it has more of the log than the conduit
    second.instance.begin_following()
    second.open()
    second.take(records)
    show(second, 0, first.log[:known])
    assert second.instance.log_offset == known
    second.carry_out(second.instance.go_live(1))
    assert second.rows == first.rows[1:]
    assert second.log == first.log


def test_a_hole_in_what_it_is_shown_makes_it_start_again() -> None:
    with pytest.raises(ReplicaLost, match="known up to 0, what follows begins at 5"):
        standby(1).instance.follow(5, b"x")


def test_two_histories_are_an_error() -> None:
    first, other = Bench(random.Random(1)), Bench(random.Random(2))
    first.open()
    other.open()
    second = Bench(random.Random(3))
    second.restore(first.log)
    second.instance.begin_following()
    second.open()
    with pytest.raises(LogConflict, match="two histories"):
        second.instance.follow(0, other.log)
