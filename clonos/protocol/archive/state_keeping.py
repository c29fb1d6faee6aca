"""In which order an instance leaves its state in the archive, and what goes with that. It may be cut short anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clonos.protocol.ids import Epoch
from clonos.protocol.line.snapshot_name import SnapshotName


def keep_state(
    *,
    drop: Callable[[], None],
    write_segments: Callable[[], None],
    store: Callable[[], None],
    compact: Callable[[], None],
) -> None:
    """What is too old or too much goes first: there may be no room before. The segments up to the state are stored
    before it: they say which history it is of, should another process end the epoch. Files are put together last, since
    nothing waits for that."""
    drop()
    write_segments()
    store()
    compact()


def has_nothing_of(
    epoch: Epoch, states: Iterable[SnapshotName], has_recorded: Callable[[Epoch], bool]
) -> bool:
    """Whether an archive has nothing of the epoch with whose end a process goes on: it was not on then, or that was
    erased. What follows could be repeated from nothing before the next state, unless that one is kept."""
    return not any(name.epoch >= epoch for name in states) and not has_recorded(epoch)
