"""What is generated: a workload is a value, and it decides every byte of every event.

Of every 50 consecutive event ids the first is a person, the next three are auctions, the other 46 bids. A stream that
is switched off has its ids skipped. What counts the events that are left is the event *number*; the pace goes by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Self

import numpy as np

from clonos.errors import ConfigurationError
from clonos.tools.nexmark.draw import Ids
from clonos.tools.nexmark.pace import Pace

BLOCK = 50
PERSONS_PER_BLOCK, AUCTIONS_PER_BLOCK = 1, 3


class Kind(Enum):
    """The three streams."""

    PERSON = "person"
    AUCTION = "auction"
    BID = "bid"

    @property
    def slots(self) -> range:
        """Its places within a block of ids."""
        first_bid = PERSONS_PER_BLOCK + AUCTIONS_PER_BLOCK
        return {
            Kind.PERSON: range(PERSONS_PER_BLOCK),
            Kind.AUCTION: range(PERSONS_PER_BLOCK, first_bid),
            Kind.BID: range(first_bid, BLOCK),
        }[self]


@dataclass(frozen=True)
class Hot:
    """How likely the auction of a bid, the seller of an auction and the bidder of a bid are the hot one."""

    auction: float = 1 / 2
    seller: float = 3 / 4
    bidder: float = 3 / 4

    def __post_init__(self) -> None:
        if not all(0 <= p <= 1 for p in (self.auction, self.seller, self.bidder)):
            raise ConfigurationError(f"{self}: each is a probability between 0 and 1")

    @classmethod
    def ratios(cls, auction: int = 2, seller: int = 4, bidder: int = 4) -> Self:
        """As the published generators have it: hot with probability 1 - 1/ratio."""
        if min(auction, seller, bidder) < 1:
            raise ConfigurationError(f"a hot ratio is at least 1: {auction}, {seller}, {bidder}")
        return cls(1 - 1 / auction, 1 - 1 / seller, 1 - 1 / bidder)

    @classmethod
    def skew(cls, s: float) -> Self:
        """One probability for all three; 0 is uniform."""
        return cls(s, s, s)


@dataclass(frozen=True)
class Workload:
    """One endless stream of events."""

    seed: int = 0
    kinds: frozenset[Kind] = frozenset(Kind)
    hot: Hot = field(default_factory=Hot)
    pace: Pace = field(default_factory=lambda: Pace.constant(10_000))
    begins_ms: int = 1_700_000_000_000  # event time of the first event
    channels: bool = False  # bids have a channel and a url

    def __post_init__(self) -> None:
        if not self.kinds:
            raise ConfigurationError("a workload needs at least one kind of event")

    @cached_property
    def slots(self) -> Ids:
        """The places within a block of ids that are generated."""
        return np.array([slot for kind in Kind if kind in self.kinds for slot in kind.slots], dtype=np.int64)

    def ids(self, first: int, count: int) -> Ids:
        """The event ids of `count` event numbers from `first`."""
        numbers = np.arange(first, first + count, dtype=np.int64)
        if len(self.slots) == BLOCK:
            return numbers
        blocks, places = np.divmod(numbers, len(self.slots))
        return blocks * BLOCK + self.slots[places]

    def numbers(self, ids: Ids) -> Ids:
        """The event numbers of event ids."""
        if len(self.slots) == BLOCK:
            return ids
        blocks, slots = np.divmod(ids, BLOCK)
        return blocks * len(self.slots) + np.searchsorted(self.slots, slots)

    def time_ms(self, numbers: Ids) -> Ids:
        """Event time."""
        return self.begins_ms + self.pace.due_us(numbers) // 1000
