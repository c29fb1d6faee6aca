"""The bytes of a Kafka sink's own topic: golden, damaged anywhere, cut anywhere; and the fence log that they say."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from clonos.errors import Fenced, LogCorrupt
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.line.kept_commit import KeptCommit
from clonos.protocol.roles.fence_log import FenceLog, Offer, Raising, Recording, Taking, Trimming
from clonos.protocol.roles.sink_fence import NO_WRITER, Holder
from clonos.sinks.kafka_format import (
    LARGEST_PART,
    Entry,
    EntryReader,
    Intent,
    Standing,
    counted_by,
    pack_appended,
    pack_entry,
    pack_mark,
    pack_offer,
    pack_standing,
    unpack_offer,
)

ORIGIN = Origin.of(5, 2)
GOLDEN = {
    "taking": (
        Taking(ORIGIN, Holder(Fence.of(3, 1), "ab")),
        "434c4b4601428897fb95010502c41000000000000000030000000000010000a26162",
    ),
    "raising": (Raising(Fence.of(3)), "434c4b4601a6e40a0b9202c41000000000000000030000000000000000"),
    "recording": (
        Recording(KeptCommit(Fence.of(3), Epoch(7), b"\0r")),
        "434c4b460106472e659203c423434c4b4301f2336d500000000000000003000000000000000007000000000000000072",
    ),
    "trimming": (
        Trimming(Fence.of(3), ORIGIN, 300),
        "434c4b4601eba60b209504c410000000000000000300000000000000000502cd012c",
    ),
}
FENCES = st.builds(Fence.of, st.integers(1, 4), st.integers(0, 3))
ORIGINS = st.builds(Origin.of, st.integers(1, 3), st.integers(0, 2))
OFFERS: st.SearchStrategy[Offer] = st.one_of(
    st.builds(Taking, ORIGINS, st.builds(Holder, FENCES, st.sampled_from(["a", "b", "c"]))),
    st.builds(Raising, FENCES),
    st.builds(Recording, st.builds(KeptCommit, FENCES, st.integers(0, 9).map(Epoch), st.binary(max_size=5))),
    st.builds(Trimming, FENCES, ORIGINS, st.integers(0, 2**40)),
)
ENTRIES = st.builds(
    Entry,
    FENCES,
    st.booleans(),
    st.dictionaries(st.integers(0, 2**60), st.integers(-1, 2**62), max_size=4),
    st.lists(st.binary(max_size=30), max_size=4),
)
INTENTS = st.builds(
    Intent,
    st.dictionaries(st.integers(0, 2**60), st.integers(0, 2**62), max_size=4),
    st.integers(1, 2**31),
    st.integers(0, 2**32 - 1),
)
APPENDED = st.builds(
    lambda entry, intent: replace(entry, intent=intent, appended=True), ENTRIES, st.none() | INTENTS
)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_offers(name: str) -> None:
    offer, golden = GOLDEN[name]
    assert pack_offer(offer).hex() == golden
    assert unpack_offer(bytes.fromhex(golden), "here") == offer


STANDING = Standing(
    9,
    FenceLog(
        floor=Fence.of(3),
        holders={ORIGIN: Holder(Fence.of(3, 1), "ab")},
        partitions={ORIGIN: 1},
        commit=KeptCommit(Fence.of(3), Epoch(7), b"r"),
        trimmed={ORIGIN: 300},
    ),
)


def test_golden_standing() -> None:
    golden = (
        "434c4b460140122feb950509c4100000000000000003000000000000000091960502c410000000000000000300"
        "00000000010000a2616201cd012cc422434c4b430134ae23d90000000000000003000000000000000007000000"
        "0000000072"
    )
    assert pack_standing(STANDING).hex() == golden
    assert unpack_offer(bytes.fromhex(golden), "here") == STANDING


def test_golden_entry() -> None:
    golden = (
        "434c4b4501bd7cd8e5000000000100000094c41000000000000000030000000000010000c382cf000001000000"
        "0000cd012c01ff92c40564656c7461c400"
    )
    entry = Entry(Fence.of(3, 1), True, {2**40: 300, 1: -1}, [b"delta", b""])
    [packed] = pack_entry(entry)
    assert packed.hex() == golden
    assert EntryReader("here").take(4, packed) == (4, entry)


def test_golden_entry_of_a_sink_that_writes_at_once() -> None:
    golden = (
        "434c4b450278c1be87000000000000000300000000000100000700000000000000000000000100000094c381"
        "01cd012b91c40564656c7461938101cd012c0c05"
    )
    entry = Entry(Fence.of(3, 1), True, {1: 299}, [b"delta"], Intent({1: 300}, 12, 5), appended=True)
    [packed] = pack_appended(entry, 7)
    assert packed.hex() == golden
    assert EntryReader("here").take(4, packed) == (4, entry)
    assert counted_by(packed, "here") == (Fence.of(3, 1), 7)


def test_golden_mark() -> None:
    golden = "434c4b45025c34728b0000000000000003000000000000000000000000000000000000000000000000"
    assert pack_mark(Fence.of(3)).hex() == golden
    assert counted_by(bytes.fromhex(golden), "here") == (Fence.of(3), 0)
    reader = EntryReader("here")
    assert reader.take(0, bytes.fromhex(golden)) is None
    assert reader.order.fence == Fence.of(3)


@given(APPENDED)
def test_an_appended_entry_is_read_as_it_was_written(entry: Entry) -> None:
    [packed] = pack_appended(entry, 1)
    assert EntryReader("here").take(0, packed) == (0, entry)


def test_a_large_entry_of_which_parts_do_not_count_is_passed_over() -> None:
    """A writer was taken over in the middle; its successor writes the entry again, and late parts follow."""
    deltas = [b"x" * LARGEST_PART, b"y" * LARGEST_PART]
    old = Entry(Fence.of(1), True, {}, deltas, Intent({1: 2}, 1, 5), appended=True)
    new = replace(old, fence=Fence.of(2))
    late, again = pack_appended(old, 1), pack_appended(new, 2)
    log = [*late[:2], pack_mark(Fence.of(2), 1), late[2], *again, late[2], *late]
    reader = EntryReader("here")
    found = [taken for at, message in enumerate(log) if (taken := reader.take(at, message)) is not None]
    assert found == [(4, new)]


@given(ENTRIES)
def test_an_entry_is_read_as_it_was_written(entry: Entry) -> None:
    [packed] = pack_entry(entry)
    assert EntryReader("here").take(0, packed) == (0, entry)


def test_a_large_entry_is_put_together_again() -> None:
    entry = Entry(Fence.of(1), False, {1: 2}, [b"x" * LARGEST_PART, b"y" * LARGEST_PART])
    parts = pack_entry(entry)
    assert len(parts) == 3
    reader = EntryReader("here")
    assert [reader.take(7 + at, part) for at, part in enumerate(parts)] == [None, None, (7, entry)]
    # The first ones may have been deleted meanwhile.
    small = Entry(Fence.of(1), True, {1: 3}, [])
    late = EntryReader("here")
    with pytest.raises(LogCorrupt, match="offset 8"):
        late.take(8, parts[1])
    assert late.take(10, *pack_entry(small)) == (10, small)


@given(st.data())
def test_damage_is_noticed(data: Any) -> None:
    sealed = data.draw(
        st.one_of(
            OFFERS.map(pack_offer),
            ENTRIES.map(lambda each: pack_entry(each)[0]),
            APPENDED.map(lambda each: pack_appended(each, 1)[0]),
            FENCES.map(pack_mark),
            st.just(pack_standing(STANDING)),
        )
    )
    at = data.draw(st.integers(0, len(sealed) - 1))
    cut = sealed[:at]
    changed = sealed[:at] + bytes([sealed[at] ^ data.draw(st.integers(1, 255))]) + sealed[at + 1 :]
    for wrong in (cut, changed):
        with pytest.raises(LogCorrupt, match="here"):
            unpack_offer(wrong, "here")
        with pytest.raises(LogCorrupt, match="here"):
            EntryReader("here").take(0, wrong)
        with pytest.raises(LogCorrupt, match="here"):
            counted_by(wrong, "here")


@given(st.lists(OFFERS, max_size=30), st.data())
def test_the_fence_log_says_the_same_from_any_place_on(offers: list[Offer], data: Any) -> None:
    """Written down and taken up again in the middle, too. Fences only rise, and what is refused changes nothing."""
    state, again = FenceLog(), FenceLog()
    middle = data.draw(st.integers(0, len(offers)))
    for number, offer in enumerate(offers):
        if number == middle:
            standing = unpack_offer(pack_standing(Standing(number, again)), "here")
            assert isinstance(standing, Standing)
            again = standing.state
        before = copy.deepcopy(state)
        try:
            state.apply(offer)
        except Fenced:
            assert state == before
            with pytest.raises(Fenced):
                again.apply(offer)
        else:
            again.apply(offer)
        assert state == again
        assert state.floor >= before.floor
        for origin, holder in before.holders.items():
            assert state.holder(origin).fence >= holder.fence
            if state.holder(origin).owner not in (holder.owner, NO_WRITER):
                assert state.holder(origin).fence > holder.fence or holder.owner == NO_WRITER
        assert sorted(state.partitions.values()) == list(range(1, len(state.partitions) + 1))
