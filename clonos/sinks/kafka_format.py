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

A sink that writes at once has no transactions, so that messages of older writers may stand between its own
(`clonos.protocol.roles.append_order`), and says beforehand what it is about to write:

    message of an entry      "CLKE" | u8 2 | u32 CRC-32 of all but itself | fence | u64 number
                                    | u32 part | u32 parts | bytes
    the parts' bytes         MessagePack: [whether all cursors, {channel: position}, [delta, ...],
                             nil or [{channel: position that is reached}, partitions of the user's topic,
                             CRC-32 of how rows become messages]]
    message of a mark        the same, with number 0, of 0 parts

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
from clonos.protocol.roles.append_order import MARK, AppendOrder
from clonos.protocol.roles.fence_log import FenceLog, Offer, Raising, Recording, Taking, Trimming
from clonos.protocol.roles.sink_fence import Holder
from clonos.sinks.port import Cursors

_FENCES: Final = b"CLKF\x01"
_ENTRY: Final = b"CLKE\x01"
_APPENDED: Final = b"CLKE\x02"
_CRC: Final = struct.Struct("<I")
_PART: Final = struct.Struct("<II")
_APPENDED_PART: Final = struct.Struct("<16sQII")
LARGEST_PART: Final = 512 << 10
"""Bytes of an entry in one message: brokers take a megabyte unless told otherwise."""
_TAKING, _RAISING, _RECORDING, _TRIMMING, _STANDING = 1, 2, 3, 4, 5


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands before an offset of the fence log."""

    offset: int
    state: FenceLog


@dataclass(frozen=True, slots=True)
class Intent:
    """Rows that are about to be written, or have been: up to which cursors, how many partitions their topic has, and a
    number for how they become messages."""

    cursors: Cursors
    partitions: int
    layout: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What a sink instance has kept of one bundle. `full`: the cursors are all there are."""

    fence: Fence
    full: bool
    cursors: Cursors
    deltas: Sequence[bytes]
    intent: Intent | None = None
    """Of a sink that writes at once: what it wrote next. Its cursors are those before that."""
    appended: bool = False
    """Whether a sink that writes at once has written it."""


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


def pack_appended(entry: Entry, number: int) -> list[bytes]:
    """The messages of an entry of a sink that writes at once, in order; they take the numbers from `number` on."""
    intent = (
        None if entry.intent is None else [entry.intent.cursors, entry.intent.partitions, entry.intent.layout]
    )
    whole = msgpack.packb([entry.full, entry.cursors, list(entry.deltas), intent])
    parts = range(0, len(whole), LARGEST_PART)
    return [
        _appended(entry.fence, number + part, part, len(parts), whole[begin : begin + LARGEST_PART])
        for part, begin in enumerate(parts)
    ]


def pack_mark(fence: Fence, number: int = MARK) -> bytes:
    """A message that only says which fence stands from here on."""
    return _appended(fence, number, 0, 0, b"")


def _appended(fence: Fence, number: int, part: int, parts: int, content: bytes) -> bytes:
    return _with_head(_APPENDED, _APPENDED_PART.pack(fence.pack(), number, part, parts) + content)


def counted_by(message: bytes, place: str) -> tuple[Fence, int]:
    """Fence and number of a message of a sink that writes at once. Raises LogCorrupt."""
    body = _opened(_APPENDED, message, place)
    if len(body) < _APPENDED_PART.size:
        raise _damaged(place)
    fence, number, _, _ = _APPENDED_PART.unpack_from(body)
    return Fence.unpack(fence), number


class EntryReader:
    """Puts the messages of a sink instance's log together again. `place` names the partition, for errors."""

    def __init__(self, place: str, order: AppendOrder | None = None) -> None:
        self._place = place
        self._parts: list[bytes] = []
        self._first = -1
        self.order = AppendOrder() if order is None else order

    def take(self, offset: int, message: bytes) -> tuple[int, Entry] | None:
        """The entry that this message completes, and the offset of its first one. Raises LogCorrupt; the next entry
        can be read then."""
        place = f"{self._place}, offset {offset}"
        try:
            if message.startswith(_APPENDED):
                return self._take_appended(offset, _opened(_APPENDED, message, place), place)
            return self._take_committed(offset, _opened(_ENTRY, message, place), place)
        except (ValueError, TypeError, struct.error, msgpack.UnpackException) as error:
            self._parts = []
            raise _damaged(place) from error
        except LogCorrupt:
            self._parts = []
            raise

    def _take_committed(self, offset: int, body: bytes, place: str) -> tuple[int, Entry] | None:
        part, parts = _PART.unpack_from(body)
        whole = self._joined(offset, part, parts, body[_PART.size :], place)
        if whole is None:
            return None
        fence, full, cursors, deltas = msgpack.unpackb(whole, strict_map_key=False)
        return self._first, Entry(Fence.unpack(fence), bool(full), dict(cursors), list(deltas))

    def _take_appended(self, offset: int, body: bytes, place: str) -> tuple[int, Entry] | None:
        packed, number, part, parts = _APPENDED_PART.unpack_from(body)
        fence = Fence.unpack(packed)
        if not self.order.counts(fence, number) or parts == 0:
            return None
        whole = self._joined(offset, part, parts, body[_APPENDED_PART.size :], place)
        if whole is None:
            return None
        full, cursors, deltas, intent = msgpack.unpackb(whole, strict_map_key=False)
        intended = None if intent is None else Intent(dict(intent[0]), int(intent[1]), int(intent[2]))
        return self._first, Entry(fence, bool(full), dict(cursors), list(deltas), intended, appended=True)

    def _joined(self, offset: int, part: int, parts: int, content: bytes, place: str) -> bytes | None:
        """The parts that belong together, when the last of them has come."""
        before, self._parts = self._parts, []
        if part == 0:
            before, self._first = [], offset  # those of an entry that was not finished count for nothing
        if part != len(before) or part >= parts:
            raise _damaged(place)
        before.append(content)
        if len(before) < parts:
            self._parts = before
            return None
        return b"".join(before)


def _sealed(items: list[Any]) -> bytes:
    return _with_head(_FENCES, msgpack.packb(items))


def _with_head(magic: bytes, body: bytes) -> bytes:
    return magic + _CRC.pack(_checksum(magic, body)) + body


def _opened(magic: bytes, message: bytes, place: str) -> bytes:
    begin = len(magic) + _CRC.size
    body = message[begin:]
    if message[: len(magic)] != magic or len(message) < begin:
        raise _damaged(place)
    if _CRC.unpack_from(message, len(magic))[0] != _checksum(magic, body):
        raise _damaged(place)
    return body


def _checksum(magic: bytes, body: bytes) -> int:
    # That of version 2 tells a changed version, too.
    return zlib.crc32(body, zlib.crc32(magic) if magic == _APPENDED else 0)


def _damaged(place: str) -> LogCorrupt:
    return LogCorrupt(
        f"a message of a Kafka sink's own topic is damaged, foreign, or of a newer version: {place}",
        hint="Only Clonos writes to that topic. Do not delete it while the query matters",
    )
