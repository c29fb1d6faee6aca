"""This driver's leadership of one query: its lock on this host, its claims and its lease in the checkpoint.

The lock comes first. It is the kernel's, on a file beside the checkpoint or, where that is remote, in the directory for
such things: it goes with the process, so after a crash the next driver on this host begins at once, and two on one host
never share a data directory. Drivers on different hosts know each other by the lease alone
(`clonos.protocol.roles.leadership`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from clonos.errors import ClonosError, ConfigurationError, Fenced
from clonos.json_text import parsed_json
from clonos.protocol.fence import NO_GENERATION, Generation
from clonos.protocol.roles.leadership import (
    LEASE_SECONDS,
    RENEWALS_PER_LEASE,
    Leadership,
    Steps,
    T,
    already_running,
)
from clonos.storage.folder import Folder, resolve
from clonos.storage.generations import Generations, Machine
from clonos_standby.server.log import traced
from clonos_standby.server.processes import look_at

LOG = logging.getLogger("clonos")

LOCK = "driver.lock"
_LOCK_SECONDS = 2.0
_DYING_SECONDS = 30.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class DriverLeadership:
    """Taken by `take`, kept until `release`."""

    def __init__(self, location: str, data_dir: str = "") -> None:
        filesystem, root = resolve(location)
        self.owner = secrets.token_hex(16)
        self._folder = Folder(filesystem, f"{root}/clonos", tag=f"leader-{self.owner}")
        self._path = lock_path(self._folder, location, data_dir)
        self._lock: int | None = None
        self._rules: Leadership | None = None
        self._lost: Fenced | None = None
        self._ended = threading.Event()
        self._campaigning = threading.Lock()
        self._renewer = threading.Thread(target=self._renew, name="clonos-leader", daemon=True)
        self.on_lost: Callable[[Fenced], None] = lambda error: None

    def take(self) -> Generation:
        """The first generation of this driver. Raises AlreadyRunning, and has touched nothing then."""
        holder = (
            f"process {os.getpid()} on host {platform.node()}, "
            f"since {datetime.now(UTC).isoformat(' ', 'seconds').removesuffix('+00:00')}Z"
        )
        self._lock, machine = take_lock(self._path, holder)
        try:
            about = {"host": platform.node(), "pid": os.getpid(), "since": time.time()}
            self._rules = Leadership(Generations(self._folder, machine, about), self.owner, holder)
            number = self.next_generation()
        except BaseException:
            self._unlock()
            raise
        self._renewer.start()
        return number

    def next_generation(self, *, above: Generation = NO_GENERATION) -> Generation:
        """For one more start of the Spark query, higher than `above`. Raises Fenced where another driver has taken
        over."""
        assert self._rules is not None
        with self._campaigning:
            return carry_out(self._rules.campaign(above=above))

    def check(self) -> None:
        """Raises Fenced where another driver has taken over; nothing may be written after that."""
        if self._lost is not None:
            raise self._lost
        assert self._rules is not None
        try:
            self._rules.check()
        except Fenced as error:
            self._lose(error)
            raise

    def release(self) -> None:
        """The next driver begins at once. Harmless when called again."""
        self._ended.set()
        if self._renewer.ident is not None and self._renewer is not threading.current_thread():
            self._renewer.join()
        if self._lock is not None:
            if self._rules is not None and self._rules.number and self._lost is None:
                with contextlib.suppress(ClonosError):  # else the next one waits for the lease to run out
                    self._rules.release()
            self._unlock()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _renew(self) -> None:
        """A checkpoint that cannot be reached ends nothing: a driver that takes over meanwhile fences this one."""
        while not self._ended.wait(LEASE_SECONDS / RENEWALS_PER_LEASE):
            assert self._rules is not None
            try:
                with self._campaigning:
                    carry_out(self._rules.renew())
            except Fenced as error:
                self._lose(error)
                return
            except Exception as error:  # whatever it is: another driver takes over when the lease has run out
                LOG.warning(
                    "the lease of this driver could not be renewed; trying again: %s",
                    error,
                    exc_info=traced(error),
                )

    def _lose(self, error: Fenced) -> None:
        if self._lost is None:
            self._lost = error
            self._ended.set()
            self.on_lost(error)


def carry_out(steps: Steps[T]) -> T:
    """What a step asks to let pass, passes."""
    try:
        while True:
            seconds = next(steps)
            if seconds:
                time.sleep(seconds)
    except StopIteration as end:
        result: T = end.value
        return result


def lock_path(folder: Folder, location: str, data_dir: str) -> str:
    """Beside the checkpoint, if it is on this host: two drivers over it meet there whatever their settings are."""
    if folder.local is not None:
        return os.path.join(folder.local, LOCK)
    base = data_dir or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache"), "clonos"
    )
    name = folder.identity(location)
    return os.path.join(base, f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.lock")


def take_lock(path: str, holder: str) -> tuple[int, Machine]:
    """The lock's descriptor, which keeps it. Raises AlreadyRunning.

    A holder that is dying keeps it until the kernel has given back its memory; that is waited for.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(f"the lock file {path} cannot be made: {error}") from error
    began = time.monotonic()
    try:
        while not _locked(descriptor):
            who, pid = _holder_in(descriptor, path)
            waited = time.monotonic() - began
            if waited > _LOCK_SECONDS and not (look_at(pid).exiting and waited < _DYING_SECONDS):
                raise already_running(who, on_this_host=True)
            time.sleep(0.02)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"holder": holder, "pid": os.getpid()}).encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    stat = os.fstat(descriptor)
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return descriptor, Machine(boot, (stat.st_dev, stat.st_ino))


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise ConfigurationError(f"the driver's lock cannot be taken: {error}") from error
    return True


def _holder_in(descriptor: int, path: str) -> tuple[str, int]:
    """What the lock's holder has written into it, and its process; it may not have done so yet."""
    try:
        said = parsed_json(os.pread(descriptor, 4096, 0))
        return str(said["holder"]), int(said["pid"])
    except (ValueError, KeyError, TypeError):
        return f"by the process that holds {path}", 0
