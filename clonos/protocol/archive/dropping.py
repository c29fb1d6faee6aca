"""What is too old or too much goes from the archive of an instance, in an order that can be cut short anywhere.

What may go is `protocol.archive.retention`'s matter. Between two steps the process may be lost, or storage refuse the
next one: what is left can be repeated as before, and the next look drops the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable

from clonos.errors import StorageUnavailable
from clonos.protocol.archive.retention import kept_behind
from clonos.protocol.archive.stored_segment import StoredSegments
from clonos.protocol.fence import Fence
from clonos.protocol.ids import NO_EPOCH, Epoch
from clonos.protocol.line.snapshot_name import SnapshotName


class ArchivedFiles(ABC):
    """What an instance has in the archive, as its process sees it. Each raises StorageUnavailable, and what removes
    something Fenced, too."""

    @abstractmethod
    def states(self) -> Collection[SnapshotName]: ...

    @abstractmethod
    def left_by(self, epoch: Epoch) -> Iterable[Fence]:
        """The processes that have left segments of an epoch."""

    @abstractmethod
    def forget_states(self, before: Epoch) -> None: ...

    @abstractmethod
    def drop_segments(self, upto: Epoch) -> None: ...


def drop_unwanted(
    files: ArchivedFiles, stored: Collection[StoredSegments], horizon: int, most: int | None
) -> Epoch:
    """See the module, and `kept_behind`; `stored` are its segments. Up to which epoch things have gone, or
    `NO_EPOCH`."""
    states = [name for name in files.states() if name.final]
    behind = kept_behind(
        stored,
        (name.epoch for name in states),
        horizon,
        most,
        counts=lambda epoch: _counts(files, states, epoch),
    )
    if behind == NO_EPOCH:
        return behind
    try:
        # Before segments: what is missing behind the first state was lost then (`protocol.archive.missing`).
        files.forget_states(behind)
    except StorageUnavailable:
        # It has to be written down which process this is, for which there may be no room yet.
        files.drop_segments(behind)
        files.forget_states(behind)
    else:
        files.drop_segments(behind)
    return behind


def _counts(files: ArchivedFiles, states: Iterable[SnapshotName], epoch: Epoch) -> bool:
    """Whether a state of the end of an epoch is of the history that is archived: by the log of the epoch, which is
    about to go, that cannot be told any more. Where a later process has left something of the epoch, it has run it, and
    may have ended it otherwise: what it leaves is durable before what is behind."""
    newest = max(name.fence for name in states if name.epoch == epoch)
    return all(fence <= newest for fence in files.left_by(epoch))
