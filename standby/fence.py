"""The highest fences that conduits have shown (`core.admission` says what for), on disk.

They must survive the server's death, or an old task could slip in after a restart; and its host's power, since that
task may be on another host. Each rise is one short record with its own checksum, appended and synced before the
connection is served. So only the last record can be cut short, filled with zeros or garbled: a write that nobody has
acted upon. Anything else unreadable is refused, since guessing a fence would let an old writer in.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from clonos.core.admission import Fences
from clonos.core.identity import Origin
from clonos.errors import ConfigurationError, StorageUnavailable
from clonos.store.durable import fsync_directory

_RECORD = struct.Struct("<IIQ")
_CRC = struct.Struct("<I")
_SIZE = _RECORD.size + _CRC.size


class FenceTable:
    """The highest fence seen per (node, instance), and the lowest generation still allowed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = _load(path)
        self._compact(kept)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fsync_directory(str(path.parent))
        self._fences = Fences(self._keep, kept)

    @property
    def generation(self) -> int:
        return self._fences.generation

    def fence(self, node: int, instance: int) -> int | None:
        return self._fences.fence(Origin(node, instance))

    def raise_to(self, node: int, instance: int, fence: int) -> bool:
        """Takes the fence if it is above every earlier one; what is taken is kept before this returns."""
        return self._fences.raise_to(Origin(node, instance), fence)

    def admit_standby(self, node: int, instance: int, fence: int) -> bool:
        """Takes the fence if it is not below an earlier one."""
        return self._fences.admit_standby(Origin(node, instance), fence)

    def raise_generation(self, generation: int) -> None:
        self._fences.raise_generation(generation)

    def close(self) -> None:
        os.close(self._fd)

    def _keep(self, origin: Origin, fence: int) -> None:
        record = _pack(origin, fence)
        size = os.fstat(self._fd).st_size
        try:
            written = os.write(self._fd, record)
            if written == len(record):
                os.fdatasync(self._fd)
                return
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, size)
            raise StorageUnavailable(f"the fence file {self.path} cannot grow: {error}") from None
        os.ftruncate(self._fd, size)
        raise StorageUnavailable(f"the fence file {self.path} cannot grow: the disk is full")

    def _compact(self, kept: Mapping[Origin, int]) -> None:
        """Short again, if there is room for a second file; a record that was cut short has to go in any case."""
        fresh = self.path.with_suffix(".new")
        try:
            with fresh.open("wb") as file:
                file.write(b"".join(_pack(origin, fence) for origin, fence in sorted(kept.items())))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
        except OSError:
            fresh.unlink(missing_ok=True)
            if self.path.exists():
                os.truncate(self.path, _whole(self.path.read_bytes()) * _SIZE)


def _pack(origin: Origin, fence: int) -> bytes:
    record = _RECORD.pack(*origin, fence)
    return record + _CRC.pack(zlib.crc32(record))


def _fits(record: bytes) -> bool:
    return len(record) == _SIZE and _CRC.unpack_from(record, _RECORD.size)[0] == zlib.crc32(
        record[: -_CRC.size]
    )


def _whole(raw: bytes) -> int:
    """How many records there are before one that does not fit."""
    count = 0
    while _fits(raw[count * _SIZE : (count + 1) * _SIZE]):
        count += 1
    return count


def _load(path: Path) -> dict[Origin, int]:
    """Raises ConfigurationError where a record is unreadable that is not the last write."""
    raw = path.read_bytes() if path.exists() else b""
    at = _whole(raw) * _SIZE
    if raw[at + _SIZE :].strip(b"\0"):
        raise ConfigurationError(
            f"the fence file {path} is corrupt at byte {at}",
            hint="Remove it when no task of an earlier run of this query can be alive any more",
        )
    fences: dict[Origin, int] = {}
    for begin in range(0, at, _SIZE):
        node, instance, fence = _RECORD.unpack(raw[begin : begin + _RECORD.size])
        origin = Origin(node, instance)
        fences[origin] = max(fence, fences.get(origin, 0))
    return fences
