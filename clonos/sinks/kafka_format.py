"""The bytes of a Kafka sink's own topic.

Partition 0 holds the fence log (`clonos.protocol.roles.fence_log`), one message per offer, and now and then what stands
before an offset, so that the messages before it can go. Each other partition holds the log of one sink instance: an
entry per bundle, in as many messages as its size asks for, all in one transaction.

    message of partition 0   "CLKF" | u8 1 | u32 CRC-32 of all that follows | MessagePack, by its first item:
        [1, node, instance, fence, owner]          taking
        [2, fence]                                 raising
        [3, kept commit]                           recording, as `clonos.protocol.line.kept_commit` packs it
        [4, fence, node, instance, before]         trimming
        [5, offset, floor, [[node, instance, fence, owner, partition, trimmed], ...], kept commit or nil]
                                                   what stands before that offset
    message of an entry      "CLKE" | u8 1 | u32 CRC-32 of all that follows | u32 part | u32 parts | bytes
    the parts' bytes         MessagePack: [fence, whether all cursors, {channel: position}, [delta, ...]]

Fences are 16 bytes, big-endian; the other integers of the heads are little-endian.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from clonos.errors import LogCorrupt
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.protocol.line.kept_commit import KeptCommit
from clonos.protocol.roles.fence_log import FenceLog, Offer, Raising, Recording, Taking, Trimming
from clonos.protocol.roles.sink_fence import Holder
from clonos.sinks.port import Cursors

_FENCES: Final = b"CLKF\x01"
_ENTRY: Final = b"CLKE\x01"
_CRC: Final = struct.Struct("<I")
_PART: Final = struct.Struct("<II")
LARGEST_PART: Final = 512 << 10
"""Bytes of an entry in one message: brokers take a megabyte unless told otherwise."""
_TAKING, _RAISING, _RECORDING, _TRIMMING, _STANDING = 1, 2, 3, 4, 5


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands before an offset of the fence log."""

    offset: int
    state: FenceLog


@dataclass(frozen=True, slots=True)
class Entry:
    """What a sink instance has kept of one bundle. `full`: the cursors are all there are."""

    fence: Fence
    full: bool
    cursors: Cursors
    deltas: Sequence[bytes]


def pack_offer(offer: Offer) -> bytes:
    match offer:
        case Taking(origin, holder):
            return _sealed([_TAKING, *origin, holder.fence.pack(), holder.owner])
        case Raising(fence):
            return _sealed([_RAISING, fence.pack()])
        case Recording(kept):
            return _sealed([_RECORDING, kept.pack()])
        case Trimming(fence, origin, before):
            return _sealed([_TRIMMING, fence.pack(), *origin, before])


def pack_standing(standing: Standing) -> bytes:
    state = standing.state
    instances = []
    for origin, partition in sorted(state.partitions.items()):
        holder = state.holder(origin)
        instances.append(
            [*origin, holder.fence.pack(), holder.owner, partition, state.trimmed.get(origin, 0)]
        )
    kept = None if state.commit is None else state.commit.pack()
    return _sealed([_STANDING, standing.offset, state.floor.pack(), instances, kept])


def unpack_offer(message: bytes, place: str) -> Offer | Standing:
    """Raises LogCorrupt, which names the place."""
    try:
        items = msgpack.unpackb(_opened(_FENCES, message, place))
        match items:
            case [1, node, instance, fence, str(owner)]:
                return Taking(Origin.of(node, instance), Holder(Fence.unpack(fence), owner))
            case [2, fence]:
                return Raising(Fence.unpack(fence))
            case [3, kept]:
                return Recording(KeptCommit.unpack(kept, place))
            case [4, fence, node, instance, int(before)]:
                return Trimming(Fence.unpack(fence), Origin.of(node, instance), before)
            case [5, int(offset), floor, instances, kept]:
                return Standing(offset, _state(floor, instances, kept, place))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _damaged(place) from error
    raise _damaged(place)


def _state(floor: bytes, instances: Sequence[Any], kept: bytes | None, place: str) -> FenceLog:
    state = FenceLog(floor=Fence.unpack(floor))
    for node, instance, fence, owner, partition, trimmed in instances:
        origin = Origin.of(node, instance)
        state.holders[origin] = Holder(Fence.unpack(fence), owner)
        state.partitions[origin] = partition
        if trimmed:
            state.trimmed[origin] = trimmed
    state.commit = None if kept is None else KeptCommit.unpack(kept, place)
    return state


def pack_entry(entry: Entry) -> list[bytes]:
    """The messages, in order."""
    whole = msgpack.packb([entry.fence.pack(), entry.full, entry.cursors, list(entry.deltas)])
    parts = range(0, len(whole), LARGEST_PART)
    return [
        _with_head(_ENTRY, _PART.pack(number, len(parts)) + whole[begin : begin + LARGEST_PART])
        for number, begin in enumerate(parts)
    ]


class EntryReader:
    """Puts the messages of entries together again. `place` names the partition, for errors."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._parts: list[bytes] = []
        self._first = -1

    def take(self, offset: int, message: bytes) -> tuple[int, Entry] | None:
        """The entry that this message completes, and the offset of its first one. Raises LogCorrupt; the next entry
        can be read then."""
        place = f"{self._place}, offset {offset}"
        parts, self._parts = self._parts, []
        body = _opened(_ENTRY, message, place)
        if len(body) < _PART.size:
            raise _damaged(place)
        number, count = _PART.unpack_from(body)
        if number == 0:
            parts, self._first = [], offset
        if number != len(parts) or number >= count:
            raise _damaged(place)
        parts.append(body[_PART.size :])
        if len(parts) < count:
            self._parts = parts
            return None
        try:
            fence, full, cursors, deltas = msgpack.unpackb(b"".join(parts), strict_map_key=False)
            return self._first, Entry(Fence.unpack(fence), bool(full), dict(cursors), list(deltas))
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise _damaged(place) from error


def _sealed(items: list[Any]) -> bytes:
    return _with_head(_FENCES, msgpack.packb(items))


def _with_head(magic: bytes, body: bytes) -> bytes:
    return magic + _CRC.pack(zlib.crc32(body)) + body


def _opened(magic: bytes, message: bytes, place: str) -> bytes:
    begin = len(magic) + _CRC.size
    body = message[begin:]
    if message[: len(magic)] != magic or len(message) < begin:
        raise _damaged(place)
    if _CRC.unpack_from(message, len(magic))[0] != zlib.crc32(body):
        raise _damaged(place)
    return body


def _damaged(place: str) -> LogCorrupt:
    return LogCorrupt(
        f"a message of a Kafka sink's own topic is damaged, foreign, or of a newer version: {place}",
        hint="Only Clonos writes to that topic. Do not delete it while the query matters",
    )
