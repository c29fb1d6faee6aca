"""Which messages count in a log that older writers can still append to."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from clonos.errors import Fenced
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Origin
from clonos.protocol.roles.append_order import MARK, AppendOrder, check_appending

MESSAGES = st.lists(st.tuples(st.integers(1, 4).map(Fence.of), st.integers(MARK, 5)), max_size=30)


@given(MESSAGES)
def test_what_counts_only_rises(messages: list[tuple[Fence, int]]) -> None:
    order = AppendOrder()
    counted = [each for each in messages if order.counts(*each)]
    assert counted == sorted(set(counted))
    if messages:
        assert counted[-1] == max(messages)
        assert (order.fence, order.number) == max(messages)


@given(MESSAGES, MESSAGES)
def test_a_mark_voids_all_of_lower_fences_behind_it(
    before: list[tuple[Fence, int]], after: list[tuple[Fence, int]]
) -> None:
    order = AppendOrder()
    for each in before:
        order.counts(*each)
    mark = Fence.of(3)
    order.counts(mark, MARK)
    assert all(each[0] >= mark for each in after if order.counts(*each))


@given(st.integers(1, 5), st.data())
def test_a_message_that_lies_beside_the_last_one_of_its_writer_counts(upto: int, data: st.DataObject) -> None:
    """Whatever comes later: what stands before a message decides alone."""
    mine = Fence.of(2)
    order = AppendOrder()
    for fence, number in data.draw(MESSAGES):
        if fence < mine:
            order.counts(fence, number)
    assert all(order.counts(mine, number) for number in range(1, upto + 1))
    check_appending(mine, order, origin=Origin.of(5, 0))


def test_a_writer_behind_a_higher_fence_hears_of_it() -> None:
    order = AppendOrder()
    check_appending(LOWEST_FENCE, order, origin=Origin.of(5, 1))
    assert order.counts(Fence.of(2), MARK)
    with pytest.raises(Fenced, match="sink node 5 was taken over") as fenced:
        check_appending(Fence.of(1), order, origin=Origin.of(5, 1))
    assert fenced.value.where is not None
    assert fenced.value.where.instance == 1
