"""Random numbers: the hidden generators of `random` and NumPy, the system's entropy, and what is made of these.

What draws from the system's entropy in Python does so through few names: `os.urandom`, the name that `random` has for
it (`SystemRandom`, `secrets`, generators of NumPy without a seed), and `Random.seed` without one.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from clonos.operators.intercept.answers import Answers
from clonos.operators.intercept.intercepted import Answer, answers_for_caller

_SEED_BYTES: Final = 32
_GREGORIAN: Final = 0x01B21DD213814000
"""From 1582-10-15, where version 1 of UUIDs counts from, to the epoch; in units of 100 ns."""
_MULTICAST: Final = 1 << 40
"""Says that a node is a random number and no network card (RFC 9562, 6.10)."""
_NUMPYS: Final[Any] = np.random.mtrand._rand


def hidden(owner: Any, generator: Any) -> list[str]:
    """The functions of a module that are methods of its hidden generator."""
    return [
        name
        for name in dir(owner)
        if not name.startswith("_") and getattr(getattr(owner, name), "__self__", None) is generator
    ]


def of_random() -> Mapping[str, Answer]:
    """By the name of a function of `random`."""
    found: dict[str, Answer] = {
        name: partial(_drawn, name)
        for name in hidden(random, getattr(random, "_inst"))  # noqa: B009 - not in its stubs
    }
    found["seed"] = _seeded
    found["_urandom"] = Answers.entropy
    return found


def _drawn(name: str, answers: Answers, *args: Any, **kwargs: Any) -> Any:
    return getattr(answers.random, name)(*args, **kwargs)


def _seeded(answers: Answers, a: Any = None, version: int = 2) -> None:
    answers.random.seed(_seed(answers) if a is None else a, version)


def _seed(answers: Answers) -> int:
    return int.from_bytes(answers.entropy(_SEED_BYTES), "big")


def of_numpy() -> Mapping[str, Answer]:
    """By the name of a function of `numpy.random`."""
    found: dict[str, Answer] = {name: partial(_drawn_by_numpy, name) for name in hidden(np.random, _NUMPYS)}
    found["seed"] = partial(_drawn_by_numpy, "seed")
    found["ranf"] = found["sample"] = partial(_drawn_by_numpy, "random_sample")
    return found


def _drawn_by_numpy(name: str, answers: Answers, *args: Any, **kwargs: Any) -> Any:
    return getattr(answers.numpy(), name)(*args, **kwargs)


class GlobalGenerator(np.random.RandomState):
    """Stands where NumPy keeps its global generator, which libraries take from there (`np.random.mtrand._rand`). It has
    no draws of its own: they are the instance's, or those of the real one."""


def _drawing(name: str) -> Callable[..., Any]:
    def draw(self: GlobalGenerator, *args: Any, **kwargs: Any) -> Any:
        answers = answers_for_caller()
        return getattr(_NUMPYS if answers is None else answers.numpy(), name)(*args, **kwargs)

    return draw


for _name in (*hidden(np.random, _NUMPYS), "seed"):
    setattr(GlobalGenerator, _name, _drawing(_name))


def global_generator() -> GlobalGenerator:
    """Over the real one's bits, for what is not a method of it."""
    return GlobalGenerator(_NUMPYS._bit_generator)


def of_os() -> Mapping[str, Answer]:
    """By the name of a function of `os`."""
    found: dict[str, Answer] = {
        "urandom": Answers.entropy,
        "getrandom": lambda answers, size, flags=0: answers.entropy(size),
    }
    return {name: answer for name, answer in found.items() if hasattr(os, name)}


def of_uuid() -> Mapping[str, Answer]:
    """By the name of a function of `uuid`."""
    return {"uuid1": _uuid1, "uuid4": _uuid4}


def _uuid4(answers: Answers) -> uuid.UUID:
    return uuid.UUID(int=answers.random.getrandbits(128), version=4)


def _uuid1(answers: Answers, node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    """The network card's number, which is another one on another host, is not in it unless the caller gives it."""
    moment = answers.now() * 10 + _GREGORIAN
    if clock_seq is None:
        clock_seq = answers.random.getrandbits(14)
    if node is None:
        node = answers.random.getrandbits(48) | _MULTICAST
    fields = (
        moment & 0xFFFFFFFF,
        moment >> 32 & 0xFFFF,
        moment >> 48 & 0x0FFF,
        clock_seq >> 8 & 0x3F,
        clock_seq & 0xFF,
        node,
    )
    return uuid.UUID(fields=fields, version=1)


def seeding(real: Callable[..., None]) -> Callable[..., None]:
    """`Random.seed`, which `Random()` calls, too: without a seed it takes one from the system."""

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        if a is None:
            answers = answers_for_caller(above="random")  # where `Random()` has called it
            if answers is not None:
                a = _seed(answers)
        real(self, a, version)

    return seed
