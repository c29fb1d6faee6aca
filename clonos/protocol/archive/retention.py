"""What of an archive may go: what no epoch needs that is still to be kept.

An epoch is repeated from the newest state before it, through all epochs in between. So the last state before the first
epoch that is kept stays, and everything behind it.
"""

from __future__ import annotations

from collections.abc import Iterable

from clonos.protocol.archive.stored_segment import StoredSegments
from clonos.protocol.ids import NO_EPOCH, Epoch


def kept_behind(
    stored: Iterable[StoredSegments], states: Iterable[Epoch], horizon: int, most: int | None = None
) -> Epoch:
    """The epoch of the state that stays: older ones may go, and segments of epochs up to it; `NO_EPOCH` where all has
    to stay.

    `states` are the epochs at whose end there is a state; what was written before `horizon` is not wanted any more, nor
    what is beyond so many bytes, the newest counted first. The last epoch is wanted in any case, and a file is wanted
    as long as any of its epochs is.
    """
    kept: Epoch | None = None
    size = 0
    for each in reversed(_joined(stored)):
        size += each.size
        is_too_much = most is not None and size > most and kept is not None
        if each.written_at < horizon or is_too_much:
            break
        kept = each.first
    return max((epoch for epoch in states if kept is None or epoch < kept), default=NO_EPOCH)


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
