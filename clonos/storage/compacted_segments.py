"""A file with many segments of an instance:

    "CLAG" | u32 length of the index | index | the segments' bytes, each as its own file would have them

The index is sealed (u8 1, u32 CRC-32) and has 40 bytes for each segment: epoch and time (u64 each), fence (16 bytes),
number and bytes (u32 each). Each segment has a checksum of its own. The file's name says what is in it, so that what
of it may go is known by listing alone:

    <first epoch>-<last epoch>-<newest written at>-<fence of the writer>-<first 16 digits of the SHA-256>.segments
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from clonos.errors import LogCorrupt
from clonos.protocol.archive.stored_segment import SegmentName
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch
from clonos.values.sealed_value import seal, unseal

MAGIC: Final = b"CLAG"
_NAME: Final = re.compile(r"(\d{20})-(\d{20})-(\d{20})-([0-9a-f]{32})-([0-9a-f]{16})\.segments")
_HEAD: Final = struct.Struct("<4sI")
_ENTRY: Final = struct.Struct("<QQ16sII")


@dataclass(frozen=True, slots=True, order=True)
class CompactedName:
    """See the module."""

    first: Epoch
    last: Epoch
    written_at: int  # microseconds since 1970
    fence: Fence
    digest: str

    def __str__(self) -> str:
        return (
            f"{self.first:020d}-{self.last:020d}-{self.written_at:020d}-"
            f"{Fence(self.fence).text}-{self.digest}.segments"
        )

    @classmethod
    def parse(cls, text: str) -> CompactedName | None:
        found = _NAME.fullmatch(text)
        if found is None:
            return None
        first, last, at, fence, digest = found.groups()
        return cls(Epoch(int(first)), Epoch(int(last)), int(at), Fence.parse(fence), digest)

    @property
    def epochs(self) -> range:
        return range(self.first, self.last + 1)


class Place(NamedTuple):
    """Where a segment is in its file, in bytes."""

    start: int
    size: int

    def of(self, raw: bytes) -> bytes:
        return raw[self.start : self.start + self.size]


def compacted(segments: Iterable[tuple[SegmentName, bytes]], fence: Fence) -> tuple[CompactedName, bytes]:
    """The name and the bytes of a file with these segments, one at least; `fence` is the writer's."""
    ordered = sorted(segments)
    entries = b"".join(
        _ENTRY.pack(name.epoch, name.written_at, name.fence.pack(), name.number, len(raw))
        for name, raw in ordered
    )
    index = seal(entries, MAGIC)
    content = b"".join([_HEAD.pack(MAGIC, len(index)), index, *(raw for _, raw in ordered)])
    name = CompactedName(
        first=ordered[0][0].epoch,
        last=ordered[-1][0].epoch,
        written_at=max(each.written_at for each, _ in ordered),
        fence=fence,
        digest=hashlib.sha256(content).hexdigest()[:16],
    )
    return name, content


def index_bytes(begun: bytes | bytearray) -> int:
    """How many bytes the beginning of a file has, up to the end of its index; as far as `begun` says that, which may be
    a few bytes too short itself."""
    if len(begun) < _HEAD.size:
        return _HEAD.size
    magic, length = _HEAD.unpack_from(begun)
    return _HEAD.size + (length if magic == MAGIC else 0)


def read_index(begun: bytes, where: str) -> dict[SegmentName, Place]:
    """Of a file that begins like this. Raises LogCorrupt."""
    if len(begun) < _HEAD.size or not begun.startswith(MAGIC):
        raise LogCorrupt(f"{where} does not begin as a file of segments does")
    _, length = _HEAD.unpack_from(begun)
    end = _HEAD.size + length
    entries = unseal(begun[_HEAD.size : end], MAGIC, what=f"the index of {where}", corrupt=LogCorrupt)
    if len(entries) % _ENTRY.size:
        raise LogCorrupt(f"the index of {where} is cut off")
    found: dict[SegmentName, Place] = {}
    for epoch, written_at, fence, number, size in _ENTRY.iter_unpack(entries):
        name = SegmentName(Epoch(epoch), written_at, Fence.unpack(fence), number)
        found[name] = Place(end, size)
        end += size
    return found
