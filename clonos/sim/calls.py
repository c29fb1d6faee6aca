"""Recorded calls that are under way while a node's function goes on: the outside answers them in any order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from clonos.protocol.engine.task_scheduler import CallRequest, Ended
from clonos.protocol.recovery.causal.determinant import CallNumber


class CallsUnderWay:
    """`pick` says which of so many ends next. It is asked when the function waits, and the call is carried out then:
    what happens between asking and ending is the outside's."""

    def __init__(self, pick: Callable[[int], int]) -> None:
        self._pick = pick
        self._under_way: list[tuple[CallNumber, str, CallRequest]] = []

    def start(self, number: CallNumber, name: str, asked: CallRequest) -> None:
        self._under_way.append((number, name, asked))

    def wait(self) -> Ended:
        number, name, asked = self._under_way.pop(self._pick(len(self._under_way)))
        return Ended(number, name, partial(asked.fn, *asked.args, **asked.kwargs), 0)

    def abandon(self) -> None:
        self._under_way.clear()
