"""Sees the user's functions begin, so that a debugger can stop there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any


class _Watch:
    """Is told of each Python function that begins or goes on. A generator, or a coroutine, begins when it is first
    asked to go on."""

    def __init__(self, codes: Sequence[CodeType], told: Callable[[FrameType], bool]) -> None:
        self._codes = codes
        self._told = told
        self._begun: list[FrameType] = []  # they are kept, or another one could be taken for one of them

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or frame.f_code not in self._codes or any(frame is each for each in self._begun):
            return
        self._begun.append(frame)
        if not self._told(frame):
            sys.setprofile(None)


@contextmanager
def told_of_frames(codes: Sequence[CodeType], told: Callable[[FrameType], bool]) -> Iterator[None]:
    """`told` hears of each frame of this thread that begins with one of the codes, at its first line, and says whether
    it is to hear of more."""
    before = sys.getprofile()
    sys.setprofile(_Watch(codes, told))
    try:
        yield
    finally:
        sys.setprofile(before)
