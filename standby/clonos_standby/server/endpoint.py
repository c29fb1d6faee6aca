"""One page over HTTP or HTTPS, on the loop of the process that has it.

What asks is a scraper: a GET, now and then. Requests are bounded in size, time and number, each connection carries
one, and none can hold up the loop. A port that is taken must not keep a query from running: it is tried again until it
is free.
"""

from __future__ import annotations

import hmac
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from clonos_standby.server.event_loop import READ, WRITE, Loop, Timer
from clonos_standby.server.log import log
from clonos_standby.server.metrics_place import MetricsPlace

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
    is_shaken: bool = False  # the handshake of TLS is over


class Endpoint:
    """See the module. `address` is None as long as the port is taken."""

    def __init__(
        self,
        loop: Loop,
        place: MetricsPlace,
        page: Callable[[], str],
        content_type: str,
        opened: Callable[[str], None],
    ) -> None:
        """Raises ConfigurationError for certificates that cannot be used."""
        self.address: str | None = None
        self._loop = loop
        self._place = place
        self._context = _context(place) if place.tls is not None else None
        self._page = page
        self._content_type = content_type
        self._opened = opened
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
        host, port = self._place.host, self._place.port
        try:
            listener = _bound(host, port)
        except OSError as error:
            if not self._complained:
                self._complained = True
                why = f"port {port} of {host} cannot be used: {error}"
                log("metrics_port_taken", f"no metrics for now: {why}; trying on")
            self._retry = self._loop.later(RETRY_SECONDS, self._open)
            return
        listener.setblocking(False)
        self._listener = listener
        scheme = "http" if self._context is None else "https"
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{scheme}://{shown}:{listener.getsockname()[1]}{PATH}"
        self._loop.watch(listener.fileno(), lambda _events: self._accept(listener))
        self._opened(self.address)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        if len(self._peers) >= _MAX_PEERS:
            sock.close()
            return
        sock.setblocking(False)
        if self._context is not None:
            sock = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        peer = _Peer(sock, self._loop.later(_PEER_SECONDS, lambda: self._drop(peer)))
        self._peers[sock.fileno()] = peer
        self._loop.watch(sock.fileno(), lambda _events: self._serve(peer))

    def _serve(self, peer: _Peer) -> None:
        """As far as it goes now: a socket says what it waits for by what it raises."""
        try:
            self._go_on(peer)
        except ssl.SSLWantReadError:
            self._wait(peer, READ)
        except ssl.SSLWantWriteError:
            self._wait(peer, WRITE)
        except BlockingIOError:
            self._wait(peer, READ if peer.answer is None else WRITE)
        except OSError:
            self._drop(peer)

    def _wait(self, peer: _Peer, event: int) -> None:
        self._loop.watch(peer.sock.fileno(), lambda _events: self._serve(peer), event)

    def _go_on(self, peer: _Peer) -> None:
        if isinstance(peer.sock, ssl.SSLSocket) and not peer.is_shaken:
            peer.sock.do_handshake()
            peer.is_shaken = True
        while peer.answer is None:
            peer.answer = self._heard(peer)
        while peer.answer:
            peer.answer = peer.answer[peer.sock.send(peer.answer) :]
        self._drop(peer)

    def _heard(self, peer: _Peer) -> memoryview | None:
        """The answer, if the request is whole."""
        data = peer.sock.recv(_REQUEST_BYTES)
        peer.said += data
        if b"\r\n\r\n" in peer.said:
            return memoryview(self._answer(bytes(peer.said)))
        if not data or len(peer.said) > _REQUEST_BYTES:
            return memoryview(_response("400 Bad Request", "not a request\n"))
        return None

    def _answer(self, said: bytes) -> bytes:
        method, _, rest = said.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return _response("405 Method Not Allowed", "only GET\n")
        if path != PATH.encode():
            return _response("404 Not Found", f"see {PATH}\n")
        if self._place.token and not _shows(said, self._place.token):
            return _response("401 Unauthorized", "the token is missing or not the one\n", challenge=True)
        return _response("200 OK", self._page(), self._content_type)

    def _drop(self, peer: _Peer) -> None:
        if self._peers.pop(peer.sock.fileno(), None) is not None:
            peer.timer.cancel()
            self._loop.forget(peer.sock.fileno())
            peer.sock.close()


def _context(place: MetricsPlace) -> ssl.SSLContext:
    """Readers show a token rather than a certificate: most of them have none of the authority's."""
    assert place.tls is not None
    context = place.tls.server_context()
    context.verify_mode = ssl.CERT_NONE
    return context


def _bound(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=_MAX_PEERS)


def _shows(said: bytes, token: str) -> bool:
    """Whether a request's header has the token."""
    lines = said.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)
    }
    kind, _, shown = headers.get(b"authorization", b"").partition(b" ")
    return kind.lower() == b"bearer" and hmac.compare_digest(shown.strip(), token.encode())


def _response(
    status: str, body: str, content_type: str = "text/plain; charset=utf-8", *, challenge: bool = False
) -> bytes:
    raw = body.encode()
    head = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(raw)}",
        "Connection: close",
        *(["WWW-Authenticate: Bearer"] if challenge else []),
    )
    return "\r\n".join((*head, "", "")).encode() + raw
