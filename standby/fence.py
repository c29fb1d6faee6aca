"""The highest fences that conduits have shown (`core.admission` says what for), on disk.

They must survive the server's death, or an old task could slip in after a restart. Each rise is one short record with
its own checksum, appended with a single write before the connection is served: what the kernel has taken survives the
death of the process, and losing the host loses its connections too, so nothing is synced. A record cut short at the end
is a write that nobody has acted upon; anything else unreadable is refused, since guessing a fence would let an old
writer in.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from clonos.core.admission import admits
from clonos.errors import ConfigurationError, StorageUnavailable

_RECORD = struct.Struct("<IIQ")
_CRC = struct.Struct("<I")
_SIZE = _RECORD.size + _CRC.size
_GENERATION = (0, 0)  # no node has number 0


class FenceTable:
    """The highest fence seen per (node, instance), and the lowest generation still allowed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fences = _load(path)
        self._compact()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    @property
    def generation(self) -> int:
        return self._fences.get(_GENERATION, 0)

    def fence(self, node: int, instance: int) -> int | None:
        return self._fences.get((node, instance))

    def raise_to(self, node: int, instance: int, fence: int) -> bool:
        """Takes the fence if it is above every earlier one; what is taken is kept before this returns."""
        if not self._admits((node, instance), fence, standby=False):
            return False
        self._keep((node, instance), fence)
        return True

    def admit_standby(self, node: int, instance: int, fence: int) -> bool:
        """Takes the fence if it is not below an earlier one."""
        if not self._admits((node, instance), fence, standby=True):
            return False
        if fence > self._fences.get((node, instance), -1):
            self._keep((node, instance), fence)
        return True

    def _admits(self, key: tuple[int, int], fence: int, *, standby: bool) -> bool:
        highest = self._fences.get(key, -1)
        return admits(fence, standby=standby, highest=highest, generation=self.generation)

    def raise_generation(self, generation: int) -> None:
        if generation > self.generation:
            self._keep(_GENERATION, generation)

    def close(self) -> None:
        os.close(self._fd)

    def _keep(self, key: tuple[int, int], fence: int) -> None:
        record = _pack(key, fence)
        size = os.fstat(self._fd).st_size
        try:
            written = os.write(self._fd, record)
        except OSError as error:
            raise StorageUnavailable(f"the fence file {self.path} cannot grow: {error}") from None
        if written != len(record):
            os.ftruncate(self._fd, size)
            raise StorageUnavailable(f"the fence file {self.path} cannot grow: the disk is full")
        self._fences[key] = fence

    def _compact(self) -> None:
        """Short again, if there is room for a second file."""
        fresh = self.path.with_suffix(".new")
        try:
            fresh.write_bytes(b"".join(_pack(key, fence) for key, fence in sorted(self._fences.items())))
            fresh.replace(self.path)
        except OSError:
            fresh.unlink(missing_ok=True)


def _pack(key: tuple[int, int], fence: int) -> bytes:
    record = _RECORD.pack(*key, fence)
    return record + _CRC.pack(zlib.crc32(record))


def _load(path: Path) -> dict[tuple[int, int], int]:
    raw = path.read_bytes() if path.exists() else b""
    fences: dict[tuple[int, int], int] = {}
    for at in range(0, len(raw) - len(raw) % _SIZE, _SIZE):
        record = raw[at : at + _RECORD.size]
        if _CRC.unpack_from(raw, at + _RECORD.size)[0] != zlib.crc32(record):
            raise ConfigurationError(
                f"the fence file {path} is corrupt at byte {at}",
                hint="Remove it when no task of an earlier run of this query can be alive any more",
            )
        node, instance, fence = _RECORD.unpack(record)
        fences[node, instance] = max(fence, fences.get((node, instance), 0))
    return fences
