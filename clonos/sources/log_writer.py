"""Writes and reads the embedded log.

A log is a directory with `_meta.json` (version, number of partitions) and one file `<n>.log` per partition. A file is
the magic `CLNSLOG1` followed by entries, little-endian:

    u32 length of the payload, u32 crc32(payload), i64 append time in microseconds since 1970, payload

The position of a record is the byte offset of its entry: it identifies the record for ever, because a file only ever
grows. Every entry is appended by one write, so what a crash can leave behind is an incomplete last entry. Readers
leave that alone; the next writer cuts it off before it appends. One writer at a time holds the directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from pathlib import Path
from types import TracebackType
from typing import Self

from clonos.errors import ConfigurationError, InputError, LogCorrupt
from clonos.storage.durable_files import replace_file

MAGIC = b"CLNSLOG1"
VERSION = 1
MAX_PAYLOAD = 128 << 20
_HEADER = struct.Struct("<IIq")
_META = "_meta.json"


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it lies in the log. `appended` is microseconds since 1970."""

    partition: int
    position: int
    appended: int
    payload: bytes


class LogWriter:
    """Appends records to a log, creating it where there is none. Use it as a context manager."""

    def __init__(self, path: str | os.PathLike[str], partitions: int | None = None) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path / "_lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._files: list[int] = []
        try:
            self._take_lock()
            self.partitions = self._open_meta(partitions)
            self._ends = [self._open_partition(number) for number in range(self.partitions)]
        except BaseException:
            self.close()
            raise

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                f"another writer holds the log {self.path}",
                hint="A log has one writer at a time; close the other one",
            ) from None

    def _open_meta(self, wanted: int | None) -> int:
        meta = self.path / _META
        if meta.exists():
            existing = partitions_of(self.path)
            if wanted not in (None, existing):
                raise ConfigurationError(
                    f"the log {self.path} has {existing} partitions, not {wanted}",
                    hint="The number of partitions is fixed when a log is created",
                )
            return existing
        if wanted is None or wanted < 1:
            raise ConfigurationError(
                f"the log {self.path} is new: it needs a number of partitions, at least 1"
            )
        replace_file(meta, (json.dumps({"version": VERSION, "partitions": wanted}) + "\n").encode())
        return wanted

    def _open_partition(self, number: int) -> int:
        path = self.path / f"{number}.log"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._files.append(file)
        size = os.fstat(file).st_size
        if size < len(MAGIC):
            if os.pread(file, size, 0) != MAGIC[:size]:
                raise LogCorrupt(f"{path} is not an embedded log")
            os.ftruncate(file, 0)
            os.write(file, MAGIC)
            return len(MAGIC)
        end = _end_of_last_entry(path)
        if end < size:
            os.ftruncate(file, end)
        return end

    def append(self, partition: int, payload: bytes) -> int:
        """Appends one record and returns its position."""
        return self.append_many(partition, [payload])[0]

    def append_many(self, partition: int, payloads: Sequence[bytes]) -> list[int]:
        """Appends records with one write and returns their positions."""
        if not 0 <= partition < self.partitions:
            raise InputError(f"the log {self.path} has partitions 0..{self.partitions - 1}, not {partition}")
        now = time.time_ns() // 1000
        lengths = list(map(len, payloads))
        if lengths and max(lengths) > MAX_PAYLOAD:
            raise InputError(
                f"a record of {max(lengths)} bytes; the log {self.path} takes up to {MAX_PAYLOAD}"
            )
        parts: list[bytes] = [b""] * (2 * len(lengths))
        parts[::2] = map(_HEADER.pack, lengths, map(zlib.crc32, payloads), repeat(now))
        parts[1::2] = payloads
        *positions, position = accumulate(
            (_HEADER.size + length for length in lengths), initial=self._ends[partition]
        )
        self._write(partition, b"".join(parts))
        self._ends[partition] = position
        return positions

    def _write(self, partition: int, data: bytes) -> None:
        file = self._files[partition]
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(file, left) :]
        except BaseException:
            os.ftruncate(file, self._ends[partition])
            raise

    def flush(self) -> None:
        """Forces what was appended to disk. Without it, records survive a crash of the process, not of the machine."""
        for file in self._files:
            os.fsync(file)

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def partitions_of(path: str | os.PathLike[str]) -> int:
    """The number of partitions of an existing log."""
    meta = Path(path) / _META
    try:
        body = json.loads(meta.read_text())
        version, partitions = body["version"], body["partitions"]
    except FileNotFoundError:
        raise ConfigurationError(f"there is no embedded log at {path}: {_META} is missing") from None
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


def _end_of_last_entry(path: Path) -> int:
    end = len(MAGIC)
    for position, _, payload in _entries(path, check=False):
        end = position + _HEADER.size + len(payload)
    return end


def _entries(path: Path, *, check: bool) -> Iterator[tuple[int, int, bytes]]:
    with path.open("rb") as file:
        magic = file.read(len(MAGIC))
        if len(magic) < len(MAGIC) and MAGIC.startswith(magic):
            return
        if magic != MAGIC:
            raise LogCorrupt(
                f"{path} is not an embedded log: it begins with other bytes than {MAGIC.decode()}"
            )
        position = len(MAGIC)
        while True:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return
            length, checksum, appended = _HEADER.unpack(header)
            if length > MAX_PAYLOAD:
                raise LogCorrupt(f"corrupt entry in {path} at offset {position}: length {length}")
            payload = file.read(length)
            if len(payload) < length:
                return
            if check and zlib.crc32(payload) != checksum:
                raise LogCorrupt(f"corrupt entry in {path} at offset {position}: its checksum does not fit")
            yield position, appended, payload
            position += _HEADER.size + length
