"""What the functions of an instance are answered with: readings, draws and entropy that are recorded with the step.

Clock readings are recorded one by one, as by `ctx.now(exact=True)`: a function that waits for a time to come would wait
for ever if the clock stood still for a bundle. Draws come from the instance's own generator, `ctx.random`, which costs
nothing to record. What has to be unpredictable comes from 32 bytes of the system's entropy, which are recorded when a
step first asks for it and stretched with SHAKE-256.

What is kept here lasts for a step, never longer: a step is repeated as a whole, and a recovery begins between two.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from random import Random
from typing import Any, Final

import numpy as np

from clonos.operators.intercept.active import unanswered
from clonos.protocol.engine.services import CausalServices

_KEY_BYTES: Final = 32
_SEED_WORDS: Final = 4
_urandom: Final = os.urandom  # the real one: `install` has not replaced it yet


def system_entropy() -> bytes:
    """What is recorded, as the result of a call of this name, once per step that asks for entropy."""
    return _urandom(_KEY_BYTES)


class Answers:
    """Those of one instance."""

    def __init__(self, services: CausalServices) -> None:
        self._services = services
        self._step: object = None
        self._steady = 0
        self._key: bytes | None = None
        self._given = 0
        self._numpy = np.random.RandomState(0)  # made once, for that takes ten times as long as to seed it
        self._numpy_is_seeded = False

    @property
    def random(self) -> Random:
        """The instance's generator."""
        found: Random = self._services.random
        return found

    def now(self) -> int:
        """The time in microseconds since the epoch, as it is now."""
        return unanswered(self._services.exact_clock)

    def steady(self) -> int:
        """The same, but never before an earlier one of the step."""
        now = self.now()
        self._enter_step()
        self._steady = max(self._steady, now)
        return self._steady

    def call(self, real: Callable[..., Any], *args: Any) -> Any:
        """What `real` gives, recorded as by `ctx.call`."""
        return unanswered(self._services.call, real, args)

    def entropy(self, size: int) -> bytes:
        """Bytes that cannot be predicted."""
        self._enter_step()
        if self._key is None:
            self._key = self.call(system_entropy)
        self._given += 1
        return hashlib.shake_256(self._key + self._given.to_bytes(8, "big")).digest(size)

    def numpy(self) -> np.random.RandomState:
        """What stands for NumPy's global generator, seeded from the instance's own for each step that asks for it."""
        self._enter_step()
        if not self._numpy_is_seeded:
            self._numpy.seed([self.random.getrandbits(32) for _ in range(_SEED_WORDS)])
            self._numpy_is_seeded = True
        return self._numpy

    def _enter_step(self) -> None:
        if self._services.step is not self._step:
            self._step = self._services.step
            self._steady, self._key, self._given, self._numpy_is_seeded = 0, None, 0, False
