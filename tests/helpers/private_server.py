"""A server of a test's own: in a folder of its own, which is gone afterwards, as the server is."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar


class Server(Protocol):
    def start(self) -> None:
        """Returns when it answers."""

    def remove(self) -> None:
        """It does not run any more, however it stood."""


_S = TypeVar("_S", bound=Server)


class ServerProcess:
    """A server in a folder that is one process: how it is struck."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def check_comes_up(self, error: Exception, deadline: float) -> None:
        """It has not answered yet. Raises RuntimeError, with what it has written, where it does not come up."""
        assert self._process is not None
        if self._process.poll() is not None or time.monotonic() > deadline:
            text = (self._folder / "server.log").read_text(errors="replace")[-4000:]
            raise RuntimeError(f"the server does not answer: {error}\n{text}") from error

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self.kill()


@contextlib.contextmanager
def running(prefix: str, make: Callable[[Path], _S]) -> Iterator[_S]:
    """`prefix`: of the folder's name; `make`: the server in a folder, not started yet."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        server = make(folder)
        try:
            server.start()
            yield server
        finally:
            server.remove()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
