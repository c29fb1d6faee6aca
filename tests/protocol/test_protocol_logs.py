"""Causal logs, coverages and journals against plain models (I4: whatever arrives, a prefix is a prefix)."""

from __future__ import annotations

import random
import zlib
from collections import defaultdict

import pytest
from hypothesis import example, given, settings, strategies as st

from clonos.errors import LogConflict
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.causal.causal_log import CausalLog, Coverage
from clonos.protocol.recovery.causal.delta import decode_delta, encode_delta, encode_entry
from clonos.protocol.recovery.causal.delta_journal import FULL, DeltaJournal, Receipts, fold_deltas
from clonos.protocol.recovery.causal.history_mark import HistoryMark

quick = settings(max_examples=80, deadline=None)
LOG = bytes(random.Random(7).randbytes(120))
pieces = st.lists(st.tuples(st.integers(0, 119), st.integers(0, 60)), max_size=12)
OWN = Origin(5, 0)


def cut(piece: tuple[int, int]) -> tuple[int, bytes]:
    start, length = piece
    return start, LOG[start : start + length]


@quick
@given(pieces, st.integers(0, 130), st.randoms(use_true_random=False))
def test_log_is_a_dict_of_bytes(given_pieces: list[tuple[int, int]], start: int, rng: random.Random) -> None:
    log, model = CausalLog(), dict[int, int]()
    for piece in given_pieces:
        at, data = cut(piece)
        fresh = {at + i: byte for i, byte in enumerate(data) if at + i not in model}
        added = log.merge(at, data)
        assert {s + i: byte for s, d in added for i, byte in enumerate(d)} == fresh
        model |= fresh
    assert {s + i: byte for s, d in log for i, byte in enumerate(d)} == model
    assert log.end == max(model, default=-1) + 1
    end = start
    while end in model:
        end += 1
    assert log.contiguous_end(start) == end
    assert log.prefix(start) == bytes(model[at] for at in range(start, end))
    again = CausalLog()
    for piece in rng.sample(given_pieces * 2, 2 * len(given_pieces)):
        again.merge(*cut(piece))
    assert again.prefix(start) == log.prefix(start)
    assert again.end == log.end


@quick
@given(pieces, st.integers(0, 119), st.integers(1, 255), st.integers(0, 119), st.integers(1, 40))
def test_log_notices_another_history(
    given_pieces: list[tuple[int, int]], at: int, flip: int, start: int, length: int
) -> None:
    log = CausalLog()
    for piece in given_pieces:
        log.merge(*cut(piece))
    before = list(log)
    other = bytearray(LOG)
    other[at] ^= flip
    piece = bytes(other[start : start + length])
    known = any(s <= at < s + len(d) for s, d in log)
    if known and start <= at < start + len(piece):
        with pytest.raises(LogConflict):
            log.merge(start, piece)
        assert list(log) == before
    else:
        log.merge(start, piece)


@quick
@given(pieces)
def test_coverage_is_a_set(given_pieces: list[tuple[int, int]]) -> None:
    coverage, model = Coverage(), set[int]()
    for start, length in given_pieces:
        wanted = set(range(start, start + length)) - model
        new = coverage.add(start, start + length)
        assert new == sorted(new)
        assert [at for s, e in new for at in range(s, e)] == sorted(wanted)
        model |= wanted
    assert coverage.end == max(model, default=-1) + 1


# ------------------------------------------------------------------ journals


class Receiver:
    """A destination: puts together what it was sent."""

    def __init__(self) -> None:
        self.logs: dict[Origin, CausalLog] = defaultdict(CausalLog)
        self.required: dict[Origin, int] = defaultdict(int)

    def take(self, raw: bytes | None) -> None:
        for entry in decode_delta(raw) if raw else ():
            self.required[entry.origin] = max(self.required[entry.origin], entry.end)
            if entry.data is not None:
                self.logs[entry.origin].merge(entry.start, entry.data)


moves = st.lists(
    st.tuples(
        st.sampled_from(("own", "own", "receive", "again", "stamp", "stamp", "truncate")), st.integers(0, 3)
    ),
    max_size=60,
)


@quick
@given(moves, st.sampled_from((4, 9, 4096)), st.randoms(use_true_random=False))
def test_destination_holds_what_was_journaled_before_its_last_delta(
    steps: list[tuple[str, int]], fold_from: int, rng: random.Random
) -> None:
    journal = DeltaJournal(fold_from=fold_from)
    upstream = {Origin(1, i): DeltaJournal() for i in range(4)}
    written: dict[Origin, bytearray] = defaultdict(bytearray)
    sent: list[bytes] = []
    truncation_points: dict[Origin, int] = defaultdict(int)
    receivers = [Receiver() for _ in range(4)]
    for what, who in steps:
        if what == "own":
            data = rng.randbytes(rng.randint(1, 5))
            journal.append_own(OWN, len(written[OWN]), data)
            written[OWN] += data
        elif what == "receive":
            origin = Origin(1, who)
            data = rng.randbytes(rng.randint(1, 5))
            upstream[origin].append_own(origin, len(written[origin]), data)
            written[origin] += data
            sent.append(upstream[origin].delta_for(0) or b"")
            assert journal.receive(sent[-1])
        elif what == "again" and sent:
            assert not journal.receive(rng.choice(sent))
        elif what == "truncate":
            origin = rng.choice([OWN, *upstream])
            truncation_points[origin] = rng.randint(truncation_points[origin], len(written[origin]))
            journal.truncate(truncation_points)
        elif what == "stamp":
            receivers[who].take(journal.delta_for(who))
            for origin, log in written.items():
                held = receivers[who].logs[origin]
                assert held.contiguous_end(truncation_points[origin]) == len(log), (
                    "a hole above the truncation point"
                )
                assert held.prefix(truncation_points[origin]) == log[truncation_points[origin] :]


@pytest.mark.parametrize("depth", [0, 1, 2, 3, FULL])
def test_sharing_depth_along_a_chain(depth: int) -> None:
    chain = [DeltaJournal(depth) for _ in range(4)]
    ends = [Receiver() for _ in range(4)]
    for i in range(5):
        chain[0].append_own(Origin(1, 0), 3 * i, b"abc")
        for hop in range(4):
            raw = chain[hop].delta_for(0)
            assert raw is not None
            ends[hop].take(raw)
            if hop < 3:
                assert chain[hop + 1].receive(raw)
    for hop, end in enumerate(ends, 1):
        assert end.required[Origin(1, 0)] == 15
        assert end.logs[Origin(1, 0)].prefix(0) == (b"abc" * 5 if hop <= depth else b"")


def test_what_is_elided_keeps_its_mark_over_hops_folding_and_parts() -> None:
    """It is the digest of the log since the epoch began, so the last one of an epoch says what all of them say."""
    log = bytes(range(40))
    source, middle = DeltaJournal(1), DeltaJournal(1, fold_from=2)
    for start, begins in ((0, 0), (5, 0), (10, 10), (20, 10), (30, 10)):
        end = start + (5 if start < 10 else 10)
        digest = zlib.crc32(log[begins:end])
        source.append_own(OWN, start, log[start:end], HistoryMark(begins, end, digest))
        raw = source.delta_for(0)
        assert raw is not None and middle.receive(raw)
    raw = middle.delta_for(0)
    assert raw is not None
    entries = decode_delta(fold_deltas([raw]))
    assert [entry.data for entry in entries] == [None, None]
    marks = [HistoryMark(0, 10, zlib.crc32(log[:10])), HistoryMark(10, 40, zlib.crc32(log[10:]))]
    assert [entry.mark for entry in entries] == marks
    assert entries[1].part(15, 40, 3, elided=True).mark == marks[1]
    assert entries[1].part(10, 30, 3, elided=True).mark is None, "nothing says what the digest is there"


def test_where_nothing_is_elided_nothing_is_marked() -> None:
    assert not DeltaJournal(FULL).elides and DeltaJournal(2).elides


def test_a_destination_without_news_gets_nothing() -> None:
    journal = DeltaJournal()
    assert journal.delta_for(0) is None
    journal.append_own(OWN, 0, b"a")
    assert journal.delta_for(0) is not None
    assert journal.delta_for(0) is None
    assert journal.delta_for(1) is not None


def test_journal_size_goes_back_to_zero() -> None:
    journal = DeltaJournal()
    for i in range(10):
        journal.append_own(OWN, i, b"a")
    assert journal.size > 0
    journal.truncate({OWN: 10})
    assert journal.size == 0
    assert len(journal) == 0


def test_receipts_take_a_split_piece_once() -> None:
    source, receipts = DeltaJournal(), Receipts()
    source.append_own(OWN, 0, b"abcd")
    whole = source.delta_for(0)
    other = DeltaJournal()
    other.append_own(OWN, 2, b"cdef")
    assert whole is not None
    assert [(s, e) for _, s, e in receipts.take(whole)] == [(0, 4)]
    assert [(s, e) for _, s, e in receipts.take(other.delta_for(0) or b"")] == [(4, 6)]
    assert receipts.take(whole) == []


def test_what_comes_by_a_shorter_way_is_new_unless_nothing_is_elided() -> None:
    far, near = (
        encode_delta([encode_entry(OWN, start, 4, hop, data)])
        for start, hop, data in ((0, 3, None), (2, 1, b"cdef"))
    )
    receipts, whole = Receipts(), Receipts(by_hops=False)
    for taken, again in ((receipts, [(2, 6)]), (whole, [(4, 6)])):
        assert [(s, e) for _, s, e in taken.take(far)] == [(0, 4)]
        assert [(s, e) for _, s, e in taken.take(near)] == again
        assert taken.take(near) == taken.take(far) == []
        assert taken.ends == {OWN: 6} and taken.covers(OWN, 0, 6) and not taken.covers(OWN, 0, 7)
    assert [(s, e) for _, s, e in receipts.take(encode_delta([encode_entry(OWN, 0, 6, 2, b"abcdef")]))] == [
        (0, 2)
    ]


def test_an_elided_piece_does_not_hide_the_piece_itself() -> None:
    journal = DeltaJournal(depth=1)
    journal.receive(encode_delta([encode_entry(OWN, 0, 4, 2, None)]))
    journal.receive(encode_delta([encode_entry(OWN, 0, 4, 1, b"abcd")]))
    assert journal.own_since(OWN, 0) == b""  # it is beyond the depth for those that read this instance
    assert journal.received == {OWN: 4}


def said(raws: list[bytes]) -> set[tuple[Origin, int, int | None]]:
    """Every byte that these deltas give, at its offset, and every offset that they only mention (None)."""
    return {
        (entry.origin, at, None if entry.data is None else entry.data[at - entry.start])
        for raw in raws
        for entry in decode_delta(raw)
        for at in range(entry.start, entry.end)
    }


@quick
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 9), st.booleans(), st.integers(1, 2))
    ),
    st.integers(1, 5),
)
@example(pieces=[(0, 1, 1, True, 1), (0, 0, 3, True, 2)], together=2)  # an extent around one that came nearer
@example(pieces=[(0, 1, 1, False, 1), (0, 0, 3, False, 2)], together=2)
def test_folded_deltas_say_what_the_deltas_said(
    pieces: list[tuple[int, int, int, bool, int]], together: int
) -> None:
    """In whatever pieces, late, twice or as a mere extent: every byte and every extent is still there."""
    log = bytes(range(64))
    entries = [
        encode_entry(Origin(1, who), start, length, hop, None if elided else log[start : start + length])
        for who, start, length, elided, hop in pieces
    ]
    raws = [encode_delta(entries[at : at + together]) for at in range(0, len(entries), together)]
    folded = fold_deltas(raws)
    assert said([folded]) == said(raws)
    assert fold_deltas([folded]) == folded
    assert len(folded) <= sum(map(len, raws)) or not raws
