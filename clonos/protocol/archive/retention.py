"""What of an archive may go: what no epoch needs that is still to be kept.

An epoch is repeated from the newest state before it, through all epochs in between. So the last state before the first
epoch that is kept stays, and everything behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from clonos.protocol.ids import NO_EPOCH, Epoch


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """Of an epoch, when it was written (microseconds since 1970), and how large it is in bytes."""

    epoch: Epoch
    written_at: int
    size: int


def kept_behind(
    segments: Iterable[StoredSegment], states: Iterable[Epoch], horizon: int, most: int | None = None
) -> Epoch:
    """The epoch of the state that stays: older ones may go, and segments of epochs up to it; `NO_EPOCH` where all has
    to stay.

    `states` are the epochs at whose end there is a state; what was written before `horizon` is not wanted any more, nor
    what is beyond so many bytes, the newest counted first. The last epoch is wanted in any case.
    """
    newest: dict[Epoch, int] = {}
    sizes: Counter[Epoch] = Counter()
    for each in segments:
        newest[each.epoch] = max(newest.get(each.epoch, 0), each.written_at)
        sizes[each.epoch] += each.size
    kept: Epoch | None = None
    size = 0
    for epoch in sorted(newest, reverse=True):
        size += sizes[epoch]
        is_too_much = most is not None and size > most and kept is not None
        if newest[epoch] < horizon or is_too_much:
            break
        kept = epoch
    return max((epoch for epoch in states if kept is None or epoch < kept), default=NO_EPOCH)
