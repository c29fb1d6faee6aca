"""Epochs that instances have not in the archive, while others have something of them (`protocol.archive.missing`):
retention looks at each instance alone, a query is killed before all have ended an epoch, and files get lost."""

from __future__ import annotations

from collections.abc import Sequence, Set as AbstractSet

from clonos.archive.epochs_of_rows import LAST
from clonos.archive.reading import ArchivedInstance, ArchivedQuery
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.erasure import NotThere, not_there
from clonos.protocol.archive.missing import Absence, InstanceKeeps, MissingEpochs
from clonos.protocol.ids import NO_EPOCH, Epoch


class ArchiveGaps:
    """See the module. `every`: the instances of all operators, as they were when epochs up to `committed` had."""

    def __init__(self, every: Sequence[ArchivedInstance], committed: Epoch) -> None:
        self._every = every
        self._committed = committed
        self._any = frozenset(epoch for each in every for epoch in each.epochs)

    @classmethod
    def of_query(cls, query: ArchivedQuery) -> ArchiveGaps:
        """Before its instances are asked for: one that runs goes on meanwhile."""
        committed = query.checkpoint.committed()
        return cls(query.instances(), committed)

    def of(self, instance: ArchivedInstance) -> tuple[MissingEpochs, ...]:
        """Of which an instance does not have the end, while another one has it."""
        keeps = self._keeps(instance, set(instance.epochs))
        return keeps.missing(
            epoch
            for epoch in self._any - _up_to_its_end(instance)
            if keeps.absence(epoch) is Absence.DROPPED or self._has_ended(epoch)
        )

    def first_after(self, time: float, before: Epoch) -> Epoch:
        """The first epoch of which any instance has something that was left behind a time (microseconds since the
        epoch), if one before this one is; else this one."""
        return min(
            (
                epoch
                for each in self._every
                for epoch in each.epochs
                if epoch < before and each.left_at(epoch) > time
            ),
            default=before,
        )

    def erasing(self, owner: ArchivedInstance, beyond: AbstractSet[Epoch] = frozenset()) -> NotThere:
        """Of which an instance of the operator whose key is erased lacks anything, while another one has something.
        `beyond`: epochs of which one has something in what it has of the next (`erasing_beyond`)."""
        erased = {epoch for epoch in owner.epochs if is_erased(owner, epoch)}
        has = set(owner.epochs) - {
            epoch for epoch in erased if not owner.has_ended(epoch) or self._has_come_again(epoch)
        }
        others = {
            epoch
            for epoch in self._any - has
            if any(epoch in each.epochs and not is_erased(each, epoch) for each in self._every)
        }
        last = max(has, default=NO_EPOCH)
        ended = {
            epoch
            for epoch in others
            if epoch > last and any(_may_have_ended(each, epoch) for each in self._every)
        }
        gone_on = beyond - has
        return not_there(self._keeps(owner, has), others | gone_on, ended | gone_on)

    def _keeps(self, instance: ArchivedInstance, has: set[Epoch]) -> InstanceKeeps:
        return InstanceKeeps(has, min(instance.state_epochs, default=None), self._any, self._committed)

    def _has_ended(self, epoch: Epoch) -> bool:
        """In any instance, of which something is left."""
        return any(_may_have_ended(each, epoch) and not is_erased(each, epoch) for each in self._every)

    def _has_come_again(self, epoch: Epoch) -> bool:
        """Whether any has run an epoch once more since it was erased."""
        return any(len(each.epochs.get(epoch, ())) > 1 and _was_erased(each, epoch) for each in self._every)


def is_erased(instance: ArchivedInstance, epoch: Epoch) -> bool:
    """Whether nothing of an epoch is left but its end."""
    return len(instance.epochs[epoch]) == 1 and _was_erased(instance, epoch)


def _up_to_its_end(instance: ArchivedInstance) -> set[Epoch]:
    """Its epochs, but for those at the end of the archive that have not ended."""
    found = set(instance.epochs)
    for epoch in sorted(found, reverse=True):
        if _may_have_ended(instance, epoch) or _was_erased(instance, epoch):
            break
        found.remove(epoch)
    return found


def _may_have_ended(instance: ArchivedInstance, epoch: Epoch) -> bool:
    """Also where that cannot be read."""
    return epoch in instance.epochs and instance.emitted(epoch) != LAST


def _was_erased(instance: ArchivedInstance, epoch: Epoch) -> bool:
    episode = instance.episode(epoch)
    return isinstance(episode, Lacking) and episode.is_erased
