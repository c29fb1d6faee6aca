"""Records that are passed over: what is recorded of it, and that every life after it does the same (I2)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from harness import USES, Bench, Died, chunk_ends
from hypothesis import given, settings, strategies as st
from test_protocol_replay import Record, feed, interleaved, records_of

from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.determinant import Kind, first_of
from clonos.protocol.recovery.causal.longest_prefix import RecoveryState
from clonos.protocol.recovery.quarantine import CandidateRecord

DEADLY = 2
harmless = st.lists(st.sampled_from((*USES, "event timer")), min_size=1, max_size=5).map(
    lambda items: (*items, "emit")
)
deadly = st.lists(st.sampled_from(("effect", "call", "clock", "exact", "draw", "timer")), max_size=3).map(
    lambda items: (*items, "die", "emit")
)
programs = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.one_of(harmless, harmless, deadly)),
    min_size=1,
    max_size=10,
)


class Policy:
    """Counts the deaths at each record; one that was deadly twice is passed over."""

    def __init__(self) -> None:
        self.deaths: Counter[tuple[int, int]] = Counter()
        self.dead_letters: list[CandidateRecord] = []
        self._in_hand: tuple[int, int] | None = None

    def may_run(self, candidate: CandidateRecord) -> bool:
        record = self._in_hand = candidate.channel, candidate.position
        if self.deaths[record] < DEADLY:
            return True
        assert candidate.is_whole_step
        self.dead_letters.append(candidate)
        return False

    def died(self) -> None:
        if self._in_hand is not None:
            self.deaths[self._in_hand] += 1
        self._in_hand = None


def watermark_of(rows: list[Any]) -> int:
    return int(max(row[1] for row in rows))


def life(
    log: bytes, records: list[Record], seed: int, policy: Policy | None, at_once: bool = False
) -> tuple[Bench, bool]:
    """One process from birth to its end; whether it got through."""
    rng = random.Random(seed)
    bench = Bench(random.Random(seed + 1), watermark_of=watermark_of)
    if log:
        bench.restore(log)
    bench.instance.quarantine = policy
    try:
        bench.open()
        if at_once:
            bench.take(records)
        else:
            feed(bench, records, rng, ticks=policy is None)
    except Died:
        return bench, False
    return bench, True


def through(records: list[Record], seed: int, at_once: bool) -> tuple[Bench, Policy]:
    """Lives until one gets through; all but the first go carefully."""
    policy = Policy()
    bench, done = life(b"", records, seed, None, at_once)
    while not done:
        policy.died()
        assert max(policy.deaths.values(), default=0) <= DEADLY
        seed += 100
        bench, done = life(bench.log, records, seed, policy, at_once)
    return bench, policy


@settings(max_examples=150, deadline=None)
@given(programs, st.integers(0, 10**6), st.booleans())
def test_what_is_passed_over_leaves_no_trace_and_is_passed_over_again(
    program: Any, seed: int, at_once: bool
) -> None:
    records = records_of(program)
    bench, policy = through(records, seed, at_once)
    poison = [number for number, (_, _, uses) in enumerate(program) if "die" in uses]
    assert {candidate.row[1] for candidate in policy.dead_letters} == set(poison)
    consumed = [number for number, _ in bench.services.state.get("order", [])]
    assert sorted(consumed) == [number for number in range(len(records)) if number not in poison]
    assert not {row[1] for row in bench.rows} & set(poison)
    covered = {channel: position for channel, position, _ in records}
    assert bench.instance.snapshot().covered == covered
    skips = [step for step in codec.decode_steps(bench.log, 0) if step.skip is not None]
    assert len(skips) == len(poison)
    everything = Bench(random.Random(seed + 7), watermark_of=watermark_of)
    everything.restore(bench.log)
    everything.open()
    feed(everything, interleaved(records, random.Random(seed)), random.Random(seed), ticks=False)
    assert everything.log == bench.log
    assert everything.services.state == bench.services.state
    assert everything.services.timers.entries == bench.services.timers.entries
    assert everything.services.event_timers.entries == bench.services.event_timers.entries
    assert everything.services.random.getstate() == bench.services.random.getstate()
    assert everything.instance.state is RecoveryState.LIVE
    assert not everything.performed
    for cut in chunk_ends(bench.log):
        again, done = life(bench.log[:cut], records, seed + 13, policy, at_once)
        assert done
        assert again.log[:cut] == bench.log[:cut]
        repeated = sum(step.outputs for step in codec.decode_steps(bench.log[:cut], 0))
        assert again.rows[:repeated] == everything.rows[:repeated]
        got = [number for number, _ in again.services.state.get("order", [])]
        assert sorted(got) == sorted(consumed)


def test_a_step_broken_off_at_an_effect_is_passed_over_from_the_record_on_that_kills() -> None:
    records = records_of(
        [(0, "a", ("call", "emit")), (1, "b", ("call", "effect", "die")), (0, "c", ("call", "emit"))]
    )
    first, done = life(b"", records, 1, None, at_once=True)
    assert not done and len(codec.decode_steps(first.log, 0)[-1].runs) == 3
    policy = Policy()
    log = first.log
    for seed in range(2, 2 + DEADLY):
        bench, done = life(log, records, seed, policy, at_once=True)
        assert not done
        policy.died()
        log = bench.log
    bench, done = life(log, records, 9, policy, at_once=True)
    assert done
    (letter,) = policy.dead_letters
    assert letter.row == records[1][2]
    (alone,) = codec.decode_steps(letter.recorded, 0)
    assert [call.name for call in alone.calls] == ["Bench.ask"]
    assert [effect.key for effect in alone.effects] == ["1-1"]
    kinds = [(step.runs, step.skip, step.outputs) for step in codec.decode_steps(bench.log, 0)[1:]]
    channels = [record[0] for record in records]
    assert kinds == [
        ([(channel, 1) for channel in channels], 1, 1),
        ([(channels[2], 1)], None, 1),
    ]


def test_an_operator_of_whole_bundles_is_not_given_pieces_of_a_recorded_step() -> None:
    records = records_of([(0, "a", ("effect", "emit")), (0, "b", ("effect", "die"))])
    first = Bench(random.Random(1))
    first.open()
    with pytest.raises(Died):
        first.take(records)
    asked: list[CandidateRecord] = []

    class Ask:
        def may_run(self, candidate: CandidateRecord) -> bool:
            asked.append(candidate)
            return True

    again = Bench(random.Random(2), record_at_a_time=False)
    again.restore(first.log)
    again.instance.quarantine = Ask()
    again.open()
    with pytest.raises(Died):
        again.take(records)
    assert [(candidate.position, candidate.is_whole_step) for candidate in asked] == [(1, False)]


def test_first_of_runs() -> None:
    assert first_of([(1, 3), (65, 2)], 4) == [(1, 3), (65, 1)]
    assert first_of([(1, 3)], 0) == []
    assert Kind.SKIP == 11
