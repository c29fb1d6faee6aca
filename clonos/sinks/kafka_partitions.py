"""Which partition of a user's topic a message goes to, where the sink says so and not its client.

A row that is written again has to come to lie in the partition where it may lie already: there a reader sees that it
is a repetition. Keys go where Kafka's own client would put them (murmur2 of the key), rows without one by their number.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from clonos.sinks.bundle import position_of
from clonos.sinks.kafka_port import Message

_SEED, _FACTOR, _32_BITS = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF
_KEYS_KEPT: Final = 1 << 16


def partition_of(message: Message, partitions: int) -> int:
    """Of so many."""
    if message.key is None:
        return position_of(message.row) % partitions
    return (murmur2(message.key) & 0x7FFFFFFF) % partitions


@lru_cache(maxsize=_KEYS_KEPT)
def murmur2(key: bytes) -> int:
    """Unsigned, 32 bits. Austin Appleby's MurmurHash2 with the seed of Kafka's client."""
    found = (_SEED ^ len(key)) & _32_BITS
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _FACTOR & _32_BITS
        word = (word ^ word >> 24) * _FACTOR & _32_BITS
        found = (found * _FACTOR & _32_BITS) ^ word
    if whole < len(key):
        found = (found ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _32_BITS
    found = (found ^ found >> 13) * _FACTOR & _32_BITS
    return found ^ found >> 15
