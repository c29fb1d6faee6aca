"""The log of an instance that repeats nothing, beside others that do."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from harness import ORIGIN, Bench

from clonos.protocol.engine.instance import Action, Emit
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.causal.checkpoint_marks import MARK, marks_between
from clonos.protocol.recovery.causal.delta import decode_delta
from clonos.protocol.recovery.causal.determinant import Kind
from clonos.protocol.recovery.causal.determinant_codec import decode_steps

SENDER = Origin(1, 0).channel


def take(bench: Bench, *positions: int) -> list[Action]:
    rows = [("k", position, ("emit",)) for position in positions]
    return bench.instance.take(Bundle([SENDER] * len(rows), list(positions), rows))


def marks_sent(actions: Iterable[Action]) -> list[tuple[int, int]]:
    """From where to where, in the instance's own log."""
    emits = [action for action in actions if isinstance(action, Emit)]
    assert not any(emit.log for emit in emits), "the conduit is told nothing of a log that is not repeated"
    entries = [entry for emit in emits for raw in emit.deltas.values() for entry in decode_delta(raw)]
    assert all(
        entry.origin == ORIGIN and entry.data == MARK * (len(entry.data) // len(MARK)) for entry in entries
    )
    return [(entry.start, entry.end) for entry in entries]


def marking() -> Bench:
    return Bench(random.Random(1), marks_checkpoints=True, parallelism=1)


def begun() -> Bench:
    bench = marking()
    bench.open()
    return bench


def test_the_bytes_of_a_mark() -> None:
    assert bytes.fromhex("c101e9ffb5cf10") == MARK
    (step,) = decode_steps(MARK, LogOffset(21))
    assert (step.kind, step.start, step.stop, step.complete) == (Kind.CHECKPOINT, 21, 21 + len(MARK), True)
    assert decode_steps(MARK * 3, LogOffset(0))[2].start == 2 * len(MARK)


def test_the_first_rows_behind_a_checkpoint_have_the_mark_of_the_next() -> None:
    bench, size = begun(), len(MARK)
    assert marks_sent(take(bench, 1)) == [(0, size)]
    assert marks_sent(take(bench, 2)) == [], "they are in the same checkpoint"
    assert bench.instance.snapshot().log_offset == size
    assert bench.instance.snapshot().log_offset == size, "nothing was sent in between"
    assert marks_sent(take(bench, 3)) == [(size, 2 * size)]
    assert bench.instance.snapshot().log_offset == 2 * size


def test_what_is_made_behind_the_checkpoint_that_is_begun_with_has_a_mark_of_its_own() -> None:
    bench, size = begun(), len(MARK)
    take(bench, 1)
    taken = bench.instance.snapshot()
    again = marking()
    again.instance.restore(taken, own_before=marks_between(LogOffset(0), taken.log_offset))
    again.open()
    assert marks_sent(take(again, 2)) == [(0, size), (size, 2 * size)], "readers may begin anew, too"


def test_an_epoch_may_end_before_what_has_come_already() -> None:
    """A sender that repeats an epoch which comes out shorter sends the rest in the next one."""
    bench = begun()
    take(bench, 1, 2, 3)
    taken: InstanceSnapshot = bench.instance.snapshot()
    taken.resume({SENDER: 3})
    again = marking()
    again.instance.restore(taken)
    again.open()
    assert not [action for action in take(again, 1, 2) if isinstance(action, Emit)]
    again.instance.end_epoch()
    assert again.instance.snapshot().awaited_input == {SENDER: 3}
    again.open(epoch=1)
    actions = take(again, 3, 4)
    assert sum(action.count for action in actions if isinstance(action, Emit)) == 1
    assert again.instance.snapshot().awaited_input == {}


@pytest.mark.parametrize(("start", "end"), [(0, 0), (14, 7)])
def test_there_may_be_no_marks(start: int, end: int) -> None:
    assert marks_between(LogOffset(start), LogOffset(end)) == []
