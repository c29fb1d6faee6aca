"""Where the replica server of a query can be reached: `<data>/running.json`, for the commands of its operators.

The file is there while the server serves. It holds the token, so only its owner can read it; it appears whole, and the
server takes it away when it stops. A server that was killed leaves it behind: whether it is stale shows by the lock of
the data directory, which the kernel takes from the dead.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from clonos.errors import ConfigurationError
from clonos.json_text import parsed_json
from clonos.storage.durable_files import PRIVATE, replace_file

FILE = "running.json"
LOCK = "server.lock"
VERSION = 1
_LOCK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Running:
    """What the file says. `driver` are the processes whose query it is: the JVM and Python; `metrics` is an address."""

    query: str
    socket: str
    token: str
    pid: int
    driver: tuple[int, ...] = ()
    metrics: str | None = None

    def write(self, data: Path) -> None:
        """In place of an earlier server's."""
        said = {"version": VERSION, **asdict(self)}
        replace_file(data / FILE, json.dumps(said).encode(), mode=PRIVATE)


def remove(data: Path) -> None:
    """To be called by a server that stops, while it holds the lock."""
    (data / FILE).unlink(missing_ok=True)


def read(data: Path) -> Running | None:
    """What a server that is alive has written; None where there is none. Raises PermissionError where the query is
    another user's."""
    try:
        said = parsed_json((data / FILE).read_text())
        if not _locked(data / LOCK):
            return None
        if said.pop("version") != VERSION:
            raise ConfigurationError(f"{data / FILE} was written by another version of clonos")
        return Running(**{**said, "driver": tuple(said["driver"])})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{data / FILE} cannot be read: {error!r}") from None


def lock_data(data: Path) -> int:
    """One server per data directory; one that is just dying is waited for. The open file that holds the lock. Raises
    ConfigurationError where it goes on."""
    fd = os.open(data / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(fd)
                raise ConfigurationError(f"another replica server uses {data}") from None
            time.sleep(0.02)


def _locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
