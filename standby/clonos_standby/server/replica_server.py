"""The replica server: one long-lived process per host that runs the replicas of one query.

    python -m clonos_standby.server.replica_server --spec FILE --socket PATH --data DIR

It is started by the driver (clonos_standby.cluster.launcher) and dies with it: its standard input is a pipe on which
the driver asks whether it still works, and whose end means that the driver is gone. Conduits connect to the Unix
socket; the first frame decides where a connection goes (docs/wire.md). The socket is bound before the slow imports, so
that a conduit that comes back while the server restarts waits in the queue instead of failing. One line of JSON on
standard output says that it is ready; each ping of the driver is answered with an empty line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clonos.errors import ClonosError, ConfigurationError
from clonos.wire.admin_messages import (
    AdminAnswer,
    AdminRequest,
    BeginGeneration,
    CommitEpoch,
    CommitTold,
    Done,
    ExchangeRounds,
    GetStatus,
    ReportFailure,
    SetHolders,
    Status,
    StopServer,
    StoredRounds,
)
from clonos.wire.messages import Admin, pack_admin_answer
from clonos.wire.server_status import ServerStatus
from clonos_standby.cluster.launcher import LEASE_ENDED
from clonos_standby.cluster.server_watch import PING
from clonos_standby.cluster.spec_file import read_spec
from clonos_standby.replica import holders
from clonos_standby.replica.holders import PORT_FILE
from clonos_standby.server import running, spares
from clonos_standby.server.acceptor import Acceptor
from clonos_standby.server.event_loop import Loop, Timer
from clonos_standby.server.listeners import bind_tcp, bind_unix
from clonos_standby.server.log import Level, log, name_operators
from clonos_standby.server.metrics_place import MetricsPlace
from clonos_standby.server.processes import go_on_when_parent_dies, raise_descriptor_limit
from clonos_standby.server.sidecar import Sidecar
from clonos_standby.server.supervisor import Supervisor

if TYPE_CHECKING:
    from clonos_standby.server.endpoint import Endpoint

DEFAULT_ENTRY = "clonos_standby.replica.process:main"
GATE_PORT_FILE = "gate.port"
_PARENT_SECONDS = 1.0


class Server:
    """Puts the parts together and answers the driver."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.spec = read_spec(options.spec)
        wanted = self._setting("spares", 2)
        self.data = Path(options.data)
        self.data.mkdir(parents=True, exist_ok=True)
        self._lock = running.lock_data(self.data)
        self.socket_path: str = options.socket
        self._private: bool = options.private_socket_dir
        self.listeners = [bind_unix(self.socket_path)]
        self.tcp: str | None = None
        if options.tcp and not self.spec.get("tls"):
            self.listeners.append(bind_tcp(options.tcp))
            self.tcp = "{}:{}".format(*self.listeners[1].getsockname())
        name_operators(self.spec.get("names", {}))
        self.loop = Loop()
        self.loop.on_signal(signal.SIGCHLD, self._children_changed)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.loop.on_signal(number, self.loop.stop)
        self._announced = False
        self._start_sidecars(options)
        for problem in spares.warm(options.entry, self.spec["nodes"].values()):
            log("not_imported", f"not imported ahead: {problem}")
        spares.check_forkable()
        self.supervisor = Supervisor(self.loop, None, self.data, options.entry, options.spec, spares=wanted)
        self.acceptor = Acceptor(
            self.loop,
            self.spec["token"],
            self.supervisor.connect,
            self._admin,
            timeout=options.hello_timeout,
        )
        self.supervisor.acceptor = self.acceptor
        self._metrics_place = MetricsPlace.from_dict(self.spec.get("metrics"))
        self.metrics = self._open_metrics()
        self._parent = os.getppid()
        self._lease: float = options.lease
        self._lease_timer: Timer | None = None
        self.lease_ended = False

    def _start_sidecars(self, options: argparse.Namespace) -> None:
        """The determinant service, and what ends TLS in front of the socket where conduits come from other hosts."""
        spec = ["--spec", options.spec]
        self.sidecar = Sidecar(
            self.loop,
            "clonos_standby.server.determinant_process",
            [*spec, "--data", str(self.data)],
            self.data / PORT_FILE,
            lambda _address: self._ready(),
        )
        self.gate: Sidecar | None = None
        if options.tcp and self.tcp is None:
            host, _, port = options.tcp.rpartition(":")
            self.gate = Sidecar(
                self.loop,
                "clonos_standby.server.gate",
                [*spec, "--to", self.socket_path, "--host", host],
                self.data / GATE_PORT_FILE,
                self._gate_ready,
                port=int(port),
            )
        self._awaited = [] if options.no_determinants else [self.sidecar]
        self._awaited += [self.gate] if self.gate is not None else []
        for sidecar in self._awaited:
            sidecar.start()

    def _gate_ready(self, address: str) -> None:
        self.tcp = address
        self._ready()

    def run(self) -> None:
        for listener in self.listeners:
            self.acceptor.listen(listener)
        self._watch_driver()
        self._ready()
        try:
            self.loop.run(self.supervisor.idle)
        finally:
            self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.socket_path)
            if self._private:
                os.rmdir(os.path.dirname(self.socket_path))
            running.remove(self.data)
        if self.metrics is not None:
            self.metrics.close()
        self.acceptor.close()
        self.supervisor.close()
        for sidecar in self._awaited:
            sidecar.close()
        self.loop.close()
        os.close(self._lock)

    def _setting(self, name: str, default: int) -> int:
        settings = self.spec.get("settings")
        value = settings.get(name, default) if isinstance(settings, dict) else default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 64:
            raise ConfigurationError(f"setting {name} is {value!r}; a whole number from 0 to 64 is expected")
        return value

    def _children_changed(self) -> None:
        self.supervisor.reap()
        for sidecar in self._awaited:
            sidecar.check()

    def _ready(self) -> None:
        """Says so once, when everything beside it can be reached too."""
        if not self._announced and all(sidecar.address is not None for sidecar in self._awaited):
            self._announced = True
            self._tell_operators()
            line = {"ready": True, "grpc": self.sidecar.address, "tcp": self.tcp, "pid": os.getpid()}
            with contextlib.suppress(OSError):
                os.write(1, json.dumps(line).encode() + b"\n")

    def _open_metrics(self) -> Endpoint | None:
        place = self._metrics_place
        if place is None:
            return None
        # Their libraries take time to load, which a server without them saves.
        from clonos_standby.server import metrics
        from clonos_standby.server.endpoint import Endpoint

        names = self.spec.get("names", {})
        query, supervisor = str(self.spec.get("query", "")), self.supervisor

        def page() -> str:
            return metrics.render(query, supervisor.status(), supervisor.stats, names)

        return Endpoint(self.loop, place, page, metrics.CONTENT_TYPE, self._metrics_opened)

    def _metrics_opened(self, _address: str) -> None:
        if self._announced:
            self._tell_operators()

    def _tell_operators(self) -> None:
        found = running.Running(
            query=str(self.spec.get("query", "")),
            socket=self.socket_path,
            token=self.spec["token"],
            pid=os.getpid(),
            driver=tuple(self.spec.get("driver_pids", ())),
            metrics=self.metrics.address if self.metrics is not None else None,
        )
        try:
            found.write(self.data)
        except OSError as error:  # a full disk: the query can do without being watched
            log("cannot_be_found", f"operators' commands cannot find the query's server: {error}")

    def _watch_driver(self) -> None:
        """The end of stdin is the end of the driver; so is a new parent, should a fork of the driver keep the pipe."""
        mode = os.fstat(0).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            os.set_blocking(0, False)
            self.loop.watch(0, lambda _events: self._driver_said())
            go_on_when_parent_dies()
            self._check_parent()
            self._prolong(self._lease)

    def _driver_said(self) -> None:
        try:
            said = os.read(0, 4096).split()
            if said:
                self._obey_driver(said)
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.loop.stop()

    def _obey_driver(self, said: list[bytes]) -> None:
        leases = [word for word in said if word != PING]
        if leases:
            self._prolong(float(leases[-1]))
        if len(leases) < len(said):
            os.write(1, b"\n")

    def _prolong(self, seconds: float) -> None:
        """The replica service that started this server for a driver on another host says now and then for how long the
        server is still wanted."""
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        if self._lease:
            self._lease_timer = self.loop.later(max(seconds, 0.0), self._lease_ended)

    def _lease_ended(self) -> None:
        log("lease_ended", "the driver has not been heard of any more")
        self.lease_ended = True
        self.loop.stop()

    def _check_parent(self) -> None:
        if os.getppid() != self._parent:
            log("driver_gone", "the driver is gone", level=Level.INFO)
            self.loop.stop()
        self.loop.later(_PARENT_SECONDS, self._check_parent)

    def _admin(self, sock: socket.socket, admin: Admin) -> None:
        def answer(said: AdminAnswer) -> None:
            self.acceptor.answer(sock, pack_admin_answer(said))

        try:
            self._obey(admin.request, answer)
        except ClonosError as error:
            self.acceptor.refuse(sock, error)

    def _obey(self, request: AdminRequest, answer: Callable[[AdminAnswer], None]) -> None:
        match request:
            case CommitEpoch(epoch, truncation_points):
                answer(CommitTold(self.supervisor.commit(epoch, truncation_points)))
            case BeginGeneration(generation):
                self.supervisor.set_generation(generation, lambda: answer(Done()))
            case ExchangeRounds(generation, rounds):
                answer(StoredRounds(self.supervisor.exchange_rounds(generation, rounds)))
            case SetHolders(addresses):
                holders.tell(self.data, addresses)
                answer(Done())
            case ReportFailure(origin, generation, epoch, error, message):
                self.supervisor.failed(origin, generation, error, message, epoch)
                answer(Done())
            case GetStatus():
                answer(Status(self._status()))
            case StopServer():
                answer(Done())
                self.loop.later(0.0, self.loop.stop)

    def _status(self) -> ServerStatus:
        sidecar, place = self.sidecar.process, self._metrics_place
        return {
            **self.supervisor.status(),
            "grpc": self.sidecar.address,
            "grpc_pid": sidecar.pid if sidecar else None,
            "metrics": (place.shown_as if place else "") or (self.metrics.address if self.metrics else None),
        }


def parse_options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m clonos_standby.server.replica_server", description=__doc__
    )
    parser.add_argument("--spec", required=True, help="msgpack file with the query's spec")
    parser.add_argument("--socket", required=True, help="path of the Unix socket, at most 100 bytes")
    parser.add_argument("--data", required=True, help="directory for logs, fences and what replicas write")
    parser.add_argument(
        "--private-socket-dir", action="store_true", help="remove the socket's directory at the end"
    )
    parser.add_argument("--tcp", help="also listen at HOST:PORT; port 0 takes a free one")
    parser.add_argument(
        "--entry", default=DEFAULT_ENTRY, help="what a replica process runs, as module:function"
    )
    parser.add_argument(
        "--hello-timeout", type=float, default=5.0, help="seconds a connection may stay silent"
    )
    parser.add_argument(
        "--lease", type=float, default=0.0, help="end when standard input is silent for so many seconds"
    )
    parser.add_argument("--no-determinants", action="store_true", help="do not serve determinant requests")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_options(argv)
    spares.quiet_libraries()
    raise_descriptor_limit()
    try:
        server = Server(options)
    except ClonosError as error:
        log("not_started", str(error), level=Level.ERROR)
        return 2
    server.run()
    return LEASE_ENDED if server.lease_ended else 0


def fix_hash_seed() -> None:
    """Replicas are forked off this process: what iterates over a set of strings does so alike in all of them."""
    if not sys.flags.hash_randomization:
        return
    if os.environ.get("PYTHONHASHSEED") == "0":
        sys.exit(
            "a replica server needs Python without the options -E, -I and -R: its hash seed must be fixed"
        )
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})


if __name__ == "__main__":
    fix_hash_seed()
    sys.exit(main())
