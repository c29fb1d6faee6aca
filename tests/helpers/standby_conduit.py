"""The conduit's side, as small as the tests of the replica server need it."""

from __future__ import annotations

import itertools
import json
import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from clonos.protocol.fence import Fence
from clonos.wire import messages
from clonos.wire.framing import Frame, read_frame, send_frames
from clonos_standby.cluster.launcher import ReplicaServer

TOKEN = "a-token-of-tests"
SPEC = {"version": 1, "query": "tests", "token": TOKEN, "settings": {}, "nodes": {}}
PATIENCE = 120.0
_fences = itertools.count(1)


def hello(**changes: Any) -> messages.Hello:
    """A HELLO of operator 1, instance 0, with a fence above all before."""
    generation = changes.get("generation", 0)
    said: dict[str, Any] = {
        "token": TOKEN,
        "generation": generation,
        "node": 1,
        "instance": 0,
        "epoch": 0,
        "fence": Fence.of(generation, next(_fences)),
        "fresh": True,
    }
    return messages.Hello(**{**said, **changes})


class Conduit:
    """A connection that has said HELLO and RESUME."""

    def __init__(self, server: ReplicaServer, **changes: Any) -> None:
        self.hello = hello(**changes)
        self.sock = connect(server.socket_path)
        send_frames(self.sock, [messages.pack_hello(self.hello), messages.pack_resume(0, 0)])
        self._seq = itertools.count(1)

    def welcome(self) -> Conduit:
        message = self.message()
        assert isinstance(message, messages.Welcome), message
        return self

    def frame(self) -> Frame | None:
        return read_frame(self.sock)

    def message(self) -> messages.Message | None:
        frame = self.frame()
        return None if frame is None else messages.parse(frame)

    def say(self, command: str) -> None:
        send_frames(self.sock, [messages.pack_bundle(next(self._seq), 1, [command.encode()])])

    def ask(self, command: str) -> Any:
        self.say(command)
        message = self.message()
        assert isinstance(message, messages.Output), message
        return json.loads(bytes(message.log))

    def end(self) -> None:
        """Ends the epoch and waits until the replica has."""
        send_frames(self.sock, [messages.pack_end(0)])
        assert isinstance(self.message(), messages.Ended)
        self.close()

    def lost(self) -> bool:
        """Waits for the end of the stream."""
        try:
            return self.frame() is None
        except OSError:
            return True

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Conduit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(PATIENCE)
    sock.connect(path)
    return sock


class Watched:
    """A process that is no child of the test, and whose end can be awaited."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._fd = -1

    def gone(self, seconds: float = PATIENCE) -> bool:
        if self._fd < 0:
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        try:
            return bool(poll.poll(seconds * 1000))
        finally:
            os.close(self._fd)
            self._fd = -1


def watch_all(status: dict[str, Any]) -> list[Watched]:
    """Every process that a server's status names."""
    pids = [status["pid"], *status["spares"], *(replica["pid"] for replica in status["replicas"])]
    if status["grpc_pid"] is not None:
        pids.append(status["grpc_pid"])
    return [Watched(pid) for pid in pids]


def children_states(pid: int) -> dict[int, str]:
    """The state letter of every child of a process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            fields = text[text.rfind(")") + 2 :].split()
            if int(fields[1]) == pid:
                found[int(entry.name)] = fields[0]
    return found


def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """For what has no event to wait for."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)
    return value
