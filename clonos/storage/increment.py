"""An increment: what has been written to a database since its last whole checkpoint. While it is little, a checkpoint
is the increment alone.

A checkpoint of RocksDB writes tables and links files, which takes milliseconds however little has changed. Where
checkpoints follow each other without a pause (`RecoveryKind.EAGER`), most of them are the files of the last whole
one and these changes, as one small file that is applied when the state is opened again.

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


class Increment:
    """See the module. The first checkpoint is a whole one."""

    def __init__(self) -> None:
        self._changed: dict[bytes, bytes | None] = {}
        self._bytes = 0
        self._is_known = False

    def note(self, key: bytes, value: bytes | None) -> None:
        """It was written, or (None) deleted."""
        if self._is_known:
            before = self._changed.get(key)
            self._bytes += len(value or b"") - len(before or b"") + (0 if key in self._changed else len(key))
            self._changed[key] = value
            if self._bytes > _MOST_BYTES:
                self._forget(is_known=False)

    def is_whole(self) -> None:
        """A whole checkpoint has everything up to now."""
        self._forget(is_known=True)

    def encode(self) -> bytes | None:
        """All since then; None where a whole checkpoint is due."""
        if not self._is_known:
            return None
        packed: bytes = msgpack.packb({"version": _VERSION, "changes": list(self._changed.items())})
        return packed

    def _forget(self, *, is_known: bool) -> None:
        self._changed, self._bytes, self._is_known = {}, 0, is_known


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
