"""An increment: what has been written to a database since its last whole checkpoint. While it is little, a checkpoint
is the increment alone.

A checkpoint of RocksDB writes tables and links files, which takes milliseconds however little has changed. Where
checkpoints follow each other without a pause (`RecoveryKind.sends_late`), most of them are the files of the last whole
one and these changes, which are applied when the state is opened again: one small file with all changes since, or, in
a log of events (`storage.event_logs`), those since the checkpoint before, behind its own.

    msgpack map: version (1), changes: [key, value or nil] each
"""

from __future__ import annotations

from typing import Final

import msgpack

from clonos.errors import SnapshotCorrupt

FILE: Final = "INCREMENT"
_VERSION: Final = 1
_MOST_BYTES: Final = 256 * 1024
"""Beyond that a whole checkpoint is cheaper than to write all of it once more."""
_MOST_LOGGED_BYTES: Final = 4 * 1024 * 1024
"""Beyond that it takes too long to apply all of them."""


class Increment:
    """See the module. The first checkpoint is a whole one. `is_logged`: each is what has changed since the last."""

    def __init__(self, *, is_logged: bool = False) -> None:
        self._is_logged = is_logged
        self._changed: dict[bytes, bytes | None] = {}
        self._bytes = 0
        self._logged = 0
        self._is_known = False

    def note(self, key: bytes, value: bytes | None) -> None:
        """It was written, or (None) deleted."""
        if self._is_known:
            before = self._changed.get(key)
            self._bytes += len(value or b"") - len(before or b"") + (0 if key in self._changed else len(key))
            self._changed[key] = value
            if self._bytes + self._logged > (_MOST_LOGGED_BYTES if self._is_logged else _MOST_BYTES):
                self._forget(is_known=False)

    def is_whole(self) -> None:
        """A whole checkpoint has everything up to now."""
        self._forget(is_known=True)

    def encode(self) -> bytes | None:
        """All since then, or since the increment before; None where a whole checkpoint is due."""
        if not self._is_known:
            return None
        packed: bytes = msgpack.packb({"version": _VERSION, "changes": list(self._changed.items())})
        if self._is_logged:
            self._logged += len(packed)
            self._changed, self._bytes = {}, 0
        return packed

    def _forget(self, *, is_known: bool) -> None:
        self._changed, self._bytes, self._logged, self._is_known = {}, 0, 0, is_known


def file_name(number: int) -> str:
    """Of the increments of one checkpoint, which are applied in the order of their names."""
    return f"{FILE}-{number:06d}" if number else FILE


def decode_increment(raw: bytes, where: str) -> list[tuple[bytes, bytes | None]]:
    """Raises SnapshotCorrupt."""
    try:
        said = msgpack.unpackb(raw)
        if said["version"] != _VERSION:
            raise SnapshotCorrupt(
                f"the increment in {where} has format version {said['version']}; this library reads {_VERSION}"
            )
        found = [(key, value) for key, value in said["changes"]]
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise SnapshotCorrupt(f"the increment in {where} is malformed: {error!r}") from error
    if not all(isinstance(key, bytes) and isinstance(value, bytes | None) for key, value in found):
        raise SnapshotCorrupt(f"the increment in {where} is not of bytes")
    return found
