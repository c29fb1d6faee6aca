"""Checkpoint storage on a file system that PyArrow opens and that moves files, such as HDFS.

It may write over a file that is there without saying so: names that must be given once have to be such that no other
process gives them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import fs

from clonos.storage.medium import TMP, chunks_of


class ArrowDirectory:
    """See `Medium`."""

    local = None
    exclusive = False

    def __init__(self, filesystem: fs.FileSystem, root: str) -> None:
        self._fs = filesystem
        self._root = root
        self._made: set[str] = set()

    def __str__(self) -> str:
        return f"{self._fs.type_name}:{self._root}"

    def _full(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _make(self, *directories: str) -> None:
        for directory in directories:
            if directory not in self._made:
                self._fs.create_dir(self._full(directory), recursive=True)
                self._made.add(directory)

    def sizes(self, directory: str) -> dict[str, int]:
        selector = fs.FileSelector(self._full(directory), allow_not_found=True)
        try:
            found = self._fs.get_file_info(selector)
        except FileNotFoundError:
            # Arrow lists a directory, and looks whether it is there if that fails: it was made in between.
            found = self._fs.get_file_info(selector)
        return {info.base_name: info.size for info in found if info.type == fs.FileType.File}

    def read(self, name: str) -> bytes:
        with self._fs.open_input_stream(self._full(name), compression=None) as stream:
            data: bytes = stream.read()
            return data

    def chunks(self, name: str) -> Iterator[bytes]:
        return chunks_of(self._fs.open_input_stream(self._full(name), compression=None))

    def write(self, name: str, data: bytes, temporary: str) -> None:
        self._make(TMP, os.path.dirname(name))
        with self._fs.open_output_stream(self._full(temporary), compression=None) as stream:
            stream.write(data)
        self._move(temporary, name)

    def create(self, name: str, data: bytes, temporary: str) -> bool:
        self.write(name, data, temporary)
        return True

    def put(self, source_path: str, name: str, temporary: str) -> None:
        self._make(TMP, os.path.dirname(name))
        with (
            open(source_path, "rb") as source,
            self._fs.open_output_stream(self._full(temporary), compression=None) as stream,
        ):
            for chunk in chunks_of(source):
                stream.write(chunk)
        self._move(temporary, name)

    def _move(self, temporary: str, name: str) -> None:
        try:
            self._fs.move(self._full(temporary), self._full(name))
        except (OSError, pa.ArrowException):
            # Some storage (HDFS) does not move over a file that is there.
            if self._fs.get_file_info(self._full(name)).type != fs.FileType.File:
                raise
            self._fs.delete_file(self._full(name))
            self._fs.move(self._full(temporary), self._full(name))

    def sync(self, name: str) -> None:
        """Nothing: a file is durable when its writer has closed it."""

    def link(self, name: str, target_path: str) -> bool:
        return False

    def discard(self, temporary: str) -> None:
        self.delete(temporary)

    def delete(self, name: str) -> None:
        self._fs.delete_file(self._full(name))
