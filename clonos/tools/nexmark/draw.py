"""Random numbers by place: what is drawn depends on (seed, field, event id) and on nothing that was drawn before.

A sequential generator would tie an event to all events before it. Here a draw is the output function of SplitMix64 at a
counter, which is the event id, from a starting point that is the field's own. So any range of events can be made again,
in any pieces and anywhere, and a whole array of them costs a few vector operations.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@cache
def _start(seed: int, field: str) -> np.uint64:
    """Where a field's counter starts; its bytes go through the same mixing, one at a time."""
    state = seed & _MASK
    for byte in field.encode():
        state = int(_mix(np.array([(state + (byte + 1) * _GAMMA) & _MASK], dtype=np.uint64))[0])
    return np.uint64(state)


def _mix(words: Words) -> Words:
    """SplitMix64's output function, in place."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def words(seed: int, field: str, ids: Ids) -> Words:
    """64 random bits per id."""
    found: Words = ids.astype(np.uint64)
    found *= np.uint64(_GAMMA)
    found += _start(seed, field)
    return _mix(found)


def below(bits: Words, bound: int | Ids) -> Ids:
    """A number in [0, bound) from the upper half of each word; `bound` is below 2**31."""
    high = bits >> _HALF
    high *= np.asarray(bound).astype(np.uint64)
    high >>= _HALF
    return high.view(np.int64)


def below_low(bits: Words, bound: int | Ids) -> Ids:
    """The same from the lower half: a second draw from one word."""
    low = bits & _LOW
    low *= np.asarray(bound).astype(np.uint64)
    low >>= _HALF
    return low.view(np.int64)


def chance(bits: Words, probability: float) -> npt.NDArray[np.bool_]:
    """Whether the upper half of each word says yes."""
    return (bits >> _HALF) < np.uint64(round(probability * (1 << 32)))
