"""How much of its log an instance that begins its epoch anew repeats; the rest was never seen, and is done anew."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from clonos.errors import GapError, Where
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.determinant import Outcome
from clonos.protocol.recovery.causal.history_mark import HistoryMark
from clonos.protocol.recovery.causal.holding import Damage, HolderReply
from clonos.protocol.recovery.causal.longest_prefix import longest_prefix
from clonos.protocol.recovery.causal.needed_log import needed_end
from clonos.protocol.recovery.causal.own_log import OwnLog, Writer, begun, truncated
from clonos.protocol.recovery.causal.replacement import ConduitProgress
from clonos.protocol.recovery.causal.retrieval import OpenedLog, retrieve

ORIGIN, HERE = Origin(2, 0), Where("ledger", 0, 7)
OLD, NEW = Fence.of(1, 5), Fence.of(2, 9)


def step() -> bytes:
    entries = bytearray()
    codec.append_order(entries, [(1, 2)])
    codec.append_sent(entries, 2, 7)
    return codec.seal(entries)


LOG = b"".join(step() for _ in range(5))
ONE = len(LOG) // 5


def upto(steps: int) -> list[tuple[int, bytes]]:
    return [(0, LOG[: steps * ONE])]


def needed(*replies: HolderReply, log: bytes = LOG) -> int:
    return needed_end(0, log, replies)


def store(steps: int, *incarnations: Writer, damaged: bool = False) -> HolderReply:
    return HolderReply("a store", own=(OwnLog(upto(steps), incarnations, damaged=damaged),))


def test_what_others_hold_is_repeated_and_nothing_else_of_a_copy() -> None:
    copy = store(5, Writer(OLD, 0, copy=True))
    assert needed() == 0
    assert needed(copy) == 0
    assert needed(copy, HolderReply("downstream", upto(2))) == 2 * ONE
    assert needed(copy, HolderReply("downstream", upto(2), required=3 * ONE)) == 3 * ONE
    assert needed(copy, HolderReply("downstream", required=9 * ONE)) == 5 * ONE


def test_a_store_of_a_version_that_named_no_writers_counts_as_written_live() -> None:
    assert needed(store(5)) == 5 * ONE
    assert needed(store(5, Writer(OLD, 3 * ONE, copy=True))) == 3 * ONE
    assert needed(store(5, Writer(OLD, 3 * ONE, copy=True), Writer(NEW, 5 * ONE))) == 3 * ONE


def test_what_has_acted_is_repeated() -> None:
    entries = bytearray()
    codec.append_order(entries, [(1, 2)])
    codec.append_effect(entries, "key")
    open_step = codec.seal(entries)
    codec.append_effect_done(entries, Outcome("key", True, b"1"))
    codec.append_sent(entries, 0, 7)
    acted = codec.seal(entries)
    assert needed(log=LOG + acted + step()) == len(LOG + acted)
    assert needed(log=LOG + open_step) == len(LOG + open_step)


def test_what_it_wrote_live_is_repeated() -> None:
    assert needed(store(4, Writer(OLD, 0))) == 4 * ONE
    assert needed(store(4, Writer(OLD, 2 * ONE))) == 4 * ONE
    # It has repeated the copy
    assert needed(store(4, Writer(OLD, 0, copy=True), Writer(OLD, 2 * ONE))) == 4 * ONE


@pytest.mark.parametrize(
    ("incarnations", "steps"),
    [
        ((Writer(OLD, 0), Writer(OLD, 2 * ONE, copy=True)), 2),
        (
            (Writer(OLD, 0), Writer(OLD, 2 * ONE, copy=True), Writer(NEW, 4 * ONE)),
            2,
        ),  # the new one has written nothing yet
        ((Writer(OLD, 0), Writer(OLD, 2 * ONE, copy=True), Writer(NEW, 3 * ONE)), 4),
        ((Writer(OLD, 0, copy=True), Writer(NEW, 4 * ONE)), 0),
        (
            (Writer(OLD, 0), Writer(OLD, 2 * ONE + 3, copy=True)),
            2,
        ),  # where a copy first differs is inside a chunk
    ],
)
def test_of_a_store_that_holds_both_what_was_written_live_is(incarnations: Any, steps: int) -> None:
    assert needed(store(4, *incarnations)) == steps * ONE


def test_what_a_newer_incarnation_has_overtaken_is_not() -> None:
    newer = HolderReply("another store", own=(OwnLog(upto(3), (Writer(NEW, 3 * ONE),)),))
    assert needed(store(5, Writer(OLD, 0)), newer) == 3 * ONE


def test_a_copy_of_what_a_newer_incarnation_has_overtaken_is_not_believed() -> None:
    """It was on a host that could not be asked to forget it."""
    copy = HolderReply("the second server", own=(OwnLog(upto(5), (Writer(OLD, 0, copy=True),)),))
    newer = HolderReply("the replica server", own=(OwnLog(upto(3), (Writer(NEW, 2 * ONE),)),))
    assert longest_prefix(ORIGIN, 0, [copy], where=HERE) == LOG
    assert longest_prefix(ORIGIN, 0, [copy, newer], where=HERE) == LOG[: 3 * ONE]
    of_the_newer = HolderReply("the second server", own=(OwnLog(upto(5), (Writer(NEW, 0, copy=True),)),))
    assert longest_prefix(ORIGIN, 0, [of_the_newer, newer], where=HERE) == LOG


def test_the_digest_of_a_log_tells_two_histories_apart() -> None:
    """A replica saved its log and died before its rows left; its standby went on, and the standby's store is lost. A
    sink that is not sent the bytes of logs has the digest of the one that its rows depend on."""
    overtaken = OpenedLog(OwnLog(upto(4), (Writer(OLD, 0),)))
    known = ConduitProgress(NEW, 0, 0, 0, ())
    found = retrieve(ORIGIN, 0, overtaken, b"", known=known, where=HERE, may_have_moved=True, fresh=True)

    def sink(log: bytes, upto: int = 3 * ONE) -> HolderReply:
        return HolderReply("a sink", required=upto, marks=(HistoryMark(0, upto, zlib.crc32(log[:upto])),))

    assert repeated(found, sink(LOG)) == 4
    other = LOG[:ONE] + bytes(2 * ONE)
    with pytest.raises(GapError, match="is another history"):
        found.put_together([sink(other)], where=HERE)
    with pytest.raises(GapError, match="no holder has them"):
        found.put_together([sink(LOG + LOG, 6 * ONE)], where=HERE)


def test_a_digest_is_compared_from_the_snapshot_on() -> None:
    """The snapshot vouches for what comes before it in its epoch, and there may be no holder of that any more."""
    at = 2 * ONE
    opened = OpenedLog(OwnLog([(at, LOG[at:])], (Writer(OLD, 0),)))
    snapshot = HistoryMark(0, at, zlib.crc32(LOG[:at]))
    how: dict[str, Any] = {"known": ConduitProgress(NEW, 0, 0, 0, ()), "where": HERE, "may_have_moved": True}
    found = retrieve(ORIGIN, at, opened, b"", fresh=True, history=snapshot, **how)
    right, wrong = (HistoryMark(0, len(LOG), zlib.crc32(LOG, seed)) for seed in (0, 1))
    assert repeated(found, HolderReply("a sink", required=len(LOG), marks=(right,))) == 3
    before = HistoryMark(0, at, 1)  # the snapshot is newer than what says this
    assert repeated(found, HolderReply("a sink", required=len(LOG), marks=(before,))) == 3
    with pytest.raises(GapError, match="is another history"):
        found.put_together([HolderReply("a sink", required=len(LOG), marks=(wrong,))], where=HERE)


def test_a_damaged_store_proves_nothing() -> None:
    assert needed(store(5, Writer(OLD, 0), damaged=True)) == 0


def begin(*, may_have_moved: bool = True, **how: Any) -> Any:
    known = ConduitProgress(NEW, 0, 0, 0, ())
    opened = OpenedLog(OwnLog(upto(4), (Writer(OLD, 0), Writer(OLD, 2 * ONE, copy=True))))
    how = {"fresh": True, **how}
    return retrieve(ORIGIN, 0, opened, b"", known=known, where=HERE, may_have_moved=may_have_moved, **how)


def repeated(found: Any, *replies: HolderReply) -> int:
    return len(found.put_together(replies, where=HERE).recorded) // ONE


def test_only_where_the_epoch_begins_anew_something_is_done_anew() -> None:
    found = begin()
    assert repeated(found) == 2
    recovered = found.put_together([], where=HERE)
    assert recovered.missing(OwnLog(upto(4))) == (2 * ONE, [])  # the store is cut there, too
    assert repeated(found, HolderReply("downstream", upto(3))) == 3
    assert repeated(begin(repeats_all=True)) == 4
    assert repeated(begin(recovered=3 * ONE)) == 3  # a standby repeats what its primary does
    assert repeated(begin(fresh=False)) == 4
    assert repeated(begin(needed=3 * ONE)) == 3  # a snapshot that another instance resumes from depends on it


def test_what_lies_before_the_settled_epochs_is_not_copied_again() -> None:
    """A copy from there on would hide what the store has written live."""
    opened = OpenedLog(OwnLog([(2 * ONE, LOG[2 * ONE : 4 * ONE])], (Writer(OLD, 0),)))
    known = ConduitProgress(NEW, 0, 0, 0, ())
    found = retrieve(
        ORIGIN,
        2 * ONE,
        opened,
        b"",
        known=known,
        where=HERE,
        may_have_moved=True,
        fresh=True,
        settled=2 * ONE,
    )
    whole = HolderReply("the second server", own=(OwnLog(upto(4), (Writer(OLD, 0, copy=True),)),))
    assert found.put_together([whole], where=HERE).missing(opened.own) == (4 * ONE, [])


@pytest.mark.parametrize("owner", [Origin(3, 0), ORIGIN])
def test_nothing_is_where_something_is_damaged_that_may_depend_on_it(owner: Origin) -> None:
    damaged = HolderReply("a store", damaged=(Damage("a page", owner, acts=False),))
    assert repeated(begin(), damaged) == 4


def test_where_all_begin_anew_only_what_was_acted_on_is_needed_behind_damage() -> None:
    """A power failure left zeros in the store of an instance behind this one, which is on a standby's host alone."""

    found = begin(all_begin=True)
    for owner in (Origin(3, 0), ORIGIN):
        damaged = HolderReply("a store", damaged=(Damage("a page", owner, acts=False),))
        assert repeated(found, damaged) == 2
        assert repeated(found, damaged, HolderReply("downstream", upto(3))) == 3


@pytest.mark.parametrize("owner", [Origin(1, 0), Origin(2, 1)])
def test_a_damaged_store_that_cannot_depend_on_it_is_no_reason_to_repeat_all(owner: Origin) -> None:
    """Storm 8000545: the damaged one was upstream, and what the copied log depends on was lost."""
    damaged = HolderReply("a store", damaged=(Damage("a page", owner),))
    assert repeated(begin(repeats_all=False), damaged) == 2


def test_an_instance_without_standbys_tells_a_copy_from_what_it_wrote_itself_too() -> None:
    assert repeated(begin(may_have_moved=False)) == 2


def test_a_copy_takes_no_writers_place_and_is_told_once() -> None:
    known = begun((), Writer(OLD, 0))
    known = begun(known, Writer(OLD, 20, copy=True))
    assert begun(known, Writer(OLD, 30, copy=True)) == known == (Writer(OLD, 0), Writer(OLD, 20, copy=True))
    assert begun(known, Writer(OLD, 0, copy=True)) == (Writer(OLD, 0), Writer(OLD, 0, copy=True))
    assert begun(known, Writer(NEW, 20)) == (Writer(OLD, 0), Writer(NEW, 20))
    assert begun(known, Writer(NEW, 30)) == (Writer(OLD, 0), Writer(OLD, 20, copy=True), Writer(NEW, 30))
    assert begun(known, Writer(NEW, 10)) == (Writer(OLD, 0), Writer(NEW, 10))
    assert OwnLog(upto(1), (Writer(OLD, 0, copy=True),)).fence == -1


def test_truncating_keeps_the_writers_of_the_rest() -> None:
    known = (Writer(OLD, 0), Writer(OLD, 20, copy=True), Writer(NEW, 30))
    assert truncated(known, 10) == known
    assert truncated(known, 20) == known[1:]
    assert truncated(known, 40) == (Writer(NEW, 30),)
    assert truncated(known[:2], 25) == known[:2]
    assert truncated((), 5) == ()
