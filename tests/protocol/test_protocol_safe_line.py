"""The safe line of uncoordinated checkpoints: when it is drawn, over which checkpoints, and what it says."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, strategies as st
from test_protocol_query_coordinator import CHAIN, OPERATOR, Recorded

from clonos.errors import StorageUnavailable
from clonos.protocol.fence import Fence, Generation
from clonos.protocol.ids import LOG_BEGIN, NO_EPOCH, Epoch, Origin, OutputNumber
from clonos.protocol.line.recovery_line import Point, RecoveryLine, Resume
from clonos.protocol.line.snapshot_name import SnapshotName, is_marked, marked_from, superseded
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.recovery.rollback.rounds import SafePoint, StoredRound
from clonos.protocol.recovery.uncoordinated.independent_checkpoints import own_limits
from clonos.protocol.recovery.uncoordinated.safe_line import SafeLine, durable, safe_points

ONE, TWO = Origin.of(2, 0), Origin.of(3, 0)


def stored(number: int, epoch: int = 0) -> StoredRound:
    return StoredRound(Epoch(epoch), Round(number))


def name(number: int, *, generation: int = 1, resumed: bool = False) -> SnapshotName:
    return SnapshotName(Epoch(0), Fence.of(generation), number, final=False, resumed=resumed)


def point(of: SnapshotName) -> Point:
    return Point(str(of), LOG_BEGIN, {}, {})


class Drawn:
    """Every instance is safe where it has stored last."""

    def __init__(self) -> None:
        self.asked: list[dict[Origin, StoredRound]] = []
        self.fails = False

    def __call__(self, stored: Mapping[Origin, StoredRound]) -> dict[Origin, SafePoint]:
        if self.fails:
            raise StorageUnavailable("the checkpoint cannot be read")
        self.asked.append(dict(stored))
        return {origin: SafePoint(last, OutputNumber(5)) for origin, last in stored.items()}


def test_it_is_drawn_when_a_checkpoint_is_new_and_not_too_often() -> None:
    draw = Drawn()
    line = SafeLine(draw, interval=4.0)
    assert not line.look(0.0, NO_EPOCH).safe and not draw.asked, "nothing is stored"
    line.told({ONE: stored(1)})
    assert line.look(0.0, NO_EPOCH).safe_for(ONE) == stored(1)
    line.told({ONE: stored(2)})
    assert line.look(0.5, NO_EPOCH).safe_for(ONE) == stored(1)
    assert line.look(1.0, NO_EPOCH).safe_for(ONE) == stored(2)
    line.told({ONE: stored(2)})
    line.look(9.0, NO_EPOCH)
    assert len(draw.asked) == 2, "that is no news"


def test_it_is_drawn_again_when_an_epoch_has_committed() -> None:
    """What was stored in the next one before that did not count, and an idle instance stores no more."""
    draw = Drawn()
    line = SafeLine(draw, interval=1.0)
    line.told({ONE: stored(1, epoch=1)})
    line.look(0.0, NO_EPOCH)
    assert line.look(5.0, Epoch(0)).committed == 0
    assert len(draw.asked) == 2
    line.look(9.0, Epoch(0))
    assert len(draw.asked) == 2


def test_what_comes_late_is_no_step_back() -> None:
    draw = Drawn()
    line = SafeLine(draw, interval=0.0)
    line.told({ONE: stored(3)})
    line.look(0.0, NO_EPOCH)
    line.told({ONE: stored(2), TWO: stored(1)})
    line.look(1.0, NO_EPOCH)
    assert draw.asked[-1] == {ONE: stored(3), TWO: stored(1)}


def test_a_line_that_cannot_be_drawn_is_drawn_later() -> None:
    draw = Drawn()
    line = SafeLine(draw, interval=1.0)
    line.told({ONE: stored(1)})
    draw.fails = True
    with pytest.raises(StorageUnavailable):
        line.look(0.0, NO_EPOCH)
    draw.fails = False
    assert line.look(5.0, NO_EPOCH).safe_for(ONE) == stored(1)


def test_a_checkpoint_counts_when_its_instance_has_said_that_it_is_stored() -> None:
    """It may be seen in the storage before it would outlive a power failure; the one before it does by then."""
    begun, older = name(3, resumed=True), name(2, generation=0)
    points = [point(each) for each in (older, begun, name(4), name(5), name(6))]
    start = Generation(1)
    assert durable(points[:3], start, None) == points[:2]
    assert durable(points, start, None) == points[:4]
    assert durable(points, start, stored(5)) == points[:4]
    assert durable(points, start, stored(9)) == points
    assert durable(points, start, stored(9, epoch=-1)) == points[:4]


def test_what_an_instance_said_is_too_old_to_be_there_counts_for_what_came_behind_it() -> None:
    """One that takes checkpoints without a pause has removed what it had said by the time that the driver looks."""
    points = [point(name(number)) for number in (40, 41)]
    assert durable(points, Generation(1), stored(5)) == points[:1]


def test_the_line_says_where_instances_begin_and_what_they_send_again() -> None:
    line = RecoveryLine(
        Generation(1),
        Epoch(0),
        {ONE: Resume(str(name(4)), unread=OutputNumber(7)), TWO: Resume(str(name(2)))},
    )
    assert safe_points(line) == {
        ONE: SafePoint(stored(4), OutputNumber(7)),
        TWO: SafePoint(stored(2), OutputNumber(0)),
    }


@given(numbers=st.sets(st.integers(0, 100)), newest=st.integers(101, 140), kept_from=st.integers(0, 100))
def test_marked_checkpoints_from_the_safe_line_on_are_kept_and_the_newest_two(
    numbers: set[int], newest: int, kept_from: int
) -> None:
    names = [name(number) for number in numbers | {newest}]
    gone = {each.sequence for each in superseded(names, name(newest), kept_from)}
    last = sorted(numbers | {newest})[-2:]
    kept = {number for number in numbers if number >= kept_from and (is_marked(number) or number in last)}
    assert gone == numbers - kept


@given(number=st.integers(0, 1000))
def test_the_next_marked_number_is_the_first(number: int) -> None:
    following = marked_from(number)
    assert is_marked(following) and not any(map(is_marked, range(number, following)))


def test_instances_do_not_take_their_checkpoints_all_at_once() -> None:
    intervals = {own_limits(Origin.of(2, at), 10.0).interval for at in range(20)}
    assert len(intervals) == 20 and all(8 <= interval <= 12 for interval in intervals)
    assert own_limits(ONE, 10.0) == own_limits(ONE, 10.0)


@pytest.mark.parametrize(
    ("recovery", "last"), [(RecoveryKind.UNCOORDINATED, [16, 32]), (RecoveryKind.EAGER, [*range(1, 40)])]
)
def test_where_a_failure_leads_is_reckoned_by_checkpoints_that_are_kept(
    recovery: RecoveryKind, last: list[int]
) -> None:
    """Of an instance that may go back others than the marked ones may be gone when it strikes."""
    coordinator = Recorded()
    coordinator._recoveries, coordinator.generation = Recoveries.of(CHAIN, recovery), Generation(1)
    taken = [point(name(number)) for number in range(1, 40)]
    lasting = coordinator._lasting(OPERATOR, taken, stored(39))
    assert [found.sequence for each in lasting if (found := SnapshotName.parse(each.name))] == last
