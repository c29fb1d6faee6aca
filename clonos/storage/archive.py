"""The archive of a query in its checkpoint: segments of what instances did, their state now and then, and programs.

    <checkpoint>/clonos/archive/segments/<node>/<instance>/<epoch>-<written at>-<fence>-<number>.segment
    <checkpoint>/clonos/archive/state/<node>/<instance>/                            as `storage.snapshots` has it
    <checkpoint>/clonos/archive/programs/<sha256>.program
    <checkpoint>/clonos/archive/cleaned/<node>-<instance>.json                      where a key was erased from states
    <checkpoint>/clonos/archive/erasure.json                                        while epochs are erased
    <checkpoint>/clonos/archive/keys/<id>.encrypted                                 of each key that has encrypted files

Where the query has keys for it, all these files are encrypted (`encrypted_medium`).

A segment:

    "CLAS" | sealed payload: u8 1, u32 CRC-32, u32 length of the head | head, as `values` encodes it | blocks

The blocks, each behind its length (u32), are compressed together (Zstandard, by Arrow), and so are the entries of the
lineage, where it was recorded (`protocol.archive.step_lineage`). A program is what replicas are
told of an operator, with the user's function in it, pickled as Spark ships functions, behind "CLAP" and a seal.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from clonos.errors import ConfigurationError, LogCorrupt, StateError
from clonos.protocol.archive.archive_segment import ArchiveSegment, EpochEnded
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.storage.archive_keys import NO_KEYS, VARIABLE, ArchiveKeys
from clonos.storage.encrypted_medium import Encryption
from clonos.storage.folder import Folder, resolve
from clonos.storage.sealed import sealed, unsealed
from clonos.storage.snapshots import SnapshotStore
from clonos.values import state_codec as values
from clonos.values.sealed_value import seal, unseal

FOLDER: Final = "clonos/archive"
SEGMENT_MAGIC: Final = b"CLAS"
PROGRAM_MAGIC: Final = b"CLAP"
_VERSION: Final = 1
_CODEC: Final = "zstd"
_LENGTH: Final = struct.Struct("<I")
_NAME: Final = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{32})-(\d{8})\.segment")
_SUFFIX: Final = ".program"
_KEYS: Final = "keys"
_ERASURE: Final = "erasure.json"


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """Its file's, by which the segments of an instance are in the order of epochs, and in each in that of time."""

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
        return cls(Epoch(int(epoch)), int(at), Fence(int(fence, 16)), int(number))


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
        }
    )
    packed = pa.compress(body, codec=_CODEC, asbytes=True) if body else b""
    return SEGMENT_MAGIC + seal(_LENGTH.pack(len(head)) + head + packed, SEGMENT_MAGIC)


def decode_segment(raw: bytes, where: str) -> ArchiveSegment:
    """Raises LogCorrupt."""
    payload = _unsealed(raw, SEGMENT_MAGIC, where)
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


def _unsealed(raw: bytes, magic: bytes, where: str) -> bytes:
    if not raw.startswith(magic):
        raise LogCorrupt(f"{where} does not begin as a file of an archive does")
    return unseal(raw[len(magic) :], magic, what=where, corrupt=LogCorrupt)


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


class Archive:
    """See the module. For one writer for each instance, and any readers."""

    def __init__(self, checkpoint: str, *, tag: str = "archive", keys: ArchiveKeys = NO_KEYS) -> None:
        filesystem, root = resolve(checkpoint)
        self._root = f"{root.rstrip('/')}/{FOLDER}"
        self._folder = Folder(filesystem, self._root, tag=tag, encryption=Encryption(keys, LogCorrupt))
        self._checkpoint = checkpoint.rstrip("/")
        self._keys = keys

    def states(
        self, origin: Origin, *, fence: Fence = LOWEST_FENCE, pending: str | None = None
    ) -> SnapshotStore:
        """The archived states of an instance; to look at, unless there is a fence."""
        root = f"{self._checkpoint}/{FOLDER}/state/{origin.node}/{origin.instance}"
        return SnapshotStore(root, fence=fence, pending=pending, keys=self._keys)

    # keys

    def begin_writing(self) -> None:
        """Before a query leaves anything. Raises ConfigurationError where it would be readable beside what has been
        encrypted."""
        if (key := self._keys.writing) is None:
            if used := self._keys_used():
                raise ConfigurationError(
                    f"the archive in {self._root} is encrypted with the key {used[0]}, and the query has no key for it",
                    hint="Set spark.clonos.archive.keyFile, or, to go on with another archive, which is not encrypted, "
                    f"move {self._root} away",
                )
        elif key.id.hex() not in self._keys_used():
            self._folder.write(f"{_KEYS}/{key.id.hex()}", b"")

    def check_keys(self) -> None:
        """Raises ConfigurationError where what is in the archive is encrypted, and no key for it is given here."""
        used = self._keys_used()
        if used and not any(self._keys.find(bytes.fromhex(key_id)) for key_id in used):
            raise ConfigurationError(
                f"the archive in {self._root} is encrypted with a key that is not given here ({' or '.join(used)})",
                hint=f"Name the file with the key: {VARIABLE}=/path/of/the/file clonos ...; in a job, set "
                "spark.clonos.archive.keyFile",
            )

    def _keys_used(self) -> list[str]:
        return sorted(self._folder.sizes(_KEYS))

    # segments

    def write(self, segment: ArchiveSegment) -> int:
        """Make it durable; its bytes."""
        raw = encode_segment(segment)
        name = SegmentName(segment.epoch, segment.written_at, segment.fence, segment.number)
        self._folder.write(f"{_place(segment.origin)}/{name}", raw)
        return len(raw)

    def names(self, origin: Origin) -> dict[SegmentName, int]:
        """The segments of an instance in order, with their bytes."""
        sizes = self._folder.sizes(_place(origin))
        return {name: sizes[str(name)] for name in sorted(filter(None, map(SegmentName.parse, sizes)))}

    def read(self, origin: Origin, names: Sequence[SegmentName]) -> Iterator[ArchiveSegment]:
        """Those of them that are still there. Raises LogCorrupt."""
        for name in names:
            path = f"{_place(origin)}/{name}"
            try:
                raw = self._folder.read(path)
            except FileNotFoundError:
                continue
            yield decode_segment(raw, self._folder.path(path))

    def drop(self, origin: Origin, names: Sequence[SegmentName]) -> None:
        for name in names:
            self._folder.delete(f"{_place(origin)}/{name}")

    # what is being erased

    def write_erasure(self, parts: Iterable[tuple[Origin, Epoch]]) -> None:
        """Which epochs of which instances are about to be erased: whatever ends the process, the next one goes on."""
        said = [[*origin, epoch] for origin, epoch in parts]
        self._folder.write(_ERASURE, sealed({"parts": said}))

    def erasure(self) -> list[tuple[Origin, Epoch]]:
        """What an erasure that was begun had to erase; nothing where none was. Raises CheckpointMismatch."""
        try:
            raw = self._folder.read(_ERASURE)
        except FileNotFoundError:
            return []
        parts = unsealed(raw, self._folder.path(_ERASURE))["parts"]
        return [(Origin.of(node, instance), Epoch(epoch)) for node, instance, epoch in parts]

    def cleaned_upto(self, origin: Origin) -> list[Epoch]:
        """Up to which epochs states of an instance may lack a key that was erased (`protocol.archive.erasure`). Raises
        CheckpointMismatch."""
        path = _cleaned(origin)
        try:
            raw = self._folder.read(path)
        except FileNotFoundError:
            return []
        return [Epoch(each) for each in unsealed(raw, self._folder.path(path))["upto"]]

    def note_cleaned(self, origin: Origin, upto: Epoch) -> None:
        """Before a key is taken out of a state."""
        known = self.cleaned_upto(origin)
        if upto not in known:
            self._folder.write(_cleaned(origin), sealed({"upto": sorted([*known, upto])}))

    def end_erasure(self) -> None:
        self._folder.delete(_ERASURE)

    # programs

    def has_program(self, digest: str) -> bool:
        return f"{digest}{_SUFFIX}" in self._folder.stored_alike("programs")

    def write_program(self, digest: str, raw: bytes) -> None:
        self._folder.write(f"programs/{digest}{_SUFFIX}", PROGRAM_MAGIC + seal(raw, PROGRAM_MAGIC))

    def program(self, digest: str) -> bytes | None:
        """None where it is not there. Raises LogCorrupt."""
        path = f"programs/{digest}{_SUFFIX}"
        try:
            raw = self._folder.read(path)
        except FileNotFoundError:
            return None
        return _unsealed(raw, PROGRAM_MAGIC, self._folder.path(path))


def _cleaned(origin: Origin) -> str:
    return f"cleaned/{origin.node}-{origin.instance}.json"


def _place(origin: Origin) -> str:
    return f"segments/{origin.node}/{origin.instance}"
