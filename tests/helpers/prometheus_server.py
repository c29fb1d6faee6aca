"""A private Prometheus for tests: own folder, own port, gone afterwards. The real one, fetched once per tree.

It is Debian's package, of which `apt-get download` gives the file without installing anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from free_port import free_port
from private_server import ServerProcess, running

_FOLDER = Path(__file__).resolve().parents[2] / ".build" / "prometheus"
_PATIENCE_S = 120.0


class FetchFailure(Exception):
    """The program cannot be had here."""


def program(name: str) -> str:
    """`prometheus` or `promtool`: what is installed, else fetched by the first who asks. Skips where there is none."""
    installed = shutil.which(name)
    if installed is not None:
        return installed
    try:
        return str(_fetched() / name)
    except (FetchFailure, OSError, subprocess.SubprocessError) as failure:
        pytest.skip(f"{name} cannot be fetched: {failure}")


def _fetched() -> Path:
    _FOLDER.mkdir(parents=True, exist_ok=True)
    binaries = _FOLDER / "package" / "usr" / "bin"
    with open(_FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binaries.exists():
            with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
                _run(folder, "apt-get", "download", "-qq", "prometheus")
                packages = list(Path(folder).glob("*.deb"))
                if not packages:
                    raise FetchFailure("apt-get gave no package")
                _run(folder, "dpkg", "-x", str(packages[0]), "package")
                Path(folder, "package").rename(_FOLDER / "package")
    return binaries


def _run(folder: str, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE_S)
    if done.returncode:
        raise FetchFailure(done.stderr.strip()[-500:] or f"{command[0]} ended with {done.returncode}")


class PrometheusServer(ServerProcess):
    """One server, by a configuration in JSON, which YAML includes."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        super().__init__(folder)
        self.port, self._config = free_port(), config

    def start(self) -> None:
        """Returns when it is ready."""
        file = self._folder / "prometheus.yml"
        file.write_text(json.dumps(self._config))
        command = [
            program("prometheus"),
            f"--config.file={file}",
            f"--storage.tsdb.path={self._folder / 'data'}",
        ]
        command.append(f"--web.listen-address=127.0.0.1:{self.port}")
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=_PATIENCE_S).close()
                return
            except OSError as error:
                self.check_comes_up(error, deadline)
                time.sleep(0.05)

    def ask(self, path: str, **arguments: str) -> Any:
        """The data of an answer of its HTTP interface."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            said = json.load(answer)
        assert said["status"] == "success", said
        return said["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Samples with their labels, now."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found


@contextlib.contextmanager
def prometheus_server(config: dict[str, Any]) -> Iterator[PrometheusServer]:
    """A running server in a folder of its own. The test is skipped where none can be fetched."""
    program("prometheus")
    with running("clonos-prometheus-", lambda folder: PrometheusServer(folder, config)) as server:
        yield server
