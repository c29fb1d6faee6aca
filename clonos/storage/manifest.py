"""What a snapshot consists of, and how that is written down.

A manifest lists every file of a RocksDB checkpoint. Table files, which never change, are stored once under a name made
of their content (size and SHA-256) and shared by all snapshots that hold them. The few small files that do change
(CURRENT, MANIFEST, OPTIONS) are inside the manifest itself, so that a snapshot of a small state is two files.

    "CLONSNAP"  u16 version (2)  u32 CRC-32 of version and body  u32 body length  body (msgpack)

The body is a map: epoch, sequence, final, fence (16 bytes, big-endian; in version 1 a number of 64 bits, see
`protocol.fence`), meta (bytes of the instance, opaque here), files. A file is
[path, size, sha256, stored name or "", content or nil, [inode, mtime_ns] or nil]. The last field lets a restore on the
same host see that a file was not written to since its content was checked; everywhere else the content is read.

The name of a manifest says all that choosing one needs (`clonos.protocol.line.snapshot_name`). One that an attempt
resumed from, and wrote again as its own, ends in `from`, and its body says `resumed`. The fence in a name keeps an
incarnation that was replaced from touching what its successor wrote.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from clonos.errors import CounterExhausted, SnapshotCorrupt
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch
from clonos.protocol.line.snapshot_name import SnapshotName, read_fence

VERSION: Final = 2
_NARROW_VERSION: Final = 1
_MAGIC: Final = b"CLONSNAP"
_HEADER: Final = struct.Struct("<8sHII")
_STORED: Final = re.compile(r"[0-9a-f]{64}-\d+-([0-9a-f]{16}|[0-9a-f]{32})")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]+")
_DIGEST_BYTES: Final = 32


def stored_name(size: int, sha256: bytes, fence: Fence) -> str:
    """What a file with this content is called when an incarnation with this fence stores it."""
    return f"{sha256.hex()}-{size}-{Fence(fence).text}"


def stored_fence(name: str) -> Fence | None:
    """The fence in a stored file's name; None if it is no such name."""
    match = _STORED.fullmatch(name)
    return None if match is None else read_fence(match.group(1))[0]


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One file of a snapshot: stored under a name of its own, or with its content here."""

    path: str
    size: int
    sha256: bytes
    stored: str
    content: bytes | None
    stamp: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One snapshot. `meta` is what the instance gave to `begin`."""

    epoch: Epoch
    sequence: int
    final: bool
    fence: Fence
    meta: bytes
    files: tuple[SnapshotFile, ...]
    resumed: bool = False  # an attempt began here
    narrow: bool = False  # written when fences had 64 bits

    @property
    def name(self) -> SnapshotName:
        return SnapshotName(self.epoch, self.fence, self.sequence, self.final, self.resumed, self.narrow)

    def to_bytes(self) -> bytes:
        """The bytes of the manifest file."""
        body: bytes = msgpack.packb(
            {
                "epoch": self.epoch,
                "sequence": self.sequence,
                "final": self.final,
                "fence": Fence(self.fence).pack(),
                "meta": self.meta,
                "files": [
                    [file.path, file.size, file.sha256, file.stored, file.content, file.stamp]
                    for file in self.files
                ],
                **({"resumed": True} if self.resumed else {}),
            },
            use_bin_type=True,
        )
        checksum = zlib.crc32(body, zlib.crc32(VERSION.to_bytes(2, "little")))
        return _HEADER.pack(_MAGIC, VERSION, checksum, len(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Manifest:
        """The manifest in `data`, which was read from `where`; `SnapshotCorrupt` if it is none."""
        if len(data) < _HEADER.size:
            raise SnapshotCorrupt(f"the snapshot manifest {where} is cut off: it has {len(data)} bytes")
        magic, version, checksum, length = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise SnapshotCorrupt(f"{where} is not a snapshot manifest: it begins with {magic!r}")
        if version not in (VERSION, _NARROW_VERSION):
            raise SnapshotCorrupt(
                f"the snapshot manifest {where} has format version {version}; this library reads up to {VERSION}"
            )
        body = data[_HEADER.size :]
        if len(body) != length:
            raise SnapshotCorrupt(f"the snapshot manifest {where} has {len(body)} of its {length} bytes")
        found = zlib.crc32(body, zlib.crc32(version.to_bytes(2, "little")))
        if found != checksum:
            raise SnapshotCorrupt(
                f"the snapshot manifest {where} is damaged: checksum {found:08x}, recorded {checksum:08x}"
            )
        try:
            return cls._from_body(msgpack.unpackb(body, use_list=False), narrow=version == _NARROW_VERSION)
        except (ValueError, TypeError, KeyError, CounterExhausted, msgpack.UnpackException) as error:
            raise SnapshotCorrupt(f"the snapshot manifest {where} is malformed: {error!r}") from error

    @classmethod
    def _from_body(cls, body: dict[str, Any], *, narrow: bool) -> Manifest:
        files = tuple(SnapshotFile(*fields) for fields in body["files"])
        for file in files:
            _check_file(file)
        if len({file.path for file in files}) != len(files):
            raise ValueError("a file is listed twice")
        manifest = cls(
            epoch=Epoch(body["epoch"]),
            sequence=body["sequence"],
            final=body["final"],
            fence=Fence.widened(body["fence"]) if narrow else Fence.unpack(body["fence"]),
            meta=body["meta"],
            files=files,
            resumed=body.get("resumed", False),
            narrow=narrow,
        )
        if not isinstance(manifest.meta, bytes) or SnapshotName.parse(str(manifest.name)) is None:
            raise ValueError("epoch, sequence, fence or meta is not what it must be")
        return manifest


def _check_file(file: SnapshotFile) -> None:
    """Nothing in a manifest may lead outside the directory that is restored."""
    if not _PLAIN.fullmatch(file.path) or file.path.startswith("."):
        raise ValueError(f"{file.path!r} is not a file name")
    if not isinstance(file.size, int) or len(file.sha256) != _DIGEST_BYTES:
        raise ValueError(f"size or checksum of {file.path} is missing")
    if file.content is None and stored_fence(file.stored) is None:
        raise ValueError(f"{file.path} has neither content nor a stored name")
