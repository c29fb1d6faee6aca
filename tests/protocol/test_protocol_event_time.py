"""Event time of an instance: recorded where it moves, told on to those that read it, and the same in every replay."""

from __future__ import annotations

import random
from typing import Any

import pytest
from harness import Bench, Program, chunk_ends
from hypothesis import given, settings, strategies as st

from clonos.protocol.destination import Reader, route_to_one
from clonos.protocol.engine.channel_watermarks import EventInput
from clonos.protocol.engine.instance import Bundle, Emit, Row
from clonos.protocol.engine.output_watermarks import ALL_TOLD_EVERY
from clonos.protocol.ids import NodeId, channel_id
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.determinant import Kind
from clonos.sim.records import Rows

SOURCE = NodeId(1)
ONE, TWO = channel_id(SOURCE, 0), channel_id(SOURCE, 1)
INPUTS = (EventInput(SOURCE, channels=2),)


class Timed(Program):
    """A row says its event time, at which a timer is set; what is given out says how far event time had come."""

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        for (key,), (_, moment, _) in zip(keys, rows, strict=True):
            self._services.event_timers.set(moment, f"{key}{moment}".encode())
        return [
            (key, moment, self._services.watermark) for (key,), (_, moment, _) in zip(keys, rows, strict=True)
        ]

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[Row]:
        assert event
        return [(key.decode(), at, ("fires at", self._services.watermark)) for at, key, _ in due]


def bench(seed: int = 1, **more: Any) -> Bench:
    return Bench(random.Random(seed), program=Timed, event_inputs=more.pop("event_inputs", INPUTS), **more)


def row(channel: int, position: int, moment: int) -> tuple[int, int, Row]:
    return channel, position, ("k", moment, ())


def fired(of: Bench) -> list[int]:
    return [moment for _, moment, what in of.rows if isinstance(what, tuple)]


def test_in_real_time_timers_fire_at_the_tick_that_moves_the_watermark() -> None:
    one = bench()
    one.open()
    one.take([row(ONE, 1, 10), row(TWO, 1, 20)], watermarks={ONE: 10})
    one.tick()
    assert fired(one) == [] and one.instance.snapshot().watermark is None
    one.take([], watermarks={TWO: 15})
    assert fired(one) == []
    one.tick()
    assert fired(one) == [10] and one.instance.snapshot().watermark == 10
    one.tick()
    steps = codec.decode_steps(one.log, 0)
    assert [step.watermark for step in steps if step.kind is Kind.TIMER] == [10], "once for each move"
    assert [step.records_watermarks for step in steps if step.kind is Kind.BOUNDARY] == [True]


def test_in_micro_batch_the_watermark_moves_when_the_batch_ends() -> None:
    one = bench(realtime=False)
    one.open()
    one.take([row(ONE, 1, 10), row(TWO, 1, 20)], watermarks={ONE: 12, TWO: 15})
    one.tick()
    assert fired(one) == []
    one.carry_out(one.instance.end_epoch())
    assert fired(one) == [10]
    one.open(1)
    one.take([row(ONE, 2, 11)], watermarks={ONE: 30})
    assert fired(one) == [10, 11], "a timer of the past fires at once"
    one.carry_out(one.instance.end_epoch())
    assert fired(one) == [10, 11, 20], "a channel that was silent in the batch is idle"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40), st.booleans()), max_size=12), st.integers(0, 99)
)
def test_a_replay_moves_the_watermark_as_it_was_moved(events: list[tuple[int, int, bool]], seed: int) -> None:
    """Whatever senders say the second time, and whenever they say it."""
    rng, positions = random.Random(seed), {ONE: 0, TWO: 0}
    first = bench(seed)
    first.open()
    records = []
    for which, moment, ticks in events:
        channel = (ONE, TWO)[which]
        positions[channel] += 1
        records.append(row(channel, positions[channel], moment))
        first.take(records[-1:], watermarks={channel: moment - rng.randint(0, 9)})
        if ticks:
            first.tick()
    for cut in chunk_ends(first.log):
        again = bench(seed + cut)
        again.restore(first.log[:cut])
        again.open()
        for record in records:
            again.take([record], watermarks={record[0]: record[2][1] - rng.randint(0, 99)})
            again.tick()
        repeated = sum(step.outputs for step in codec.decode_steps(first.log[:cut], 0))
        assert again.rows[:repeated] == first.rows[:repeated]
        assert again.log[:cut] == first.log[:cut]


def latest(rows: Rows) -> int | None:
    return max((moment for _, moment, _ in rows.rows), default=None)


def told(of: Bench, actions: Any) -> list[dict[int, int]]:
    actions = list(actions)
    of.carry_out(actions)
    return [dict(each.watermarks) for each in actions if isinstance(each, Emit) and each.watermarks]


def with_readers(**more: Any) -> Bench:
    """Two instances of a node that has event time as the operator has it, one that goes by the rows, and a sink."""
    return bench(
        readers=[
            Reader(route_to_one, 2, has_event_time=True),
            Reader(route_to_one, 1, has_event_time=True, watermark_of=latest),
            Reader(route_to_one, 1),
        ],
        **more,
    )


def taken(of: Bench, position: int, moment: int) -> list[dict[int, int]]:
    bundle = Bundle([ONE], [position], [("k", moment, ())], (), {ONE: moment, TWO: moment})
    return told(of, of.instance.take(bundle))


def test_destinations_are_told_with_rows_and_those_without_rows_at_the_tick() -> None:
    one = with_readers()
    one.open()
    assert taken(one, 1, 50) == [{2: 50}], "rows that the watermark has not come to yet say nothing of it"
    assert told(one, one.instance.tick(one.clock())) == [{0: 50, 2: 50}, {1: 50}], (
        "the timer's row, then the rest"
    )
    assert told(one, one.instance.tick(one.clock())) == []
    assert taken(one, 2, 60) == [{0: 50, 2: 60}]


def test_in_micro_batch_all_are_told_at_the_end_and_only_what_is_new_in_the_epoch() -> None:
    one = with_readers(realtime=False)
    one.open()
    taken(one, 1, 50)
    said = told(one, one.instance.end_epoch())
    assert {to: moment for each in said for to, moment in each.items()} == {0: 50, 1: 50, 2: 50}
    one.open(1)
    assert told(one, one.instance.end_epoch()) == [], "an instance that had nothing is idle to its readers"


def test_destinations_hear_that_something_comes_although_nothing_changes() -> None:
    """To an instance that hears nothing, a channel is idle."""
    one = with_readers()
    one.open()
    taken(one, 1, 50)
    told(one, one.instance.tick(one.clock()))
    taken(one, 2, 40)
    assert told(one, one.instance.tick(one.clock())) == []
    assert told(one, one.instance.tick(one.clock() + ALL_TOLD_EVERY)) == [{0: 50, 1: 50, 2: 50}]
    assert told(one, one.instance.tick(one.clock() + 5 * ALL_TOLD_EVERY)) == [], "nothing has come"
    batch = with_readers(realtime=False)
    batch.open()
    taken(batch, 1, 50)
    told(batch, batch.instance.end_epoch())
    batch.open(1)
    said = taken(batch, 2, 40) + told(batch, batch.instance.end_epoch())
    assert {to for each in said for to in each} == {0, 1, 2}


def test_another_attempt_tells_again_what_it_told() -> None:
    one = with_readers(realtime=False)
    one.open()
    taken(one, 1, 50)
    told(one, one.instance.end_epoch())
    one.open(emitted_output=one.instance.emitted_output)
    said = told(one, one.instance.end_epoch())
    assert {to: moment for each in said for to, moment in each.items()} == {0: 50, 1: 50, 2: 50}


def test_a_standby_tells_nothing_until_it_leads() -> None:
    one = with_readers()
    one.instance.begin_following()
    one.open()
    assert taken(one, 1, 50) == told(one, one.instance.tick(one.clock())) == []
    one.carry_out(one.instance.go_live(0))
    assert {0: 50, 1: 50}.items() <= {
        to: moment for each in told(one, one.instance.tick(one.clock())) for to, moment in each.items()
    }.items()


@pytest.mark.parametrize("realtime", [True, False])
def test_an_epoch_that_an_older_version_began_goes_on_by_its_rows(realtime: bool) -> None:
    """It recorded no watermarks: they followed from the records that the instance had had."""
    old = bench(event_inputs=(), watermark_of=lambda rows: max(moment for _, moment, _ in rows) - 5)
    old.open()
    for position, moment in enumerate((10, 20, 30), 1):
        old.take([row(ONE, position, moment)])
    assert fired(old) == [10, 20] and old.instance.snapshot().watermark == 25
    new = bench(watermark_of=lambda rows: max(moment for _, moment, _ in rows) - 5, realtime=realtime)
    new.restore(old.log)
    new.open()
    for position, moment in enumerate((10, 20, 30, 40), 1):
        new.take([row(ONE, position, moment)], watermarks={ONE: 99, TWO: 99})
        new.tick()
    assert new.rows[: len(old.rows)] == old.rows and fired(new) == [10, 20, 30]
    kept = new.instance.snapshot()
    assert kept.watermark == 35 and not kept.records_watermarks
    new.open(1)
    assert new.instance.snapshot().records_watermarks
