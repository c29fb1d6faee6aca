"""Frames: how bytes become messages between a conduit and a replica.

A stream socket has no message boundaries and no checksum worth the name, and either end may die in the middle of
a write. So every message travels as one frame, `u32 length, u8 type, u32 checksum, payload` (docs/wire.md), and a
frame is either taken whole or not at all: a wrong length, type or checksum ends the connection before anything
of the frame is acted upon. Three properties matter here.

Incremental. `FrameReader` is sans-IO: whatever pieces the bytes come in, the frames that come out are the same.

Bounded. A reader never holds more than one frame of at most its limit plus one piece; before a peer has shown
its token the limit is small. A frame that is merely announced costs address space, not memory.

Few copies. A large payload is received straight into a buffer of its own, which is handed out and never used again,
so that Arrow may keep pointing into it; small frames are copied once out of a shared scratch buffer. Sending gathers
headers and payloads with `sendmsg` instead of joining them.
"""

from __future__ import annotations

import mmap
import socket
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from clonos.errors import ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview
Packed: TypeAlias = list[Buffer]

HEADER = struct.Struct("<IBI")
MAX_LENGTH = 256 * 1024 * 1024
_OVERHEAD = HEADER.size - 4  # the type and the checksum are counted by the length field
_SCRATCH = 256 * 1024
_JOIN_BELOW = 4096
_LAZY_FROM = 1024 * 1024
_MAX_IOV = 512


class FrameType(IntEnum):
    """The frame types of docs/wire.md."""

    HELLO = 1
    RESUME = 2
    WELCOME = 3
    BUNDLE = 4
    TICK = 5
    END = 6
    OUTPUT = 7
    CHECKPOINTED = 8
    ENDED = 9
    HEARTBEAT = 10
    ERROR = 11
    FOLLOW = 12
    PROMOTE = 13
    FLUSH_LOG = 14
    LOG_FLUSHED = 15
    PASSED_OVER = 16


_TYPES = {int(kind): kind for kind in FrameType}
_TYPE_CRC = {kind: zlib.crc32(bytes([kind])) for kind in FrameType}


class Frame(NamedTuple):
    """One checked frame. The payload is never reused, so views into it stay good."""

    type: FrameType
    payload: memoryview


def pack(kind: FrameType, *parts: Buffer) -> Packed:
    """One frame as buffers to be sent in order; large parts are referred to, not copied."""
    size = _OVERHEAD
    crc = _TYPE_CRC[kind]
    for part in parts:
        size += len(part) if not isinstance(part, memoryview) else part.nbytes
        crc = zlib.crc32(part, crc)
    if size > MAX_LENGTH:
        raise ProtocolError(
            f"a {kind.name} frame of {size} bytes is larger than the wire allows ({MAX_LENGTH})",
            hint="Lower the bundle size",
        )
    header = HEADER.pack(size, kind, crc)
    if size < _JOIN_BELOW:
        return [b"".join((header, *parts))]
    return [header, *parts]


def to_bytes(packed: Packed) -> bytes:
    """The frame as one piece of bytes (copies)."""
    return b"".join(packed)


def _check_header(length: int, kind: int, limit: int) -> FrameType:
    if length < _OVERHEAD:
        raise ProtocolError(f"a frame announces {length} bytes, fewer than its own type and checksum")
    if length > limit:
        raise ProtocolError(f"a frame announces {length} bytes, more than the {limit} allowed here")
    known = _TYPES.get(kind)
    if known is None:
        raise ProtocolError(f"unknown frame type {kind}")
    return known


def _check_crc(kind: FrameType, crc: int, payload: Buffer) -> None:
    found = zlib.crc32(payload, _TYPE_CRC[kind])
    if found != crc:
        raise ProtocolError(f"a {kind.name} frame has checksum {found:#010x} where it says {crc:#010x}")


def _room(size: int) -> memoryview:
    """A buffer of its own for one payload; beyond 1 MiB its pages are only taken when they are written."""
    if size >= _LAZY_FROM:
        return memoryview(mmap.mmap(-1, size))
    return memoryview(bytearray(size))


class FrameReader:
    """Turns received bytes into frames, however they are cut. After a ProtocolError it stays broken."""

    def __init__(self, limit: int = MAX_LENGTH) -> None:
        self.limit = limit
        self.eof = False
        self._head = bytearray()
        self._kind = FrameType.HELLO
        self._crc = 0
        self._body: memoryview | None = None
        self._have = 0
        self._broken: str | None = None
        self._scratch: memoryview | None = None

    @property
    def needed(self) -> int:
        """How many bytes are missing to the end of the header or frame under construction; never beyond it."""
        if self._body is None:
            return HEADER.size - len(self._head)
        return self._body.nbytes - self._have

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun and not ended: an end of stream now means that the peer was cut off."""
        return self._body is not None or len(self._head) > 0

    def feed(self, data: Buffer) -> list[Frame]:
        """The frames that `data` completes."""
        if self._broken is not None:
            raise ProtocolError(self._broken)
        try:
            return self._feed(memoryview(data))
        except ProtocolError as error:
            self._broken = error.message
            self._body = None
            raise

    def receive(self, sock: socket.socket) -> list[Frame]:
        """One `recv` and the frames it completes. Sets `eof` at the end of the stream, which raises if it comes
        in the middle of a frame. On a non-blocking socket BlockingIOError comes through."""
        body = self._body
        if body is not None and body.nbytes - self._have >= _SCRATCH // 4:
            count = sock.recv_into(body[self._have :])
            if count:
                self._have += count
                frame = self._finish() if self._have == body.nbytes else None
                return [frame] if frame is not None else []
        else:
            if self._scratch is None:
                self._scratch = memoryview(bytearray(_SCRATCH))
            count = sock.recv_into(self._scratch)
            if count:
                return self.feed(self._scratch[:count])
        self.eof = True
        if self.mid_frame:
            raise ProtocolError("the stream ended in the middle of a frame")
        return []

    def _feed(self, view: memoryview) -> list[Frame]:
        frames: list[Frame] = []
        at, end = 0, view.nbytes
        while at < end:
            if self._body is None:
                at = self._take_header(view, at)
                if self._body is None:
                    break
            count = min(self._body.nbytes - self._have, end - at)
            self._body[self._have : self._have + count] = view[at : at + count]
            self._have += count
            at += count
            if self._have == self._body.nbytes:
                frames.append(self._finish())
        return frames

    def _take_header(self, view: memoryview, at: int) -> int:
        count = min(HEADER.size - len(self._head), view.nbytes - at)
        self._head += view[at : at + count]
        if len(self._head) == HEADER.size:
            length, kind, self._crc = HEADER.unpack(self._head)
            self._kind = _check_header(length, kind, self.limit)
            self._head.clear()
            self._body = _room(length - _OVERHEAD)
            self._have = 0
        return at + count

    def _finish(self) -> Frame:
        body = self._body
        assert body is not None
        try:
            _check_crc(self._kind, self._crc, body)
        except ProtocolError as error:
            self._broken = error.message
            raise
        finally:
            self._body = None
        return Frame(self._kind, body)


def _read_exactly(sock: socket.socket, room: memoryview, *, started: bool) -> bool:
    """Fills `room`; False at an end of stream before the first byte when nothing of the frame has been read."""
    have = 0
    while have < room.nbytes:
        count = sock.recv_into(room[have:])
        if count == 0:
            if have == 0 and not started:
                return False
            raise ProtocolError("the stream ended in the middle of a frame")
        have += count
    return True


def read_frame(sock: socket.socket, limit: int = MAX_LENGTH) -> Frame | None:
    """The next frame of a blocking socket, reading not a byte more; None at the end of the stream."""
    head = memoryview(bytearray(HEADER.size))
    if not _read_exactly(sock, head, started=False):
        return None
    length, number, crc = HEADER.unpack(head)
    kind = _check_header(length, number, limit)
    body = _room(length - _OVERHEAD)
    _read_exactly(sock, body, started=True)
    _check_crc(kind, crc, body)
    return Frame(kind, body)


def frame_of(packed: Buffer) -> Frame:
    """A frame that was kept as one piece of bytes. Raises ProtocolError where it is not whole."""
    view = memoryview(packed)
    if view.nbytes < HEADER.size:
        raise ProtocolError(f"a frame of {view.nbytes} bytes is shorter than its header")
    length, number, crc = HEADER.unpack_from(view)
    kind, body = _check_header(length, number, MAX_LENGTH), view[HEADER.size :]
    if body.nbytes != length - _OVERHEAD:
        raise ProtocolError(f"a frame announces {length} bytes and has {body.nbytes + _OVERHEAD}")
    _check_crc(kind, crc, body)
    return Frame(kind, body)


class FrameWriter:
    """What is still to be sent on one socket. Never copies a large payload; resumes after partial writes."""

    def __init__(self) -> None:
        self._queue: deque[memoryview] = deque()
        self.pending = 0

    def push(self, packed: Sequence[Buffer]) -> None:
        for part in packed:
            view = memoryview(part)
            if view.nbytes:
                self._queue.append(view if view.format == "B" and view.ndim == 1 else view.cast("B"))
                self.pending += view.nbytes

    def flush(self, sock: socket.socket) -> bool:
        """Sends what the socket takes; True when nothing is left. A blocking socket takes everything."""
        queue = self._queue
        while queue:
            pieces = [queue[n] for n in range(min(len(queue), _MAX_IOV))]
            try:
                sent = sock.sendmsg(pieces)
            except BlockingIOError:
                return False
            self.pending -= sent
            while queue and sent >= queue[0].nbytes:
                sent -= queue.popleft().nbytes
            if sent:
                queue[0] = queue[0][sent:]
        return True


def send_frames(sock: socket.socket, frames: Iterable[Packed]) -> None:
    """Sends all frames on a blocking socket, gathered into as few system calls as possible."""
    writer = FrameWriter()
    for packed in frames:
        writer.push(packed)
    if not writer.flush(sock):
        raise BlockingIOError("send_frames needs a blocking socket")
