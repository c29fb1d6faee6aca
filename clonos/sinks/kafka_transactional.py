"""One transaction per bundle: rows into the user's topic, determinants and cursors into the sink's own.

Kafka's fence is "the last one that begins wins", not "the highest wins". So each time a writer has begun (its
predecessor's transaction is ended then), it reads the fence log, and goes on only if it is the holder there. If a
writer that was taken over begins once more, it finds that out, and the rightful one, whose transaction it ended, begins
again and reads where its log ends: whether the bundle took effect stands there.
"""

from __future__ import annotations

from collections.abc import Sequence

from clonos.sinks.kafka_delivery import FULL_EVERY, Held
from clonos.sinks.kafka_format import Entry, pack_entry
from clonos.sinks.kafka_port import Message, Transactions
from clonos.sinks.port import Cursors


class Transactional:
    """See `clonos.sinks.kafka_delivery.Delivery`."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._transactions: Transactions | None = None
        self._since_full = FULL_EVERY

    is_in_doubt = False
    """The log tells, as soon as the transaction of the writer before has ended."""

    def begin(self) -> Cursors:
        held = self._held
        transactions = held.cluster.transactions(held.side.transactional_id(held.origin), held.side.name)
        try:
            log = held.side.log(held.standing(), held.origin)
            held.check_mode(is_other=log.appended, other="at_once")
        except BaseException:
            transactions.close()
            raise
        self._transactions, self._since_full = transactions, FULL_EVERY
        return log.cursors

    def deliver(
        self, messages: Sequence[Message], before: Cursors, moved: Cursors, deltas: list[bytes]
    ) -> None:
        assert self._transactions is not None
        held, full = self._held, self._since_full >= FULL_EVERY
        entry = Entry(held.mine.fence, full, {**before, **moved} if full else moved, deltas)
        before_it = self._transactions.aborted
        try:
            self._transactions.commit(messages, held.side.name, held.partition, pack_entry(entry))
        finally:
            held.counts.aborted += self._transactions.aborted - before_it
        held.counts.committed += 1
        self._since_full = 1 if full else self._since_full + 1

    def let_go(self) -> None:
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            transactions.close()
