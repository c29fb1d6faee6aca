"""What of an epoch is kept elsewhere than with it, so that it is still there where the epoch was dropped or erased.

A state has records that waited at its place; and as earlier versions have left it, the end of the log, where the
instance may have been on another host. In what a standby of theirs has left of an epoch, when it took over in it, there
is the end of the log of those before.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from clonos.archive.reading import ArchivedInstance
from clonos.errors import LogCorrupt, SnapshotCorrupt
from clonos.protocol.archive.archive_segment import ArchiveSegment
from clonos.protocol.archive.erasure import epochs_before_its_own
from clonos.protocol.ids import Epoch
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos_standby.replica import snapshot_metadata as metadata


@dataclass(slots=True)
class Beyond:
    """Of one instance."""

    states: set[SnapshotName] = field(default_factory=set)  # with the log of their epoch, or records of it
    epochs: set[Epoch] = field(default_factory=set)  # of which something goes with what is kept of the next
    damaged: dict[SnapshotName, str] = field(default_factory=dict)  # states, and what is wrong with them


def beyond_epochs(instance: ArchivedInstance) -> Beyond:
    """As far as it can be read."""
    found = Beyond()
    for name in instance.state_names:
        try:
            state = instance.states.named(str(name))
            content = None if state is None else metadata.decode(state.meta, lambda _: tuple)
        except SnapshotCorrupt as error:
            found.damaged[name] = error.message
            continue
        if content is not None and (content.log or content.pending):
            found.states.add(name)
            if name.final and content.pending:
                found.epochs.add(name.epoch)
    for segment in _segments(instance):
        found.epochs |= epochs_before_its_own(segment)
    return found


def _segments(instance: ArchivedInstance) -> list[ArchiveSegment]:
    """That reach back before their epoch."""
    found: list[ArchiveSegment] = []
    for name in instance.segments:
        with suppress(LogCorrupt):  # it is said elsewhere what that means
            found += [each for each in instance.files.read([name]) if each.log_start < each.epoch_start]
    return found
