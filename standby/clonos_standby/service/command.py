"""`clonos standby`: the replica service of this host, until it is told to end."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from clonos.errors import ConfigurationError
from clonos.wire.boundary import read_token
from clonos.wire.replica_client import ReplicaClient
from clonos.wire.replica_service import ReplicaService
from clonos.wire.tls import Tls
from clonos_standby.server.event_loop import Loop
from clonos_standby.server.metrics_place import MetricsPlace
from clonos_standby.service.replica_service import Service

LEASE_SECONDS = 10.0
_TLS_NAMES = "--tls-ca, --tls-cert and --tls-key"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        required=True,
        metavar="HOST:PORT",
        help="address of this host that drivers and conduits reach",
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="where queries keep their logs")
    parser.add_argument(
        "--token-file", required=True, type=Path, metavar="FILE", help="file with the token that drivers show"
    )
    parser.add_argument(
        "--slots", type=int, default=16, metavar="N", help="replicas that may run here (default: %(default)s)"
    )
    parser.add_argument(
        "--lease",
        type=float,
        default=LEASE_SECONDS,
        metavar="SECONDS",
        help="a query whose driver is silent for so long is ended (default: %(default)g)",
    )
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="answer GET /metrics there, with the numbers of all queries; port 0 is any free one",
    )
    parser.add_argument(
        "--metrics-token-file",
        default="",
        metavar="FILE",
        help="file with the token that readers of the metrics show; none: no token is asked for",
    )
    for name, what in (("ca", "certificates to trust"), ("cert", "certificate to show"), ("key", "its key")):
        parser.add_argument(
            f"--tls-{name}", metavar="PEM", help=f"{what}; without TLS, use a trusted network"
        )

    parser.add_argument(
        "--until-eof",
        action="store_true",
        help="end at the end of standard input, which the process that starts the service holds open",
    )
    parser.add_argument(
        "--show", action="store_true", help="only show, as JSON, what the service that listens there runs"
    )


def run(arguments: argparse.Namespace) -> int:
    host, port = address(arguments.listen)
    token = read_token(arguments.token_file)
    tls = Tls.of(arguments.tls_ca, arguments.tls_cert, arguments.tls_key, _TLS_NAMES)
    if arguments.show:
        print(json.dumps(ReplicaClient(arguments.listen, token, tls).describe(), indent=2))
        return 0
    if arguments.data is None:
        raise ConfigurationError("there is no --data", hint="Name a directory where queries keep their logs")
    if arguments.slots < 1 or arguments.lease <= 0:
        raise ConfigurationError("--slots and --lease must be above 0")
    place = _metrics_place(arguments, tls)
    with locked(arguments.data):
        service = Service(
            arguments.data, host, arguments.slots, arguments.lease, tls, has_metrics=place is not None
        )
        try:
            with contextlib.closing(_end(arguments.until_eof)) as end, _page(end, place, service):
                asked = ReplicaService(service, token, host, port, tls)
                said = f", metrics at {service.metrics}" if service.metrics else ""
                print(f"replica service at {asked.address}, {arguments.slots} slots{said}", flush=True)
                end.run()
                service.close()
                asked.stop()
        finally:
            service.close()
    return 0


def _metrics_place(arguments: argparse.Namespace, tls: Tls | None) -> MetricsPlace | None:
    if arguments.metrics is None:
        return None
    host, port = address(arguments.metrics)
    return MetricsPlace.of(host, port, arguments.metrics_token_file, tls, "--metrics-token-file")


@contextlib.contextmanager
def _page(loop: Loop, place: MetricsPlace | None, service: Service) -> Iterator[None]:
    """The page of metrics, on the loop that otherwise only waits for the end."""
    if place is None:
        yield
        return
    from clonos_standby.server.endpoint import Endpoint
    from clonos_standby.service import metrics_page

    def text() -> str:
        return metrics_page.render(service.describe(), service.metrics_addresses())

    def opened(at: str) -> None:
        service.metrics = at

    page = Endpoint(loop, place, text, metrics_page.CONTENT_TYPE, opened)
    try:
        yield
    finally:
        page.close()


def _end(until_eof: bool) -> Loop:
    """What waits until the service is told to end. A signal may be taken by any thread, and one that waits for a lock
    does not hear of it then; a loop does."""
    loop = Loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.on_signal(number, loop.stop)

    def read(_events: int) -> None:
        with contextlib.suppress(OSError):
            if os.read(0, 4096):
                return
        loop.stop()

    if until_eof:
        try:
            loop.watch(0, read)
        except PermissionError:  # a file, which has no other end that a process could hold open
            loop.stop()
    return loop


def address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(f"{text!r} is not an address", hint="Say HOST:PORT")
    return host, int(port)


@contextlib.contextmanager
def locked(data: Path) -> Iterator[None]:
    """One service per directory."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(data / "service.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{data} cannot be used: {error}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ConfigurationError(f"another replica service uses {data}") from None
    finally:
        os.close(fd)
