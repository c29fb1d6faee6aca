"""The page's own server: static files, and what queries look like at the moment as JSON.

    GET /                       the page
    GET /static/<file>          its parts
    GET /api/queries            [{number, checkpoint, state}, ...]
    GET /api/queries/<number>   one of them, as `ObservedQuery.view` has it
    GET /api/queries/<number>/archive                       what there is of past epochs, as `ArchiveQuestions` answers
    GET /api/queries/<number>/rows?operator=&where=&from=&to=    rows that had these values
    GET /api/queries/<number>/explain?row=                  why a row says what it says

It changes nothing. On an address that other hosts reach, a token is asked for: in the header `Authorization: Bearer`,
or once as `/?token=...`, which the browser then keeps as a cookie. Without a token only this host's own names are
answered, so that a page of somewhere else cannot read it through a name that it makes point here.
"""

from __future__ import annotations

import hmac
import json
import select
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from clonos.errors import ConfigurationError
from clonos.tools.serve.archive_questions import ArchiveQuestions
from clonos.tools.serve.observed_query import ObservedQuery

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_STATIC: Final = files("clonos.tools.serve") / "static"
_SECURITY: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class WebServer(ThreadingHTTPServer):
    """Serves from `serve_forever` to `shutdown`. The archives are those of the queries, if they may be asked. Raises
    ConfigurationError where the port cannot be had."""

    daemon_threads = True

    def __init__(
        self,
        host: str,
        port: int,
        queries: Sequence[ObservedQuery],
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        archives: Sequence[ArchiveQuestions] = (),
    ) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.queries = tuple(queries)
        self.archives = tuple(archives)
        self.token = token
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise ConfigurationError(
                f"the page cannot be served at {host}:{port}: {error}",
                hint="Name another port: --port 0 is any free one",
            ) from error
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            # The handshake is the connection's own thread's: one that says nothing keeps none waiting.
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        named = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"{self._scheme}://{named}:{port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: WebServer
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        try:
            url = urlsplit(self.path)
            asked = parse_qs(url.query)
        except ValueError as error:
            self._answer(HTTPStatus.BAD_REQUEST, f"That is no address: {error}\n".encode())
            return
        given = asked.get("token")
        if not self._is_named():
            self._answer(HTTPStatus.FORBIDDEN, b"This page answers to the names of its own host only.\n")
        elif given and self.server.token is not None and url.path == "/" and self._fits(given[0]):
            self._answer(
                HTTPStatus.SEE_OTHER,
                b"",
                **{
                    "Location": "/",
                    "Set-Cookie": f"{self._cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/",
                },
            )
        elif not self._may_read():
            self._answer(
                HTTPStatus.UNAUTHORIZED,
                b"Open this page as /?token=... once, with the token that it was started with.\n",
                **{"WWW-Authenticate": "Bearer"},
            )
        else:
            self._show(url.path, asked)

    def _is_named(self) -> bool:
        if self.server.token is not None:
            return True
        try:
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        except ValueError:
            return False
        return host in (*LOOPBACK, str(self.server.server_address[0]))

    @property
    def _cookie(self) -> str:
        """Browsers keep cookies by host, whatever the port: another page of this host has one of its own."""
        return f"clonos_token_{self.server.server_address[1]}"

    def _fits(self, token: str) -> bool:
        wanted = self.server.token
        return wanted is None or hmac.compare_digest(token.encode(), wanted.encode())

    def _may_read(self) -> bool:
        said = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        try:
            kept = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie)
        except CookieError:
            kept = None
        return self._fits(said) or (kept is not None and self._fits(kept.value))

    def _is_asked_by_a_page_of_another_place(self) -> bool:
        """Which could not read the answer, and would have functions run for it."""
        return self.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none")

    def _show(self, path: str, given: Mapping[str, list[str]]) -> None:
        match path.strip("/").split("/"):
            case [""]:
                self._static("index.html")
            case ["static", name]:
                self._static(name)
            case ["api", "queries"]:
                views = (query.last() for query in self.server.queries)
                self._json(
                    [
                        {"number": number, **{name: view[name] for name in ("checkpoint", "state")}}
                        for number, view in enumerate(views)
                    ]
                )
            case ["api", "queries", number] if number.isdecimal() and int(number) < len(self.server.queries):
                self._json({**self.server.queries[int(number)].view(), "now": time.time()})
            case ["api", "queries", _, "archive"] if not self.server.archives:
                self._json({"operators": []})
            case ["api", "queries", number, what] if number.isdecimal() and int(number) < len(
                self.server.archives
            ):
                self._ask(self.server.archives[int(number)], what, given)
            case _:
                self._answer(HTTPStatus.NOT_FOUND, b"There is no such page.\n")

    def _is_still_there(self) -> bool:
        """Whether the asker waits for the answer: it would have closed the connection. Through TLS that cannot be seen
        without reading."""
        if isinstance(self.connection, ssl.SSLSocket):
            return True
        try:
            ready, _, _ = select.select([self.connection], [], [], 0)
            return not ready or bool(self.connection.recv(1, socket.MSG_PEEK))
        except (OSError, ValueError):
            return False

    def _ask(self, archive: ArchiveQuestions, what: str, given: Mapping[str, list[str]]) -> None:
        def one(name: str) -> str:
            return given.get(name, [""])[0]

        if self._is_asked_by_a_page_of_another_place():
            self._answer(HTTPStatus.FORBIDDEN, b"The archive is asked by this page alone.\n")
        elif any("\0" in value for values in given.values() for value in values):
            self._answer(
                HTTPStatus.BAD_REQUEST, b"There is a NUL in what is asked for, which nothing can have here.\n"
            )
        elif what == "archive":
            self._json(archive.listed())
        elif what == "rows":
            where = given.get("where", [])
            self._json(archive.found(one("operator"), where, one("from"), one("to"), self._is_still_there))
        elif what == "explain":
            self._json(archive.explained(one("row"), self._is_still_there))
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"There is no such page.\n")

    def _static(self, name: str) -> None:
        known = {each.name: each for each in _STATIC.iterdir()}
        if name in known:
            kind = _TYPES["." + name.rpartition(".")[2]]
            self._answer(
                HTTPStatus.OK, known[name].read_bytes(), **{"Content-Type": f"{kind}; charset=utf-8"}
            )
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"There is no such page.\n")

    def _json(self, said: Any) -> None:
        self._answer(HTTPStatus.OK, json.dumps(said).encode(), **{"Content-Type": "application/json"})

    def _answer(self, status: HTTPStatus, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain; charset=utf-8", **_SECURITY, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The command says nothing of each request."""
