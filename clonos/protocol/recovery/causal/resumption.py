"""Whether an instance may resume from a snapshot inside an epoch that is run again.

Its state depends on its own determinants up to there, and on those of others that it had been sent. An instance that
depends on an event holds its determinant (invariant I1), so it may resume only where both are known: its own log since
the last committed epoch from any holder, the others' from what it holds itself, for they ask it. Where a disk was lost
since, they are not, and the epoch is run from its beginning, of which nothing that was lost is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clonos.errors import LogConflict, ResumeFailed, Where
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.recovery.causal.causal_log import CausalLog, Segment
from clonos.protocol.recovery.causal.dependencies import missing_logs


def check_resumable(
    snapshot: InstanceSnapshot,
    before: Iterable[Segment],
    held: Iterable[bytes],
    truncation_points: Mapping[Origin, LogOffset],
    *,
    where: Where,
    begins: LogOffset | None = None,
) -> None:
    """`before` is what is known of the own log before the snapshot, `held` the deltas that the instance holds,
    `truncation_points` how far logs reached at the end of the last committed epoch, and `begins` how far the own one
    did (None: the epoch of the snapshot is the first that is not committed). Raises ResumeFailed."""
    log = CausalLog()
    for start, data in before:
        log.merge(start, data)
    ends = snapshot.log_offset
    wanted = snapshot.epoch_log_offset if begins is None else min(begins, snapshot.epoch_log_offset)
    reached = log.contiguous_end(wanted)
    if reached < ends:
        raise resume_failed(f"its own log is known up to {reached}, not {ends}", where)
    if not snapshot.history.is_of(log):
        raise resume_failed("it was taken in a history that has been overtaken", where)
    check_dependencies(snapshot, held, truncation_points, where=where)


def check_same_history(
    snapshot: InstanceSnapshot, own: Iterable[Segment], *, resumes: bool, where: Where
) -> None:
    """Whether a log store that holds the epoch of a snapshot holds what the snapshot was taken in.

    An instance that `resumes` inside the epoch may have found a snapshot that an older copy of the checkpoint has
    brought back: the epoch was run anew since then, and is run again, as the store has it. Elsewhere the disk is the
    one that may be an old copy: the store goes on as the instance did before the epoch was run anew.

    Raises ResumeFailed, LogConflict."""
    if not snapshot.history.contradicts(own):
        return
    if resumes:
        raise resume_failed("the log store here holds another history of the epoch", where)
    raise LogConflict(
        f"the log store here holds another history of epoch {snapshot.epoch} than the snapshot at its end",
        where=where,
        hint="An old copy of its disk has come back: move this instance's folder of logs aside, and start the "
        "query again",
    )


def check_dependencies(
    snapshot: InstanceSnapshot,
    held: Iterable[bytes],
    truncation_points: Mapping[Origin, LogOffset],
    *,
    where: Where,
) -> None:
    """As `check_resumable`, of the others' logs alone."""
    for origin in missing_logs(snapshot.received, truncation_points, held):
        upto = snapshot.received[origin]
        raise resume_failed(f"it depends on the log of {origin} up to {upto}, which is not held here", where)


def resume_failed(why: str, where: Where) -> ResumeFailed:
    return ResumeFailed(
        f"a snapshot inside the epoch cannot be resumed from: {why}",
        where=where,
        hint="The query runs the epoch again from its beginning",
    )
