"""The fence: its parts, its order, what it was when it had 64 bits, and what happens at its ends."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, strategies as st

from clonos.errors import CounterExhausted, ProtocolError
from clonos.protocol.fence import Fence, attempt_of, generation_of, of_same_attempt

FENCES = st.builds(Fence.of, st.integers(0, 2**64 - 1), st.integers(0, 2**48 - 1), st.integers(0, 2**16 - 1))


@given(FENCES)
def test_it_is_made_of_its_parts_and_comes_back_as_text_and_bytes(fence: Fence) -> None:
    assert Fence.of(fence.generation, fence.attempt, fence.replacement) == fence
    assert generation_of(int(fence)) == fence.generation
    assert Fence.parse(fence.text) == Fence.unpack(fence.pack()) == fence
    assert len(fence.text) == 32 and len(fence.pack()) == 16
    for again in (copy.deepcopy(fence), pickle.loads(pickle.dumps(fence))):
        assert again == fence and isinstance(again, Fence)


@given(FENCES, FENCES)
def test_it_is_compared_as_a_whole_and_so_are_its_texts_and_bytes(one: Fence, other: Fence) -> None:
    parts = [(fence.generation, fence.attempt, fence.replacement) for fence in (one, other)]
    assert (one < other) == (parts[0] < parts[1]) == (one.text < other.text) == (one.pack() < other.pack())
    assert of_same_attempt(one, other) == (parts[0][:2] == parts[1][:2])
    assert (attempt_of(one) < attempt_of(other)) == (parts[0][:2] < parts[1][:2])


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_what_had_64_bits_means_what_it_meant(one: int, other: int) -> None:
    wide = [Fence.widened(narrow) for narrow in (one, other)]
    assert [fence.narrowed for fence in wide] == [one, other]
    assert (wide[0] < wide[1]) == (one < other)
    assert wide[0].generation == one >> 48 and wide[0].attempt == one >> 16 & 0xFFFFFFFF


def test_a_start_of_the_query_is_below_all_its_attempts_and_above_all_before() -> None:
    """Spark counts task attempts from 0."""
    assert Fence.of(7) < Fence.first(7, 0) < Fence.first(7, 0).next() < Fence.first(7, 1) < Fence.of(8)
    assert Fence.first(6, 2**48 - 2) < Fence.of(7)


def test_task_attempts_beyond_32_bits_are_told_apart() -> None:
    later, early = Fence.first(1, 2**32 + 5), Fence.first(1, 5)
    assert later > early and not of_same_attempt(later, early)


def test_the_last_replacement_does_not_count_into_the_next_attempt() -> None:
    fence = Fence.of(1, 5, 0xFFFE).next()
    assert fence.is_last and of_same_attempt(fence, Fence.of(1, 5))
    with pytest.raises(CounterExhausted, match="replacement 65536"):
        fence.next()


def test_what_does_not_fit_is_refused() -> None:
    assert Fence.of(2**64 - 1, 2**48 - 1, 2**16 - 1) == 2**128 - 1
    for parts in ((2**64, 0, 0), (0, 2**48, 0), (0, 0, 2**16), (-1, 0, 0), (0, -1, 0), (0, 0, -1)):
        with pytest.raises(CounterExhausted):
            Fence.of(*parts)
    with pytest.raises(CounterExhausted, match="task attempt 281474976710656 does not fit"):
        Fence.first(1, 2**48 - 1)
    for text in ("", "0" * 31, "0" * 33, "G" * 32, "F" * 32, 5, None):
        with pytest.raises(ProtocolError):
            Fence.parse(text)
    with pytest.raises(ValueError, match="16 bytes"):
        Fence.unpack(b"x" * 15)
