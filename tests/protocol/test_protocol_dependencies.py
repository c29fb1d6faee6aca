"""What an instance has to hold of others' logs, and gets back from others when its host is lost."""

from __future__ import annotations

from delta_segments import segments_for

from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.causal.delta import decode_delta, encode_delta, encode_entry
from clonos.protocol.recovery.causal.delta_journal import DeltaJournal
from clonos.protocol.recovery.causal.dependencies import missing_logs, recovered_deltas
from clonos.protocol.recovery.causal.longest_prefix import HolderReply
from clonos.protocol.recovery.causal.own_log import OwnLog, Writer

FIRST, SECOND, ITSELF = Origin(1, 0), Origin(1, 1), Origin(2, 0)
LOG = bytes(range(100))


def delta(origin: Origin, start: int, end: int) -> bytes:
    return encode_delta([encode_entry(origin, start, end - start, 1, LOG[start:end])])


def pieces(raw: bytes) -> list[tuple[Origin, int, bytes | None]]:
    return [(entry.origin, entry.start, entry.data) for entry in decode_delta(raw)]


def test_what_is_stable_need_not_be_held() -> None:
    sent = {FIRST: 40, SECOND: 50}
    assert missing_logs(sent, {}, []) == [FIRST, SECOND]
    assert missing_logs(sent, {FIRST: 40, SECOND: 30}, []) == [SECOND]
    assert missing_logs(sent, {FIRST: 40, SECOND: 30}, [delta(SECOND, 20, 45), delta(SECOND, 45, 50)]) == []
    assert missing_logs(sent, {FIRST: 40, SECOND: 30}, [delta(SECOND, 20, 45), delta(SECOND, 46, 50)]) == [
        SECOND
    ]


def test_what_others_know_comes_back_as_a_delta() -> None:
    writer = HolderReply(
        "its host", own=(OwnLog([(0, LOG[:30]), (30, LOG[30:60])], (Writer(Fence.of(1), 0),)),)
    )
    receiver = HolderReply("downstream", [(35, LOG[35:42])])
    (raw,) = recovered_deltas(FIRST, 20, 50, [receiver, writer])
    assert segments_for(raw, *FIRST)[0][0][0] == 20
    assert b"".join(data or b"" for _, _, data in pieces(raw)) == LOG[20:50]
    assert missing_logs({FIRST: 50}, {FIRST: 20}, [raw]) == []


def test_what_no_holder_knows_does_not_come_back() -> None:
    (raw,) = recovered_deltas(FIRST, 20, 50, [HolderReply("downstream", [(35, LOG[35:42])])])
    assert pieces(raw) == [(FIRST, 35, LOG[35:42])]
    assert (
        recovered_deltas(
            FIRST, 20, 50, [HolderReply("downstream", [(50, LOG[50:60])]), HolderReply("another")]
        )
        == []
    )


def test_what_its_writer_has_overtaken_does_not_come_back() -> None:
    older = OwnLog([(0, LOG[:60])], (Writer(Fence.of(1), 0),))
    newer = OwnLog([(0, LOG[:40] + b"other")], (Writer(Fence.of(1, 0, 1), 40),))
    (raw,) = recovered_deltas(
        FIRST, 30, 45, [HolderReply("one", own=(older,)), HolderReply("two", own=(newer,))]
    )
    assert pieces(raw) == [(FIRST, 30, LOG[30:40] + b"other")]


def test_a_journal_gives_its_own_log_however_it_was_folded() -> None:
    journal = DeltaJournal(fold_from=4)
    for at in range(0, 100, 5):
        journal.append_own(ITSELF, at, LOG[at : at + 5])
        journal.receive(delta(FIRST, at, at + 5))
    assert len(journal) < 40
    assert [journal.own_since(ITSELF, start) for start in (0, 1, 50, 97, 100)] == [
        LOG[start:] for start in (0, 1, 50, 97, 100)
    ]
    journal.truncate({ITSELF: 60, FIRST: 60})
    assert journal.own_since(ITSELF, 60) == LOG[60:]
