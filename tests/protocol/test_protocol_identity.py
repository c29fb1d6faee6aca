"""What a source's record is known by: repetitions are told from identities that are used again; names get numbers."""

from __future__ import annotations

import random

import pytest
from harness import Bench

from clonos.errors import CheckpointMismatch, InputError, Where
from clonos.protocol.engine.instance import InstanceSnapshot
from clonos.protocol.frontier import Arrivals
from clonos.protocol.ids import channel_id
from clonos.protocol.source_channels import ChannelNumbers, Numbered
from clonos_standby.replica import snapshot_metadata as metadata

SOURCE = channel_id(1, 3)


def records(*positions: int) -> list[tuple[int, int, tuple[object, ...]]]:
    return [(SOURCE, position, ("k", position, ("emit",))) for position in positions]


def restored(snapshot: InstanceSnapshot, log: bytes) -> Bench:
    bench = Bench(random.Random(2))
    bench.saved = [(0, log)]
    bench.restore(b"", snapshot)
    return bench


def test_what_the_epochs_before_brought_does_not_come_again() -> None:
    bench = Bench(random.Random(1))
    bench.open(epoch=5)
    bench.take(records(4, 5, 6))
    bench.carry_out(bench.instance.end_epoch())
    bench.open(epoch=6)
    with pytest.raises(
        InputError,
        match=r"position 5 came on the channel from node 1, partition 3, which had come to 6 before this epoch began "
        r"\(operator 'op', instance 0, epoch 6, channel 193, position 5\)",
    ):
        bench.take(records(5))
    bench.open(epoch=6)
    bench.take(records(7))


def test_an_attempt_that_resumes_drops_what_its_epoch_repeats_and_nothing_else() -> None:
    before = Bench(random.Random(1))
    before.open(epoch=5)
    before.take(records(1, 2))
    before.open(epoch=6)
    before.take(records(3, 4, 5))
    resumed = before.instance.snapshot()
    resumed.resume({})
    again = restored(resumed, before.log)
    again.open(epoch=6)
    again.take(records(3, 4, 5, 6))
    assert [row[1] for row in again.rows] == [6]
    wrong = restored(resumed, before.log)
    wrong.open(epoch=6)
    with pytest.raises(InputError, match="had come to 2"):
        wrong.take(records(1))


def test_an_epoch_that_ends_before_what_it_resumed_from_is_gone_on_with() -> None:
    """A real-time source is read as far as it happens to be; the next epoch repeats the rest."""
    before = Bench(random.Random(1))
    before.open(epoch=5)
    before.take(records(1, 2, 3))
    snapshot = before.instance.snapshot()
    snapshot.resume({})
    again = restored(snapshot, before.log)
    again.open(epoch=5)
    again.take(records(1))
    again.carry_out(again.instance.end_epoch())
    for bench in (again, restored(again.instance.snapshot(), again.log)):
        bench.rows = []
        bench.open(epoch=6)
        bench.take(records(2, 3, 4))
        assert [row[1] for row in bench.rows] == [4]
        bench.open(epoch=7)
        with pytest.raises(InputError, match="had come to 4"):
            bench.take(records(4))


def test_a_replacement_knows_what_came_before_its_snapshot() -> None:
    before = Bench(random.Random(1))
    before.open(epoch=5)
    before.take(records(1, 2, 3))
    again = restored(before.instance.snapshot(), before.log)
    again.open(epoch=5)
    again.carry_out(again.instance.end_epoch())
    again.open(epoch=6)
    with pytest.raises(InputError, match="had come to 3"):
        again.take(records(1))


def test_the_metadata_of_a_snapshot_keeps_it_and_that_of_older_ones_is_read() -> None:
    bench = Bench(random.Random(1))
    bench.open(epoch=5)
    bench.take(records(1, 2))
    bench.open(epoch=6)
    bench.take(records(3))
    raw = metadata.encode(bench.instance.snapshot())
    found = metadata.decode(raw, lambda channel: tuple)
    assert (found.began, found.arrived) == ({SOURCE: 2}, {SOURCE: 3})
    resumed = metadata.decode(metadata.resumed(raw, {}), lambda channel: tuple)
    assert (resumed.began, resumed.arrived) == ({SOURCE: 2}, {SOURCE: 2})
    older = metadata.values.decode(raw)
    del older["began"], older["arrived"]
    found = metadata.decode(metadata.values.encode(older), lambda channel: tuple)
    again = restored(found, bench.log)
    again.open(epoch=7)
    again.take(records(3, 4))  # nothing is proven of the epochs before; from now on it is known
    assert [row[1] for row in again.rows] == [4]
    again.open(epoch=8)
    with pytest.raises(InputError, match="had come to 4"):
        again.take(records(4))


def test_columns_are_checked_against_the_epochs_before() -> None:
    import numpy as np

    arrivals = Arrivals(Where("op", 0, 6), {SOURCE: 9})
    assert arrivals.check_columns(np.array([SOURCE, SOURCE]), np.array([10, 11])) == {SOURCE: 10}
    with pytest.raises(InputError, match="had come to 9"):
        Arrivals(Where("op", 0, 6), {SOURCE: 9}).check_columns(np.array([SOURCE]), np.array([9]))


# ------------------------------------------------------------------- numbers


def test_names_are_numbered_densely_by_node_and_never_anew() -> None:
    numbers = ChannelNumbers()
    first = numbers.assign([(1, "a/0"), (1, "b/0"), (2, "a/0"), (1, "a/0")])
    assert first == [Numbered(1, 0, "a/0"), Numbered(1, 1, "b/0"), Numbered(2, 0, "a/0")]
    assert numbers.number(1, "a/0") is None  # no task is told before it is durable
    assert numbers.assign([(1, "a/0")]) == [Numbered(1, 0, "a/0")]
    numbers.add(first)
    assert numbers.assign([(1, "b/0"), (1, "a/1")]) == [Numbered(1, 2, "a/1")]
    assert (numbers.number(1, "b/0"), numbers.name(1, 1), numbers.name(2, 1)) == (1, "b/0", None)
    found_again = ChannelNumbers(first)
    assert found_again.assign([(2, "c"), (1, "c")]) == [Numbered(2, 1, "c"), Numbered(1, 2, "c")]


def test_a_driver_that_finds_its_page_taken_numbers_the_other_names() -> None:
    one, other = ChannelNumbers(), ChannelNumbers()
    asked = [(1, "x"), (1, "y")]
    other.add(other.assign([(1, "y")]))
    one.add([Numbered(1, 0, "y")])
    assert one.assign(asked) == other.assign(asked) == [Numbered(1, 1, "x")]


@pytest.mark.parametrize("entry", [Numbered(1, 0, "other"), Numbered(1, 5, "x")])
def test_numbers_that_contradict_each_other_are_refused(entry: Numbered) -> None:
    numbers = ChannelNumbers([Numbered(1, 0, "x")])
    numbers.add([Numbered(1, 0, "x")])
    with pytest.raises(CheckpointMismatch, match="of source node 1 is numbered twice"):
        numbers.add([entry])
