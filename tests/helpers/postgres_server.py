"""A private PostgreSQL server for tests: own data directory, own port, no system service, gone afterwards.

PostgreSQL refuses to run as root, so under root it runs as the unprivileged user of the package.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
from free_port import free_port
from private_server import running

UNPRIVILEGED = ("postgres", "nobody")


def binaries() -> Path | None:
    """The newest installed server's directory of programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_version)
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path and shutil.which("initdb") else None


def _version(program: Path) -> float:
    try:
        return float(program.parent.parent.name)
    except ValueError:
        return 0.0


def why_not() -> str | None:
    """Why no server can be started here, or None."""
    if binaries() is None:
        return "no PostgreSQL server program is installed (apt-get install postgresql)"
    if os.geteuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root and there is no unprivileged user to run it as"
    return None


def _user() -> str | None:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in UNPRIVILEGED if name in known), None)


class PostgresServer:
    """One server that can be stopped, killed and started again on the same data and port."""

    def __init__(self, directory: Path) -> None:
        programs = binaries()
        if programs is None:
            raise RuntimeError(why_not())
        self._programs = programs
        self._data = directory / "data"
        self._log = directory / "server.log"
        self._directory = directory
        self._user = _user() if os.geteuid() == 0 else None
        self.port = free_port()
        self._databases = 0
        if self._user:
            shutil.chown(directory, self._user)
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "clonos", "-E", "UTF8", "--no-sync")

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://clonos@127.0.0.1:{self.port}/postgres"

    def fresh_database(self, encoding: str = "UTF8") -> str:
        """The URL of a new, empty database."""
        self._databases += 1
        name = f"test_{self._databases}"
        # Over the driver: a program started from a process that has many threads may die before it begins.
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="clonos", dbname="postgres", autocommit=True
        ) as open_:
            text = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"  # that every encoding may be had with
            open_.execute(f"CREATE DATABASE {name} TEMPLATE template0 {text}")
        return self.url.replace("/postgres", f"/{name}")

    def start(self) -> None:
        """Returns when it takes connections."""
        options = f"-p {self.port} -k {self._directory} -c listen_addresses=127.0.0.1 -c shared_buffers=32MB"
        self._control("start", "-w", "-l", str(self._log), "-o", options)

    def stop(self) -> None:
        """As an administrator would: connections are cut, the server shuts down in order."""
        self._control("stop", "-w", "-m", "fast")

    def crash(self) -> None:
        """As a power failure would, short of the disk."""
        self._control("stop", "-w", "-m", "immediate")

    def remove(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.crash()
        pid_file = self._data / "postmaster.pid"
        if pid_file.exists():
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self._data), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        # Not captured through pipes: the server inherits them from pg_ctl and would hold them open.
        with open(self._directory / "control.log", "ab") as log:
            subprocess.run(
                [str(self._programs / program), *arguments],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                user=self._user,
                group=pwd.getpwnam(self._user).pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
                timeout=240,
            )


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A running server in a directory of its own."""
    with running("clonos-pg-", PostgresServer) as server:
        yield server
