"""The messages of the conduit wire: golden bytes, round trips, and nothing but ProtocolError for what is wrong."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from clonos.errors import Fenced, ProtocolError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.recovery.causal.replacement import Failover
from clonos.wire import messages as m
from clonos.wire.admin_messages import CommitEpoch
from clonos.wire.framing import Frame, FrameReader, FrameType, Packed, to_bytes

u64 = st.integers(0, (1 << 64) - 1)
fences = st.integers(0, (1 << 128) - 1).map(Fence)
HELLO = m.Hello(
    token="t", generation=2, node=3, instance=4, epoch=5, fence=Fence.of(2, 0, 6), fresh=True, mode="realtime"
)


def over(packed: Packed) -> m.Message:
    """What arrives of a message."""
    (frame,) = FrameReader().feed(to_bytes(packed))
    return m.parse(frame)


def frame(kind: FrameType, payload: bytes) -> Frame:
    return Frame(kind, memoryview(payload))


def payload(packed: Packed) -> str:
    return to_bytes(packed)[9:].hex()


def test_golden_payloads() -> None:
    assert payload(m.pack_resume(1, 2, b"log")) == "010000000000000002000000000000006c6f67"
    assert payload(m.pack_bundle(1, 5, [b"ab", b"c"])) == (
        "01000000000000000500000002000000" + "00000000020000006162" + "000000000100000063"
    )
    assert payload(m.pack_output(1, 2, 3, b"log", 4, [m.OutputBlock(7, b"ab")])) == (
        "0100000000000000020000000000000003000000000000000300000004000000010000006c6f6707000000020000006162"
    )
    assert payload(m.pack_checkpointed(1, 2)) == "01000000000000000200000000000000"
    assert (
        payload(m.pack_end(1)) == payload(m.pack_ended(1)) == payload(m.pack_heartbeat(1)) == "01" + "00" * 7
    )
    assert payload(m.pack_tick()) == ""
    assert payload(m.pack_follow(1, b"log")) == "01000000000000006c6f67"
    assert payload(m.pack_promote(Fence.of(1, 2, 3), 4)) == (
        "000000000000000100000000000200030400000000000000"
    )
    assert payload(m.pack_flush_log(1, b"log")) == "01000000000000006c6f67"
    assert payload(m.pack_log_flushed(1)) == "0100000000000000"
    assert json.loads(bytes.fromhex(payload(m.pack_hello(HELLO)))) == {
        "version": 7, "token": "t", "generation": 2, "node": 3, "instance": 4, "epoch": 5,
        "fence": "00000000000000020000000000000006", "fresh": True, "stage_attempt": 0, "task_attempt": 0,
        "mode": "realtime", "standby": False, "failovers": [], "recovered": 0,
    }  # fmt: skip
    assert json.loads(bytes.fromhex(payload(m.pack_welcome(8, 9)))) == {
        "version": 7,
        "window": 8,
        "window_bytes": 9,
        "log_end": 0,
    }
    assert json.loads(bytes.fromhex(payload(m.pack_error("E", "m", retryable=True)))) == {
        "error": "E",
        "message": "m",
        "retryable": True,
        "traceback": "",
    }


@given(u64, u64, u64, fences, st.binary(max_size=40), st.binary(min_size=1, max_size=40))
def test_what_is_packed_is_parsed(a: int, b: int, c: int, fence: Fence, log: bytes, batch: bytes) -> None:
    assert over(m.pack_resume(a, b, log)) == m.Resume(a, b, memoryview(log))
    blocks = (memoryview(batch), memoryview(b"another"))
    for rows in (7, 0):  # blocks of watermarks have none
        assert over(m.pack_bundle(a or 1, rows, blocks)) == m.Bundle(a or 1, rows, blocks)
    sent = (m.OutputBlock(3, blocks[0]), m.OutputBlock(0, blocks[1]))
    for rows in (7, 0):
        assert over(m.pack_output(a, b, c, log, rows, sent)) == m.Output(a, b, c, memoryview(log), rows, sent)
    assert over(m.pack_output(a, b, c, log)) == m.Output(a, b, c, memoryview(log), 0, ())
    assert over(m.pack_checkpointed(a, b)) == m.Checkpointed(a, b)
    assert over(m.pack_end(a)) == m.End(a)
    assert over(m.pack_ended(a)) == m.Ended(a)
    assert over(m.pack_ended(a, log)) == m.Ended(a, log)
    assert over(m.pack_heartbeat(a)) == m.Heartbeat(a)
    assert over(m.pack_passed_over()) == m.PassedOver()
    assert over(m.pack_follow(a, batch)) == m.Follow(a, memoryview(batch))
    assert over(m.pack_promote(fence, b)) == m.Promote(fence, b)
    assert over(m.pack_flush_log(a, batch)) == m.FlushLog(a, memoryview(batch))
    assert over(m.pack_log_flushed(a)) == m.LogFlushed(a)


def test_json_messages_round_trip() -> None:
    assert over(m.pack_hello(HELLO)) == HELLO
    failed_over = replace(
        HELLO,
        standby=True,
        failovers=(Failover(Fence(5), 70), Failover(Fence.of(2**63, 6), 90)),
        recovered=90,
    )
    assert over(m.pack_hello(failed_over)) == failed_over
    assert over(m.pack_admin("t", CommitEpoch(3))) == m.Admin("t", CommitEpoch(3))
    assert over(m.pack_welcome(8, 9, 7)) == m.Welcome(8, 9, 7)
    assert over(m.pack_tick()) == m.Tick()
    assert over(m.pack_error("E", "m", retryable=False, traceback="tb")) == m.Error("E", "m", False, "tb")
    assert over(m.pack_exception(Fenced("late"))) == m.Error("Fenced", "late", False)
    assert over(m.pack_exception(SinkUnavailable("away"))) == m.Error("SinkUnavailable", "away", True)
    assert over(m.pack_exception(KeyError("k"))) == m.Error("KeyError", "'k'", False)


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(m.Hello("secret", 0, 1, 0, 0, Fence(1), True)) + repr(
        m.Admin("secret", CommitEpoch(3))
    )


@given(st.sampled_from(list(FrameType)), st.binary(max_size=80))
def test_garbage_raises_only_protocol_errors(kind: FrameType, garbage: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        m.parse(frame(kind, garbage))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(HELLO.to_dict())), json_values)
def test_a_hello_with_any_field_exchanged_is_parsed_or_refused(key: str, value: Any) -> None:
    said = {**HELLO.to_dict(), key: value}
    try:
        parsed = m.parse(frame(FrameType.HELLO, json.dumps(said).encode()))
    except ProtocolError:
        return
    assert isinstance(parsed, m.Hello) and parsed.to_dict() == said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "wire version 2, this end speaks 7"),
        ({"node": 0}, "node 0 is not a whole number from 1 to 63"),
        ({"node": True}, "node True"),
        ({"instance": -1}, "instance -1"),
        ({"epoch": 1.5}, "epoch 1.5"),
        ({"fence": Fence(1).text}, "is not of generation 2"),
        ({"fence": 2 << 48 | 6}, "HELLO: 562949953421318 is not a fence"),
        ({"fence": "2" * 33}, "is not a fence"),
        ({"fresh": "yes"}, "fresh 'yes' is not true or false"),
        ({"mode": "batch"}, "mode 'batch'"),
        ({"token": None}, "token is not a text"),
        ({"standby": 1}, "standby 1 is not true or false"),
        ({"failovers": {}}, "is not a list"),
        ({"failovers": [[1]]}, "is not a fence and a log offset"),
        ({"failovers": [[Fence(1).text, -1]]}, "offset -1"),
        ({"failovers": [[1, 1]]}, "HELLO: 1 is not a fence"),
    ],
)
def test_a_wrong_hello_field_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        m.Hello.from_dict({**HELLO.to_dict(), **change})


@pytest.mark.parametrize(
    ("kind", "said", "words"),
    [
        (FrameType.HELLO, b"[]", "a JSON object is expected"),
        (FrameType.HELLO, b"\xff", "not UTF-8 JSON"),
        (FrameType.HELLO, b"[" * 100_000, "not UTF-8 JSON"),
        (FrameType.HELLO, b'{"version":7,"token":"t","admin":[]}', "admin is not an object"),
        (FrameType.RESUME, b"x" * 15, "at least 16"),
        (FrameType.TICK, b"x", "none belong"),
        (FrameType.END, b"x" * 9, "exactly 8"),
        (FrameType.BUNDLE, b"\0" * 8 + b"\1" * 8 + b"x", "seq 0"),
        (FrameType.BUNDLE, b"\1" * 12 + b"\0" * 4, "in 0 blocks"),
        (FrameType.BUNDLE, b"\1" * 12 + b"\1\0\0\0", "1 blocks announced, 0 there"),
        (FrameType.BUNDLE, b"\1" * 12 + b"\1\0\0\0" + b"\0" * 8, "a block of 0 bytes announced"),
        (FrameType.BUNDLE, b"\1" * 12 + b"\1\0\0\0" + b"\2\0\0\0" * 2 + b"x", "2 bytes announced, 1 there"),
        (FrameType.BUNDLE, b"\1" * 12 + b"\1\0\0\0" + b"\1\0\0\0" * 2 + b"xyz", "at least 8"),
        (FrameType.OUTPUT, b"\0" * 24 + b"\5\0\0\0" + b"\0" * 8, "5 log bytes announced, 0 there"),
        (FrameType.OUTPUT, b"\0" * 36 + b"\1" * 8 + b"x", "bytes announced, 1 there"),
        (FrameType.OUTPUT, b"\0" * 28 + b"\1\0\0\0" + b"\0" * 4, "1 rows in 0 blocks"),
        (FrameType.OUTPUT, b"\0" * 32 + b"\1\0\0\0", "1 blocks announced, 0 there"),
        (FrameType.WELCOME, b'{"version":7,"window":0,"window_bytes":1}', "window 0"),
        (FrameType.ERROR, b'{"error":"E"}', "message is not a text"),
    ],
)
def test_a_wrong_payload_is_named(kind: FrameType, said: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        m.parse(frame(kind, said))


def test_unknown_fields_are_ignored() -> None:
    said = json.dumps({**HELLO.to_dict(), "colour": "blue"}).encode()
    assert m.parse(frame(FrameType.HELLO, said)) == HELLO


def test_what_does_not_fit_is_not_packed() -> None:
    for wrong in (
        lambda: m.pack_end(-1),
        lambda: m.pack_checkpointed(1 << 64, 0),
        lambda: m.pack_output(0, 0, 0, rows=1),
        lambda: m.pack_bundle(1, 1 << 32, [b"x"]),
    ):
        with pytest.raises(ProtocolError):
            wrong()
