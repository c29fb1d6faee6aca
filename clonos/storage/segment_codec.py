"""The bytes of a segment of the archive:

    "CLAS" | sealed payload: u8 1, u32 CRC-32, u32 length of the head | head, as `values` encodes it | blocks

The blocks, each behind its length (u32), are compressed together (Zstandard, by Arrow), and so are the entries of the
lineage, where it was recorded (`protocol.archive.step_lineage`).
"""

from __future__ import annotations

import struct
from typing import Any, Final

import pyarrow as pa

from clonos.errors import LogCorrupt, StateError
from clonos.protocol.archive.archive_segment import ArchiveSegment, Began, EpochEnded, RanOn
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.values import state_codec as values
from clonos.values.sealed_value import seal, unseal

SEGMENT_MAGIC: Final = b"CLAS"
_VERSION: Final = 1
_CODEC: Final = "zstd"
_LENGTH: Final = struct.Struct("<I")


def encode_segment(segment: ArchiveSegment) -> bytes:
    body = b"".join(part for block in segment.blocks for part in (_LENGTH.pack(len(block)), block))
    head = values.encode(
        {
            "version": _VERSION,
            "origin": [segment.origin.node, segment.origin.instance],
            "epoch": segment.epoch,
            "fence": Fence(segment.fence).text,
            "number": segment.number,
            "written_at": segment.written_at,
            "realtime": segment.realtime,
            "program": segment.program,
            "code": segment.code,
            "intercept": segment.intercept,
            "epoch_start": segment.epoch_start,
            "log_start": segment.log_start,
            "log": segment.log,
            "ended": None if segment.ended is None else [segment.ended.log_end, segment.ended.emitted_output],
            **({} if segment.erased_at is None else {"erased_at": segment.erased_at}),
            "blocks": len(segment.blocks),
            "bytes": len(body),
            **_lineage_said(segment.lineage),
            **_process_said(segment.ran_on),
            **_beginning_said(segment.began),
        }
    )
    packed = pa.compress(body, codec=_CODEC, asbytes=True) if body else b""
    return SEGMENT_MAGIC + seal(_LENGTH.pack(len(head)) + head + packed, SEGMENT_MAGIC)


def decode_segment(raw: bytes, where: str) -> ArchiveSegment:
    """Raises LogCorrupt."""
    payload = unsealed_file(raw, SEGMENT_MAGIC, where)
    try:
        (length,) = _LENGTH.unpack_from(payload)
        said: dict[str, Any] = values.decode(payload[_LENGTH.size : _LENGTH.size + length])
        if said["version"] != _VERSION:
            raise LogCorrupt(f"{where} has version {said['version']}; this library reads {_VERSION}")
        packed = payload[_LENGTH.size + length :]
        body = pa.decompress(packed, said["bytes"], codec=_CODEC, asbytes=True) if packed else b""
        ended = said["ended"]
        node, instance = said["origin"]
        return ArchiveSegment(
            origin=Origin.of(node, instance),
            epoch=Epoch(said["epoch"]),
            fence=Fence(int(said["fence"], 16)),
            number=said["number"],
            written_at=said["written_at"],
            realtime=said["realtime"],
            program=said["program"],
            code=said["code"],
            intercept=said["intercept"],
            epoch_start=LogOffset(said["epoch_start"]),
            log_start=LogOffset(said["log_start"]),
            log=said["log"],
            blocks=_blocks(body, said["blocks"]),
            ended=None if ended is None else EpochEnded(LogOffset(ended[0]), OutputNumber(ended[1])),
            erased_at=said.get("erased_at"),
            lineage=_lineage_of(said),
            ran_on=_process_of(said),
            began=_beginning_of(said),
        )
    except (KeyError, TypeError, ValueError, struct.error, pa.ArrowException, OSError, StateError) as error:
        raise LogCorrupt(f"{where} cannot be read: {error}") from error


def _lineage_said(lineage: bytes | None) -> dict[str, Any]:
    """Of a segment's head; nothing where none was recorded, as in those of older versions."""
    if lineage is None:
        return {}
    packed = pa.compress(lineage, codec=_CODEC, asbytes=True) if lineage else b""
    return {"lineage": [len(lineage), packed]}


def _lineage_of(said: dict[str, Any]) -> bytes | None:
    if "lineage" not in said:
        return None
    size, packed = said["lineage"]
    unpacked: bytes = pa.decompress(packed, size, codec=_CODEC, asbytes=True) if packed else b""
    if len(unpacked) != size:
        raise ValueError(f"a lineage of {size} bytes has {len(unpacked)}")
    return unpacked


def _process_said(ran_on: RanOn | None) -> dict[str, Any]:
    """Nothing where it is not known, as in segments of older versions."""
    return {} if ran_on is None else {"ran_on": [ran_on.host, ran_on.pid, ran_on.since]}


def _process_of(said: dict[str, Any]) -> RanOn | None:
    if "ran_on" not in said:
        return None
    host, pid, since = said["ran_on"]
    return RanOn(host, pid, LogOffset(since))


def _beginning_said(began: Began | None) -> dict[str, Any]:
    """Nothing where it is not known, as in segments of older versions."""
    return {} if began is None else {"began": [] if began.inside is None else [began.inside]}


def _beginning_of(said: dict[str, Any]) -> Began | None:
    return Began(*map(LogOffset, said["began"])) if "began" in said else None


def _blocks(body: bytes, count: int) -> tuple[bytes, ...]:
    found, at = [], 0
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if at + length > len(body):
            raise ValueError(f"a block of {length} bytes is cut off")
        found.append(body[at : at + length])
        at += length
    return tuple(found)


def unsealed_file(raw: bytes, magic: bytes, where: str) -> bytes:
    """What is in a file of an archive that begins with `magic`. Raises LogCorrupt."""
    if not raw.startswith(magic):
        raise LogCorrupt(f"{where} does not begin as a file of an archive does")
    return unseal(raw[len(magic) :], magic, what=where, corrupt=LogCorrupt)
