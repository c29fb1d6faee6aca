"""Which segments of an archive go into one file: every one once, whole epochs, never one that is not over."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from clonos.protocol.archive.compaction import FEWEST, LARGE, MOST, MOST_BYTES, to_compact
from clonos.protocol.archive.retention import kept_behind
from clonos.protocol.archive.stored_segment import SegmentName, StoredSegments
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch

FENCE = Fence(1 << 64)


def name(epoch: int, number: int = 0) -> SegmentName:
    return SegmentName(Epoch(epoch), 1000 * epoch + number, FENCE, number)


def of_epochs(*epochs: int, size: int = 100) -> dict[SegmentName, int]:
    return dict.fromkeys(map(name, epochs), size)


def test_few_wait_for_others() -> None:
    few = of_epochs(*range(FEWEST - 1))
    assert to_compact(few, [], Epoch(1000)) == []
    assert to_compact(few | of_epochs(FEWEST), [], Epoch(1000)) == [[*few, name(FEWEST)]]
    assert to_compact(few | of_epochs(FEWEST), [], Epoch(FEWEST - 1)) == [], "the last one is not over"


def test_large_ones_stay_by_themselves() -> None:
    small, large = of_epochs(*range(0, 200, 2)), of_epochs(*range(1, 200, 2), size=LARGE + 1)
    assert to_compact(small | large, [], Epoch(1000)) == [list(small)]


def test_what_was_written_late_stays() -> None:
    """Such a file is not written again; and none goes around it, or else neither could go before the other."""
    known = [range(100, 200)]
    segments = of_epochs(*range(300))
    assert [(each[0].epoch, each[-1].epoch) for each in to_compact(segments, known, Epoch(1000))] == [
        (0, 99),
        (200, 299),
    ]


@pytest.mark.parametrize("seed", range(200))
def test_each_goes_once_and_whole_epochs_do(seed: int) -> None:
    rng = Random(seed)
    segments = {
        name(epoch, number): rng.choice((10, 1000, LARGE // 4, LARGE))
        for epoch in range(rng.randrange(1, 300))
        for number in range(rng.choice((0, 1, 1, 2, 5, 60)))
    }
    starts = sorted(rng.sample(range(300), 2 * rng.randrange(3)))
    known = [range(start, stop) for start, stop in zip(starts[::2], starts[1::2], strict=True)]
    upto = Epoch(rng.randrange(300))
    files = to_compact(segments, known, upto)
    found = [each for file in files for each in file]
    assert found == sorted(set(found)) and set(found) <= set(segments)
    for file in files:
        epochs = {each.epoch for each in file}
        assert set(file) == {each for each in segments if each.epoch in epochs}, "an epoch is in one file"
        assert FEWEST <= len(file) <= MOST
        assert len(epochs) == 1 or sum(map(segments.__getitem__, file)) <= MOST_BYTES
        assert max(epochs) <= upto
        assert not any(set(each) & set(range(min(epochs), max(epochs) + 1)) for each in known)
    for one, other in pairwise(files):
        assert one[-1].epoch < other[0].epoch
    assert to_compact({each: 1 for each in segments if each not in found}, known, upto) is not None


def test_a_file_is_kept_as_long_as_any_of_its_epochs_is() -> None:
    def several(first: int, last: int, size: int = 10) -> StoredSegments:
        return StoredSegments(Epoch(first), Epoch(last), 100 * last, size)

    stored = [several(1, 50), several(51, 99), several(100, 100), several(101, 101)]
    states = [Epoch(each) for each in (20, 50, 70, 99, 100)]
    assert kept_behind(stored, states, 9900) == 50, "epoch 99 is wanted, and 51 is in its file"
    assert kept_behind(stored, states, 9901) == 99
    assert kept_behind(stored, states, 0, most=25) == 99 and kept_behind(stored, states, 0, most=30) == 50
    late = [*stored, several(70, 70)]
    assert kept_behind(late, states, 9900) == 50, "a segment of an epoch inside counts with the file"
