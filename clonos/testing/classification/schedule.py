"""Orders in which records can arrive, and bundles that they can arrive in.

Records are numbers here. Each belongs to a channel, which is FIFO: an order may mix the records of several channels,
and keeps those of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeAlias

Order: TypeAlias = tuple[int, ...]
Bundles: TypeAlias = tuple[Order, ...]


def interleaving(channels: Sequence[int], choices: Random) -> Order:
    """Any order that is possible, with equal chances. `channels` has that of each record."""
    turns = list(channels)
    choices.shuffle(turns)
    return _in_turns(channels, turns)


def one_after_the_other(channels: Sequence[int], choices: Random) -> Order:
    """Each channel as a whole, in any order of the channels: as far apart as orders can be."""
    rank = sorted(set(channels))
    choices.shuffle(rank)
    return _in_turns(channels, sorted(channels, key=rank.index))


def _in_turns(channels: Sequence[int], turns: Sequence[int]) -> Order:
    waiting = {
        channel: iter([n for n, of in enumerate(channels) if of == channel]) for channel in set(channels)
    }
    return tuple([next(waiting[channel]) for channel in turns])


def one_by_one(order: Order) -> Bundles:
    return tuple([(number,) for number in order])


def together(order: Order) -> Bundles:
    return (order,) if order else ()


def cut(order: Order, choices: Random) -> Bundles:
    """In bundles of any sizes."""
    bundles, at = list[Order](), 0
    while at < len(order):
        size = choices.randint(1, 4)
        bundles.append(order[at : at + size])
        at += size
    return tuple(bundles)


def only(bundles: Bundles, kept: Sequence[int]) -> Bundles:
    """Without the records that are not kept, and without bundles that have none left."""
    left = set(kept)
    found = (tuple([number for number in bundle if number in left]) for bundle in bundles)
    return tuple([bundle for bundle in found if bundle])
