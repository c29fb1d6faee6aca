"""The driver's side of a replica server: start it, keep it alive, talk to it, stop it.

The driver is a process full of threads with a JVM behind it, so it must never fork itself; it starts the server as a
fresh program and holds the write end of the server's stdin. That pipe is the whole agreement about life and death:
however the driver ends, its descriptors are closed, and the server and everything it runs are gone a moment later.
In the other direction a monitor thread waits for the server and starts it again, at the same socket and with the same
data directory, so that conduits only have to connect again and old fences stay raised. A server that lives but does not
answer (`silence`) is killed, which ends its replicas too, and started again in the same way.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clonos.environment import module_path
from clonos.errors import ConfigurationError, ReplicaLost, StorageUnavailable
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, LogOffset, Origin
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos.storage.disk_errors import disk
from clonos.wire.admin_messages import (
    AdminRequest,
    BeginGeneration,
    CommitEpoch,
    CommitTold,
    Done,
    ExchangeRounds,
    GetStatus,
    SetHolders,
    Status,
    StoredRounds,
)
from clonos.wire.server_status import ServerStatus
from clonos_standby.cluster.server_watch import is_hung, readable, say
from clonos_standby.cluster.spec_file import SpecFile
from clonos_standby.replica.holders import HOLDERS_FILE
from clonos_standby.server import admin
from clonos_standby.server.admin import AnswerT
from clonos_standby.server.log import about, inherited
from clonos_standby.server.processes import look_at
from clonos_standby.server.running import LOCK

LOG = logging.getLogger("clonos")

_MAX_PATH = 100
_STOP_SECONDS = 15.0
_STDERR_TAIL = 8 * 1024
_LINE_LIMIT = 64 * 1024
_LONGEST_PAUSE = 5.0
_SPECS = "spec*.msgpack*"
LEASE_ENDED = 75
"""A server ends with this status when its lease has run out: it is not started again."""


class ReplicaServer:
    """One replica server of one query, owned by this process. Safe to use from several threads."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        data_dir: str | os.PathLike[str],
        *,
        entry: str | None = None,
        tcp: str | None = None,
        lease: float = 0.0,
        determinants: bool = True,
        start_timeout: float = 60.0,
        hello_timeout: float = 5.0,
        silence: float | None = None,
        on_restart: Callable[[ReplicaServer], None] | None = None,
    ) -> None:
        """A server that has not answered for `silence` seconds is replaced; None: it is waited for."""
        self.data = Path(data_dir)
        self.grpc_address: str | None = None
        self.tcp_address: str | None = None
        self.restarts = 0
        self._spec = dict(spec)
        self._token = str(spec["token"])
        self._entry = entry
        self._tcp = tcp
        self._lease = lease
        self._determinants = determinants
        self.hello_timeout = hello_timeout
        self._start_timeout = start_timeout
        self._silence = silence
        self._on_restart = on_restart
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._monitor: threading.Thread | None = None
        self._stopping = threading.Event()
        self._directory: str | None = None

    # -- life --------------------------------------------------------------------------------------------------

    def start(self) -> ReplicaServer:
        """Starts the server and waits until it is ready; raises with what it wrote when it does not come up."""
        with self._lock:
            if self._process is not None:
                raise ConfigurationError("this replica server has been started already")
            self.data.mkdir(parents=True, exist_ok=True)
            (self.data / HOLDERS_FILE).unlink(missing_ok=True)  # of an earlier driver
            for left in self.data.glob(_SPECS):
                left.unlink(missing_ok=True)
            self._directory = _short_directory()
            try:
                self._spec_file().write()
                self._spawn()
            except BaseException:
                self._remove_directory()
                raise
            atexit.register(self.stop)
            self._monitor = threading.Thread(target=self._watch, name="clonos-replica-server", daemon=True)
            self._monitor.start()
        return self

    def stop(self) -> None:
        """Ends the server and all its replicas and removes its socket. Harmless when called again."""
        self._stopping.set()
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                _end(process)
            self._remove_directory()
        monitor = self._monitor
        if monitor is not None and monitor is not threading.current_thread():
            monitor.join(_STOP_SECONDS)
        atexit.unregister(self.stop)

    def __enter__(self) -> ReplicaServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None else None

    @property
    def alive(self) -> bool:
        process = self._process
        return process is not None and process.poll() is None

    @property
    def lease_ended(self) -> bool:
        """Whether the server has ended because its driver had not prolonged the lease in time."""
        process = self._process
        return process is not None and process.poll() == LEASE_ENDED

    @property
    def socket_path(self) -> str:
        if self._directory is None:
            raise ConfigurationError("this replica server has not been started")
        return os.path.join(self._directory, "s")

    def restart_if_dead(self) -> bool:
        """Starts the server again if it has died; whether that was so. The monitor does this by itself."""
        with self._lock:
            process = self._process
            if self._stopping.is_set() or process is None or process.poll() is None:
                return False
            _close_pipes(process)
            self._keep_spec()
            self._spawn_again()
        self._tell_of_restart()
        return True

    def _begin_anew_if_removed(self) -> None:
        """A server whose data directory was removed goes on in files that have no name any more: another server takes
        its place. So it is where only the spec's file is missing or damaged: other files may be, too."""
        with self._lock:
            process = self._process
            if self._stopping.is_set() or process is None or not self._keep_spec():
                return
            _end(process)
            self._spawn_again()
        self._tell_of_restart()

    def _spawn_again(self) -> None:
        self._spawn()
        self.restarts += 1

    def _tell_of_restart(self) -> None:
        """Without the lock: `on_restart` may ask the server something."""
        if self._on_restart is not None:
            self._on_restart(self)

    def _watch(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            process = self._process
            if process is None:
                return
            self._kill_if_hung(process)
            process.wait()
            if self._stopping.is_set() or process.returncode == LEASE_ENDED:
                return
            try:
                self.restart_if_dead()
                failures = 0
            # Whatever it is, without a server there is nothing to lose by trying on
            except Exception as error:
                failures += 1
                with contextlib.suppress(OSError), self._stderr_path().open("a") as file:
                    file.write(f"the replica server could not be started again: {error}\n")
                self._stopping.wait(min(0.1 * 2**failures, _LONGEST_PAUSE))

    def _kill_if_hung(self, process: subprocess.Popen[bytes]) -> None:
        """Returns when it ends, or is to end."""
        if self._silence is None:
            return
        with self._lock:
            if self._process is not process or process.stdout is None or process.stdout.closed:
                return
            output = os.dup(process.stdout.fileno())  # a thread that ends the server closes its pipes
        try:
            if not is_hung(
                process, output, self._silence, lambda: not self._stopping.is_set(), self._mend_spec
            ):
                return
        finally:
            os.close(output)
        why = "it is stopped by a signal (SIGSTOP)" if look_at(process.pid).stopped else "it hangs"
        LOG.warning(
            "the replica server (process %d) has not answered for %g s: %s; it and its replicas are replaced",
            process.pid,
            self._silence,
            why,
            extra=about("server_hung", query=str(self._spec["query"])),
        )
        process.kill()

    # -- requests ----------------------------------------------------------------------------------------------

    def commit(self, epoch: Epoch, truncation_points: Mapping[Origin, LogOffset]) -> int:
        """Tells all replicas that an epoch is committed; how many there are."""
        return self._ask(CommitEpoch(epoch, truncation_points), CommitTold).replicas

    def exchange_rounds(self, generation: Generation, rounds: Rounds) -> Mapping[Origin, StoredRound]:
        """Says how far the rounds of a start are; by instance, which checkpoint is durable."""
        return self._ask(ExchangeRounds(generation, rounds), StoredRounds).stored

    def set_generation(self, generation: Generation) -> None:
        """Fences everything older than this generation; its replicas are dead when this returns."""
        self._begin_anew_if_removed()
        self._ask(BeginGeneration(generation), Done)

    def tell_holders(self, addresses: Sequence[str]) -> None:
        """Says where all determinant services of the query are."""
        self._ask(SetHolders(tuple(addresses)), Done)

    def prolong(self, seconds: float) -> None:
        """Says to a server with a lease for how long it is still wanted."""
        process = self._process
        if process is not None:  # where it has died, its successor begins a lease of its own
            say(process, b"%.3f" % seconds)

    def status(self) -> ServerStatus:
        """Replicas, spares and recent deaths."""
        return self._ask(GetStatus(), Status).said

    def _ask(self, request: AdminRequest, expected: type[AnswerT], timeout: float | None = None) -> AnswerT:
        """One admin request; a server that is just restarting is waited for."""
        deadline = time.monotonic() + (self._start_timeout if timeout is None else timeout)
        while True:
            try:
                left = max(0.05, deadline - time.monotonic())
                return admin.ask(self.socket_path, self._token, request, expected, left)
            except OSError as error:
                given_up = self._stopping.is_set() or self._process is None or self.lease_ended
                if given_up or time.monotonic() > deadline:
                    raise ReplicaLost(f"the replica server does not answer: {error}") from None
                time.sleep(0.02)

    # -- the process -------------------------------------------------------------------------------------------

    def _keep_spec(self) -> bool:
        """Where the spec's file is missing or damaged, it is written again; whether that was so. Raises
        StorageUnavailable."""
        with disk(f"writing the query's spec to {self.data}", corrupt=StorageUnavailable):
            file = self._spec_file()
            if file.is_whole():
                return False
            file.write()
        return True

    def _mend_spec(self) -> None:
        """While the server runs: its replicas read the file when they begin. Where the directory was removed the server
        has to begin anew, and the file's absence says so."""
        with contextlib.suppress(OSError), self._lock:
            if (
                self._directory is not None
                and (self.data / LOCK).exists()
                and not self._spec_file().is_whole()
            ):
                self._spec_file().write()

    def _spec_file(self) -> SpecFile:
        return SpecFile(self._spec_path(), self._spec)

    def _spec_path(self) -> Path:
        """A name of its own: a server that is still ending must not start replicas by its successor's spec."""
        assert self._directory is not None
        return self.data / f"spec-{os.path.basename(self._directory)}.msgpack"

    def _stderr_path(self) -> Path:
        return self.data / "server.err"

    def _spawn(self) -> None:
        command = [sys.executable, "-P", "-m", "clonos_standby.server.replica_server", "--private-socket-dir"]
        command += ["--spec", str(self._spec_path()), "--socket", self.socket_path, "--data", str(self.data)]
        if self._entry is not None:
            command += ["--entry", self._entry]
        if self._tcp is not None:
            command += ["--tcp", self.tcp_address or self._tcp]
        command += ["--hello-timeout", str(self.hello_timeout), "--lease", str(self._lease)]
        if not self._determinants:
            command.append("--no-determinants")
        assert self._directory is not None
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        with self._stderr_path().open("ab") as stderr:
            offset = stderr.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                # A fixed hash seed: what iterates over a set of strings does so alike in every replica.
                env={
                    **os.environ,
                    **inherited(str(self._spec["query"]), str(self._spec.get("log_format", "text"))),
                    "PYTHONPATH": os.pathsep.join(module_path()),
                    "PYTHONHASHSEED": "0",
                },
            )
        try:
            ready = self._await_ready(process, offset)
        except BaseException:
            process.kill()
            _close_pipes(process)
            process.wait()
            raise
        self.grpc_address = ready.get("grpc")
        self.tcp_address = ready.get("tcp")
        self._process = process

    def _await_ready(self, process: subprocess.Popen[bytes], offset: int) -> dict[str, Any]:
        assert process.stdout is not None
        fd = process.stdout.fileno()
        deadline = time.monotonic() + self._start_timeout
        if not readable(fd, self._start_timeout / 6):
            LOG.warning(
                "the replica server (process %d, %s) is slow to start: in %g s it is killed",
                process.pid,
                self.data,
                self._start_timeout * 5 / 6,
                extra=about("server_slow", query=str(self._spec["query"])),
            )
        line = b""
        while not line.endswith(b"\n") and len(line) < _LINE_LIMIT:
            left = deadline - time.monotonic()
            if left <= 0 or not readable(fd, left):
                raise ConfigurationError(
                    f"the replica server was not ready within {self._start_timeout:g} s{self._tail(offset)}"
                )
            data = os.read(fd, 4096)
            if not data:
                raise ConfigurationError(f"the replica server did not start{self._tail(offset)}")
            line += data
        try:
            ready = json.loads(line)
        except ValueError:
            ready = None
        if not isinstance(ready, dict) or ready.get("ready") is not True:
            raise ConfigurationError(
                f"the replica server said {line!r} instead of being ready{self._tail(offset)}"
            )
        return ready

    def _tail(self, offset: int) -> str:
        with contextlib.suppress(OSError), self._stderr_path().open("rb") as file:
            file.seek(max(offset, file.seek(0, os.SEEK_END) - _STDERR_TAIL))
            text = file.read().decode(errors="replace").strip()
            return f"; it wrote:\n{text}" if text else "; it wrote nothing"
        return ""

    def _remove_directory(self) -> None:
        if self._directory is not None:
            with contextlib.suppress(OSError):
                self._spec_path().unlink()
            shutil.rmtree(self._directory, ignore_errors=True)


def _short_directory() -> str:
    """A private directory whose socket path fits into a socket address."""
    for base in (None, "/tmp"):
        directory = tempfile.mkdtemp(prefix="clonos-", dir=base)
        if len(os.fsencode(directory)) + 2 <= _MAX_PATH:
            return directory
        os.rmdir(directory)
    raise ConfigurationError("no temporary directory has a path short enough for a socket")


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks by closing its stdin, then more firmly. One that is stopped is continued, so that it hears."""
    process.send_signal(signal.SIGCONT)
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    for insist in (process.terminate, process.kill, None):
        try:
            process.wait(_STOP_SECONDS if insist is not process.kill else 2.0)
            break
        except subprocess.TimeoutExpired:
            if insist is None:
                raise
            insist()
    _close_pipes(process)
