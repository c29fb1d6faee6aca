"""A server of a test's own: in a folder of its own, which is gone afterwards, as the server is."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar


class Server(Protocol):
    def start(self) -> None:
        """Returns when it answers."""

    def remove(self) -> None:
        """It does not run any more, however it stood."""


_S = TypeVar("_S", bound=Server)


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
