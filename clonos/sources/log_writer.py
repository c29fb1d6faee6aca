"""Writes the embedded log (`clonos.storage.embedded_log`).

Every entry is appended by one write, so what a crash can leave behind is an incomplete last entry, which the next
writer cuts off before it appends. One writer at a time holds the directory.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Self

from clonos.errors import ConfigurationError, InputError, LogCorrupt
from clonos.storage.embedded_log import (
    ENTRY_HEADER,
    MAGIC,
    META,
    create_log,
    encode_entries,
    end_of_last_entry,
    other_partitions,
    partitions_of,
)


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
        meta = self.path / META
        if meta.exists():
            existing = partitions_of(self.path)
            if wanted not in (None, existing):
                raise other_partitions(self.path, existing, wanted)
            return existing
        if wanted is None or wanted < 1:
            raise ConfigurationError(
                f"the log {self.path} is new: it needs a number of partitions, at least 1"
            )
        create_log(self.path, wanted)
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
        end = end_of_last_entry(path)
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
        data = encode_entries(payloads, time.time_ns() // 1000)
        *positions, position = accumulate(
            (ENTRY_HEADER.size + len(payload) for payload in payloads), initial=self._ends[partition]
        )
        self._write(partition, data)
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
