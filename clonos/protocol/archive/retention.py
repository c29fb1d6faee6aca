"""What of an archive may go: what no epoch needs that is still to be kept.

An epoch is repeated from the newest state before it, through all epochs in between. So the last state before the first
epoch that is kept stays, and everything behind it.
"""

from __future__ import annotations

from collections.abc import Iterable

from clonos.protocol.ids import NO_EPOCH, Epoch


def kept_behind(epochs: Iterable[tuple[Epoch, int]], states: Iterable[Epoch], horizon: int) -> Epoch:
    """The epoch of the state that stays: older ones may go, and segments of epochs up to it; `NO_EPOCH` where all has
    to stay.

    `epochs` are those with segments, each with the moment at which one was written; `states` the epochs at whose end
    there is a state; what was written before `horizon` is not wanted any more. Moments in microseconds since 1970.
    """
    kept = min((epoch for epoch, written_at in epochs if written_at >= horizon), default=None)
    return max((epoch for epoch in states if kept is None or epoch < kept), default=NO_EPOCH)
