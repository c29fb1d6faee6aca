"""A segment in storage, without its content: its name, and its bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch

_NAME: Final = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{32})-(\d{8})\.segment")


class SegmentName(NamedTuple):
    """Segments of an instance, of which there may be a million, are by it in the order of epochs, and in each
    in that of time."""

    epoch: Epoch
    written_at: int  # microseconds since 1970
    fence: Fence
    number: int

    def __str__(self) -> str:
        return f"{self.epoch:020d}-{self.written_at:020d}-{Fence(self.fence).text}-{self.number:08d}.segment"

    @classmethod
    def parse(cls, text: str) -> SegmentName | None:
        found = _NAME.fullmatch(text)
        if found is None:
            return None
        epoch, at, fence, number = found.groups()
        return cls(Epoch(int(epoch)), int(at), Fence.parse(fence), int(number))


@dataclass(frozen=True, slots=True)
class StoredSegments:
    """A file of segments: of which epochs, when the newest was written (microseconds since 1970), and its bytes."""

    first: Epoch
    last: Epoch
    written_at: int
    size: int
