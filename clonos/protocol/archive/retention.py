"""What of an archive may go: what no epoch needs that is still to be kept.

An epoch is repeated from the newest state before it, through all epochs in between. So the last state before the first
epoch that is kept stays, and everything behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clonos.protocol.archive.stored_segment import StoredSegments
from clonos.protocol.ids import NO_EPOCH, Epoch


def kept_behind(
    stored: Iterable[StoredSegments],
    states: Iterable[Epoch],
    horizon: int,
    most: int | None = None,
    *,
    counts: Callable[[Epoch], bool] = lambda epoch: True,
) -> Epoch:
    """The epoch of the state that stays: older ones may go, and segments of epochs up to it; `NO_EPOCH` where all has
    to stay.

    `states` are the epochs at whose end there is a state, of which `counts` says whether what is behind it can be
    repeated from it: it is asked of few, the newest first. What was written before `horizon` is not wanted any more,
    nor what is beyond so many bytes, the newest counted first. A file is wanted as long as any of its epochs is, and
    the newest file whatever its size.
    """
    files = _joined(stored)
    first = _first_wanted([each.written_at < horizon for each in files])
    size = 0
    for at in reversed(range(first, len(files))):
        size += files[at].size
        if most is not None and size > most and at + 1 < len(files):
            first = at + 1
            break
    kept = files[first].first if first < len(files) else None
    may_stay = sorted({epoch for epoch in states if kept is None or epoch < kept}, reverse=True)
    return next(filter(counts, may_stay), NO_EPOCH)


def _first_wanted(is_old: list[bool]) -> int:
    """Where what is still wanted begins, as most files say it; of several such places the first.

    Files were written one after the other, by clocks of several hosts, of which one may have been wrong for a while: a
    file that seems older than all around it is as young as they are, and one that seems younger is as old.
    """
    contradicted = fewest = sum(is_old)  # where all of them are wanted
    first = 0
    for at, old in enumerate(is_old, start=1):
        contradicted += -1 if old else 1
        if contradicted < fewest:
            first, fewest = at, contradicted
    return first


def _joined(stored: Iterable[StoredSegments]) -> list[StoredSegments]:
    """In the order of epochs: those that share one count together."""
    found: list[StoredSegments] = []
    for each in sorted(stored, key=lambda each: (each.first, each.last)):
        if found and each.first <= found[-1].last:
            one = found.pop()
            each = StoredSegments(
                one.first,
                max(one.last, each.last),
                max(one.written_at, each.written_at),
                one.size + each.size,
            )
        found.append(each)
    return found
