"""Recording and repeating: random programs of service uses, cut at every chunk of their log (I2, I10)."""

from __future__ import annotations

import random
import re
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from harness import USES, Bench, Died, Program, chunk_ends
from hypothesis import given, settings, strategies as st

from clonos.errors import DivergenceError, GapError, ReplicaLost
from clonos.protocol.engine.instance import Emit
from clonos.protocol.ids import channel_id
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.determinant import Kind, Step
from clonos.protocol.recovery.causal.longest_prefix import RecoveryState

Record = tuple[int, int, tuple[Any, ...]]
uses = st.lists(st.sampled_from(USES), min_size=1, max_size=6).map(lambda items: (*items, "emit"))
programs = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"), uses), min_size=1, max_size=10)


def records_of(program: list[tuple[int, str, tuple[str, ...]]]) -> list[Record]:
    positions: dict[int, int] = defaultdict(int)
    records: list[Record] = []
    for number, (partition, key, what) in enumerate(program):
        channel = channel_id(1, partition)
        positions[channel] += 1
        records.append((channel, positions[channel], (key, number, what)))
    return records


def feed(bench: Bench, records: list[Record], rng: random.Random, *, ticks: bool = True) -> None:
    at = 0
    while at < len(records):
        size = rng.randint(1, 4)
        bench.take(records[at : at + size])
        at += size
        if ticks and rng.random() < 0.4:
            bench.tick()


def interleaved(records: list[Record], rng: random.Random) -> list[Record]:
    """Another arrival order that keeps every channel's own."""
    queues: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        queues[record[0]].append(record)
    merged: list[Record] = []
    while queues:
        channel = rng.choice(sorted(queues))
        merged.append(queues[channel].pop(0))
        if not queues[channel]:
            del queues[channel]
    return merged


@settings(max_examples=50, deadline=None)
@given(programs, st.integers(0, 10**6))
def test_every_prefix_of_the_log_is_repeated_and_gone_on_from(program: Any, seed: int) -> None:
    records = records_of(program)
    rng = random.Random(seed)
    first = Bench(random.Random(seed + 1))
    first.open()
    feed(first, records, rng)
    log = first.log
    for cut in chunk_ends(log):
        again = Bench(random.Random(seed + 2 + cut))
        again.restore(log[:cut])
        again.open()
        feed(again, interleaved(records, rng), rng, ticks=False)
        steps = codec.decode_steps(log[:cut], 0)
        repeated = sum(step.outputs for step in steps)
        assert again.rows[:repeated] == first.rows[:repeated]
        assert again.log[:cut] == log[:cut]
        assert again.instance.state is RecoveryState.LIVE
        consumed = [number for number, _ in again.services.state["order"]]
        assert sorted(consumed) == list(range(len(records)))
        known = sum(count for step in steps if step.complete for _, count in step.runs)
        assert again.services.state["order"][:known] == first.services.state["order"][:known]
        done = {
            effect.key
            for step in codec.decode_steps(log[:cut], 0)
            for effect in step.effects
            if effect.outcome is not None
        }
        assert not done & set(again.performed), "an effect whose outcome is known took place again"
        if cut == len(log):
            assert again.services.state == first.services.state
            assert again.services.random.getstate() == first.services.random.getstate()
            assert again.services.timers.entries == first.services.timers.entries
            assert again.rows == first.rows
            assert not again.performed
            assert again.instance.counted == first.instance.counted
            assert again.instance.counted.consumed == len(records)
            assert sum(again.instance.counted.sent) == len(again.rows)


@settings(max_examples=40, deadline=None)
@given(programs, st.integers(0, 10**6), st.integers(0, 40))
def test_rows_already_passed_on_are_suppressed(program: Any, seed: int, emitted_output: int) -> None:
    records = records_of(program)
    first = Bench(random.Random(seed))
    first.open()
    feed(first, records, random.Random(seed))
    emitted_output = min(emitted_output, len(first.rows))
    again = Bench(random.Random(seed + 1))
    again.restore(first.log)
    again.open(emitted_output=emitted_output)
    feed(again, records, random.Random(seed + 2), ticks=False)
    assert again.rows == first.rows[emitted_output:]
    assert again.instance.counted == first.instance.counted, "what is suppressed was sent in this epoch, too"


@settings(max_examples=40, deadline=None)
@given(programs, st.integers(0, 10**6))
def test_snapshot_between_bundles_and_the_log_after_it(program: Any, seed: int) -> None:
    records = records_of(program)
    rng = random.Random(seed)
    first = Bench(random.Random(seed + 1))
    first.open()
    half = rng.randint(0, len(records))
    feed(first, records[:half], rng)
    first.carry_out(first.instance.flush())
    snapshot, state = first.instance.snapshot(), _copy(first)
    feed(first, records[half:], rng)
    again = Bench(random.Random(seed + 2))
    again.saved = [(0, first.log[: snapshot.log_offset])]
    again.services.state.update(state[0])
    again.services.timers.entries += state[1]
    at = snapshot.log_offset
    again.restore(first.log[at:], snapshot, before=first.log[:at])
    again.open(emitted_output=snapshot.emitted)
    feed(again, records, rng, ticks=False)  # the conduit may send more than what the snapshot lacks
    assert again.rows == first.rows[snapshot.emitted :]
    assert again.instance.counted == first.instance.counted
    assert again.services.state == first.services.state
    assert again.log == first.log
    assert again.instance.snapshot(log_since=0).log == first.instance.snapshot(log_since=0).log == first.log
    assert not again.instance.snapshot().log


def _copy(bench: Bench) -> tuple[dict[Any, Any], list[Any]]:
    state = {
        key: list(value) if isinstance(value, list) else value for key, value in bench.services.state.items()
    }
    return state, list(bench.services.timers.entries)


def test_going_live_before_what_was_passed_on_is_a_gap() -> None:
    records = records_of([(0, "a", ("draw", "emit")), (0, "b", ("draw", "emit"))])
    first = Bench(random.Random(1))
    first.open()
    first.take(records[:1])
    log = first.log
    first.take(records[1:])
    again = Bench(random.Random(2))
    again.restore(log)
    again.open(emitted_output=2)
    with pytest.raises(GapError, match=r"rows 2\.\.2 have been handed on.*operator 'op'"):
        again.take(records)


def test_what_waits_where_the_recording_ends_is_taken_in_steps_of_bounded_size() -> None:
    """It may be the input of a whole epoch, which came while a slower channel was awaited."""
    slow, *others = records_of([(0, "a", ("emit",)), *[(1, "b", ("emit",))] * 5000])
    first = Bench(random.Random(1))
    first.open()
    first.take([slow])
    again = Bench(random.Random(2))
    again.restore(first.log)
    again.open()
    assert again.instance.awaited_by_recording == 1
    again.take(others)
    assert again.instance.awaited_by_recording == 0, "as many have come, though not that one"
    assert not again.rows
    again.take([slow])
    steps = codec.decode_steps(again.log, 0)
    assert [sum(count for _, count in step.runs) for step in steps if step.kind is Kind.ORDER] == [
        1,
        4096,
        904,
    ]
    assert len(again.rows) == 5001


# ------------------------------------------------------------------- effects


def dying(records: list[Record], place: str) -> Bench:
    bench = Bench(random.Random(1), dies_at=place)
    bench.open()
    with pytest.raises(Died):
        bench.take(records)
    return bench


@pytest.mark.parametrize("place", ["0-0", "0-1", "1-0"])
def test_effect_whose_outcome_is_lost_takes_place_again_under_its_key(place: str) -> None:
    records = records_of(
        [(0, "a", ("effect", "effect", "draw", "emit")), (0, "b", ("effect", "clock", "emit"))]
    )
    everything = ["0-0", "0-1", "1-0"]
    dead = dying(records, place)
    again = Bench(random.Random(2))
    again.restore(dead.log)
    again.open()
    again.take(records)
    assert dead.performed + again.performed == [
        *everything[: everything.index(place) + 1],
        *everything[everything.index(place) :],
    ]
    third = Bench(random.Random(3))
    third.restore(again.log)
    third.open()
    third.take(records)
    assert third.rows == again.rows
    assert third.performed == []


def test_effect_in_a_later_step_does_not_overtake_an_earlier_one() -> None:
    """One call may finish an interrupted step and consume what waits: both are saved in order."""
    records = records_of([(0, "a", ("effect", "emit")), (1, "b", ("effect", "clock", "emit"))])
    dead = dying(records[:1], "0-0")
    again = Bench(random.Random(2), dies_at="1-0")
    again.restore(dead.log)
    again.open()
    again.take(records[1:])  # waits: the recorded order asks for the other channel
    assert again.instance.state is RecoveryState.REPLAYING
    with pytest.raises(Died):
        again.take(records[:1])
    assert again.performed == ["0-0", "1-0"]
    assert [step.complete for step in codec.decode_steps(again.log, 0)] == [True, True, False]


class CutOff(Bench):
    """Its conduit is gone."""

    def flush_log(self, due: Sequence[Emit], log_start: int, log: bytes) -> None:
        raise ReplicaLost("no conduit listens")


class Careless(Program):
    """Goes on whatever happens."""

    def _use(self, use: str, key: str, place: str) -> Any:
        try:
            return super()._use(use, key, place)
        except ReplicaLost:
            return None


def test_step_of_an_effect_that_may_not_take_place_has_no_end() -> None:
    bench = CutOff(random.Random(1), program=Careless)
    bench.open()
    with pytest.raises(ReplicaLost):
        bench.take(records_of([(0, "a", ("effect", "draw", "effect", "emit"))]))
    assert bench.performed == bench.rows == []
    assert [step.complete for step in codec.decode_steps(bench.log, 0)] == [True, False]


def test_recovered_log_is_saved_before_anything_is_repeated() -> None:
    records = records_of([(0, "a", ("draw", "emit")), (0, "b", ("draw", "emit"))])
    first = Bench(random.Random(1))
    first.open()
    feed(first, records, random.Random(1))
    again = Bench(random.Random(2))
    again.restore(first.log)
    assert again.log == first.log


def test_closure_of_a_call_does_not_shift_later_draws() -> None:
    quiet = Bench(random.Random(1))
    drawing = Bench(random.Random(1))
    for bench, call in ((quiet, "call"), (drawing, "drawing call")):
        bench.open()
        bench.services.random.seed(9)
        bench.take(records_of([(0, "a", (call, "draw", "emit"))]))
    assert quiet.rows[0][2][1] == drawing.rows[0][2][1]


def test_services_outside_a_step_are_refused() -> None:
    bench = Bench(random.Random(1))
    with pytest.raises(RuntimeError, match="only available"):
        bench.services.clock()


# --------------------------------------------------------------- divergences

RECORDED = ("clock", "exact", "call", "effect", "draw", "emit")


def diverging(what: tuple[str, ...]) -> str:
    """The message when a recording of RECORDED is repeated by a function that does `what`."""
    first = Bench(random.Random(1))
    first.open(3)
    first.take(records_of([(0, "a", RECORDED)]))
    again = Bench(random.Random(2))
    again.restore(first.log)
    again.open(3)
    with pytest.raises(DivergenceError) as caught:
        again.take(records_of([(0, "a", what)]))
    text = str(caught.value)
    for part in ("operator 'op'", "instance 0", "epoch 3", "channel 1", "position 1", "Likely causes"):
        assert part in text
    return text


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("clock nothing call effect draw emit", "before log offset"),
        ("nothing exact call effect draw emit", "before log offset"),
        ("clock exact nothing effect draw emit", "before log offset"),
        ("exact clock call effect draw emit", "digest"),
        ("clock exact call nothing draw emit", r"1 recorded effect\(s\) were not asked for"),
        (
            "clock exact call draw effect emit",
            "recorded was an effect under the key '0-3', asked for was one under '0-4'",
        ),
        ("clock exact call effect effect emit", "asked for was an effect under the key '0-4'"),
        ("clock exact call effect call emit", "asked for was a call of Bench.ask"),
        ("clock exact call effect exact emit", "asked for was an exact clock reading"),
        (
            "clock exact refused effect draw emit",
            "recorded was a call of Bench.ask, asked for was a call of Bench.refuse",
        ),
        ("clock exact call effect draw emit emit", "recorded were 1 output rows, produced were 2"),
        ("clock exact call effect draw", "recorded were 1 output rows, produced were 0"),
        ("clock exact call effect emit draw", "digest"),
    ],
)
def test_another_function_is_noticed_and_named(what: str, says: str) -> None:
    text = diverging(tuple(what.split()))
    assert re.search(says, text), text


def test_output_that_depends_on_what_is_not_recorded_is_noticed() -> None:
    class Leaky(Program):
        def bundle(self, keys: Any, rows: Any) -> Any:
            return [(*row, self._bench.nature.random()) for row in super().bundle(keys, rows)]

    recorded = records_of([(0, "a", RECORDED)])
    first = Bench(random.Random(1), Leaky)
    first.open(3)
    first.take(recorded)
    again = Bench(random.Random(2), Leaky)
    again.restore(first.log)
    again.open(3)
    with pytest.raises(DivergenceError, match=r"digest [0-9a-f]{8}, recorded was [0-9a-f]{8}.*position 1"):
        again.take(recorded)


def test_neither_state_nor_the_arguments_of_a_call_are_compared() -> None:
    """As the documentation says. A replay is given what was recorded for another question."""

    class Asks(Program):
        def bundle(self, keys: Any, rows: Any) -> Any:
            asked = self._services.state["asked"] = self._bench.nature.random()
            return [(*row, self._services.call(str, (asked,))) for row in super().bundle(keys, rows)]

    recorded = records_of([(0, "a", RECORDED)])
    first = Bench(random.Random(1), Asks)
    first.open(3)
    first.take(recorded)
    again = Bench(random.Random(2), Asks)
    again.restore(first.log)
    again.open(3)
    again.take(recorded)
    assert again.rows == first.rows
    assert again.services.state["asked"] != first.services.state["asked"]


@pytest.mark.parametrize("emitted_output", [0, 2], ids=["sent again", "suppressed"])
def test_rows_that_would_go_elsewhere_are_noticed(emitted_output: int) -> None:
    """Also those that have been handed on before: nothing else compares what a receiver holds under a number."""
    records = records_of([(0, "a", ("draw", "emit")), (0, "b", ("draw", "emit"))])
    first = Bench(random.Random(1), parallelism=5)
    first.open(3)
    first.take(records)
    again = Bench(random.Random(2), parallelism=3)
    again.restore(first.log)
    again.open(3, emitted_output=emitted_output)
    with pytest.raises(DivergenceError, match="their content differs, or where they go"):
        again.take(records)


def older(out: bytearray, outputs: int, digest: int) -> None:
    """How steps were ended before there was SENT."""
    step = Step(Kind.ORDER, 0, end=Kind.END, outputs=outputs, digest=zlib.crc32(b"the text of the rows"))
    codec.append_end_again(out, step)


@settings(max_examples=50, deadline=None)
@given(programs, st.integers(0, 10**6), st.data())
def test_a_log_of_an_older_version_is_repeated_and_gone_on_with(
    program: Any, seed: int, data: st.DataObject
) -> None:
    """Its digests mean nothing here; the rebuilt log is the recorded one, and what follows ends as steps do today."""
    records = records_of(program)
    first = Bench(random.Random(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "append_sent", older)
        first.open()
        feed(first, records, random.Random(seed))
    log = first.log[: data.draw(st.sampled_from(chunk_ends(first.log)))]
    again = Bench(random.Random(seed + 1))
    again.restore(log)
    again.open()
    feed(again, records, random.Random(seed + 2))
    assert again.log[: len(log)] == log
    steps = [step for step in codec.decode_steps(again.log, 0) if step.kind is not Kind.BOUNDARY]
    ends = [step.end for step in steps if step.complete]
    assert ends == sorted(ends)  # END, then SENT
    assert {step.end for step in steps if step.start >= len(log)} <= {Kind.SENT}


def test_in_a_log_of_an_older_version_the_number_of_rows_is_compared() -> None:
    records = records_of([(0, "a", ("draw", "emit"))])
    first = Bench(random.Random(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "append_sent", older)
        first.open(3)
        first.take(records)
    again = Bench(random.Random(2))
    again.restore(first.log)
    again.open(3)
    with pytest.raises(DivergenceError, match="recorded were 1 output rows, produced were 2"):
        again.take(records_of([(0, "a", ("draw", "emit", "emit"))]))


@settings(max_examples=20, deadline=None)
@given(programs, st.integers(0, 10**6))
def test_an_epoch_that_has_ended_ends_alike_when_it_runs_again(program: Any, seed: int) -> None:
    """Timers that have become due since fire in the next epoch: instances downstream may have ended this one."""
    records = records_of(program)
    rng = random.Random(seed)
    first = Bench(random.Random(seed + 1))
    first.open()
    feed(first, records, rng)
    again = Bench(random.Random(seed + 2))
    again.restore(first.log)
    again.open(ends_at=first.end)
    for part in (interleaved(records, rng), []):
        feed(again, part, rng)
        again.time = max(again.time, first.time) + 1000
        again.tick()
    assert (again.log, again.rows) == (first.log, first.rows)
    assert again.services.timers.entries == first.services.timers.entries
    again.open(1)
    again.tick()
    assert again.instance.state is RecoveryState.LIVE
    assert not again.services.timers.entries


@settings(max_examples=20, deadline=None)
@given(programs, st.integers(0, 10**6))
def test_an_epoch_that_has_ended_is_not_ended_otherwise(program: Any, seed: int) -> None:
    records = records_of(program)
    rng = random.Random(seed)
    first = Bench(random.Random(seed + 1))
    first.open()
    feed(first, records, rng)
    for cut in chunk_ends(first.log)[:-1]:
        again = Bench(random.Random(seed + 2 + cut))
        again.restore(first.log[:cut])
        with pytest.raises(ReplicaLost, match="has ended the epoch"):
            again.open(ends_at=first.end)
            feed(again, interleaved(records, rng), rng)
