"""One page over HTTP, for this host alone, on the supervisor's loop.

What asks is a scraper: a GET, now and then. Requests are bounded in size, time and number, each connection carries
one, and none can hold up the loop. A port that is taken must not keep a query from running: it is tried again until it
is free.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from clonos_standby.server.event_loop import WRITE, Loop, Timer
from clonos_standby.server.log import log

HOST = "127.0.0.1"
PATH = "/metrics"
RETRY_SECONDS = 5.0
_REQUEST_BYTES = 8 * 1024
_MAX_PEERS = 16
_PEER_SECONDS = 5.0


@dataclass(eq=False)
class _Peer:
    sock: socket.socket
    timer: Timer
    said: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None


class Endpoint:
    """See the module. `address` is None as long as the port is taken."""

    def __init__(
        self,
        loop: Loop,
        port: int,
        page: Callable[[], str],
        content_type: str,
        changed: Callable[[], None],
    ) -> None:
        self.address: str | None = None
        self._loop = loop
        self._port = port
        self._page = page
        self._content_type = content_type
        self._changed = changed
        self._listener: socket.socket | None = None
        self._retry: Timer | None = None
        self._peers: dict[int, _Peer] = {}
        self._complained = False
        self._open()

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        if self._listener is not None:
            self._loop.forget(self._listener.fileno())
            self._listener.close()
        for peer in list(self._peers.values()):
            self._drop(peer)

    def _open(self) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, self._port))
        except OSError as error:
            listener.close()
            if not self._complained:
                self._complained = True
                why = f"port {self._port} of {HOST} cannot be used: {error}"
                log("metrics_port_taken", f"no metrics for now: {why}; trying on")
            self._retry = self._loop.later(RETRY_SECONDS, self._open)
            return
        listener.listen(_MAX_PEERS)
        listener.setblocking(False)
        self._listener = listener
        self.address = f"http://{HOST}:{listener.getsockname()[1]}{PATH}"
        self._loop.watch(listener.fileno(), lambda _events: self._accept(listener))
        self._changed()

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        if len(self._peers) >= _MAX_PEERS:
            sock.close()
            return
        sock.setblocking(False)
        peer = _Peer(sock, self._loop.later(_PEER_SECONDS, lambda: self._drop(peer)))
        self._peers[sock.fileno()] = peer
        self._loop.watch(sock.fileno(), lambda _events: self._serve(peer))

    def _serve(self, peer: _Peer) -> None:
        try:
            if peer.answer is None and not self._heard(peer):
                return
            if self._sent(peer):
                self._drop(peer)
        except OSError:
            self._drop(peer)

    def _heard(self, peer: _Peer) -> bool:
        """Whether the request is whole; then its answer is ready."""
        try:
            data = peer.sock.recv(_REQUEST_BYTES)
        except BlockingIOError:
            return False
        peer.said += data
        if b"\r\n\r\n" in peer.said:
            peer.answer = memoryview(self._answer(bytes(peer.said)))
        elif not data or len(peer.said) > _REQUEST_BYTES:
            peer.answer = memoryview(_response("400 Bad Request", "not a request\n"))
        return peer.answer is not None

    def _answer(self, said: bytes) -> bytes:
        method, _, rest = said.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return _response("405 Method Not Allowed", "only GET\n")
        if path != PATH.encode():
            return _response("404 Not Found", f"see {PATH}\n")
        return _response("200 OK", self._page(), self._content_type)

    def _sent(self, peer: _Peer) -> bool:
        assert peer.answer is not None
        with contextlib.suppress(BlockingIOError):
            peer.answer = peer.answer[peer.sock.send(peer.answer) :]
        if peer.answer:
            self._loop.watch(peer.sock.fileno(), lambda _events: self._serve(peer), WRITE)
        return not peer.answer

    def _drop(self, peer: _Peer) -> None:
        if self._peers.pop(peer.sock.fileno(), None) is not None:
            peer.timer.cancel()
            self._loop.forget(peer.sock.fileno())
            peer.sock.close()


def _response(status: str, body: str, content_type: str = "text/plain; charset=utf-8") -> bytes:
    raw = body.encode()
    head = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(raw)}",
        "Connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + raw
