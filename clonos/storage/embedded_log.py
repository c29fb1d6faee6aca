"""The embedded log on disk.

A log is a directory with `_meta.json` (version, number of partitions) and one file `<n>.log` per partition. A file is
the magic `CLNSLOG1` followed by entries, little-endian:

    u32 length of the payload, u32 crc32(payload), i64 append time in microseconds since 1970, payload

The position of a record is the byte offset of its entry: it identifies the record for ever, because a file only ever
grows. What a crash can leave behind is an incomplete last entry, or zeros after a power failure; readers leave that
alone.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from clonos.errors import ConfigurationError, InputError, LogCorrupt
from clonos.json_text import parsed_json
from clonos.storage.durable_files import replace_file

MAGIC = b"CLNSLOG1"
VERSION = 1
MAX_PAYLOAD = 128 << 20
ENTRY_HEADER = struct.Struct("<IIq")
META = "_meta.json"
_NOT_WRITTEN = bytes(ENTRY_HEADER.size)
"""What a power failure leaves where bytes were not yet on the disk. No entry was appended in 1970."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it lies in the log. `appended` is microseconds since 1970."""

    partition: int
    position: int
    appended: int
    payload: bytes


def encode_entries(payloads: Sequence[bytes], appended: int) -> bytes:
    """The bytes of entries, appended at a time in microseconds since 1970. Raises InputError where one is too large."""
    lengths = list(map(len, payloads))
    if lengths and max(lengths) > MAX_PAYLOAD:
        raise InputError(f"a record of {max(lengths)} bytes; an embedded log takes up to {MAX_PAYLOAD}")
    parts: list[bytes] = [b""] * (2 * len(lengths))
    parts[::2] = map(ENTRY_HEADER.pack, lengths, map(zlib.crc32, payloads), repeat(appended))
    parts[1::2] = payloads
    return b"".join(parts)


def create_log(path: str | os.PathLike[str], partitions: int) -> None:
    """An empty log where there is none. Raises ConfigurationError where there is one of other partitions."""
    if (Path(path) / META).exists():
        existing = partitions_of(path)
        if existing != partitions:
            raise other_partitions(path, existing, partitions)
        return
    Path(path).mkdir(parents=True, exist_ok=True)
    meta = {"version": VERSION, "partitions": partitions}
    replace_file(Path(path) / META, (json.dumps(meta) + "\n").encode())


def other_partitions(path: str | os.PathLike[str], existing: int, wanted: int | None) -> ConfigurationError:
    return ConfigurationError(
        f"the log {path} has {existing} partitions, not {wanted}",
        hint="The number of partitions is fixed when a log is created",
    )


def partitions_of(path: str | os.PathLike[str]) -> int:
    """The number of partitions of an existing log."""
    meta = Path(path) / META
    try:
        body = parsed_json(meta.read_text())
        version, partitions = body["version"], body["partitions"]
    except FileNotFoundError:
        raise ConfigurationError(f"there is no embedded log at {path}: {META} is missing") from None
    except (ValueError, KeyError, TypeError) as error:
        raise LogCorrupt(f"{meta} cannot be read: {error}") from error
    if version != VERSION or not isinstance(partitions, int) or partitions < 1:
        raise LogCorrupt(
            f"{meta} has version {version} and {partitions} partitions; this is version {VERSION}"
        )
    return partitions


def read(path: str | os.PathLike[str], partition: int) -> Iterator[Record]:
    """The records of a partition that are complete now, in order."""
    file_path = Path(path) / f"{partition}.log"
    for position, appended, payload in _entries(file_path, check=True):
        yield Record(partition, position, appended, payload)


def read_from(path: Path, position: int, until: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The complete entries of one file from a position on: where each ends, and its payload. What lies before is not
    looked at, nor what ends behind `until`."""
    for begin, _, payload in _entries(path, check=True, position=position):
        end = begin + ENTRY_HEADER.size + len(payload)
        if until is not None and end > until:
            return
        yield end, payload


def end_of_last_entry(path: Path) -> int:
    end = len(MAGIC)
    for position, _, payload in _entries(path, check=False):
        end = position + ENTRY_HEADER.size + len(payload)
    return end


def _entries(path: Path, *, check: bool, position: int = len(MAGIC)) -> Iterator[tuple[int, int, bytes]]:
    if not path.exists():  # nothing has been appended to the partition
        return
    with path.open("rb") as file:
        magic = file.read(len(MAGIC))
        if len(magic) < len(MAGIC) and MAGIC.startswith(magic):
            return
        if magic != MAGIC:
            raise LogCorrupt(
                f"{path} is not an embedded log: it begins with other bytes than {MAGIC.decode()}"
            )
        file.seek(position)
        while True:
            header = file.read(ENTRY_HEADER.size)
            if len(header) < ENTRY_HEADER.size or header == _NOT_WRITTEN:
                return
            length, checksum, appended = ENTRY_HEADER.unpack(header)
            if length > MAX_PAYLOAD:
                raise LogCorrupt(f"corrupt entry in {path} at offset {position}: length {length}")
            payload = file.read(length)
            if len(payload) < length:
                return
            if check and zlib.crc32(payload) != checksum:
                raise LogCorrupt(f"corrupt entry in {path} at offset {position}: its checksum does not fit")
            yield position, appended, payload
            position += ENTRY_HEADER.size + length
