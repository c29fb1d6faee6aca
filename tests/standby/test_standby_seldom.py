"""What goes on for longer is not said again and again."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from clonos_standby.server import acceptor
from clonos_standby.server.acceptor import Acceptor
from clonos_standby.server.event_loop import Loop
from clonos_standby.server.seldom import AGAIN_SECONDS, Seldom


def test_the_same_is_said_again_after_a_while_and_something_else_at_once() -> None:
    now = [0.0]
    seldom = Seldom(lambda: now[0])
    assert [seldom.is_due("a"), seldom.is_due("a"), seldom.is_due("b"), seldom.is_due("b")] == [
        True,
        False,
    ] * 2
    now[0] = AGAIN_SECONDS - 1
    assert not seldom.is_due("b")
    now[0] = AGAIN_SECONDS
    assert seldom.is_due("b") and not seldom.is_due("b")


class Full:
    """A listener of a process that has no descriptors left."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self.fileno = self._socket.fileno
        self.setblocking = self._socket.setblocking
        self.close = self._socket.close

    def accept(self) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_door_that_cannot_accept_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(acceptor, "log", lambda event, text: said.append(text))
    later: list[Callable[[], None]] = []
    loop = Loop()
    monkeypatch.setattr(loop, "later", lambda delay, callback: later.append(callback))
    door, listener = Acceptor(loop, "t", lambda *_: None, lambda *_: None), Full()
    door.listen(listener)  # type: ignore[arg-type]
    for _ in range(20):
        door._accept(listener)  # type: ignore[arg-type]
        later.pop()()
    door.close()
    assert said == ["cannot accept for the moment: [Errno 24] Too many open files"]
