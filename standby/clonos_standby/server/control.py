"""The private line between the supervisor and each replica process.

A replica is forked before the supervisor knows which instance it will be, and the conduit's connection arrives later,
at the supervisor. So the two share a socketpair over which the supervisor assigns an instance and passes connections
(SCM_RIGHTS), and the replica reports where it stands. Its end of file is also how each learns that the other is gone.

A message is `u32 length, u8 descriptors` followed by a msgpack map. Descriptors travel with the first byte of their
message and are kept in arrival order, so each message takes exactly its own however the stream is cut. The sending
side never blocks: a replica that no longer reads must not stop the supervisor from serving the others, so what cannot
be sent now is queued up to a bound, beyond which the line counts as broken.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgpack

from clonos.errors import ProtocolError

_HEAD = struct.Struct("<IB")
_LIMIT = 16 * 1024 * 1024
_QUEUE_LIMIT = 4 * 1024 * 1024
_MAX_FDS = 8
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Control(NamedTuple):
    """A received message and the descriptors that came with it (the receiver owns and closes them)."""

    message: dict[str, Any]
    fds: list[int]


class ControlClosed(ProtocolError):
    """The other end of the control line is gone or no longer reads."""


def pair() -> tuple[ControlChannel, ControlChannel]:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return ControlChannel(left), ControlChannel(right)


class ControlChannel:
    """One end of the line. The supervisor uses `send`, `flush` and `poll`; a replica may use `receive`, which waits."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.setblocking(False)
        self._buffer = bytearray()
        self._fds: deque[int] = deque()
        self._ready: deque[Control] = deque()
        self._queue: deque[tuple[memoryview, list[int]]] = deque()
        self._queued = 0
        self._eof = False

    def fileno(self) -> int:
        return self.sock.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._queue)

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Sends now what fits and queues the rest; the descriptors are duplicated, so the caller may close its own."""
        body: bytes = msgpack.packb(dict(message), use_bin_type=True)
        if len(body) > _LIMIT or len(fds) > _MAX_FDS:
            raise ProtocolError(
                f"a control message of {len(body)} bytes with {len(fds)} descriptors is too large"
            )
        if self._queued + len(body) > _QUEUE_LIMIT:
            raise ControlClosed("the other end of a control line does not read any more")
        piece = memoryview(_HEAD.pack(len(body), len(fds)) + body)
        self._queue.append((piece, [os.dup(fd) for fd in fds]))
        self._queued += piece.nbytes
        self.flush()

    def flush(self) -> bool:
        """Sends what the socket takes; True when nothing is left."""
        while self._queue:
            piece, fds = self._queue[0]
            try:
                sent = self._sendmsg(piece, fds)
            except BlockingIOError:
                return False
            except OSError as error:
                raise ControlClosed(f"the other end of a control line is gone: {error}") from None
            for fd in fds:
                os.close(fd)
            self._queued -= sent
            if sent == piece.nbytes:
                self._queue.popleft()
            else:
                self._queue[0] = (piece[sent:], [])
        return True

    def _sendmsg(self, piece: memoryview, fds: list[int]) -> int:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        return self.sock.sendmsg([piece], ancillary, getattr(socket, "MSG_NOSIGNAL", 0))

    def poll(self) -> list[Control]:
        """Everything that has arrived, without waiting. ControlClosed when nothing is left and nothing will come."""
        self._pull()
        ready = list(self._ready)
        self._ready.clear()
        if not ready and self._eof:
            raise ControlClosed("the other end of a control line is gone")
        return ready

    @property
    def has_received(self) -> bool:
        """Whether there is something that came together with what was received last."""
        return bool(self._ready)

    def receive(self, timeout: float | None = None) -> Control | None:
        """The next message; waits, at most `timeout` seconds (then None)."""
        while not self._ready:
            self._pull()
            if self._ready:
                break
            if self._eof:
                raise ControlClosed("the other end of a control line is gone")
            poll = select.poll()
            poll.register(self.sock, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                return None
        return self._ready.popleft()

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        for control in self._ready:
            for fd in control.fds:
                os.close(fd)
        for _, fds in self._queue:
            for fd in fds:
                os.close(fd)
        self._fds.clear()
        self._ready.clear()
        self._queue.clear()
        self.sock.close()

    def _pull(self) -> None:
        room = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
        while not self._eof:
            try:
                data, ancillary, flags, _ = self.sock.recvmsg(65536, room, _CLOEXEC)
            except BlockingIOError:
                return
            except ConnectionError:
                self._eof = True
                return
            self._keep_fds(ancillary)
            if flags & getattr(socket, "MSG_CTRUNC", 0):
                raise ProtocolError("descriptors were lost on a control line")
            if not data:
                self._eof = True
                return
            self._buffer += data
            self._split()

    def _keep_fds(self, ancillary: Sequence[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                if not _CLOEXEC:
                    for fd in fds:
                        os.set_inheritable(fd, False)
                self._fds.extend(fds)

    def _split(self) -> None:
        while len(self._buffer) >= _HEAD.size:
            size, count = _HEAD.unpack_from(self._buffer)
            if size > _LIMIT:
                raise ProtocolError(f"a control message announces {size} bytes")
            if len(self._buffer) < _HEAD.size + size:
                return
            body = bytes(self._buffer[_HEAD.size : _HEAD.size + size])
            del self._buffer[: _HEAD.size + size]
            if count > len(self._fds):
                raise ProtocolError("a control message came without its descriptors")
            fds = [self._fds.popleft() for _ in range(count)]
            self._ready.append(Control(_decode(body, fds), fds))


def _decode(body: bytes, fds: list[int]) -> dict[str, Any]:
    try:
        message = msgpack.unpackb(body, raw=False, strict_map_key=False)
        if isinstance(message, dict):
            return message
        problem = f"a map is expected, not {type(message).__name__}"
    except Exception as error:  # msgpack raises many kinds, ValueError and its own among them
        problem = str(error)
    with contextlib.suppress(OSError):
        for fd in fds:
            os.close(fd)
    raise ProtocolError(f"a control message cannot be read: {problem}")
