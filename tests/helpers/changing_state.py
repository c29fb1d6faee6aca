"""The state of an instance, with its timers and its log of what was sent, which is changed at random."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from clonos.protocol.ids import OutputNumber
from clonos.storage.increment import Increment
from clonos.storage.keyed_state import KeyedState
from clonos.storage.sent_log import SentRows
from clonos.storage.timers import TimerQueue

KEYS = [b"k%d" % number for number in range(9)]


class ChangingState:
    """See the module. Of the directory that `open` was told last."""

    def open(self, path: Path, increment: Increment) -> None:
        self.state = KeyedState(str(path), increment=increment)
        self.timers = TimerQueue(self.state)
        self.sent = SentRows(self.state)

    def content(self) -> tuple[Any, ...]:
        """What it holds."""
        self.state.flush()
        sent = list(self.sent.since(OutputNumber(0)))
        return [self.state.get(key) for key in KEYS], TimerQueue(self.state).next_due(), sent

    def change(self, rng: Random, number: int) -> None:
        """It sends row `number + 1`, too."""
        for _ in range(rng.randint(0, 4)):
            key = rng.choice(KEYS)
            if rng.random() < 0.7:
                self.state.put(key, rng.random())
            else:
                self.state.delete(key)
        if rng.random() < 0.4:
            self.timers.set(rng.randrange(100), b"key")
        if rng.random() < 0.2:
            self.timers.pop_due(rng.randrange(100))
        self.sent.keep(OutputNumber(number + 1), rng.randbytes(rng.choice((10, 3000))))
        if rng.random() < 0.3:
            self.sent.forget(OutputNumber(rng.randrange(number + 2)))
