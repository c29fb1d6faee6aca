"""Which messages of a partition are repetitions.

A sink that writes at once gives each message an id of channel and position (`clonos.sinks.kafka_ids`). A row that is
written again goes into the same partition, and there the positions of a channel rise but for repetitions: a message
whose position is not above the last one of its channel was there before. That is all there is to remember, however long
a topic is.

    what is remembered, as text   base64 of: u8 1 | u32 CRC-32 of all that follows, little-endian
                                  | zlib of MessagePack {channel: position}
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import Final

import msgpack

from clonos.errors import LogCorrupt
from clonos.sinks.kafka_ids import channel_and_position

_HEAD: Final = struct.Struct("<BI")
_VERSION: Final = 1


class Repetitions:
    """Of one partition of a topic."""

    def __init__(self, last: dict[str, int] | None = None) -> None:
        self._last = {} if last is None else last

    def takes(self, message_id: str | None) -> bool:
        """The next message of the partition, by its id. Whether it is none that came before."""
        found = None if message_id is None else channel_and_position(message_id)
        if found is None:
            return True
        channel, position = found
        if position <= self._last.get(channel, -1):
            return False
        self._last[channel] = position
        return True

    def packed(self) -> str:
        """What is remembered, in ASCII; empty where nothing is."""
        if not self._last:
            return ""
        content = zlib.compress(msgpack.packb(self._last), 9)
        return base64.b64encode(_HEAD.pack(_VERSION, zlib.crc32(content)) + content).decode()

    @classmethod
    def unpack(cls, text: str, place: str) -> Repetitions:
        """Raises LogCorrupt, which names the place."""
        if not text:
            return cls()
        try:
            raw = base64.b64decode(text, validate=True)
            version, checksum = _HEAD.unpack_from(raw)
            content = raw[_HEAD.size :]
            if version == _VERSION and checksum == zlib.crc32(content):
                return cls(dict(msgpack.unpackb(zlib.decompress(content))))
        except (binascii.Error, struct.error, zlib.error, ValueError, msgpack.UnpackException):
            pass
        raise LogCorrupt(
            f"what was committed with the offset of {place} is damaged, foreign, or of a newer version",
            hint="Only clonos.kafka.Reader commits offsets of its group: give other consumers a group of their own",
        )
