"""The records that a sink keeps in a `Store`: their keys and what is in them.

    <query>/floor                               the fence that was raised for the whole query
    <query>/commit                              what `clonos.protocol.line.kept_commit` says
    <query>/holder/<node>-<instance>            the fence of a sink instance, and the writer that took it
    <query>/position/<node>-<instance>          its cursors, and the number of the next entry of its log
    <query>/log/<node>-<instance>/<number>      a delta

Keys are ASCII; numbers in them have 20 digits, so that keys sort as entries were written. The number of the next entry
stands in the position, which is never removed: no number is given twice. A value is

    "CLSR" | u8 1 | u32 CRC-32 of all that follows, little-endian | content

with JSON as content, or the delta. The commit record has a form of its own.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from clonos.errors import LogCorrupt
from clonos.json_text import parsed_json
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Origin
from clonos.protocol.roles.sink_fence import Holder
from clonos.sinks.port import Cursors

_MAGIC: Final = b"CLSR\x01"
_CRC: Final = struct.Struct("<I")
_HEAD: Final = len(_MAGIC) + _CRC.size
LAST: Final = "~"
"""Greater than whatever comes behind a prefix of keys."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Of one query."""

    query: str

    @property
    def _whole(self) -> str:
        return quote(self.query, safe="")

    @property
    def floor(self) -> str:
        return f"{self._whole}/floor"

    @property
    def commit(self) -> str:
        return f"{self._whole}/commit"

    @property
    def positions(self) -> str:
        """The prefix of all positions."""
        return f"{self._whole}/position/"

    @property
    def logs(self) -> str:
        """The prefix of all log entries."""
        return f"{self._whole}/log/"

    def holder(self, origin: Origin) -> str:
        return f"{self._whole}/holder/{origin.node}-{origin.instance}"

    def position(self, origin: Origin) -> str:
        return f"{self.positions}{origin.node}-{origin.instance}"

    def entry(self, origin: Origin, number: int) -> str:
        return f"{self.logs}{origin.node}-{origin.instance}/{number:020d}"

    def origin(self, position: str) -> Origin:
        """Whose position a key is of."""
        node, _, instance = position.removeprefix(self.positions).partition("-")
        return Origin.of(int(node), int(instance))


@dataclass(frozen=True, slots=True)
class Position:
    """Where a sink instance stands."""

    cursors: Cursors = field(default_factory=dict)
    next_number: int = 1

    def pack(self) -> bytes:
        cursors = {str(channel): position for channel, position in sorted(self.cursors.items())}
        return pack(_json({"cursors": cursors, "next": self.next_number}))

    @classmethod
    def unpack(cls, value: bytes | None, key: str) -> Position:
        if value is None:
            return cls()
        said = _parsed(value, key)
        return cls({int(channel): position for channel, position in said["cursors"].items()}, said["next"])


def pack_floor(fence: Fence) -> bytes:
    return pack(_json({"fence": Fence(fence).text}))


def unpack_floor(value: bytes | None, key: str) -> Fence:
    return LOWEST_FENCE if value is None else Fence.parse(_parsed(value, key)["fence"])


def pack_holder(holder: Holder, takings: int) -> bytes:
    """`takings` tells apart how often the fence was taken: a step of before the last time is refused."""
    return pack(_json({"fence": Fence(holder.fence).text, "owner": holder.owner, "takings": takings}))


def unpack_holder(value: bytes | None, key: str) -> tuple[Holder, int]:
    """With how often it was taken."""
    if value is None:
        return Holder(), 0
    said = _parsed(value, key)
    return Holder(Fence.parse(said["fence"]), said["owner"]), said["takings"]


def pack(content: bytes) -> bytes:
    return _MAGIC + _CRC.pack(zlib.crc32(content)) + content


def unpack(value: bytes) -> bytes | None:
    """The content, or None where the value is damaged or of a newer version."""
    content = value[_HEAD:]
    whole = value[: len(_MAGIC)] == _MAGIC and len(value) >= _HEAD
    return content if whole and _CRC.unpack_from(value, len(_MAGIC))[0] == zlib.crc32(content) else None


def _parsed(value: bytes, key: str) -> Any:
    content = unpack(value)
    if content is None:
        raise LogCorrupt(
            f"the sink's record {key} is damaged, or of a newer version",
            hint="Restore it from a backup before the query runs again",
        )
    return parsed_json(content)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
