"""Data.Rentgen for tests: a catalogue that takes OpenLineage's events from Kafka into PostgreSQL and answers questions.

The real one, in a virtual environment of its own that is made once per tree: what it depends on is not what the library
depends on.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from free_port import free_port
from private_server import running

VERSION = "0.3.1"  # later ones need Python 3.12
TOPIC = "input.runs"
_AS_THEN = ("sqlalchemy<2.1",)
_FOLDER = Path(__file__).resolve().parents[2] / ".build" / "data-rentgen" / VERSION
_PATIENCE_S = 240.0


class FetchFailure(Exception):
    """It cannot be had here."""


def python() -> Path:
    """The interpreter that has it; made by the first who asks. Raises FetchFailure."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    made = _FOLDER / "made"
    program = _FOLDER / "venv" / "bin" / "python"
    with open(_FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _run(sys.executable, "-m", "venv", "--clear", str(_FOLDER / "venv"))
            install = str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"
            _run(*install, f"data-rentgen[server,consumer,postgres]=={VERSION}", *_AS_THEN)
            made.touch()
    return program


def why_not() -> str | None:
    """Why it cannot be had here, or None."""
    try:
        python()
    except (FetchFailure, OSError, subprocess.SubprocessError) as failure:
        return f"Data.Rentgen cannot be fetched: {failure}"
    return None


def _run(*command: str, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_PATIENCE_S)
    if done.returncode:
        raise FetchFailure(done.stderr.strip()[-1000:] or f"{command[0]} ended with {done.returncode}")


class DataRentgen:
    """Its consumer and its server, over an empty database and a topic that is there."""

    def __init__(self, folder: Path, database: str, brokers: str) -> None:
        """`database` is the URL of one in PostgreSQL."""
        self._folder, self._port = folder, free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._token = ""
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._environment = {
            **own,
            "DATA_RENTGEN__DATABASE__URL": database.replace("+psycopg", "+asyncpg"),
            "DATA_RENTGEN__KAFKA__BOOTSTRAP_SERVERS": json.dumps([brokers]),
            "DATA_RENTGEN__AUTH__PROVIDER": "data_rentgen.server.providers.auth.dummy_provider.DummyAuthProvider",
            "DATA_RENTGEN__AUTH__ACCESS_TOKEN__SECRET_KEY": "of a test",
            "DATA_RENTGEN__SERVER__SESSION__SECRET_KEY": "of a test",
            "DATA_RENTGEN__SERVER__STATIC_FILES__ENABLED": "false",
        }

    def start(self) -> None:
        """Returns when it answers."""
        module = str(python()), "-m"
        _run(*module, "data_rentgen.db.migrations", "upgrade", "head", env=self._environment)
        _run(*module, "data_rentgen.db.scripts.create_partitions", env=self._environment)
        for name, port in (("consumer", free_port()), ("server", self._port)):
            command = [*module, f"data_rentgen.{name}", "--host", "127.0.0.1", "--port", str(port)]
            with open(self._folder / f"{name}.log", "wb") as log:
                self._processes.append(
                    subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
                )
        deadline = time.monotonic() + _PATIENCE_S
        while not self._token:
            try:
                self._log_in()
            except OSError as error:
                if time.monotonic() > deadline or any(each.poll() is not None for each in self._processes):
                    raise RuntimeError(f"it does not answer: {error}\n{self.log()}") from error
                time.sleep(0.2)

    def log(self) -> str:
        """What its processes have written last."""
        return "\n".join(
            path.read_text(errors="replace")[-4000:] for path in sorted(self._folder.glob("*.log"))
        )

    def _log_in(self) -> None:
        form = urllib.parse.urlencode({"grant_type": "password", "username": "test", "password": "test"})
        request = urllib.request.Request(f"{self._url}/auth/token", form.encode())
        self._token = _answer(request)["access_token"]

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def ask(self, path: str, **query: Any) -> dict[str, Any]:
        said = urllib.parse.urlencode(query, doseq=True)
        bearer = {"Authorization": f"Bearer {self._token}"}
        return _answer(urllib.request.Request(f"{self._url}/{path}?{said}", headers=bearer))

    def remove(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def _answer(request: urllib.request.Request) -> dict[str, Any]:
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


@contextlib.contextmanager
def data_rentgen(database: str, brokers: str) -> Iterator[DataRentgen]:
    """A running one, in a folder of its own."""
    with running("clonos-rentgen-", lambda folder: DataRentgen(folder, database, brokers)) as catalogue:
        yield catalogue
