"""Everything of an instance that can be repeated, from its first archived epoch on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from clonos.archive.desk import Desk
from clonos.archive.reading import ArchivedInstance, desk_for
from clonos.archive.tracing import Watcher
from clonos.errors import ClonosError
from clonos.protocol.archive.episode import Episode, Lacking
from clonos.protocol.ids import Epoch, epoch_after
from clonos_standby.cluster.spec import NodeSpec

Begins = Callable[[Desk, Epoch, NodeSpec], None]
"""Is told of each epoch before it is repeated."""


@dataclass(frozen=True, slots=True)
class StretchOfEpochs:
    """From one epoch to another, repeated at a desk while they are asked for: one by one, up to the first that cannot
    be. Earlier ones come before where the newest state does not serve."""

    first: Epoch
    last: Epoch
    desk: Desk
    repeated: Iterator[Episode | Lacking]


def _begins(desk: Desk, epoch: Epoch, node: NodeSpec) -> None:
    """Not wanted to be told."""


def repeated_to(
    instance: ArchivedInstance,
    upto: Epoch,
    desk: Desk,
    *,
    since: Epoch | None = None,
    begins: Begins = _begins,
) -> Iterator[tuple[Episode | Lacking, Desk]]:
    """As `ArchivedInstance.repeated`, but what it raises is why an epoch cannot be repeated."""
    at: Epoch | None = None

    def begun(epoch: Epoch, node: NodeSpec) -> None:
        nonlocal at
        at = epoch
        begins(desk, epoch, node)

    try:
        for found in instance.repeated(upto, desk, since=since, begins=begun):
            yield found, desk
    except ClonosError as error:
        yield replace(Lacking.raised(error), epoch=at), desk


def repeated_from_states(instance: ArchivedInstance, upto: Epoch) -> Iterator[StretchOfEpochs]:
    """All epochs up to one, each from the newest state before it, as what is asked about it is repeated: those between
    two states at a desk of their own."""
    epochs = sorted(each for each in instance.epochs if each <= upto)
    behind = [bisect_right(epochs, state) for state in instance.state_epochs]
    starts = [at for at in sorted({0, *behind}) if at < len(epochs)]
    for start, end in zip(starts, [*starts[1:], len(epochs)], strict=True):
        with desk_for(instance) as desk:
            found = repeated_to(instance, epochs[end - 1], desk, since=epochs[start])
            yield StretchOfEpochs(epochs[start], epochs[end - 1], desk, (each for each, _ in found))


def repeated_throughout(
    instance: ArchivedInstance,
    upto: Epoch,
    watcher: Watcher | None = None,
    *,
    since: Epoch | None = None,
    begins: Begins = _begins,
) -> Iterator[tuple[Episode | Lacking, Desk]]:
    """Epoch by epoch, `since` one if that is said, up to one, each at the desk where it has just been repeated; or why
    it could not be. Behind that it goes on with the next state, at another desk."""
    since = min(instance.epochs) if since is None else since
    while since is not None:
        reached: Epoch | None = None
        found: Episode | Lacking | None = None
        with desk_for(instance, watcher) as desk:
            for found, _ in repeated_to(instance, upto, desk, since=since, begins=begins):
                if isinstance(found, Episode):
                    reached = found.epoch
                yield found, desk
        behind = since if reached is None else max(since, epoch_after(reached))
        since = instance.first_behind(behind, upto) if isinstance(found, Lacking) else None
