"""The text in events: drawn once per seed into pools, from which events take by number.

Texts are as long as the published generators make them and have the same letters, but come from pools of some
thousands: drawing every letter of every event would cost more than all the rest. `Pools` depends on the seed alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from clonos.tools.nexmark.draw import below, below_low, chance, words

FIRST_NAMES = "Peter Paul Luke John Saul Vicky Kate Julie Sarah Deiter Walter".split()
LAST_NAMES = "Shultz Abrams Spencer White Bartels Walton Smith Jones Noris".split()
STATES = "AZ CA ID OR WA WY".split()
CITIES = "Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne".split(",")
HOT_CHANNELS = "Google Facebook Baidu Apple".split()

POOL = 4096
PADDING = 1 << 16
COLD_CHANNELS = 10_000
URLS = 4096
WITH_CHANNEL_ID = 0.9
_SHORTEST = 3

# A bid's own fields count as 32 bytes of the 100 it has on average; the padding varies by a fifth.
BID_PADDING = range(54, 82)
_PER_LENGTH = 128


@dataclass(frozen=True)
class Pools:
    """Everything that events of one seed take their texts from."""

    items: pa.StringArray
    descriptions: pa.StringArray
    users: pa.StringArray
    hosts: pa.StringArray
    digits: pa.StringArray  # "0000" to "9999"
    names: pa.StringArray
    cities: pa.StringArray
    states: pa.StringArray
    padding: str  # persons and auctions cut theirs out of it
    bid_padding: pa.StringArray  # equally many of each length
    channels: pa.StringArray  # the hot ones first
    hot_urls: pa.StringArray
    cold_urls: pa.StringArray  # of the channel with that number


@lru_cache(maxsize=4)
def pools(seed: int) -> Pools:
    """The pools of a seed."""
    padding = _letters(seed, "padding", PADDING)
    bid = [
        padding[i * 7 : i * 7 + length]
        for i, length in enumerate(length for length in BID_PADDING for _ in range(_PER_LENGTH))
    ]
    return Pools(
        items=_strings(seed, "item", POOL, 20),
        descriptions=_strings(seed, "description", POOL, 100),
        users=_strings(seed, "user", POOL, 7),
        hosts=_strings(seed, "host", POOL, 5),
        digits=pa.array([f"{n:04}" for n in range(10_000)]),
        names=pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]),
        cities=pa.array(CITIES),
        states=pa.array(STATES),
        padding=padding,
        bid_padding=pa.array(bid),
        channels=pa.array(HOT_CHANNELS + [f"channel-{n}" for n in range(COLD_CHANNELS)]),
        hot_urls=pa.array(_urls(seed, "hot url", URLS)),
        cold_urls=pa.array(_cold_urls(seed)),
    )


def _letters(seed: int, field: str, count: int) -> str:
    drawn = below(words(seed, field, np.arange(count, dtype=np.int64)), 26)
    return (drawn + ord("a")).astype(np.uint8).tobytes().decode()


def _strings(seed: int, field: str, count: int, longest: int, space: str = " ") -> pa.StringArray:
    """Letters, one in 13 a space, `_SHORTEST` to `longest` - 1 of them before spaces at the ends are cut off."""
    lengths = (
        below(words(seed, field + " length", np.arange(count, dtype=np.int64)), longest - _SHORTEST)
        + _SHORTEST
    )
    drawn = words(seed, field, np.arange(count * longest, dtype=np.int64))
    letters = below_low(drawn, 26) + ord("a")
    letters[chance(drawn, 1 / 13)] = ord(space)
    text = letters.astype(np.uint8).tobytes().decode()
    return pa.array([text[i * longest : i * longest + n].strip() for i, n in enumerate(lengths.tolist())])


def _urls(seed: int, field: str, count: int) -> list[str]:
    parts = [_strings(seed, f"{field} {n}", count, 5, "_").to_pylist() for n in range(3)]
    return [f"https://www.nexmark.com/{a}/{b}/{c}/item.htm?query=1" for a, b, c in zip(*parts)]


def _cold_urls(seed: int) -> list[str]:
    drawn = words(seed, "channel id", np.arange(COLD_CHANNELS, dtype=np.int64))
    numbers, given = below_low(drawn, 1 << 31).tolist(), chance(drawn, WITH_CHANNEL_ID).tolist()
    return [
        f"{url}&channel_id={number}" if has else url
        for url, number, has in zip(_urls(seed, "cold url", COLD_CHANNELS), numbers, given)
    ]
