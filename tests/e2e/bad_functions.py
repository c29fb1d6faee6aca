"""User functions that go wrong, each at one record of the self-judging job's first operator."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger_job import first

from clonos.testing.ledger import extend, micros


@dataclass
class At:
    """Goes wrong at the record with this id: each time, or only once where a mark is to be left."""

    id: str
    mark: str = ""
    also: tuple[str, ...] = ()  # and at these

    def __call__(self, key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        if row.id in (self.id, *self.also) and not (self.mark and Path(self.mark).exists()):
            if self.mark:
                Path(self.mark).touch()
            self.before(ctx)
            self.go_wrong()
        return first(key, row, ctx)

    def before(self, ctx: Any) -> None:
        """What is done before it goes wrong."""

    def go_wrong(self) -> None:
        raise NotImplementedError


class Raises(At):
    def go_wrong(self) -> None:
        raise LookupError("no such street")


class Exits(At):
    def go_wrong(self) -> None:
        os._exit(3)


class KillsItself(At):
    def go_wrong(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Crashes(At):
    def go_wrong(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


class CrashesAfterAnEffect(Crashes):
    def before(self, ctx: Any) -> None:
        ctx.call(len, "abc")
        ctx.effect(str, 1, key="told")


class Loops(At):
    def go_wrong(self) -> None:
        while True:
            time.sleep(0.01)


def reads_clock(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """The clock behind the context's back."""
    entry = extend(ctx.state, key[0], row.id, ctx.random.getrandbits(48), time.time_ns() // 1000)
    yield (*entry.row(), "0")


def draws_random(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """Random numbers behind the context's back."""
    entry = extend(ctx.state, key[0], row.id, random.getrandbits(48), micros(ctx.now()))
    yield (*entry.row(), "0")
