"""One directory of checkpoint storage: on this host, on a file system that PyArrow opens, or in an object store.

Every file appears under its name at once and whole, durably where the storage can do that; how, its medium knows. Names
are relative, with "/" between their parts.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias
from urllib.parse import quote, urlsplit

import pyarrow as pa
from pyarrow import fs

from clonos.errors import ClonosError, ConfigurationError, StorageUnavailable
from clonos.storage import object_store
from clonos.storage.arrow_directory import ArrowDirectory
from clonos.storage.disk_errors import disk, unavailable
from clonos.storage.encrypted_medium import EncryptedMedium, Encryption
from clonos.storage.host_directory import HostDirectory
from clonos.storage.location import on_this_host, parts_of
from clonos.storage.medium import TMP, Medium
from clonos.storage.object_store import ObjectStore

Storage: TypeAlias = fs.FileSystem | ObjectStore
__all__ = ["TMP", "Folder", "Storage", "hash_file", "resolve"]


def resolve(location: str) -> tuple[Storage, str]:
    """The storage and path of a Spark checkpoint location. Raises ConfigurationError."""
    local = on_this_host(location)
    if local is not None:
        return fs.LocalFileSystem(), local
    scheme, _, rest = location.partition(":")
    authority, path = parts_of(rest.rstrip("/"))
    if scheme.lower() in object_store.SCHEMES:
        if "\\" in path:
            raise ConfigurationError(
                f"the checkpoint location {location!r} has a backslash, which its store does not list",
                hint="Give it another name",
            )
        # As Hadoop reads it, which has no empty names.
        return object_store.store_at(scheme, authority.removeprefix("//")), re.sub("/+", "/", path)
    uri = f"{scheme.lower()}:{authority}{quote(path)}"
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)  # which takes escapes for what they stand for
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ConfigurationError(
            f"the checkpoint location {location!r} cannot be used: {error}",
            hint="Use a path, or a URI that pyarrow.fs.FileSystem.from_uri takes",
        ) from error
    return filesystem, path


def hash_file(path: str) -> tuple[int, bytes]:
    """Size and SHA-256 of a local file."""
    with open(path, "rb") as source:
        digest = hashlib.file_digest(source, "sha256").digest()
        return source.tell(), digest


def _medium(storage: Storage, path: str) -> Medium:
    if isinstance(storage, ObjectStore):
        from clonos.storage.object_prefix import ObjectPrefix  # with a library that few need

        return ObjectPrefix(storage, path)
    local = local_root(storage, path)
    return ArrowDirectory(storage, path) if local is None else HostDirectory(local)


def local_root(filesystem: fs.FileSystem, path: str) -> str | None:
    """Where `path` lies in this host's own file system, if it does."""
    while isinstance(filesystem, fs.SubTreeFileSystem):
        path = filesystem.base_path.rstrip("/") + "/" + path.lstrip("/")
        filesystem = filesystem.base_fs
    return path if isinstance(filesystem, fs.LocalFileSystem) else None


class Folder:
    """See the module. `tag` begins this writer's temporary names. `local` is where the folder lies in this host's own
    file system, if it does; `exclusive` whether `create` refuses a name that is taken. With `encryption`, files may be
    encrypted."""

    def __init__(
        self, storage: Storage, root: str, *, tag: str, encryption: Encryption | None = None
    ) -> None:
        medium = _medium(storage, root.rstrip("/"))
        self._medium = medium if encryption is None else EncryptedMedium(medium, encryption)
        self.tag = tag
        self._numbers = itertools.count()
        self.local = self._medium.local
        self.exclusive = self._medium.exclusive

    def __str__(self) -> str:
        return str(self._medium)

    def identity(self, location: str) -> str:
        """The same for every way to write the location that it is at, and in every version of this library: a path, or
        host or bucket, kind of storage, and path."""
        if self.local is not None:
            return os.path.realpath(self.local)
        return f"{urlsplit(location).netloc}/{str(self).replace('://', ':')}"

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

    @contextmanager
    def _appearing(self, doing: str, name: str) -> Iterator[str]:
        """A temporary name, under which nothing is left."""
        temporary = f"{TMP}/{self.tag}-{next(self._numbers)}"
        with self._storing(doing, name):
            try:
                yield temporary
            except BaseException:
                # What cannot be removed now is swept by the next incarnation.
                with suppress(OSError, pa.ArrowException):
                    self._medium.discard(temporary)
                raise

    def sizes(self, directory: str) -> dict[str, int]:
        """Names directly in `directory` with their sizes; empty where it does not exist."""
        with self._looking("listing", directory):
            return self._medium.sizes(directory)

    def stored_alike(self, directory: str) -> dict[str, int]:
        """As `sizes`, of files that are encrypted with the key that what is written is, if it is: others are not taken
        for what would be written anew."""
        if not isinstance(self._medium, EncryptedMedium):
            return self.sizes(directory)
        with self._looking("listing", directory):
            return self._medium.stored_alike(directory)

    def read(self, name: str) -> bytes:
        """A small file, whole. `FileNotFoundError` if there is none."""
        with self._looking("reading", name):
            return self._medium.read(name)

    def pieces(self, name: str) -> Iterator[bytes]:
        """A file of any size, as far as it is asked for. `FileNotFoundError` if there is none."""
        with self._looking("reading", name):
            chunks = self._medium.chunks(name)
        while chunk := self._next(chunks, name):
            yield chunk

    def write(self, name: str, data: bytes) -> None:
        """Make `data` appear under `name`, durably."""
        with self._appearing("writing", name) as temporary:
            self._medium.write(name, data, temporary)

    def create(self, name: str, data: bytes) -> bool:
        """As `write`, but False where the name is taken and the storage is `exclusive`. Other storage writes over it:
        there, give names that no other process gives."""
        with self._appearing("creating", name) as temporary:
            return self._medium.create(name, data, temporary)

    def sync(self, name: str) -> None:
        """Make a file that another process wrote durable, and its name, where this host can do that."""
        with self._looking("syncing", name):
            self._medium.sync(name)

    def put(self, source_path: str, name: str) -> None:
        """Make the local file appear under `name`, durably: the same file where it can be, else a copy."""
        with self._appearing("writing", name) as temporary:
            self._medium.put(source_path, name, temporary)

    def fetch(self, name: str, target_path: str) -> tuple[int, bytes]:
        """Copy a file to a new local path; its size and SHA-256. `FileNotFoundError` if there is none."""
        digest = hashlib.sha256()
        size = 0
        pieces = self.pieces(name)
        piece = next(pieces, b"")  # before there is a file here
        with (
            disk(f"writing {target_path}", corrupt=StorageUnavailable),
            open(target_path, "xb") as target,
        ):
            while piece:
                digest.update(piece)
                size += target.write(piece)
                piece = next(pieces, b"")
        return size, digest.digest()

    def _next(self, chunks: Iterator[bytes], name: str) -> bytes:
        with self._looking("reading", name):
            return next(chunks, b"")

    def link(self, name: str, target_path: str) -> bool:
        """Make the same file appear at a local path; False where that is not possible."""
        with self._looking("linking", name):
            return self._medium.link(name, target_path)

    def sweep(self) -> None:
        """Remove what was being written, by whichever process."""
        for name in self.sizes(TMP):
            self.delete(f"{TMP}/{name}")

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens if there is none."""
        with self._storing("removing", name), suppress(FileNotFoundError):
            self._medium.delete(name)
