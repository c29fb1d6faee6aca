"""Lineage that was recorded while the query ran, out of an archive: no function is run for it, so none is needed."""

from __future__ import annotations

import numpy as np

from clonos.archive.reading import ArchivedInstance
from clonos.errors import LogCorrupt
from clonos.protocol.archive.episode import Episode
from clonos.protocol.archive.recorded_lineage import Positions, RecordedEpoch, recorded_lineage
from clonos.protocol.ids import Epoch
from clonos.wire.block import parse_block


def recorded(instance: ArchivedInstance, epoch: Epoch) -> RecordedEpoch | None:
    """What was recorded of an epoch; None where that is not all of it, or cannot be read: it is repeated then."""
    episode = instance.episode(epoch)
    if not isinstance(episode, Episode) or not episode.lineage:
        return None
    try:
        return recorded_lineage(episode, _arrived(episode))
    except LogCorrupt:
        return None


def recorded_whole(instance: ArchivedInstance, epoch: Epoch) -> RecordedEpoch | None:
    """The same, where rows are of nothing but what the calls were given that gave them, and not of what a timer was set
    for. Of operators that keep records themselves nothing is recorded."""
    found = recorded(instance, epoch)
    return found if found is not None and found.is_of_records else None


def recorded_from(instance: ArchivedInstance, epoch: Epoch) -> dict[Epoch, RecordedEpoch] | None:
    """Of all epochs from this one on that have ended; None where one is not whole: what becomes of a record of the
    epoch may show in any of them, by a timer."""
    found: dict[Epoch, RecordedEpoch] = {}
    for each in sorted(each for each in instance.epochs if each >= epoch and instance.has_ended(each)):
        if (known := recorded_whole(instance, each)) is None:
            return None
        found[each] = known
    return found or None


def first_known(instance: ArchivedInstance) -> Epoch:
    """The first epoch of which lineage can be had: those before the first that can be repeated were recorded."""
    first = instance.first
    for epoch in sorted((each for each in instance.epochs if each < first), reverse=True):
        if recorded_whole(instance, epoch) is None:
            break
        first = epoch
    return first


def _arrived(episode: Episode) -> dict[int, Positions]:
    """The positions of the records that came in an epoch, by channel. A process that takes another's place is sent
    again what has come since its checkpoint."""
    found: dict[int, list[Positions]] = {}
    for raw in episode.blocks:
        block = parse_block(memoryview(raw))
        if block.count:
            found.setdefault(block.sender, []).append(np.asarray(block.numbers, np.int64))
    return {channel: np.unique(np.concatenate(numbers)) for channel, numbers in found.items()}
