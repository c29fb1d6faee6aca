"""Which epochs of an archive are erased, what is left of them, and what of the others can still be repeated."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from clonos.protocol.archive.archive_segment import ArchiveSegment, EpochEnded
from clonos.protocol.archive.episode import Episode, Lacking, put_together
from clonos.protocol.archive.erasure import (
    ErasurePlan,
    InstanceErasure,
    StatesFound,
    ends_that_are_needed,
    epochs_before_its_own,
    erased,
    lower_bound,
    may_have_key,
    not_there,
    noted_bound,
    planned,
    with_those_that_were_waited_for,
)
from clonos.protocol.archive.missing import Absence, InstanceKeeps
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.recovery.causal import determinant_codec as codec

EPOCHS = st.frozensets(st.integers(0, 12).map(Epoch))
SEGMENT = ArchiveSegment(
    origin=Origin.of(2, 1),
    epoch=Epoch(7),
    fence=Fence.of(1, 1),
    number=1,
    written_at=10,
    realtime=True,
    program="p",
    epoch_start=LogOffset(100),
    log_start=LogOffset(103),
    log=b"45",
    blocks=(b"what came",),
    ended=EpochEnded(LogOffset(105), OutputNumber(9)),
)
FIRST = replace(
    SEGMENT,
    number=0,
    written_at=9,
    log_start=LogOffset(100),
    log=b"123",
    blocks=(b"what came first",),
    ended=None,
)


@given(EPOCHS, EPOCHS)
def test_epochs_go_together_where_records_of_the_one_waited_for_the_other(
    marked: frozenset[Epoch], waits: frozenset[Epoch]
) -> None:
    found = with_those_that_were_waited_for(marked, waits)
    assert found >= marked
    for epoch in range(14):
        if epoch in waits:
            assert (epoch in found) == (epoch + 1 in found)
    for epoch in found - marked:
        assert epoch - 1 in waits or epoch in waits, "nothing else"
    runs: list[set[int]] = []
    for epoch in sorted(found):
        if runs and epoch - 1 in runs[-1] and epoch - 1 in waits:
            runs[-1].add(epoch)
        else:
            runs.append({epoch})
    assert all(run & marked for run in runs)


@given(EPOCHS, EPOCHS)
def test_a_state_is_needed_where_what_is_kept_goes_on(
    archived: frozenset[Epoch], gone: frozenset[Epoch]
) -> None:
    needed = ends_that_are_needed(archived, gone)
    for epoch in archived:
        following = min((each for each in archived if each > epoch), default=None)
        wanted = epoch in gone and following is not None and following not in gone
        assert (epoch in needed) == wanted
    assert set(needed) <= archived


@given(st.integers(0, 12).map(Epoch), EPOCHS)
def test_a_state_serves_up_to_where_a_key_was_taken_from_it(state: Epoch, cleaned: frozenset[Epoch]) -> None:
    bound = noted_bound(state, cleaned)
    for epoch in range(14):
        taken_in_between = any(state <= each < epoch for each in cleaned)
        assert (bound is not None and epoch > bound) == taken_in_between


@given(st.lists(st.none() | st.integers(-1, 12).map(Epoch)))
def test_of_several_bounds_of_a_state_each_holds(bounds: list[Epoch | None]) -> None:
    found = lower_bound(*bounds)
    for epoch in range(-1, 14):
        is_served = all(bound is None or epoch <= bound for bound in bounds)
        assert (found is None or epoch <= found) == is_served


@given(EPOCHS, EPOCHS, EPOCHS, st.none() | st.integers(0, 12).map(Epoch), st.integers(-1, 12).map(Epoch))
def test_what_an_instance_lacks_is_unknown_or_had_not_ended(
    has: frozenset[Epoch],
    others: frozenset[Epoch],
    ended: frozenset[Epoch],
    oldest: Epoch | None,
    committed: Epoch,
) -> None:
    found = not_there(InstanceKeeps(has, oldest, has | others, committed), others, ended)
    assert found.epochs == others - has, "all of them, and no other"
    unknown = [Epoch(epoch) for each in found.missing for epoch in range(each.first, each.last + 1)]
    assert unknown == sorted(set(unknown)) and not found.open & set(unknown)
    for epoch in others - has:
        is_behind = all(epoch > each for each in has)
        assert (epoch in found.open) == (is_behind and epoch not in ended)
    for one, following in pairwise(found.missing):
        assert following.first > one.last, "in order"
        assert following.first > one.last + 1 or following.absence is not one.absence, "they are grouped"
    for each in found.missing:
        assert ("archive.keep" in each.why) == (each.absence is Absence.DROPPED)
        if each.absence is Absence.DROPPED:
            assert each.last < min(has) and oldest is not None and each.last <= oldest
        assert ("start it" in each.why) == (each.first > committed)
        if each.absence is Absence.LOST:
            assert each.last <= committed and has, "it is certain"


def test_epochs_that_are_missing_are_said_as_a_range() -> None:
    epochs = frozenset(Epoch(each) for each in (0, 1, 2, 5, 7, 8))
    has = frozenset(Epoch(each) for each in (3, 4, 6))
    found = not_there(InstanceKeeps(has, Epoch(2), epochs | has, Epoch(8)), epochs, epochs - {8})
    assert [str(each) for each in found.missing] == ["epochs 0 to 2", "epoch 5", "epoch 7"]
    assert found.open == {8}
    nothing = InstanceKeeps(frozenset(), None, epochs, Epoch(8))
    (alone,) = not_there(nothing, {Epoch(4)}, {Epoch(4)}).missing
    assert "nothing of the instance is in the archive" in alone.why


def test_of_an_erased_epoch_only_its_end_is_left() -> None:
    whole = put_together([FIRST, SEGMENT])
    assert isinstance(whole, Episode) and whole.blocks == (b"what came first", b"what came")
    left = erased(SEGMENT, 99)
    assert (left.log, left.blocks, left.erased_at) == (b"", (), 99)
    assert (left.ended, left.log_end) == (SEGMENT.ended, SEGMENT.log_end)
    for segments in ([left], [FIRST, left], [left, SEGMENT]):
        found = put_together(segments)
        assert isinstance(found, Lacking) and found.is_erased and "was erased" in found.why


def test_an_epoch_that_had_not_ended_is_erased_however_it_ends() -> None:
    left = erased(FIRST, 99)
    assert left.ended is None
    found = put_together([left, SEGMENT])
    assert isinstance(found, Lacking) and found.is_erased


@given(st.integers(0, 12).map(Epoch), EPOCHS, EPOCHS)
def test_what_was_recorded_of_an_epoch_may_be_of_the_key_unless_it_is_known_not_to_be(
    epoch: Epoch, gone: frozenset[Epoch], known: frozenset[Epoch]
) -> None:
    """Also where nothing is erased: retention has dropped the epoch, and with it what would tell."""
    assert may_have_key(epoch, gone, known) == (epoch not in known - gone)


def boundary(epoch: int) -> bytes:
    entries = bytearray()
    codec.append_boundary(entries, Epoch(epoch), 9)
    return codec.seal(entries)


def step() -> bytes:
    entries = bytearray()
    codec.append_order(entries, [(7, 1)])
    codec.append_sent(entries, 0, 0)
    return codec.seal(entries)


@pytest.mark.parametrize(
    ("before", "epochs"),
    [
        (b"", set()),
        (boundary(6) + step(), {6}),
        (step(), {6}),
        (boundary(5) + boundary(6) + step(), {5, 6}),
        (step() + boundary(6), {5, 6}),
        (b"damaged", {6}),
    ],
)
def test_a_segment_may_have_the_end_of_the_log_before_its_epoch(before: bytes, epochs: set[int]) -> None:
    log = before + boundary(7) + step()
    start = LogOffset(SEGMENT.epoch_start - len(before))
    assert epochs_before_its_own(replace(SEGMENT, log_start=start, log=log)) == epochs
    assert not epochs_before_its_own(erased(replace(SEGMENT, log_start=start, log=log), 99))


KINDS = st.sampled_from(["with key", "with recorded", "unknown", "plain"])
NAMES = st.builds(
    SnapshotName,
    st.integers(0, 12).map(Epoch),
    st.sampled_from([Fence.of(1, 1), Fence.of(2, 1)]),
    st.integers(0, 3),
    st.booleans(),
)


@given(EPOCHS, EPOCHS, st.dictionaries(NAMES, KINDS, max_size=12))
def test_nothing_is_left_of_the_key_and_what_is_kept_can_go_on(
    archived: frozenset[Epoch], gone: frozenset[Epoch], kinds: dict[SnapshotName, str]
) -> None:
    def of(kind: str) -> frozenset[SnapshotName]:
        return frozenset(name for name, each in kinds.items() if each == kind)

    states = StatesFound(sorted(kinds), of("with key"), of("with recorded"), of("unknown"))
    plan = planned(SEGMENT.origin, archived, states, gone, None)
    assert set(plan.epochs) == archived & gone
    assert set(plan.drops) >= of("unknown") and not set(plan.drops) & set(plan.cleans)
    stays = kinds.keys() - set(plan.drops) - set(plan.cleans)
    assert all(kinds[name] == "plain" for name in stays)
    for name in kinds.keys() - set(plan.drops):
        assert name.epoch not in gone or name.final
    needed = ends_that_are_needed(archived | gone, gone)
    has = {name.epoch for name in (*stays, *plan.cleans) if name.final} | set(plan.ends)
    assert has >= set(needed) & archived and set(plan.ends) <= set(needed) & archived
    for name in plan.drops:
        is_end = name.final and name.epoch in needed
        is_of_no_use = not name.final and name.epoch not in archived and kinds[name] == "with recorded"
        assert kinds[name] == "unknown" or (name.epoch in gone and not is_end) or is_of_no_use


def test_a_step_that_was_done_is_known_by_what_was_stored_since() -> None:
    before, since = Fence.of(3, 2), Fence.of(5)
    name = SnapshotName(Epoch(4), before, 32, True)
    one = InstanceErasure(
        SEGMENT.origin, ends=(Epoch(2), Epoch(6)), cleans=(name,), epochs=(Epoch(2), Epoch(6))
    )
    plan = ErasurePlan((one,), "see", b"s", b"d", Fence.of(4))
    assert not plan.is_done(name, [name]) and plan.ends_left(one, [name]) == [2, 6]
    there = [name, replace(name, fence=since), SnapshotName(Epoch(6), since, 48, True)]
    assert plan.is_done(name, there) and plan.ends_left(one, there) == [2]
    for other in (replace(name, fence=since, final=False), replace(name, fence=since, sequence=48)):
        assert not plan.is_done(name, [name, other])
    assert plan.ends_left(one, [SnapshotName(Epoch(6), before, 48, True)]) == [2, 6]
    assert plan.epochs == plan.epochs_of(SEGMENT.origin) == {2, 6}
    assert plan.epochs_of(Origin.of(9, 9)) == frozenset()
