"""The commit record that a sink keeps for a query: the last epoch of which its driver knew that it had committed.

It stands beside the output, so it outlives a checkpoint that was lost, copied or restored, and a start of the query can
see which of the two is older. All sinks of one query share one record; what is in it is the driver's business.

Two rules. A driver that was deposed does not write it. And it steps back to an earlier epoch only for a later start of
the query, which has decided to begin there: what arrives late, or twice, changes nothing.

    "CLKC" | u8 1 | u32 CRC-32 of all that follows | fence, 16 bytes, big-endian | i64 epoch | record
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from clonos.errors import LogCorrupt
from clonos.protocol.counters import LAST_LONG, used_up
from clonos.protocol.fence import FENCE_BYTES, LOWEST_FENCE, Fence
from clonos.protocol.ids import Epoch
from clonos.protocol.roles.sink_fence import check_driver

_MAGIC: Final = b"CLKC\x01"
_CRC: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct(f"<{FENCE_BYTES}sq")


@dataclass(frozen=True, slots=True)
class KeptCommit:
    """See the module."""

    fence: Fence
    epoch: Epoch
    record: bytes

    def pack(self) -> bytes:
        """Raises CounterExhausted."""
        if self.epoch > LAST_LONG:
            raise used_up("the epoch")
        body = _HEAD.pack(Fence(self.fence).pack(), self.epoch) + self.record
        return _MAGIC + _CRC.pack(zlib.crc32(body)) + body

    @classmethod
    def unpack(cls, data: bytes, place: str) -> KeptCommit:
        """What `pack` gave; `place` is where it was read, for the error."""
        begin = len(_MAGIC) + _CRC.size
        body = data[begin:]
        if (
            data[: len(_MAGIC)] != _MAGIC
            or len(body) < _HEAD.size
            or _CRC.unpack_from(data, len(_MAGIC))[0] != zlib.crc32(body)
        ):
            raise LogCorrupt(
                f"the commit record in {place} is damaged, or of a newer version",
                hint="Restore it from a backup before the query runs again",
            )
        fence, epoch = _HEAD.unpack_from(body)
        return cls(Fence.unpack(fence), Epoch(epoch), body[_HEAD.size :])


def supersedes(offered: KeptCommit, standing: KeptCommit | None, *, floor: Fence) -> bool:
    """Whether a sink whose floor is `floor` has to keep `offered` instead of what stands. Raises Fenced where a later
    start of the query has taken over."""
    check_driver(offered.fence, floor=max(floor, LOWEST_FENCE if standing is None else standing.fence))
    return standing is None or offered.fence > standing.fence or offered.epoch >= standing.epoch
