"""Epochs that instances of the operator whose key is erased have not in the archive, while others have something of
them (`protocol.archive.erasure.not_there`): retention looks at each instance alone, and files get lost."""

from __future__ import annotations

from collections.abc import Sequence, Set as AbstractSet

from clonos.archive.reading import LAST, ArchivedInstance
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.erasure import NotThere, not_there
from clonos.protocol.ids import NO_EPOCH, Epoch


def gaps_of(
    owner: ArchivedInstance, every: Sequence[ArchivedInstance], beyond: AbstractSet[Epoch] = frozenset()
) -> NotThere:
    """Of an instance of the operator. `every`: the instances of all operators; `beyond`: epochs of which one of them
    has something in what it has of the next (`erasing_beyond`)."""
    archived = {epoch for each in every for epoch in each.epochs}
    erased = {epoch for epoch in owner.epochs if is_erased(owner, epoch)}
    has = set(owner.epochs) - {
        epoch for epoch in erased if not owner.has_ended(epoch) or _has_come_again(every, epoch)
    }
    others = {
        epoch
        for epoch in archived - has
        if any(epoch in each.epochs and not is_erased(each, epoch) for each in every)
    }
    gone_on = beyond - has
    last = max(has, default=NO_EPOCH)
    ended = {
        epoch for epoch in others if epoch > last and any(_may_have_ended(each, epoch) for each in every)
    }
    return not_there(has, others | gone_on, ended | gone_on)


def is_erased(instance: ArchivedInstance, epoch: Epoch) -> bool:
    """Whether nothing of an epoch is left but its end."""
    return len(instance.epochs[epoch]) == 1 and _was_erased(instance, epoch)


def _may_have_ended(instance: ArchivedInstance, epoch: Epoch) -> bool:
    """Also where that cannot be read."""
    return epoch in instance.epochs and instance.emitted(epoch) != LAST


def _has_come_again(every: Sequence[ArchivedInstance], epoch: Epoch) -> bool:
    """Whether any has run an epoch once more since it was erased."""
    return any(len(each.epochs.get(epoch, ())) > 1 and _was_erased(each, epoch) for each in every)


def _was_erased(instance: ArchivedInstance, epoch: Epoch) -> bool:
    episode = instance.episode(epoch)
    return isinstance(episode, Lacking) and episode.is_erased
