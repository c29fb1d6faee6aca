"""What an instance has to hold of others' logs, and where it has that from when its host is lost.

An instance that depends on an event holds its determinant (invariant I1), and one that goes on elsewhere from a
snapshot depends on what had been sent to it before. The stores of its earlier incarnations are asked for that first
(`clonos.protocol.recovery.causal.own_log`). Those of a host that is lost with its disk do not answer, but the others'
logs are known elsewhere, too: to the instances that wrote them, their standbys, and others that were sent them.

Clonos, SIGMOD 2021, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clonos.protocol.ids import LOG_BEGIN, LogOffset, Origin
from clonos.protocol.recovery.causal.delta import encode_delta, encode_entry
from clonos.protocol.recovery.causal.delta_journal import FIRST_HOP, Receipts
from clonos.protocol.recovery.causal.longest_prefix import HolderReply
from clonos.protocol.recovery.causal.retrieval import known_between


def missing_logs(
    sent: Mapping[Origin, LogOffset], truncation_points: Mapping[Origin, LogOffset], held: Iterable[bytes]
) -> list[Origin]:
    """The instances of whose logs it does not hold what it had been sent, as far as that is beyond the
    `truncation_points`. Raises LogCorrupt."""
    receipts = Receipts()
    for raw in held:
        receipts.take(raw)
    return [
        origin
        for origin, upto in sent.items()
        if not receipts.covers(origin, truncation_points.get(origin, LOG_BEGIN), upto)
    ]


def recovered_deltas(
    origin: Origin, start: LogOffset, upto: LogOffset, replies: Iterable[HolderReply]
) -> list[bytes]:
    """As a delta, what others know of the log of `origin` from `start` to `upto`. What was sent over several hops is
    passed on as if it had come over one: to more than the sharing depth asks for. Raises LogConflict."""
    pieces = list(known_between(start, upto, replies))
    return (
        [encode_delta(encode_entry(origin, at, len(data), FIRST_HOP, data) for at, data in pieces)]
        if pieces
        else []
    )
