"""Logs of events as files of a directory of this host, or of one that this host has mounted."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from clonos.errors import SnapshotCorrupt
from clonos.storage.disk_errors import disk, raise_mapped
from clonos.storage.durable_files import fsync_directory, make_directory


class EventFiles:
    """See `EventMedium`. The directory comes to be with the first log."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._open: tuple[str, int] | None = None  # the log that is being appended to, and its descriptor
        self._is_named = False  # durably

    def __str__(self) -> str:
        return self._directory

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()

    def logs(self) -> dict[str, int]:
        with self._disk("listing", self._directory):
            try:
                with os.scandir(self._directory) as entries:
                    return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
            except FileNotFoundError:
                return {}

    def read(self, log: str, at: int, upto: int | None = None) -> bytes:
        path = self._path(log)
        with self._looking("reading", path), open(path, "rb") as source:
            source.seek(at)
            return source.read() if upto is None else source.read(upto - at)

    def append(self, log: str, at: int, data: bytes) -> None:
        path = self._path(log)
        with self._lock, self._disk("writing", path):
            file = self._opened(log)
            if os.fstat(file).st_size > at:
                os.ftruncate(file, at)  # of an attempt that failed
            written = 0
            while written < len(data):
                written += os.pwrite(file, data[written:], at + written)
            os.fdatasync(file)
            if not self._is_named:
                fsync_directory(self._directory)
                self._is_named = True

    def sync(self, log: str) -> None:
        path = self._path(log)
        with self._looking("syncing", path):
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(file)
            finally:
                os.close(file)
            fsync_directory(self._directory)

    def delete(self, log: str) -> None:
        path = self._path(log)
        with self._lock, self._disk("removing", path):
            if self._open is not None and self._open[0] == log:
                self.close()
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _path(self, log: str) -> str:
        return os.path.join(self._directory, log)

    def _opened(self, log: str) -> int:
        if self._open is None or self._open[0] != log:
            self.close()
            make_directory(self._directory)
            file = os.open(self._path(log), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
            self._open, self._is_named = (log, file), False
        return self._open[1]

    def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            os.close(opened[1])

    @contextmanager
    def _disk(self, doing: str, path: str) -> Iterator[None]:
        with disk(f"{doing} {path}", corrupt=SnapshotCorrupt):
            yield

    @contextmanager
    def _looking(self, doing: str, path: str) -> Iterator[None]:
        """As `_disk`, but a log that is not there is the caller's business."""
        try:
            yield
        except FileNotFoundError:
            raise
        except Exception as error:
            raise_mapped(error, f"{doing} {path}", corrupt=SnapshotCorrupt)
