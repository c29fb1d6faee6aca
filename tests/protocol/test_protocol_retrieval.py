"""The log that an instance returns with: what is at hand, and when the others are asked."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.errors import LogConflict, StorageUnavailable, Where
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.holding import Damage
from clonos.protocol.recovery.causal.longest_prefix import HolderReply
from clonos.protocol.recovery.causal.own_log import OwnLog, Writer
from clonos.protocol.recovery.causal.replacement import ConduitProgress, Failover
from clonos.protocol.recovery.causal.retrieval import OpenedLog, Retrieval, retrieve

ORIGIN = Origin(2, 0)
HERE = Where("ledger", 0, 7)
LOG = b"".join(codec.seal(bytes([number] * 4)) for number in range(10))
"""Chunks of ten bytes."""
FENCE = Fence.of(0, 5)


def piece(start: int, end: int) -> tuple[int, bytes]:
    return start, LOG[start:end]


def begin(
    snapshot: int, own: OwnLog | OpenedLog, kept: tuple[int, bytes], *, failovers: Any = (), **how: Any
) -> Retrieval:
    start, increments = kept
    known = ConduitProgress(FENCE, 0, start, start + len(increments), failovers)
    opened = OpenedLog(own) if isinstance(own, OwnLog) else own
    return retrieve(ORIGIN, snapshot, opened, increments, known=known, where=HERE, **{"fresh": False, **how})


def own(*pieces: tuple[int, bytes], fences: Any = ()) -> OwnLog:
    return OwnLog(list(pieces), fences)


def damaged(*pieces: tuple[int, bytes], acts: bool = False) -> OpenedLog:
    return OpenedLog(OwnLog(list(pieces)), damaged=(Damage("a page", ORIGIN, acts),))


def test_a_whole_store_and_the_conduit_are_enough() -> None:
    found = begin(20, own(piece(5, 30), piece(30, 60)), piece(15, 60))
    assert not found.ask_others and not found.too_early
    assert found.base == 5
    recovered = found.put_together([], where=HERE)
    assert recovered.recorded == LOG[20:60]
    assert recovered.before == [piece(5, 20)]


def test_the_conduit_may_know_less_than_the_store_wrote_last() -> None:
    """An append that was not handed on yet is not damage: the conduit saw only what was saved before it."""
    found = begin(20, own(piece(20, 60)), piece(15, 50))
    assert not found.ask_others
    assert found.put_together([], where=HERE).recorded == LOG[20:60]


def test_a_store_that_ends_too_early_has_every_holder_asked() -> None:
    found = begin(20, own(piece(20, 40)), piece(15, 60))
    assert found.ask_others and found.too_early
    others = [HolderReply("downstream", [piece(40, 70)])]
    assert found.put_together(others, where=HERE).recorded == LOG[20:70]


def test_a_damaged_store_has_every_holder_asked() -> None:
    found = begin(20, damaged(), piece(15, 60))
    assert found.ask_others and not found.too_early


def test_behind_a_new_conduit_every_holder_is_asked() -> None:
    found = begin(0, own(piece(0, 60)), (0, b""), fresh=True)
    assert found.ask_others and not found.too_early
    assert [reply.holder for reply in found.at_hand] == ["the instance's own log store"]


def test_a_snapshot_that_lies_before_what_the_conduit_has_forgotten_is_of_no_use() -> None:
    with pytest.raises(StorageUnavailable, match="forgotten what lies before 25"):
        begin(20, own(piece(20, 60)), piece(25, 60))


def test_an_instance_that_ran_on_another_server_since_asks_every_holder() -> None:
    here = own(piece(0, 60), fences=(Writer(FENCE, 0),))
    assert not begin(20, here, piece(15, 60), may_have_moved=True).ask_others
    assert begin(
        20, here, piece(15, 60), may_have_moved=True, failovers=(Failover(FENCE | 1, 60),)
    ).ask_others
    of_an_earlier_attempt = own(piece(0, 60), fences=(Writer(Fence.of(0, 4), 0),))
    assert begin(20, of_an_earlier_attempt, piece(15, 60), may_have_moved=True).ask_others
    assert begin(20, own(piece(0, 60)), piece(15, 60), may_have_moved=True).ask_others  # a standby's copy


def test_what_a_lost_primary_wrote_beyond_the_move_is_not_believed() -> None:
    tail = own((0, LOG[:40] + b"never happened"), fences=(Writer(FENCE, 0),))
    found = begin(20, tail, piece(15, 40), may_have_moved=True, failovers=(Failover(FENCE | 1, 40),))
    other = HolderReply("the second server", own=(own(piece(0, 70), fences=(Writer(FENCE | 1, 40),)),))
    assert found.put_together([other], where=HERE).recorded == LOG[20:70]


def test_with_the_newer_store_gone_what_was_handed_on_is_believed_before_the_older_one() -> None:
    tail = own((0, LOG[:40] + b"never happened"), fences=(Writer(FENCE, 0),))
    found = begin(20, tail, (0, b""), fresh=True, may_have_moved=True)
    downstream = HolderReply("downstream", [piece(38, 70)], required=70)
    assert found.put_together([downstream], where=HERE).recorded == LOG[20:70]


def test_what_it_received_elsewhere_comes_along() -> None:
    found = begin(0, own(), (0, b""), fresh=True, may_have_moved=True)
    elsewhere = OwnLog([piece(0, 10)], (Writer(FENCE, 0),), (b"a delta",))
    recovered = found.put_together([HolderReply("the second server", own=(elsewhere,))], where=HERE)
    assert recovered.received == [b"a delta"]


def test_what_a_store_lacks_is_written_anew_from_where_it_differs() -> None:
    found = begin(20, own(), (0, b""), fresh=True, may_have_moved=True)
    other = HolderReply("the second server", own=(own(piece(5, 60), fences=(Writer(FENCE, 0),)),))
    recovered = found.put_together([other], where=HERE)
    assert recovered.missing(own()) == (5, [piece(5, 20), piece(20, 60)])
    assert recovered.missing(own(piece(5, 12))) == (12, [piece(12, 20), piece(20, 60)])
    assert recovered.missing(own(piece(5, 60), piece(60, 80))) == (60, [])
    assert recovered.missing(own((5, LOG[5:30] + b"other"))) == (30, [piece(30, 60)])


def test_what_others_have_not_truncated_yet_is_no_reason_to_write_anew() -> None:
    """What an effect depends on may be in that store alone: it is not touched without need."""
    here = own(piece(20, 40), piece(40, 60))
    found = begin(40, here, (0, b""), fresh=True)
    recovered = found.put_together([HolderReply("downstream", [piece(10, 60)])], where=HERE)
    assert (recovered.before, recovered.recorded) == ([piece(20, 40)], LOG[40:60])
    assert recovered.missing(here) == (60, [])


@pytest.mark.parametrize("may_have_moved", [False, True])
def test_what_lies_before_the_settled_epochs_may_have_been_done_anew(may_have_moved: bool) -> None:
    """A store comes back as it was long ago, with what had been lost; no recovery asks for that any more."""
    here = own(piece(0, 60), fences=(Writer(FENCE, 0),))
    stale = [HolderReply("a store from long ago", [(0, bytes(20))])]
    with pytest.raises(LogConflict, match="two histories between log offsets 0 and 20"):
        begin(40, here, (40, b""), may_have_moved=may_have_moved, fresh=True).put_together(
            [HolderReply("x", [piece(0, 40)]), *stale], where=HERE
        )
    found = begin(40, here, (40, b""), may_have_moved=may_have_moved, fresh=True, settled=30)
    recovered = found.put_together(stale, where=HERE)
    assert recovered.recorded == LOG[40:60]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_chunk_of_which_the_end_is_damaged_is_not_there(fresh: bool) -> None:
    """The log was written anew inside the chunk, from where it first differed, and that page cannot be read."""
    found = begin(0, damaged(piece(0, 2), piece(10, 40)), (0, b""), all_begin=True, fresh=fresh)
    assert found.put_together([], where=HERE).recorded == b""


@pytest.mark.parametrize("length", range(31))
def test_whole_chunks_end_where_the_last_whole_one_does(length: int) -> None:
    assert codec.whole_chunks(LOG[:length]) == LOG[: length // 10 * 10]
