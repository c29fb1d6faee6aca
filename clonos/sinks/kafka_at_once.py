"""Rows that are visible at once, without transactions, for readers that know a repetition by its id.

A bundle takes three steps: its determinants, and up to where it will reach (an *intent*), into the sink's own topic;
its rows into the user's; its cursors into the own topic. A writer that dies after the first step leaves it open which
rows are there. Its successor writes them again, which are the same, since their determinants are safe: same id, same
partition, same content.

No row is sent before its determinants count (`clonos.protocol.roles.append_order`). So a writer that was taken over can
still send rows, late, but only such as its successor knows and has written, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clonos.protocol.roles.append_order import MARK, AppendOrder, check_appending
from clonos.sinks.kafka_delivery import FULL_EVERY, Held
from clonos.sinks.kafka_format import Entry, Intent, pack_appended, pack_mark
from clonos.sinks.kafka_partitions import partition_of
from clonos.sinks.kafka_port import Message
from clonos.sinks.kafka_side_topic import Doubt
from clonos.sinks.port import Cursors


class AtOnce:
    """See `clonos.sinks.kafka_delivery.Delivery`."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._number = MARK
        self._expected = 0
        self._doubt = Doubt()
        self._partitions = 0
        self._since_full = FULL_EVERY

    def begin(self) -> Cursors:
        held = self._held
        state = held.standing()
        self._number += 1
        mark = held.side.append(held.partition, pack_mark(held.mine.fence, self._number))
        log = held.side.log(state, held.origin)
        check_appending(held.mine.fence, log.order, origin=held.origin)
        held.check_mode(is_other=log.committed, other="transactions")
        self._expected, self._since_full = mark + 1, FULL_EVERY
        self._doubt, self._partitions = log.doubt, held.cluster.partitions(held.topic)
        return log.cursors

    def deliver(
        self, messages: Sequence[Message], before: Cursors, moved: Cursors, deltas: list[bytes]
    ) -> None:
        full = self._since_full >= FULL_EVERY
        self._since_full = 1 if full else self._since_full + 1
        fence = self._held.mine.fence
        if not messages:
            self._append(Entry(fence, full, {**before, **moved} if full else moved, deltas))
            self._doubt.resolve(moved)
            return
        # As long as it is not known that a row is not there, it stays in the partition where it may be.
        partitions = self._doubt.partitions if self._doubt.cursors else self._partitions
        intent = Intent(moved, partitions)
        self._append(Entry(fence, full, dict(before) if full else {}, deltas, intent))
        self._doubt.add(intent)
        self._held.cluster.send(
            [replace(message, partition=partition_of(message, partitions)) for message in messages]
        )
        self._append(Entry(fence, False, moved, []))
        self._doubt.resolve(moved)

    def let_go(self) -> None:
        """The next `begin` raises the number: what is under way still does not count then."""

    def _append(self, entry: Entry) -> None:
        """Raises Fenced where it does not count."""
        held = self._held
        for message in pack_appended(entry, self._number + 1):
            standing = AppendOrder(held.mine.fence, self._number)
            self._number += 1
            offset = held.side.append(held.partition, message)
            if (
                offset != self._expected
            ):  # another message came between, perhaps only a repetition of one of ours
                held.side.follow(held.partition, self._expected, offset, standing)
                check_appending(held.mine.fence, standing, origin=held.origin)
            self._expected = offset + 1
