"""The highest fences that conduits have shown (`protocol.roles.admission` says what for), on disk.

They must survive the server's death, or an old task could slip in after a restart; and its host's power, since that
task may be on another host. Each rise is one short record with its own checksum, appended and synced before the
connection is served. So only the last record can be cut short, filled with zeros or garbled: the record of a connection
that was not served yet. Anything else unreadable is refused, since guessing a fence would let an old writer in.

    "CLFENCE2" | records: u32 node, u32 instance, fence (16 bytes, big-endian), u32 CRC-32 of the record

The record of node 0, which no instance has, holds the generation. A file from when fences had 64 bits
(`protocol.fence`) lacks the first word and has u64 fences; it is read, and written anew before anything is added.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clonos.errors import ConfigurationError, StorageUnavailable
from clonos.protocol.fence import FENCE_BYTES, NO_FENCE, Fence
from clonos.protocol.ids import Origin
from clonos.protocol.roles.admission import GENERATION, Fences
from clonos.storage.durable_files import fsync_directory, replace_file

_MAGIC = b"CLFENCE2"
_CRC = struct.Struct("<I")


@dataclass(frozen=True)
class _Format:
    """Where the records begin, and how one is laid out."""

    begin: int
    record: struct.Struct

    @property
    def size(self) -> int:
        return self.record.size + _CRC.size

    def pack(self, origin: Origin, fence: Fence) -> bytes:
        record = self.record.pack(*origin, Fence(fence).pack())
        return record + _CRC.pack(zlib.crc32(record))

    def fits(self, record: bytes) -> bool:
        return len(record) == self.size and _CRC.unpack_from(record, self.record.size)[0] == zlib.crc32(
            record[: -_CRC.size]
        )

    def whole(self, raw: bytes) -> int:
        """Up to where the file consists of records that fit."""
        at = self.begin
        while self.fits(raw[at : at + self.size]):
            at += self.size
        return at


_TODAY = _Format(len(_MAGIC), struct.Struct(f"<II{FENCE_BYTES}s"))
_NARROW = _Format(0, struct.Struct("<IIQ"))


def _format(raw: bytes) -> _Format:
    return _TODAY if raw.startswith(_MAGIC) else _NARROW


class FenceTable:
    """Keeps `fences` in a file: each is written there before it counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = _load(path)
        self._compact(kept)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fsync_directory(str(path.parent))
        self.fences = Fences(self._keep, kept)

    def close(self) -> None:
        os.close(self._fd)

    def _keep(self, origin: Origin, fence: Fence) -> None:
        record = _TODAY.pack(origin, fence)
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

    def _compact(self, kept: Mapping[Origin, Fence]) -> None:
        """Short again, if there is room for a second file; a record that was cut short has to go in any case, and so
        has an older format."""
        records = (_TODAY.pack(origin, fence) for origin, fence in sorted(kept.items()))
        try:
            replace_file(self.path, _MAGIC + b"".join(records))
        except OSError as error:
            raw = self.path.read_bytes() if self.path.exists() else b""
            if _format(raw) is not _TODAY:
                raise StorageUnavailable(f"the fence file {self.path} cannot be written: {error}") from None
            os.truncate(self.path, _TODAY.whole(raw))


def _load(path: Path) -> dict[Origin, Fence]:
    """Raises ConfigurationError where a record is unreadable that is not the last write."""
    raw = path.read_bytes() if path.exists() else b""
    layout = _format(raw)
    end = layout.whole(raw)
    if raw[end + layout.size :].strip(b"\0"):
        raise ConfigurationError(
            f"the fence file {path} is corrupt at byte {end}",
            hint="Remove it when no task of an earlier run of this query can be alive any more",
        )
    fences: dict[Origin, Fence] = {}
    for begin in range(layout.begin, end, layout.size):
        node, instance, written = layout.record.unpack_from(raw, begin)
        origin = Origin(node, instance)
        fences[origin] = max(_fence(origin, written), fences.get(origin, NO_FENCE))
    return fences


def _fence(origin: Origin, written: bytes | int) -> Fence:
    if isinstance(written, bytes):
        return Fence.unpack(written)
    return Fence(written) if origin == GENERATION else Fence.widened(written)
