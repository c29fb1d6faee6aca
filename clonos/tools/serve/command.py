"""The command `clonos serve`."""

from __future__ import annotations

import argparse
import re
import secrets
import signal
import ssl
import sys
import threading
from pathlib import Path

from clonos.errors import ConfigurationError
from clonos.tools.serve.archive_questions import ArchiveQuestions
from clonos.tools.serve.observed_query import ObservedQuery
from clonos.tools.serve.web_server import WebServer
from clonos.wire.boundary import read_token
from clonos_standby.server.metrics_place import is_loopback

PORT = 4050
_HIGHEST_PORT = 65_535
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
_HINT = "As for a replica service: openssl rand -hex 32 > FILE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos serve`."""
    parser.add_argument("checkpoint", nargs="+", help="a query's checkpointLocation")
    parser.add_argument("--port", type=_port, default=PORT, help=f"default {PORT}; 0 is any free one")
    parser.add_argument("--host", default="127.0.0.1", help="where it is served; default 127.0.0.1")
    parser.add_argument(
        "--token-file", type=Path, help="what readers have to know; needed where others reach the host"
    )
    parser.add_argument("--until-eof", action="store_true", help="end at the end of standard input, too")
    parser.add_argument(
        "--archive",
        action="store_true",
        help="rows of past epochs can be found and explained, too, by readers with a token: one is drawn if none is "
        "given",
    )
    parser.add_argument(
        "--mask",
        default="",
        metavar="COLUMNS",
        help="with commas: their values are not shown where rows are explained, nor is state",
    )
    parser.add_argument("--tls-cert", type=Path, help="a certificate (PEM), for https")
    parser.add_argument("--tls-key", type=Path, help="its key (PEM)")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {_HIGHEST_PORT}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted, or told to end."""
    token = _token(arguments.token_file)
    if token is None and not is_loopback(arguments.host):
        raise ConfigurationError(
            f"what is served at {arguments.host} others can read, and no token is asked of them",
            hint=f"Give --token-file FILE. {_HINT}",
        )
    given = token is not None
    archives = []
    if arguments.archive:
        token = token or secrets.token_urlsafe()
        archives = [
            ArchiveQuestions(location, arguments.mask.split(",")) for location in arguments.checkpoint
        ]
    queries = [ObservedQuery(location) for location in arguments.checkpoint]
    server = WebServer(
        arguments.host,
        arguments.port,
        queries,
        token=token,
        tls=_tls(arguments.tls_cert, arguments.tls_key),
        archives=archives,
    )
    for query in queries:
        query.start()
    # `shutdown` waits for the loop, in which the signal's handler runs.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    if arguments.until_eof:
        threading.Thread(target=_end_at_eof, args=(server,), daemon=True).start()
    told = "" if token is None else "?token=..." if given else f"?token={token}"
    print(f"{server.url}{told}", flush=True)
    try:
        server.serve_forever()
    finally:
        server.server_close()
        for query in queries:
            query.stop()
    return 0


def _end_at_eof(server: WebServer) -> None:
    sys.stdin.read()
    server.shutdown()


def _token(path: Path | None) -> str | None:
    if path is None:
        return None
    token = read_token(path)
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"the token in {path} has other characters than headers may have", hint=_HINT
        )
    return token


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigurationError("TLS needs a certificate and its key", hint="Give --tls-cert and --tls-key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"the certificate or its key cannot be used: {error}") from error
    return context
