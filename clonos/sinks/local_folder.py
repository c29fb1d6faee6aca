"""The files that a sink keeps beside its data, in a local or shared folder; see `clonos.sinks.kept_records`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from clonos.storage.durable_files import fsync_directory, make_directory, write_file


class LocalFolder:
    """See `clonos.sinks.kept_records.Folder`. `durable`: files survive a power failure when they are written."""

    def __init__(self, path: str, *, durable: bool) -> None:
        self._path, self._durable = path, durable

    def __str__(self) -> str:
        return self._path

    def read(self, names: list[str]) -> Iterator[bytes]:
        for name in names:
            with open(os.path.join(self._path, name), "rb") as file:
                yield file.read()

    def write(self, name: str, content: bytes) -> None:
        if not os.path.isdir(self._path):
            make_directory(self._path) if self._durable else os.makedirs(self._path, exist_ok=True)
        write_file(os.path.join(self._path, name), content, durable=self._durable)
        if self._durable:
            fsync_directory(self._path)

    def remove(self, names: list[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self._path, name))

    def names(self) -> list[str]:
        return os.listdir(self._path) if os.path.isdir(self._path) else []
