"""Windows of event time: which ones a moment falls into. Spark's, in microseconds, aligned to 1970."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeAlias

Span: TypeAlias = tuple[int, int]
"""Begin and end of a window, the end not in it."""


class Window(NamedTuple):
    """A window as functions see it: naive datetimes, as the rows' event time is."""

    start: datetime
    end: datetime


@dataclass(frozen=True)
class TimeWindows:
    """Windows of one size that begin every `slide`, at `offset` behind 1970: tumbling where they are the same."""

    size: int
    slide: int
    offset: int = 0

    def __str__(self) -> str:
        start = f" from {self.offset} on" if self.offset else ""
        return f"windows of {self.size}{start} every {self.slide}"

    def of(self, moment: int) -> list[Span]:
        """The latest first."""
        last = (moment - self.offset) // self.slide * self.slide + self.offset
        return [(start, start + self.size) for start in range(last, moment - self.size, -self.slide)]


@dataclass(frozen=True)
class SessionWindows:
    """Windows that end where nothing has come for `gap`."""

    gap: int

    def __str__(self) -> str:
        return f"sessions with a gap of {self.gap}"

    def of(self, moment: int) -> list[Span]:
        """Of a row by itself; those that touch are one."""
        return [(moment, moment + self.gap)]


Windows: TypeAlias = TimeWindows | SessionWindows
