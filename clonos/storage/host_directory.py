"""Checkpoint storage that is a directory of this host: files are handled by the operating system directly, so that an
immutable file can be shared by hard link instead of being copied."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from clonos.storage.durable_files import fsync_directory, make_directory, write_file
from clonos.storage.medium import TMP, chunks_of


class HostDirectory:
    """See `Medium`."""

    exclusive = True

    def __init__(self, root: str) -> None:
        self.local = root
        self._made: set[str] = set()

    def __str__(self) -> str:
        return self.local

    def _full(self, name: str) -> str:
        return os.path.join(self.local, name)

    def _make(self, *directories: str) -> None:
        for directory in directories:
            if directory not in self._made:
                make_directory(self._full(directory))
                self._made.add(directory)

    def sizes(self, directory: str) -> dict[str, int]:
        try:
            with os.scandir(self._full(directory)) as entries:
                return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def read(self, name: str) -> bytes:
        with open(self._full(name), "rb") as source:
            return source.read()

    def chunks(self, name: str) -> Iterator[bytes]:
        return chunks_of(open(self._full(name), "rb"))

    def write(self, name: str, data: bytes, temporary: str) -> None:
        self._make(TMP, os.path.dirname(name))
        write_file(self._full(temporary), data)
        self._move(temporary, name)

    def create(self, name: str, data: bytes, temporary: str) -> bool:
        self._make(TMP, os.path.dirname(name))
        written, target = self._full(temporary), self._full(name)
        write_file(written, data)
        try:
            os.link(written, target)  # whole, or not at all
        except FileExistsError:
            return False
        finally:
            os.unlink(written)
        fsync_directory(os.path.dirname(target))
        return True

    def put(self, source_path: str, name: str, temporary: str) -> None:
        self._make(TMP, os.path.dirname(name))
        target_path = self._full(temporary)
        if not _try_link(source_path, target_path):
            shutil.copyfile(source_path, target_path)
        _fsync(target_path)
        self._move(temporary, name)

    def _move(self, temporary: str, name: str) -> None:
        target = self._full(name)
        os.replace(self._full(temporary), target)
        fsync_directory(os.path.dirname(target))

    def sync(self, name: str) -> None:
        _fsync(self._full(name))
        fsync_directory(os.path.dirname(self._full(name)))

    def link(self, name: str, target_path: str) -> bool:
        return _try_link(self._full(name), target_path)

    def discard(self, temporary: str) -> None:
        self.delete(temporary)

    def delete(self, name: str) -> None:
        os.unlink(self._full(name))


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _try_link(source: str, target: str) -> bool:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        # Another device, a file system without links, or too many of them.
        return False
    return True
