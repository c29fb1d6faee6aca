"""The last marker that an instance has sent, as its checkpoints have it where a lost process is replaced.

Where the marker was sent on, and not all rows behind it, the process that takes its place cannot know whether it has
arrived: it sends it again, where it was between the rows. A reader that has had it passes it over.

    u8 0xC2 (format version 1) | varint generation | varint round | varint behind
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from clonos.errors import LogCorrupt
from clonos.protocol.fence import Generation
from clonos.protocol.ids import OutputNumber
from clonos.protocol.recovery.marker import Round
from clonos.protocol.varint import append_varint, read_varint

VERSION: Final = 0xC2


@dataclass(frozen=True, slots=True)
class LastMarker:
    """Rounds are numbered anew in each start of the query. `behind`: the number of the last row before it."""

    generation: Generation
    round: Round
    behind: OutputNumber

    def to_bytes(self) -> bytes:
        out = bytearray((VERSION,))
        for number in (self.generation, self.round, self.behind):
            append_varint(out, number)
        return bytes(out)

    @classmethod
    def from_bytes(cls, raw: bytes) -> LastMarker:
        """Raises LogCorrupt."""
        if not raw or raw[0] != VERSION:
            raise LogCorrupt("the last marker in a checkpoint is empty or of another format version")
        generation, at = read_varint(raw, 1)
        number, at = read_varint(raw, at)
        behind, at = read_varint(raw, at)
        if at != len(raw):
            raise LogCorrupt("the last marker in a checkpoint is too long")
        return cls(Generation(generation), Round(number), OutputNumber(behind))
