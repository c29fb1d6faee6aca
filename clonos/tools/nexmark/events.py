"""Any range of a workload's events, as Arrow record batches: one for each kind.

An event's content depends on the workload and its event id alone. Prices are 100 * 10**(6u) with u uniform over 2**22
steps: two tables of exactly rounded powers and one multiplication, the same on every machine, which a vectorised power
is not. The keys follow the published generators:

- a bid is for the hot auction, the first of the current hundred, or for one of the 101 last or the 10 to come;
- an auction is by the hot seller, the first of the current hundred persons, or by one of the last 1000 or 10 to come;
- a bid is by the hot bidder, the second of that hundred, or by one as a seller.

So some bids come before their auction, and some auctions before their seller.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from clonos.tools.nexmark.draw import Ids, Words, below, below_low, chance, words
from clonos.tools.nexmark.texts import HOT_CHANNELS, PADDING, pools
from clonos.tools.nexmark.workload import AUCTIONS_PER_BLOCK, BLOCK, PERSONS_PER_BLOCK, Kind, Workload

FIRST_PERSON = FIRST_AUCTION = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
HOT_EVERY = 100
ACTIVE_PERSONS, PERSONS_AHEAD = 1000, 10
IN_FLIGHT_AUCTIONS, AUCTIONS_AHEAD = 100, 10
PERSON_BYTES, AUCTION_BYTES = 200, 500
_PRICE_BITS = 11

Schema = dict[str, str]
SCHEMAS: dict[Kind, Schema] = {
    Kind.PERSON: dict.fromkeys(["id"], "bigint")
    | dict.fromkeys("name email creditCard city state".split(), "string")
    | {"dateTime": "bigint", "extra": "string", "event": "bigint"},
    Kind.AUCTION: {"id": "bigint", "itemName": "string", "description": "string"}
    | dict.fromkeys("initialBid reserve dateTime expires seller category".split(), "bigint")
    | {"extra": "string", "event": "bigint"},
    Kind.BID: dict.fromkeys("auction bidder price dateTime".split(), "bigint")
    | {"extra": "string", "event": "bigint"},
}
"""The columns of each kind with Spark's types; `event` is the event id, which every derived row keeps."""

CHANNEL_COLUMNS: Schema = {"channel": "string", "url": "string"}


@dataclass(frozen=True)
class Events:
    """A range of events, by kind; a kind that is switched off has no rows."""

    workload: Workload
    ids: Ids

    @cached_property
    def _slots(self) -> Ids:
        slots: Ids = self.ids % BLOCK
        return slots

    def batch(self, kind: Kind) -> pa.RecordBatch:
        ids = self.ids[(self._slots >= kind.slots.start) & (self._slots < kind.slots.stop)]
        return _MAKERS[kind](self.workload, ids)


def events(workload: Workload, first: int, count: int) -> Events:
    """`count` events from number `first` on."""
    return Events(workload, workload.ids(first, count))


def last_person(ids: Ids) -> Ids:
    """Counted from 0, the last person at or before each event."""
    last: Ids = ids // BLOCK * PERSONS_PER_BLOCK
    return last


def last_auction(ids: Ids) -> Ids:
    """Counted from 0, the last auction at or before each event; -1 before the first."""
    blocks, slots = np.divmod(ids, BLOCK)
    within = np.minimum(slots - PERSONS_PER_BLOCK, AUCTIONS_PER_BLOCK - 1)
    last: Ids = blocks * AUCTIONS_PER_BLOCK + within
    return last


def _persons(workload: Workload, ids: Ids) -> pa.RecordBatch:
    seed, texts = workload.seed, pools(workload.seed)
    who, where, card, pad = (
        words(seed, f"person {what}", ids) for what in ("name", "place", "card", "extra")
    )
    quarters = [
        texts.digits.take(
            pa.array((card >> np.uint64(16 * n) & np.uint64(0xFFFF)) * np.uint64(10_000) >> np.uint64(16))
        )
        for n in range(4)
    ]
    mail = words(seed, "person email", ids)
    user, host = (
        texts.users.take(pa.array(below(mail, len(texts.users)))),
        texts.hosts.take(pa.array(below_low(mail, len(texts.hosts)))),
    )
    name = texts.names.take(pa.array(below(who, len(texts.names))))
    email = pc.binary_join_element_wise(user, "@", host, ".com", "")
    cards = pc.binary_join_element_wise(*quarters, " ")
    city = texts.cities.take(pa.array(below(where, len(texts.cities))))
    state = texts.states.take(pa.array(below_low(where, len(texts.states))))
    size = 8 + _lengths(name) + _lengths(email) + _lengths(cards) + _lengths(city) + _lengths(state)
    return _record_batch(
        id=last_person(ids) + FIRST_PERSON,
        name=name,
        email=email,
        creditCard=cards,
        city=city,
        state=state,
        dateTime=workload.time_ms(workload.numbers(ids)),
        extra=_padding(pad, PERSON_BYTES - size, texts.padding),
        event=ids,
    )


def _auctions(workload: Workload, ids: Ids) -> pa.RecordBatch:
    seed, texts = workload.seed, pools(workload.seed)
    text, price, length, pad = (
        words(seed, f"auction {what}", ids) for what in ("text", "price", "length", "extra")
    )
    numbers = workload.numbers(ids)
    at = workload.time_ms(numbers)
    # until a hundred more auctions have come; lifetimes are that long on average
    ahead = IN_FLIGHT_AUCTIONS * len(workload.slots) // AUCTIONS_PER_BLOCK
    horizon = workload.time_ms(numbers + ahead) - at
    initial = prices(price)
    item = texts.items.take(pa.array(below(text, len(texts.items))))
    description = texts.descriptions.take(pa.array(below_low(text, len(texts.descriptions))))
    size = 48 + _lengths(item) + _lengths(description)
    return _record_batch(
        id=last_auction(ids) + FIRST_AUCTION,
        itemName=item,
        description=description,
        initialBid=initial,
        reserve=initial + prices(words(seed, "auction reserve", ids)),
        dateTime=at,
        expires=at + 1 + below(length, np.maximum(2 * horizon, 1)),
        seller=_party(words(seed, "auction seller", ids), ids, workload.hot.seller, 0),
        category=FIRST_CATEGORY + below_low(length, CATEGORIES),
        extra=_padding(pad, AUCTION_BYTES - size, texts.padding),
        event=ids,
    )


def _bids(workload: Workload, ids: Ids) -> pa.RecordBatch:
    seed, texts = workload.seed, pools(workload.seed)
    aim, rest = words(seed, "bid auction", ids), words(seed, "bid price", ids)
    last = last_auction(ids)
    oldest = np.maximum(last - IN_FLIGHT_AUCTIONS, 0)
    any_auction = oldest + below_low(aim, last - oldest + 1 + AUCTIONS_AHEAD)
    auction = np.where(chance(aim, workload.hot.auction), last // HOT_EVERY * HOT_EVERY, any_auction)
    columns: dict[str, Ids | pa.Array] = {
        "auction": auction + FIRST_AUCTION,
        "bidder": _party(words(seed, "bid bidder", ids), ids, workload.hot.bidder, 1),
        "price": prices(rest),
        "dateTime": workload.time_ms(workload.numbers(ids)),
    }
    if workload.channels:
        columns |= _channels(words(seed, "bid channel", ids), seed)
    # the upper half is the price's
    columns["extra"] = texts.bid_padding.take(pa.array(below_low(rest, len(texts.bid_padding))))
    return _record_batch(**columns, event=ids)


def _channels(bits: Words, seed: int) -> dict[str, pa.Array]:
    texts = pools(seed)
    hot = chance(bits, 1 / 2)
    cold = below_low(bits, len(texts.cold_urls))
    which = np.where(hot, cold % len(HOT_CHANNELS), cold + len(HOT_CHANNELS))
    hot_url, cold_url = (
        texts.hot_urls.take(pa.array(cold % len(texts.hot_urls))),
        texts.cold_urls.take(pa.array(cold)),
    )
    return {
        "channel": texts.channels.take(pa.array(which)),
        "url": pc.if_else(pa.array(hot), hot_url, cold_url),
    }


def _party(bits: Words, ids: Ids, hot: float, hot_place: int) -> Ids:
    """A seller or bidder."""
    last = last_person(ids)
    active = np.minimum(last + 1, ACTIVE_PERSONS)
    any_person = last + 1 - active + below_low(bits, active + PERSONS_AHEAD)
    hot_person = last // HOT_EVERY * HOT_EVERY + hot_place
    return np.where(chance(bits, hot), hot_person, any_person) + FIRST_PERSON


def prices(bits: Words) -> Ids:
    """From the upper 22 bits of each word."""
    coarse, fine = _powers()
    top = bits >> np.uint64(64 - 2 * _PRICE_BITS)
    product = coarse[top >> np.uint64(_PRICE_BITS)] * fine[top & np.uint64((1 << _PRICE_BITS) - 1)]
    rounded: Ids = np.rint(product).astype(np.int64)
    return rounded


@cache
def _powers() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """100 * 10**(6u) for the upper half of u, and 10**(6u) for its lower half."""
    steps = 1 << _PRICE_BITS
    with localcontext(prec=25):
        ten = Decimal(10)
        coarse = [float(100 * ten ** (Decimal(6 * n) / steps)) for n in range(steps)]
        fine = [float(ten ** (Decimal(6 * n) / steps**2)) for n in range(steps)]
    return np.array(coarse), np.array(fine)


def _padding(bits: Words, wanted: Ids, text: str) -> pa.Array:
    """Letters, `wanted` of them on average and a fifth more or less."""
    wanted = np.maximum(wanted, 0)
    spread = (2 * wanted + 5) // 10
    lengths = wanted - spread + below(bits, 2 * spread)
    starts = below_low(bits, PADDING - 2 * AUCTION_BYTES)
    return pa.array([text[a : a + n] for a, n in zip(starts.tolist(), lengths.tolist())], pa.string())


def _lengths(column: pa.Array) -> Ids:
    found: Ids = pc.binary_length(column).to_numpy().astype(np.int64)
    return found


def _record_batch(**columns: Ids | pa.Array) -> pa.RecordBatch:
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


_MAKERS = {Kind.PERSON: _persons, Kind.AUCTION: _auctions, Kind.BID: _bids}
