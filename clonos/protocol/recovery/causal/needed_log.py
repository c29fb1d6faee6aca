"""How much of an instance's recovered log other instances, sinks and effects depend on.

A replica saves its log before anything depends on it, and a passive standby saves what its primary has handed on, so
the end of a log may be known although no receiver was ever sent it. A store that the instance wrote itself, live, also
has the deltas that the log depends on. A copy need not: a standby is sent the log and not the deltas, and an instance
whose store was lost has its log back from others before it has been sent the deltas again. Should the hosts that have
these deltas be lost as well, the copied log cannot be repeated any more: the instance would be sent other records than
the log says, and its function would seem to be nondeterministic.

So an instance that begins its epoch anew repeats of its log

- what another instance or a sink holds, which was sent the deltas together with it (invariant I1);
- what it wrote itself, live, and kept in a store that can be read;
- every step in which it has acted on the outside (`ctx.effect`).

The rest was never seen outside the instance, and is done anew. That holds for all instances together: a receiver that
holds a log holds what the log depends on, so what one of them repeats finds the input that it had. It does not hold
where the query has acted on the outside (`ctx.effect`): what was done has been seen, a copy of the log that says so
need not have with it what it depends on, and the instance that wrote that does not know. There everything that is known
is repeated, if the checkpoint says that there are effects; one that was restored from an older copy need not.

Clonos, SIGMOD 2021, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable

from clonos.protocol.ids import LOG_BEGIN, LogOffset, log_after
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.holding import HolderReply
from clonos.protocol.recovery.causal.own_log import OwnLog, believed


def needed_end(start: LogOffset, recorded: bytes, replies: Iterable[HolderReply]) -> LogOffset:
    """The log offset up to which the log has to be repeated; `recorded` is what is known of it from `start` on."""
    held, known = start, log_after(start, recorded)
    stores: list[OwnLog] = []
    for reply in replies:
        held = max(held, reply.required, *(log_after(*piece) for piece in reply.segments))
        stores += reply.own
    live = max((store.written_live for store in believed(stores) if not store.damaged), default=LOG_BEGIN)
    if max(held, live) >= known:
        return known
    return max(held, _last_chunk(start, recorded, live), _acted_end(start, recorded))


def _acted_end(start: LogOffset, recorded: bytes) -> LogOffset:
    """Behind the last step that has acted. The checkpoint says in general that there are effects, and then everything
    is repeated; one that was restored from an older copy need not say it any more."""
    acted = [step.stop for step in codec.decode_steps(recorded, start) if step.effects]
    return max(acted, default=start)


def _last_chunk(start: LogOffset, recorded: bytes, end: LogOffset) -> LogOffset:
    """A copy may begin inside a chunk: where what was written there before first differs from it."""
    at = 0
    while at < len(recorded):
        _, after = codec.chunk_at(recorded, at)
        if start + after > end:
            break
        at = after
    return LogOffset(start + at)
