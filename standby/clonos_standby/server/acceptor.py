"""The door: who may speak to the replica server, and only then to a replica.

Any process on the host may be able to reach the socket, so what arrives before a valid token costs next to nothing: one
frame of bounded size, within a bounded time, from a bounded number of connections at once, none of which can hold up
another. The door reads exactly the HELLO and not a byte more, since everything behind it belongs to the replica that
the connection is handed to. A peer that is refused is told why if it spoke the protocol, and its unread bytes are taken
for a moment, because closing over unread data would take the answer away again.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import socket
from collections.abc import Callable
from dataclasses import dataclass

from clonos.errors import ClonosError, ProtocolError, Unauthenticated
from clonos.wire.framing import Frame, FrameReader, FrameType, FrameWriter, Packed
from clonos.wire.messages import Admin, Hello, pack_exception, parse
from clonos_standby.server.event_loop import READ, WRITE, Loop, Timer
from clonos_standby.server.log import log
from clonos_standby.server.seldom import Seldom

HELLO_LIMIT = 256 * 1024
MAX_WAITING = 256
_LINGER_SECONDS = 1.0
_ACCEPT_AT_ONCE = 32


@dataclass(eq=False)
class _Waiting:
    sock: socket.socket
    reader: FrameReader
    timer: Timer


class Acceptor:
    """Accepts on any number of listeners and hands on what has said a good HELLO."""

    def __init__(
        self,
        loop: Loop,
        token: str,
        on_hello: Callable[[socket.socket, Hello], None],
        on_admin: Callable[[socket.socket, Admin], None],
        *,
        timeout: float = 5.0,
    ) -> None:
        self._loop = loop
        self._token = token.encode()
        self._on_hello = on_hello
        self._on_admin = on_admin
        self._timeout = timeout
        self._seldom = Seldom()
        self._listeners: list[socket.socket] = []
        self._waiting: dict[int, _Waiting] = {}
        self._leaving: dict[int, tuple[socket.socket, FrameWriter, Timer]] = {}

    def listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listeners.append(listener)
        self._resume(listener)

    def answer(self, sock: socket.socket, packed: Packed) -> None:
        """Sends a last frame and closes once the peer has had the time to read it."""
        writer = FrameWriter()
        writer.push(packed)
        fd = sock.fileno()
        sock.setblocking(False)
        timer = self._loop.later(_LINGER_SECONDS, lambda: self._leave(fd))
        self._leaving[fd] = (sock, writer, timer)
        self._linger(fd)

    def refuse(self, sock: socket.socket, error: ClonosError) -> None:
        self.answer(sock, pack_exception(error))

    def close(self) -> None:
        for listener in self._listeners:
            self._loop.forget(listener.fileno())
            listener.close()
        for fd in list(self._waiting):
            self._drop(fd)
        for fd in list(self._leaving):
            self._leave(fd)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    self._pause(listener, error)
                return
            if len(self._waiting) >= MAX_WAITING:
                longest = next(iter(self._waiting))
                self._read(longest)  # its HELLO may have come by now
                self._drop(longest)
            self._greet(sock)

    def _greet(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        fd = sock.fileno()
        timer = self._loop.later(self._timeout, lambda: self._drop(fd))
        self._waiting[fd] = _Waiting(sock, FrameReader(HELLO_LIMIT), timer)
        self._loop.watch(fd, lambda _events: self._read(fd))

    def _pause(self, listener: socket.socket, error: OSError) -> None:
        if self._seldom.is_due(error.errno):
            log("accepting_paused", f"cannot accept for the moment: {error}")
        self._loop.forget(listener.fileno())
        for fd in list(self._waiting):
            self._drop(fd)
        self._loop.later(0.1, lambda: self._resume(listener))

    def _resume(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.watch(listener.fileno(), lambda _events: self._accept(listener))

    def _read(self, fd: int) -> None:
        waiting = self._waiting[fd]
        frames: list[Frame] = []
        try:
            while not frames:
                data = waiting.sock.recv(waiting.reader.needed)
                if not data:
                    return self._drop(fd)
                frames = waiting.reader.feed(data)
            if frames[0].type is not FrameType.HELLO:
                raise ProtocolError(f"HELLO is expected first, not {frames[0].type.name}")
        except BlockingIOError:
            return None
        except OSError:
            return self._drop(fd)
        except ProtocolError as error:
            log("connection_dropped", f"a connection was dropped: {error}")
            return self._drop(fd)
        return self._introduce(fd, frames[0])

    def _introduce(self, fd: int, frame: Frame) -> None:
        sock = self._waiting[fd].sock
        try:
            said = parse(frame)
            assert isinstance(said, Hello | Admin)
            if not hmac.compare_digest(said.token.encode(errors="replace"), self._token):
                raise Unauthenticated("the token is not the one of this query")
        except ProtocolError as error:
            log("connection_refused", f"a connection was refused: {error}")
            self._release(fd)
            return self.refuse(sock, error)
        self._release(fd)
        if isinstance(said, Hello):
            return self._on_hello(sock, said)
        return self._on_admin(sock, said)

    def _release(self, fd: int) -> None:
        self._loop.forget(fd)
        self._waiting.pop(fd).timer.cancel()

    def _drop(self, fd: int) -> None:
        if fd in self._waiting:
            sock = self._waiting[fd].sock
            self._release(fd)
            sock.close()

    def _linger(self, fd: int) -> None:
        if fd not in self._leaving:
            return None
        sock, writer, _ = self._leaving[fd]
        try:
            if writer.pending:
                if writer.flush(sock):
                    sock.shutdown(socket.SHUT_WR)
                else:
                    return self._loop.watch(fd, lambda _events: self._linger(fd), WRITE)
            for _ in range(16):
                if not sock.recv(65536):
                    return self._leave(fd)
        except BlockingIOError:
            pass
        except OSError:
            return self._leave(fd)
        return self._loop.watch(fd, lambda _events: self._linger(fd), READ)

    def _leave(self, fd: int) -> None:
        if fd in self._leaving:
            sock, _, timer = self._leaving.pop(fd)
            timer.cancel()
            self._loop.forget(fd)
            with contextlib.suppress(OSError):
                sock.close()
