"""One directory of checkpoint storage, on any `pyarrow.fs` file system.

Every file appears under its name at once and whole: it is written under `tmp/`, made durable where this host can do
that, and moved. Where the storage is a directory of this host the files are handled by the operating system directly,
so that an immutable file can be shared by hard link instead of being copied.

Names are relative, with "/" between their parts.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from clonos.errors import ClonosError, ConfigurationError, StorageUnavailable
from clonos.storage.disk_errors import disk, unavailable
from clonos.storage.durable_files import fsync_directory, make_directory, write_file
from clonos.storage.location import on_this_host, parts_of

TMP: Final = "tmp"
_CHUNK: Final = 1024 * 1024
# Spark's names for file systems that Arrow knows under another.
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "abfss": "abfs"}


def resolve(location: str) -> tuple[fs.FileSystem, str]:
    """The file system and path of a Spark checkpoint location. Raises ConfigurationError."""
    local = on_this_host(location)
    if local is not None:
        return fs.LocalFileSystem(), local
    scheme, _, rest = location.partition(":")
    authority, path = parts_of(rest.rstrip("/"))
    uri = f"{_SCHEMES.get(scheme.lower(), scheme.lower())}:{authority}{quote(path)}"
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)  # which takes escapes for what they stand for
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ConfigurationError(
            f"the checkpoint location {location!r} cannot be used: {error}",
            hint="Use a path, or a URI that pyarrow.fs.FileSystem.from_uri takes",
        ) from error
    return filesystem, path


def local_root(filesystem: fs.FileSystem, path: str) -> str | None:
    """Where `path` lies in this host's own file system, if it does."""
    while isinstance(filesystem, fs.SubTreeFileSystem):
        path = filesystem.base_path.rstrip("/") + "/" + path.lstrip("/")
        filesystem = filesystem.base_fs
    return path if isinstance(filesystem, fs.LocalFileSystem) else None


def hash_file(path: str) -> tuple[int, bytes]:
    """Size and SHA-256 of a local file."""
    with open(path, "rb") as source:
        digest = hashlib.file_digest(source, "sha256").digest()
        return source.tell(), digest


class Folder:
    """See the module. `tag` begins this writer's temporary names."""

    def __init__(self, filesystem: fs.FileSystem, root: str, *, tag: str) -> None:
        self._fs = filesystem
        self._root = root.rstrip("/")
        self.tag = tag
        self._numbers = itertools.count()
        self._made: set[str] = set()
        self.local = local_root(filesystem, self._root)

    def __str__(self) -> str:
        return f"{self._fs.type_name}:{self._root}" if self.local is None else self.local

    def path(self, name: str) -> str:
        """The path of `name` as messages show it."""
        return f"{self}/{name}"

    @contextmanager
    def _storing(self, doing: str, name: str) -> Iterator[None]:
        try:
            yield
        except ClonosError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise unavailable(error, f"{doing} {self.path(name)}") from error

    @contextmanager
    def _looking(self, doing: str, name: str) -> Iterator[None]:
        """As `_storing`, but a file that is not there is the caller's business."""
        with self._storing(doing, name):
            try:
                yield
            except (FileNotFoundError, NotADirectoryError) as error:
                missing = error
            else:
                return
        raise FileNotFoundError(*missing.args) from missing

    def _full(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _make(self, directory: str) -> None:
        if directory not in self._made:
            if self.local is None:
                self._fs.create_dir(self._full(directory), recursive=True)
            else:
                make_directory(os.path.join(self.local, directory))
            self._made.add(directory)

    def _temporary(self) -> str:
        return f"{TMP}/{self.tag}-{next(self._numbers)}"

    def sizes(self, directory: str) -> dict[str, int]:
        """Names directly in `directory` with their sizes; empty where it does not exist."""
        with self._looking("listing", directory):
            if self.local is not None:
                try:
                    with os.scandir(os.path.join(self.local, directory)) as entries:
                        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
                except (FileNotFoundError, NotADirectoryError):
                    return {}
            selector = fs.FileSelector(self._full(directory), allow_not_found=True)
            found = self._fs.get_file_info(selector)
            return {info.base_name: info.size for info in found if info.type == fs.FileType.File}

    def read(self, name: str) -> bytes:
        """A small file, whole. `FileNotFoundError` if there is none."""
        with self._looking("reading", name):
            if self.local is not None:
                with open(os.path.join(self.local, name), "rb") as source:
                    return source.read()
            with self._fs.open_input_stream(self._full(name), compression=None) as stream:
                data: bytes = stream.read()
                return data

    def write(self, name: str, data: bytes) -> None:
        """Make `data` appear under `name`, durably."""
        temporary = self._temporary()
        with self._storing("writing", name), self._leaving_nothing(temporary):
            self._make(TMP)
            self._make(os.path.dirname(name))
            if self.local is not None:
                write_file(os.path.join(self.local, temporary), data)
            else:
                with self._fs.open_output_stream(self._full(temporary), compression=None) as stream:
                    stream.write(data)
            self._move(temporary, name)

    def create(self, name: str, data: bytes) -> bool:
        """As `write`, but False where this host's file system says that the file is there. Other storage may not say
        so, and writes over it: there, give names that no other process gives."""
        if self.local is None:
            self.write(name, data)
            return True
        temporary = self._temporary()
        target = os.path.join(self.local, name)
        with self._storing("creating", name), self._leaving_nothing(temporary):
            self._make(TMP)
            self._make(os.path.dirname(name))
            written = os.path.join(self.local, temporary)
            write_file(written, data)
            try:
                os.link(written, target)  # whole, or not at all
            except FileExistsError:
                return False
            finally:
                os.unlink(written)
            fsync_directory(os.path.dirname(target))
        return True

    def sync(self, name: str) -> None:
        """Make a file that another process wrote durable, and its name, where this host can do that."""
        if self.local is None:
            return
        with self._looking("syncing", name):
            descriptor = os.open(os.path.join(self.local, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            fsync_directory(os.path.dirname(os.path.join(self.local, name)))

    def put(self, source_path: str, name: str) -> None:
        """Make the local file appear under `name`, durably: the same file where it can be, else a copy."""
        temporary = self._temporary()
        with self._storing("writing", name), self._leaving_nothing(temporary):
            self._make(TMP)
            self._make(os.path.dirname(name))
            if self.local is not None:
                target_path = os.path.join(self.local, temporary)
                if not _try_link(source_path, target_path):
                    shutil.copyfile(source_path, target_path)
                descriptor = os.open(target_path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            else:
                with (
                    open(source_path, "rb") as source,
                    self._fs.open_output_stream(self._full(temporary), compression=None) as stream,
                ):
                    while chunk := source.read(_CHUNK):
                        stream.write(chunk)
            self._move(temporary, name)

    def _move(self, temporary: str, name: str) -> None:
        if self.local is not None:
            target = os.path.join(self.local, name)
            os.replace(os.path.join(self.local, temporary), target)
            fsync_directory(os.path.dirname(target))
            return
        try:
            self._fs.move(self._full(temporary), self._full(name))
        except (OSError, pa.ArrowException):
            # Some storage (HDFS) does not move over a file that is there.
            if self._fs.get_file_info(self._full(name)).type != fs.FileType.File:
                raise
            self._fs.delete_file(self._full(name))
            self._fs.move(self._full(temporary), self._full(name))

    @contextmanager
    def _leaving_nothing(self, temporary: str) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # What cannot be removed now is swept by the next incarnation.
            with suppress(OSError, pa.ArrowException):
                self._remove(temporary)
            raise

    def fetch(self, name: str, target_path: str) -> tuple[int, bytes]:
        """Copy a file to a new local path; its size and SHA-256. `FileNotFoundError` if there is none."""
        digest = hashlib.sha256()
        size = 0
        with self._looking("reading", name):
            source = self._open(name)
        with (
            source,
            disk(f"writing {target_path}", corrupt=StorageUnavailable),
            open(target_path, "xb") as target,
        ):
            while chunk := self._chunk(source, name):
                digest.update(chunk)
                size += target.write(chunk)
        return size, digest.digest()

    def _chunk(self, source: Any, name: str) -> bytes:
        with self._looking("reading", name):
            chunk: bytes = source.read(_CHUNK)
        return chunk

    def _open(self, name: str) -> Any:
        if self.local is not None:
            return open(os.path.join(self.local, name), "rb")
        return self._fs.open_input_stream(self._full(name), compression=None)

    def link(self, name: str, target_path: str) -> bool:
        """Make the same file appear at a local path; False where that is not possible."""
        if self.local is None:
            return False
        with self._looking("linking", name):
            return _try_link(os.path.join(self.local, name), target_path)

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens if there is none."""
        with self._storing("removing", name):
            self._remove(name)

    def _remove(self, name: str) -> None:
        try:
            if self.local is not None:
                os.unlink(os.path.join(self.local, name))
            else:
                self._fs.delete_file(self._full(name))
        except FileNotFoundError:
            pass


def _try_link(source: str, target: str) -> bool:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        # Another device, a file system without links, or too many of them.
        return False
    return True
