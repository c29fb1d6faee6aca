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

from clonos.errors import SinkError, Where
from clonos.protocol.roles.append_order import MARK, AppendOrder, check_appending
from clonos.protocol.roles.fence_log import FenceLog
from clonos.sinks.kafka_delivery import FULL_EVERY, Held
from clonos.sinks.kafka_format import Entry, Intent, pack_appended, pack_mark
from clonos.sinks.kafka_partitions import partition_of
from clonos.sinks.kafka_port import Message
from clonos.sinks.kafka_side_topic import Doubt, InstanceLog
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

    @property
    def is_in_doubt(self) -> bool:
        return bool(self._doubt.cursors)

    def begin(self) -> Cursors:
        held = self._held
        state = held.standing()
        mark, log = self._mark(state)
        if log.order.number > self._number:  # this writer has held this fence before: the mark did not count
            self._number = log.order.number
            mark, log = self._mark(state)
        held.check_mode(is_other=log.committed, other="transactions")
        self._expected, self._since_full = mark + 1, FULL_EVERY
        self._doubt, self._partitions = log.doubt, held.cluster.partitions(held.topic)
        if log.doubt.cursors:
            self._check_doubt(log.doubt)
        return log.cursors

    def _mark(self, state: FenceLog) -> tuple[int, InstanceLog]:
        """Append one: its offset, and what the log says then. Raises Fenced."""
        held = self._held
        self._number += 1
        mark = held.side.append(held.partition, pack_mark(held.mine.fence, self._number))
        log = held.side.log(state, held.origin)
        check_appending(held.mine.fence, log.order, origin=held.origin)
        return mark, log

    def _check_doubt(self, doubt: Doubt) -> None:
        """Rows in doubt can be written again as they were. Raises SinkError."""
        held = self._held
        what = f"the last rows of sink node {held.origin.node} may be in the topic {held.topic}, or some of them: "
        if doubt.layout != held.layout:
            raise SinkError(
                f"{what}written again with another topic, key, value, headers or columns, they would be others",
                where=Where(instance=held.origin.instance),
                hint="Run the query once more as it was, until it has gone on, and change it then",
            )
        if doubt.partitions > self._partitions:
            raise SinkError(
                f"{what}it had {doubt.partitions} partitions and has {self._partitions} now",
                where=Where(instance=held.origin.instance),
                hint=f"Was it made anew? Give it {doubt.partitions} partitions at least",
            )

    def deliver(
        self, messages: Sequence[Message], before: Cursors, moved: Cursors, deltas: list[bytes]
    ) -> None:
        full = self._since_full >= FULL_EVERY
        self._since_full = 1 if full else self._since_full + 1
        fence = self._held.mine.fence
        # As long as it is not known that a row is not there, it stays in the partition where it may be.
        partitions = self._doubt.partitions if self._doubt.cursors else self._partitions
        if not messages:
            self._doubt.resolve(moved)
            # The log may be trimmed up to a full entry.
            still = (
                Intent(self._doubt.cursors, partitions, self._held.layout) if self._doubt.cursors else None
            )
            self._append(
                Entry(fence, full, {**before, **moved} if full else moved, deltas, still if full else None)
            )
            return
        intent = Intent({**self._doubt.cursors, **moved}, partitions, self._held.layout)
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
            # Another message came between, perhaps only a repetition of one of ours
            if offset != self._expected:
                held.side.follow(held.partition, self._expected, offset, standing)
                check_appending(held.mine.fence, standing, origin=held.origin)
            self._expected = offset + 1
