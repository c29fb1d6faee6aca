"""The end of TLS in front of a replica server, as a process of its own beside it.

    python -m clonos_standby.server.gate --spec FILE --to SOCKET --host HOST --port N --parent PID

The server hands open connections on to its replicas, which a TLS session, being the memory of one process, does not
survive. So the session ends here, and the bytes go on over the server's own socket. A peer without a certificate of the
authority is refused by the handshake and never gets that far. The gate tells its address in one line of JSON on stdout
and ends when its stdin does or its parent dies.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import ssl
import sys
from collections.abc import Sequence

from clonos.errors import ClonosError, ConfigurationError
from clonos.wire.tls import Tls
from clonos_standby.cluster.spec_file import read_spec
from clonos_standby.server.event_loop import READ, WRITE, Loop, Timer
from clonos_standby.server.listeners import bind_tcp
from clonos_standby.server.log import Level, log
from clonos_standby.server.processes import die_with_parent, raise_descriptor_limit
from clonos_standby.server.seldom import Seldom
from clonos_standby.server.sidecar import PONG

_CHUNK = 256 * 1024
_RECORD = 16 * 1024
_ROUNDS = 4
_ACCEPT_AT_ONCE = 32
_HANDSHAKES = 256
_HANDSHAKE_SECONDS = 10.0
_LINGER_SECONDS = 1.0


class _Way:
    """What one end has said and the other has not taken yet; no more is read before it has."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.held = memoryview(b"")
        self.ended = False

    def move(self) -> bool:
        """Passes on what can be passed on now; whether there was anything."""
        if not self.held and not self.ended:
            self.held = memoryview(self._read())
        if not self.held:
            return False
        while self.held:
            try:
                self.held = self.held[self.target.send(self.held) :]
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                break
        return True

    def _read(self) -> bytes:
        """Record by record, which is how a TLS socket gives it."""
        pieces: list[bytes] = []
        room = _CHUNK
        while room >= _RECORD:
            try:
                piece = self.source.recv(room)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                piece = b""
            if not piece:
                self.ended = True
                break
            pieces.append(piece)
            room -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _Passage:
    """A connection and its counterpart at the server. Whichever end has nothing to say any more ends both."""

    def __init__(self, loop: Loop, outer: ssl.SSLSocket, inner: socket.socket) -> None:
        self._loop = loop
        self._outer, self._inner = outer, inner
        self._up = _Way(outer, inner)
        self._down = _Way(inner, outer)
        self._watched: dict[socket.socket, int] = {}
        self._turn()

    def _turn(self) -> None:
        try:
            for _ in range(_ROUNDS):
                if not self._up.move() | self._down.move():
                    break
        except OSError:
            return self._close()
        if self._up.ended and not self._up.held:
            return self._close()
        if self._down.ended and not self._down.held:
            return self._linger()
        self._watch(self._outer, self._up, self._down)
        self._watch(self._inner, self._down, self._up)
        return None

    def _watch(self, sock: socket.socket, reading: _Way, writing: _Way) -> None:
        waits = bool(reading.held) or reading.ended
        wanted = (0 if waits else READ) | (WRITE if writing.held else 0)
        if wanted == self._watched.get(sock):
            return
        self._watched[sock] = wanted
        if wanted:
            self._loop.watch(sock.fileno(), lambda _events: self._turn(), wanted)
        else:
            self._loop.forget(sock.fileno())

    def _linger(self) -> None:
        """The server's last word is on its way: to close over unread bytes would take it away again."""
        self._loop.forget(self._inner.fileno())
        timer = self._loop.later(_LINGER_SECONDS, self._close)

        def drain() -> None:
            try:
                while self._outer.recv(_CHUNK):
                    pass
            except BlockingIOError:
                return
            except OSError:
                pass
            timer.cancel()
            self._close()

        try:
            self._outer.shutdown(socket.SHUT_WR)
            self._loop.watch(self._outer.fileno(), lambda _events: drain())
        except OSError:
            timer.cancel()
            self._close()

    def _close(self) -> None:
        for sock in (self._outer, self._inner):
            if sock.fileno() >= 0:
                self._loop.forget(sock.fileno())
                sock.close()


class Gate:
    """Lets in whom the handshake does."""

    def __init__(self, loop: Loop, listener: socket.socket, target: str, context: ssl.SSLContext) -> None:
        self._loop = loop
        self._listener = listener
        self._target = target
        self._context = context
        self._seldom = Seldom()
        self._greeted: dict[ssl.SSLSocket, tuple[str, Timer]] = {}
        listener.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        self._loop.watch(self._listener.fileno(), lambda _events: self._accept())

    def _accept(self) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                sock, peer = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if self._seldom.is_due(error.errno):
                    log("accepting_paused", f"cannot accept for the moment: {error}")
                self._loop.forget(self._listener.fileno())
                self._loop.later(0.1, self._listen)
                return
            if len(self._greeted) >= _HANDSHAKES:
                self._refuse(next(iter(self._greeted)), "too many others came after it")
            self._greet(sock, str(peer[0]))

    def _greet(self, sock: socket.socket, peer: str) -> None:
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            outer = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError as error:
            log("connection_refused", f"a connection from {peer} was refused: {error}")
            return sock.close()
        late = f"no TLS handshake within {_HANDSHAKE_SECONDS:g} s"
        timer = self._loop.later(_HANDSHAKE_SECONDS, lambda: self._refuse(outer, late))
        self._greeted[outer] = peer, timer
        return self._shake(outer)

    def _shake(self, outer: ssl.SSLSocket) -> None:
        try:
            outer.do_handshake()
        except ssl.SSLWantReadError:
            return self._loop.watch(outer.fileno(), lambda _events: self._shake(outer), READ)
        except ssl.SSLWantWriteError:
            return self._loop.watch(outer.fileno(), lambda _events: self._shake(outer), WRITE)
        except OSError as error:  # those of ssl are of this kind too
            return self._refuse(outer, str(error))
        self._greeted.pop(outer)[1].cancel()
        self._loop.forget(outer.fileno())
        inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            inner.setblocking(False)
            inner.connect(self._target)
        except OSError:  # the server is just starting again; the conduit tries again as well
            inner.close()
            return outer.close()
        _Passage(self._loop, outer, inner)
        return None

    def _refuse(self, outer: ssl.SSLSocket, why: str) -> None:
        peer, timer = self._greeted.pop(outer)
        timer.cancel()
        log("connection_refused", f"a connection from {peer} was refused: {why}")
        self._loop.forget(outer.fileno())
        outer.close()


def serve(listener: socket.socket, target: str, context: ssl.SSLContext) -> None:
    """Until standard input ends. What comes there are pings, each of which is answered."""
    loop = Loop()

    def told() -> None:
        with contextlib.suppress(BlockingIOError):
            if os.read(0, 4096):
                os.write(1, PONG)
            else:
                loop.stop()

    os.set_blocking(0, False)
    loop.watch(0, lambda _events: told())
    Gate(loop, listener, target, context)
    os.write(1, json.dumps({"address": "{}:{}".format(*listener.getsockname()[:2])}).encode() + b"\n")
    loop.run()


def parse_options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m clonos_standby.server.gate", description=__doc__)
    parser.add_argument("--spec", required=True, help="msgpack file with the query's spec")
    parser.add_argument("--to", required=True, help="the replica server's socket")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at")
    parser.add_argument("--port", type=int, default=0, help="port to listen at; 0 takes a free one")
    parser.add_argument("--parent", type=int, help="end when this process is not the parent any more")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_options(argv)
    if options.parent is not None:
        die_with_parent(options.parent)
    raise_descriptor_limit()
    try:
        tls = Tls.from_dict(read_spec(options.spec).get("tls"))
        if tls is None:
            raise ConfigurationError(f"the spec file {options.spec} names no TLS files")
        context = tls.server_context()
        listener = bind_tcp(f"{options.host}:{options.port}")
    except ClonosError as error:
        log("not_started", str(error), level=Level.ERROR)
        return 2
    serve(listener, options.to, context)
    return 0


if __name__ == "__main__":
    sys.exit(main())
