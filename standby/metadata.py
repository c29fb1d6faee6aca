"""An instance's snapshot metadata as bytes. Version and checksum are the manifest's, which carries it."""

from __future__ import annotations

from typing import Any

from clonos.core.instance import InstanceSnapshot
from clonos.errors import SnapshotCorrupt, StateError
from clonos.store import values

VERSION = 1


def encode(snapshot: InstanceSnapshot, *, taken: int = 0) -> bytes:
    """`taken` is the last bundle of the task attempt that the snapshot covers."""
    return values.encode(
        {
            "version": VERSION,
            "epoch": snapshot.epoch,
            "taken": taken,
            "covered": snapshot.covered,
            "emitted": snapshot.emitted,
            "log_offset": snapshot.log_offset,
            "epoch_log_offset": snapshot.epoch_log_offset,
            "boundary": snapshot.boundary,
            "random": [snapshot.random_state[0], list(snapshot.random_state[1]), snapshot.random_state[2]],
            "watermark": snapshot.watermark,
            "pending": [[channel, position, list(row)] for channel, position, row in snapshot.pending],
        }
    )


def decode(raw: bytes, row_class: type) -> InstanceSnapshot:
    """Raises SnapshotCorrupt."""
    try:
        said: dict[str, Any] = values.decode(raw)
        if said["version"] != VERSION:
            raise SnapshotCorrupt(
                f"snapshot metadata of version {said['version']}; this library reads {VERSION}"
            )
        kind, words, gauss = said["random"]
        return InstanceSnapshot(
            epoch=said["epoch"],
            covered=said["covered"],
            emitted=said["emitted"],
            log_offset=said["log_offset"],
            epoch_log_offset=said["epoch_log_offset"],
            boundary=said["boundary"],
            random_state=(kind, tuple(words), gauss),
            watermark=said["watermark"],
            pending=[(c, p, tuple.__new__(row_class, row)) for c, p, row in said["pending"]],
        )
    except (KeyError, TypeError, ValueError, StateError) as error:
        raise SnapshotCorrupt(f"snapshot metadata cannot be read: {error}") from error


def log_offset(raw: bytes) -> int:
    """How far the instance's log had come at a snapshot."""
    return _number(raw, "log_offset")


def emitted(raw: bytes) -> int:
    """The number of the last row that had left at a snapshot."""
    return _number(raw, "emitted")


def taken(raw: bytes) -> int:
    """The last bundle of its task attempt that a snapshot covers."""
    return _number(raw, "taken")


def _number(raw: bytes, name: str) -> int:
    try:
        number: int = values.decode(raw)[name]
    except (KeyError, TypeError, StateError) as error:
        raise SnapshotCorrupt(f"snapshot metadata cannot be read: {error}") from error
    return number
