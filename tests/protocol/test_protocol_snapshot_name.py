"""Which snapshots count, and which may go."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from clonos.protocol.fence import Fence
from clonos.protocol.line import snapshot_name
from clonos.protocol.line.snapshot_name import KEPT_INSIDE, Since, SnapshotName, is_kept

ATTEMPT = Fence.of(0, 1)
START = Fence.of(1)


def fence(start: int, attempt: int, replacement: int) -> int:
    return start * START + attempt * ATTEMPT + replacement


fences = st.builds(fence, st.integers(1, 2), st.integers(0, 2), st.integers(0, 2))
kinds = st.sampled_from([(True, False), (False, False), (False, True)])
one = st.builds(
    lambda epoch, fence, sequence, kind: SnapshotName(epoch, fence, sequence, *kind),
    st.integers(0, 4),
    fences,
    st.integers(0, 40),
    kinds,
)
many = st.sets(one, max_size=30)
sinces = st.none() | st.builds(Since, st.integers(1, 2), st.integers(0, 4), st.none() | one)


@given(one, one)
def test_texts_sort_as_names_do(left: SnapshotName, right: SnapshotName) -> None:
    assert SnapshotName.parse(str(left)) == left
    if (left.epoch, left.fence, left.sequence) != (right.epoch, right.fence, right.sequence):
        assert (str(left) < str(right)) == (left < right)


@given(st.integers(0, 300))
def test_older_snapshots_are_kept_the_more_rarely(newest: int) -> None:
    kept: set[int] = set()
    for sequence in range(newest + 1):
        kept = {one for one in kept if one > sequence - KEPT_INSIDE or is_kept(one, sequence)} | {sequence}
    assert len(kept) <= KEPT_INSIDE + 4
    if newest >= 31:
        assert min(kept) <= newest - 16 + 1


@given(many, st.integers(0, 4), fences, sinces)
def test_no_attempt_drops_what_a_successor_wrote(
    names: set[SnapshotName], epoch: int, fence: int, since: Since | None
) -> None:
    gone = [
        *snapshot_name.overtaken(names, epoch, fence),
        *snapshot_name.outlived(names, epoch, fence, since),
        *snapshot_name.superseded(names, SnapshotName(epoch, fence, 41, final=True)),
    ]
    assert all(name.fence <= fence for name in gone)


@given(many, st.integers(0, 4), fences, sinces)
def test_the_end_of_a_committed_epoch_stays(
    names: set[SnapshotName], epoch: int, fence: int, since: Since | None
) -> None:
    end = snapshot_name.ends(names, epoch, since)[:1]
    left = names - set(snapshot_name.outlived(names, epoch, fence, since))
    assert snapshot_name.ends(left, epoch, since)[:1] == end
    assert all(name.epoch >= epoch or name in end or name.fence > fence for name in left)


@given(many, st.integers(0, 4), fences)
def test_an_attempt_keeps_where_it_began_and_what_binds_it(
    names: set[SnapshotName], epoch: int, fence: int
) -> None:
    left = names - set(snapshot_name.overtaken(names, epoch, fence))
    for rule in (snapshot_name.resumed, snapshot_name.binding):
        assert set(rule(left, epoch, fence)) == set(rule(names, epoch, fence))
    assert snapshot_name.ends(left, epoch - 1, None) == snapshot_name.ends(names, epoch - 1, None)
    mine = [name for name in snapshot_name.in_epoch(left, epoch) if name.fence <= fence]
    assert all(name.resumed or name.final for name in mine)


@given(many, one)
def test_the_newest_inside_an_epoch_stay(names: set[SnapshotName], newest: SnapshotName) -> None:
    left = names - set(snapshot_name.superseded(names, newest))
    inside = sorted(name for name in names if name.epoch == newest.epoch and not (name.final or name.resumed))
    assert set(inside[-KEPT_INSIDE:]) <= left
    assert {name for name in names if name.final or name.resumed or name.epoch != newest.epoch} <= left


def test_the_next_start_is_bound_by_nothing() -> None:
    ended = SnapshotName(3, fence(1, 0, 1), 7, final=True)
    assert snapshot_name.binding([ended], 3, fence(1, 1, 0)) == [ended]
    assert snapshot_name.binding([ended], 3, fence(2, 0, 0)) == []
    assert snapshot_name.overtaken([ended], 3, fence(2, 0, 0)) == [ended]


def test_only_the_newest_attempt_is_in_a_line() -> None:
    old, new = (SnapshotName(3, fence(1, attempt, 0), 7, final=False) for attempt in (0, 1))
    assert snapshot_name.of_newest_attempt([new, old], 3, fence(1, 1, 2)) == [new]


def test_what_an_earlier_start_made_of_an_epoch_that_is_run_again_has_not_happened() -> None:
    """Epoch 5 is run again by start 2, which finds nothing to do for the instance."""
    before, overtaken, later = (
        SnapshotName(epoch, Fence.of(start), 0, final=True) for epoch, start in ((4, 1), (5, 1), (6, 2))
    )
    since = Since(2, 5, before)
    names = {before, overtaken}
    assert snapshot_name.ends(names, 5, None)[0] == overtaken
    assert snapshot_name.ends(names, 5, since) == [before]
    assert snapshot_name.outlived(names, 7, Fence.of(2), since) == [overtaken]
    assert snapshot_name.ends({*names, later}, 6, since) == [later, before]
    assert snapshot_name.ends(names, 5, Since(2, 5, None)) == []


@given(many, st.integers(0, 4))
def test_what_a_lost_process_stored_late_has_not_happened(names: set[SnapshotName], epoch: int) -> None:
    """What counts goes on, from one process to the next: none counts that a later one did not begin behind."""
    found = snapshot_name.of_all_attempts(names, epoch)
    inside = {name for name in names if name.epoch == epoch and not name.final}
    assert found == sorted(found) and set(found) <= inside
    for earlier, later in pairwise(found):
        assert earlier.fence == later.fence or earlier.sequence < later.sequence
    for name in inside - set(found):
        assert any(one.fence > name.fence and one.sequence <= name.sequence for one in inside)


def test_a_process_counts_on_from_where_the_lost_one_is_known_to_have_come() -> None:
    lost, other = START, START + 1
    known = [SnapshotName(0, lost, number, False) for number in (4, 5)]
    late = SnapshotName(0, lost, 7, False)
    begun = SnapshotName(0, other, 5, False, True)
    its_own = SnapshotName(0, other, 6, False)
    assert snapshot_name.of_all_attempts([*known, late], 0) == [*known, late]
    assert snapshot_name.of_all_attempts([*known, late, its_own], 0) == [*known, its_own]
    assert snapshot_name.of_all_attempts([*known, late, begun], 0) == [known[0], begun]
