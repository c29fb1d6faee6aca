"""In which order what is too old or too much goes from an archive, and from which states the rest is repeated."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest

from clonos.errors import StorageUnavailable
from clonos.protocol.archive.dropping import ArchivedFiles, drop_unwanted
from clonos.protocol.archive.state_schedule import BETWEEN_RECORDS, BETWEEN_S, MOST, StateSchedule
from clonos.protocol.archive.stored_segment import StoredSegments
from clonos.protocol.fence import Fence
from clonos.protocol.ids import NO_EPOCH, Epoch
from clonos.protocol.line.snapshot_name import SnapshotName


class Files(ArchivedFiles):
    """Of epochs 0 to 5, one segment each, by the process of fence 5; states as given."""

    def __init__(self, states: Iterable[tuple[int, int]], *, others: Iterable[tuple[int, int]] = ()) -> None:
        self._states = [SnapshotName(Epoch(epoch), Fence(fence), 0, True) for epoch, fence in states]
        self._others = list(others)
        self.full = False
        self.did: list[tuple[str, int]] = []

    def stored(self) -> list[StoredSegments]:
        return [StoredSegments(Epoch(epoch), Epoch(epoch), 100 * epoch, 10) for epoch in range(6)]

    def states(self) -> Collection[SnapshotName]:
        inside = SnapshotName(Epoch(4), Fence(9), 1, False)
        return [*self._states, inside]

    def left_by(self, epoch: Epoch) -> Iterable[Fence]:
        return [Fence(5), *(Fence(fence) for at, fence in self._others if at == epoch)]

    def forget_states(self, before: Epoch) -> None:
        if self.full:
            self.full = False
            raise StorageUnavailable("the disk is full")
        self.did.append(("states", before))

    def drop_segments(self, upto: Epoch) -> None:
        self.did.append(("segments", upto))


STATES = [(0, 5), (2, 5), (3, 5)]


def test_states_go_before_the_segments_that_they_are_of() -> None:
    files = Files(STATES)
    assert drop_unwanted(files, files.stored(), 250, None) == 2, "epoch 3 is wanted, of a state before it"
    assert files.did == [("states", 2), ("segments", 2)]


def test_segments_make_room_where_states_cannot_be_changed_without() -> None:
    files = Files(STATES)
    files.full = True
    drop_unwanted(files, files.stored(), 250, None)
    assert files.did == [("segments", 2), ("states", 2)]


def test_nothing_goes_where_no_state_is_before_what_is_wanted() -> None:
    files = Files([(3, 5)])
    assert drop_unwanted(files, files.stored(), 250, None) == NO_EPOCH and not files.did
    assert drop_unwanted(files, files.stored(), 0, 30) == NO_EPOCH and not files.did
    assert drop_unwanted(files, files.stored(), 0, 20) == 3


@pytest.mark.parametrize(
    ("states", "others", "behind"),
    [
        (STATES, [(2, 6)], 0),  # a later process has run epoch 2, and may have ended it otherwise
        ([*STATES, (2, 6)], [(2, 6)], 2),  # and has left a state of it
        (STATES, [(2, 4)], 2),
        ([(2, 5)], [(2, 6)], NO_EPOCH),
    ],
)
def test_a_state_that_may_be_of_a_history_that_was_given_up_is_not_the_one_that_stays(
    states: list[tuple[int, int]], others: list[tuple[int, int]], behind: int
) -> None:
    files = Files(states, others=others)
    assert drop_unwanted(files, files.stored(), 250, None) == behind


def test_a_state_is_due_at_the_first_end_and_then_now_and_then() -> None:
    schedule = StateSchedule(3600)
    assert not schedule.is_due(0, BETWEEN_RECORDS - 1, is_end=False)
    assert schedule.is_due(0, BETWEEN_RECORDS, is_end=False) and schedule.is_due(0, 0, is_end=True)
    schedule.begun(7, 10)
    assert not schedule.is_due(7 + BETWEEN_S - 1, 10, is_end=True)
    assert schedule.is_due(7 + BETWEEN_S, 10, is_end=True)
    assert not schedule.is_due(9999, BETWEEN_RECORDS + 9, is_end=False)
    assert schedule.is_due(8, BETWEEN_RECORDS + 10, is_end=False)


def test_an_archive_that_is_kept_for_long_has_states_farther_apart() -> None:
    keep = 10 * MOST * BETWEEN_S
    schedule = StateSchedule(keep)
    schedule.begun(0, 0)
    assert not schedule.is_due(10 * BETWEEN_S - 1, 0, is_end=True)
    assert schedule.is_due(10 * BETWEEN_S, 0, is_end=True)
