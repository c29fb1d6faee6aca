"""Frames: exact bytes, any cut, any garbage, large payloads without copies."""

from __future__ import annotations

import socket
import threading
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from clonos.errors import ProtocolError
from clonos.wire import framing
from clonos.wire.framing import (
    HEADER,
    MAX_LENGTH,
    Frame,
    FrameReader,
    FrameType,
    FrameWriter,
    pack,
    read_frame,
    send_frames,
    to_bytes,
)

kinds = st.sampled_from(list(FrameType))
frames = st.lists(st.tuples(kinds, st.binary(max_size=300)), max_size=8)


def flat(found: list[Frame]) -> list[tuple[FrameType, bytes]]:
    return [(frame.type, bytes(frame.payload)) for frame in found]


def stream(said: list[tuple[FrameType, bytes]]) -> bytes:
    return b"".join(to_bytes(pack(kind, payload)) for kind, payload in said)


def test_golden_bytes() -> None:
    assert to_bytes(pack(FrameType.TICK)).hex() == "05000000" + "05" + "021b68a2"
    assert to_bytes(pack(FrameType.CHECKPOINTED, b"abc")).hex() == "08000000" + "08" + "236f952e" + "616263"
    assert [kind.value for kind in FrameType] == list(range(1, 17))


def test_the_parts_of_a_payload_are_one_payload() -> None:
    parts: list[framing.Buffer] = [b"ab", bytearray(b"cd"), memoryview(b"ef")]
    assert to_bytes(pack(FrameType.OUTPUT, *parts)) == to_bytes(pack(FrameType.OUTPUT, b"abcdef"))


@given(frames, st.data())
def test_any_cut_gives_the_same_frames(said: list[tuple[FrameType, bytes]], data: st.DataObject) -> None:
    whole = stream(said)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    reader = FrameReader()
    found: list[Frame] = []
    for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += reader.feed(whole[start:stop])
    assert flat(found) == said and not reader.mid_frame
    single = FrameReader()
    assert flat([frame for at in range(len(whole)) for frame in single.feed(whole[at : at + 1])]) == said


@given(frames)
def test_needed_never_reaches_beyond_the_frame(said: list[tuple[FrameType, bytes]]) -> None:
    whole, at, reader = stream(said), 0, FrameReader()
    found: list[Frame] = []
    while at < len(whole):
        step = reader.needed
        more = reader.feed(whole[at : at + step])
        at += step
        assert len(more) <= 1
        found += more
    assert at == len(whole) and flat(found) == said


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_garbage_raises_only_protocol_errors(garbage: bytes) -> None:
    reader = FrameReader(limit=1024)
    try:
        found = reader.feed(garbage)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            reader.feed(b"")
    else:
        assert stream(flat(found)) == garbage[: len(stream(flat(found)))]


@given(st.tuples(kinds, st.binary(max_size=60)), st.data())
def test_no_changed_bit_goes_unnoticed(said: tuple[FrameType, bytes], data: st.DataObject) -> None:
    whole = bytearray(stream([said]))
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    reader = FrameReader(limit=4096)
    try:
        assert reader.feed(bytes(whole)) == []  # it announces more than came
        assert reader.mid_frame
    except ProtocolError:
        pass


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (HEADER.pack(4, 1, 0), "fewer than"),
        (HEADER.pack(0, 1, 0), "fewer than"),
        (HEADER.pack(MAX_LENGTH + 1, 1, 0), "more than"),
        (HEADER.pack(5, 0, 0), "unknown frame type 0"),
        (HEADER.pack(5, 17, 0), "unknown frame type 17"),
        (HEADER.pack(5, 5, 1), "checksum"),
    ],
)
def test_a_bad_header_is_named(header: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        FrameReader().feed(header + b"\0")
    left, right = socket.socketpair()
    with left, right:
        left.sendall(header + b"\0")
        with pytest.raises(ProtocolError, match=words):
            read_frame(right)


def test_a_frame_beyond_the_limit_is_refused_on_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_LENGTH", 100)
    with pytest.raises(ProtocolError, match="larger than the wire allows"):
        pack(FrameType.BUNDLE, b"x" * 96)
    assert to_bytes(pack(FrameType.BUNDLE, b"x" * 95))
    with pytest.raises(ProtocolError, match="more than the 50"):
        FrameReader(limit=50).feed(to_bytes(pack(FrameType.BUNDLE, b"x" * 46)))


def test_an_announced_frame_costs_no_memory_until_it_comes() -> None:
    tracemalloc.start()
    try:
        reader = FrameReader()
        assert reader.feed(HEADER.pack(MAX_LENGTH, FrameType.BUNDLE, 0) + b"x" * 100) == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [0, 100, 70_000, 3 << 20])
def test_large_frames_cross_a_socket_by_every_way_of_reading(size: int) -> None:
    payload = bytes(range(256)) * (size // 256) + b"z" * (size % 256)
    said = [(FrameType.BUNDLE, payload), (FrameType.TICK, b""), (FrameType.OUTPUT, payload)]
    for receive in (_by_read_frame, _by_receive):
        left, right = socket.socketpair()
        with left, right:
            packed = [pack(kind, body) for kind, body in said]
            sender = threading.Thread(target=lambda: (send_frames(left, packed), left.close()))  # noqa: B023
            sender.start()
            assert flat(receive(right)) == said
            sender.join()


def _by_read_frame(sock: socket.socket) -> list[Frame]:
    found = []
    while (frame := read_frame(sock)) is not None:
        found.append(frame)
    return found


def _by_receive(sock: socket.socket) -> list[Frame]:
    reader, found = FrameReader(), []
    while not reader.eof:
        found += reader.receive(sock)
    return found


def test_a_stream_cut_inside_a_frame_is_an_error() -> None:
    whole = to_bytes(pack(FrameType.CHECKPOINTED, b"x" * 16))
    for cut in (1, HEADER.size, len(whole) - 1):
        for read in (read_frame, _by_receive):
            left, right = socket.socketpair()
            with right:
                with left:
                    left.sendall(whole[:cut])
                with pytest.raises(ProtocolError, match="middle of a frame"):
                    read(right)


def test_an_arrow_batch_may_point_into_a_received_frame() -> None:
    batch = pa.RecordBatch.from_pydict({"n": pa.array(range(200_000), pa.int64())})
    whole = to_bytes(pack(FrameType.BUNDLE, b"\0" * 16, batch.serialize()))
    reader = FrameReader()
    (frame,) = reader.feed(whole)
    message = frame.payload[16:]
    address = pa.py_buffer(message).address
    assert address % 8 == 0, "the message is aligned"
    again = pa.ipc.read_record_batch(pa.py_buffer(message), batch.schema)
    reader.feed(to_bytes(pack(FrameType.BUNDLE, b"\xff" * frame.payload.nbytes)))
    assert again.equals(batch)
    buffer = again.column(0).buffers()[1]
    assert buffer is not None and address <= buffer.address < address + message.nbytes, "nothing was copied"


def test_a_writer_resumes_after_partial_writes_without_copying() -> None:
    payload = memoryview(bytearray(5 << 20))
    payload[-1] = 7
    writer = FrameWriter()
    packed = pack(FrameType.OUTPUT, payload)
    assert packed[1] is payload
    for _ in range(3):
        writer.push(packed)
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        reader, found = FrameReader(), []
        assert not writer.flush(left) and writer.pending > 0
        while len(found) < 3:
            try:
                found += reader.receive(right)
            except BlockingIOError:
                writer.flush(left)
        assert writer.pending == 0
    assert [frame.payload[-1] for frame in found] == [7, 7, 7]


def test_many_small_frames_go_out_together() -> None:
    left, right = socket.socketpair()
    with left, right:
        send_frames(left, [pack(FrameType.TICK) for _ in range(2000)])
        left.close()
        assert len(_by_receive(right)) == 2000
