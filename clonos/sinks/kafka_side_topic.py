"""The topic that a Kafka sink keeps for itself, `clonos-<query>` unless told otherwise, beside the user's.

Its first partition is the fence log of the query, each other one the log of a sink instance (`kafka_format`). Which is
whose says the fence log. The messages of instances are written in the transactions of the rows that they belong to,
those of the fence log one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from clonos.errors import Fenced, LogCorrupt, SinkUnavailable
from clonos.protocol.ids import Origin
from clonos.protocol.line.kept_commit import KeptCommit
from clonos.protocol.roles.append_order import AppendOrder
from clonos.protocol.roles.fence_log import FIRST_PARTITION, FenceLog, Offer, Recording
from clonos.sinks.kafka_format import (
    Entry,
    EntryReader,
    Intent,
    Standing,
    counted_by,
    pack_offer,
    pack_standing,
    unpack_offer,
)
from clonos.sinks.kafka_port import Cluster, Page
from clonos.sinks.patience import Patience
from clonos.sinks.port import Cursors

_FENCES: Final = 0
CONDENSED_FROM: Final = 256
"""So many messages of the fence log are read before what stands is written anew."""


@dataclass(frozen=True, slots=True)
class Read:
    """The fence log as it was read: what stands, and from which offset on how many messages say so."""

    state: FenceLog
    first: int
    end: int


@dataclass(slots=True)
class Doubt:
    """Rows that were to be written and may be there: up to which cursors, in a topic of how many partitions, as
    messages of which layout."""

    cursors: Cursors = field(default_factory=dict)
    partitions: int = 0
    layout: int = 0

    def add(self, intent: Intent) -> None:
        self.cursors.update(intent.cursors)
        self.partitions, self.layout = intent.partitions, intent.layout

    def resolve(self, cursors: Cursors) -> None:
        """They are there, up to these."""
        for channel, position in cursors.items():
            if self.cursors.get(channel, position + 1) <= position:
                del self.cursors[channel]


@dataclass(slots=True)
class InstanceLog:
    """What an instance's log says. `appended`, `committed`: whether there are entries of each mode."""

    cursors: Cursors = field(default_factory=dict)
    doubt: Doubt = field(default_factory=Doubt)
    order: AppendOrder = field(default_factory=AppendOrder)
    appended: bool = False
    committed: bool = False

    def add(self, entry: Entry) -> None:
        self.appended |= entry.appended
        self.committed |= not entry.appended
        self.cursors.update(entry.cursors)
        self.doubt.resolve(entry.cursors)
        if entry.intent is not None:
            self.doubt.add(entry.intent)


class SideTopic:
    """Of one query, on one cluster. Every method raises SinkUnavailable, SinkError, LogCorrupt. With `patience`, each
    page is read as often as it takes; without, the caller does its work again."""

    def __init__(self, cluster: Cluster, name: str, patience: Patience | None = None) -> None:
        self._cluster = cluster
        self._patience = patience
        self.name = name

    def transactional_id(self, origin: Origin) -> str:
        """Of the writer of a sink instance."""
        return f"{self.name}-{origin.node}-{origin.instance}"

    def create(self) -> None:
        self._cluster.ensure_topic(self.name, _FENCES + FIRST_PARTITION)

    def standing(self) -> FenceLog:
        """What stands now."""
        return self._read(None).state

    def offer(self, offer: Offer) -> FenceLog:
        """Append it, and say what stands then, or raise Fenced where it is refused."""
        return self._read(self._cluster.append(self.name, _FENCES, pack_offer(offer))).state

    def record(self, kept: KeptCommit) -> None:
        """Offer a commit record; and drop the messages that what stands does not need any more, if there are many."""
        read = self._read(self._cluster.append(self.name, _FENCES, pack_offer(Recording(kept))))
        if read.end - read.first >= CONDENSED_FROM:
            self._cluster.append(self.name, _FENCES, pack_standing(Standing(read.end, read.state)))
            self._cluster.delete_before(self.name, _FENCES, read.end)

    def ensure_partition(self, partition: int) -> None:
        self._cluster.ensure_topic(self.name, partition + 1)

    def entries(
        self,
        state: FenceLog,
        origin: Origin,
        corrupt: list[str] | None = None,
        order: AppendOrder | None = None,
    ) -> Iterator[tuple[int, Entry]]:
        """The entries of an instance, each with the offset of its first message. Damaged ones are told to `corrupt` and
        passed over, or raise LogCorrupt where that is not given. `order` says afterwards what stands."""
        partition = state.partitions.get(origin)
        if partition is None:
            return
        reader = EntryReader(self._place(partition), order)
        is_first = True
        for offset, message in self._messages(partition, state.trimmed.get(origin, 0)):
            try:
                found = reader.take(offset, message)
                if found is not None and is_first and not found[1].full:
                    raise LogCorrupt(
                        f"the log of sink node {origin.node} does not begin where it should: topic {self.name}, "
                        f"partition {partition}, offset {offset}",
                        hint="Messages of that topic were deleted. It is kept without end; do not change its settings",
                    )
            except LogCorrupt as error:
                if corrupt is None:
                    raise
                corrupt.append(error.message)
                continue
            if found is not None:
                is_first = False
                yield found

    def log(self, state: FenceLog, origin: Origin) -> InstanceLog:
        """What an instance's log says."""
        log = InstanceLog()
        for _, entry in self.entries(state, origin, order=log.order):
            log.add(entry)
        return log

    def append(self, partition: int, message: bytes) -> int:
        """To the log of an instance; its offset."""
        return self._cluster.append(self.name, partition, message)

    def follow(self, partition: int, begin: int, upto: int, order: AppendOrder) -> None:
        """Let the messages from one offset to another decide what stands."""
        for offset, message in self._messages(partition, begin):
            if offset > upto:
                return
            order.counts(*counted_by(message, f"{self._place(partition)}, offset {offset}"))

    def delete_before(self, partition: int, offset: int) -> None:
        self._cluster.delete_before(self.name, partition, offset)

    # ------------------------------------------------------------------ parts

    def _place(self, partition: int) -> str:
        return f"topic {self.name}, partition {partition}"

    def _read(self, mine: int | None) -> Read:
        """What stands when all is applied. Raises Fenced where the message at the offset `mine` is refused."""
        messages: list[tuple[int, bytes]] = []
        for offset, message in self._messages(_FENCES, 0):
            if messages and offset != messages[-1][0] + 1:
                messages.clear()  # the log was condensed between two pages
            messages.append((offset, message))
        if not messages:
            return Read(FenceLog(), 0, 0)
        first, end = messages[0][0], messages[-1][0] + 1
        offers = [
            (offset, unpack_offer(message, f"topic {self.name}, offset {offset}"))
            for offset, message in messages
        ]
        state, begin = self._beginning(offers, first, end if mine is None else mine)
        for offset, offer in offers:
            if offset < begin or isinstance(offer, Standing):
                continue
            try:
                state.apply(offer)
            except Fenced:
                if offset == mine:
                    raise
        return Read(state, first, end)

    def _beginning(
        self, offers: list[tuple[int, Offer | Standing]], first: int, upto: int
    ) -> tuple[FenceLog, int]:
        """What stands before an offset that is not behind `upto`, from where on all messages are there."""
        known = [offer for _, offer in offers if isinstance(offer, Standing) and offer.offset >= first]
        fitting = [each for each in known if each.offset <= upto]
        if fitting:
            return fitting[-1].state, fitting[-1].offset
        if first == 0:
            return FenceLog(), 0
        if known:  # it was condensed right behind the message that is asked for
            raise SinkUnavailable(f"the topic {self.name} was condensed meanwhile")
        raise LogCorrupt(
            f"the fence log in the topic {self.name} does not begin where it should",
            hint="Messages of that topic were deleted. It is kept without end; do not change its settings",
        )

    def _messages(self, partition: int, begin: int) -> Iterator[tuple[int, bytes]]:
        at: int | None = begin
        while at is not None:
            page = self._page(partition, at)
            yield from page.messages
            at = page.then

    def _page(self, partition: int, at: int) -> Page:
        if self._patience is None:
            return self._cluster.read(self.name, partition, at)
        return self._patience.run(lambda _: self._cluster.read(self.name, partition, at))
