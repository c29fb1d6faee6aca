"""Checkpoint storage whose files are encrypted: another medium with encrypted files in it, told from others by their
suffix. Files without it, from before there was a key, are read as they are."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from clonos.errors import ClonosError
from clonos.storage.archive_keys import KEY_HINT, ArchiveKey, ArchiveKeys
from clonos.storage.encrypted_file import (
    HEADER_BYTES,
    DoesNotOpen,
    FilePlace,
    content_size,
    decrypted,
    encrypted,
    key_id,
)
from clonos.storage.medium import Medium, chunks_of

SUFFIX: Final = ".encrypted"


@dataclass(frozen=True, slots=True)
class Encryption:
    """With which keys, and what is raised where a file does not open. `folder` is the path in the archive of `query`.
    `writes_with` says with which key what is written is encrypted, if it is; unless said, the first one."""

    keys: ArchiveKeys
    corrupt: type[ClonosError]
    folder: str = ""
    query: str = ""
    writes_with: Callable[[], ArchiveKey | None] | None = None
    not_given: set[bytes] = field(default_factory=set)
    """The ids of keys with which files are encrypted that were to be read, and that are not given."""

    def place(self, name: str) -> FilePlace:
        return FilePlace(name, self.folder, self.query)

    @property
    def writing(self) -> ArchiveKey | None:
        return self.keys.writing if self.writes_with is None else self.writes_with()


class EncryptedMedium:
    """See `Medium`, and the module. Without a key, files are written as they are."""

    local = None  # what is on this host's disk is not what a reader gets

    def __init__(self, medium: Medium, encryption: Encryption) -> None:
        self._medium = medium
        self._encryption = encryption
        self._keys = encryption.keys
        self._corrupt = encryption.corrupt
        self._key_ids: dict[str, bytes] = {}  # of files, as far as that was asked
        self.exclusive = medium.exclusive

    def __str__(self) -> str:
        return str(self._medium)

    def sizes(self, directory: str) -> dict[str, int]:
        """Of the contents. Of a name that is there twice, the encrypted one counts."""
        stored = self._medium.sizes(directory)
        found = {name: size for name, size in stored.items() if not name.endswith(SUFFIX)}
        for name, size in stored.items():
            if name.endswith(SUFFIX):
                found[name.removesuffix(SUFFIX)] = content_size(size)
        return found

    def stored_alike(self, directory: str) -> dict[str, int]:
        """As `sizes`, of those that are encrypted with the same key as what is written, if that is. Each is looked
        into once."""
        if (key := self._encryption.writing) is None:
            return self.sizes(directory)
        return {
            name.removesuffix(SUFFIX): content_size(size)
            for name, size in self._medium.sizes(directory).items()
            if name.endswith(SUFFIX) and self._is_of(key, f"{directory}/{name}")
        }

    def _is_of(self, key: ArchiveKey, stored: str) -> bool:
        """Whether a file is encrypted with a key."""
        if stored not in self._key_ids:
            with suppress(FileNotFoundError, DoesNotOpen):
                self._key_ids[stored] = key_id(_header(self._medium.chunks(stored))[0])
        return self._key_ids.get(stored) == key.id

    def read(self, name: str) -> bytes:
        try:
            raw = self._medium.read(name + SUFFIX)
        except FileNotFoundError:
            return self._medium.read(name)
        return b"".join(self._opened(name, iter([raw])))

    def chunks(self, name: str) -> Iterator[bytes]:
        try:
            stored = self._medium.chunks(name + SUFFIX)
        except FileNotFoundError:
            return self._medium.chunks(name)
        return self._opened(name, stored)

    def _opened(self, name: str, stored: Iterator[bytes]) -> Iterator[bytes]:
        header, begun = _header(stored)
        where = f"{self}/{name}{SUFFIX}"
        try:
            key = self._keys.find(key_id(header))
            if key is None:
                self._encryption.not_given.add(key_id(header))
                raise self._corrupt(
                    f"{where} is encrypted with a key that is not given here ({key_id(header).hex()})",
                    hint=KEY_HINT,
                )
            rest = itertools.chain([begun], stored)
            yield from decrypted(header, rest, key, self._encryption.place(name))
        except DoesNotOpen as error:
            raise self._corrupt(f"{where} {error}") from error

    def write(self, name: str, data: bytes, temporary: str) -> None:
        stored, content = self._closed(name, data)
        self._medium.write(stored, content, temporary)
        self._key_ids.pop(stored, None)
        if stored != name:
            self._delete(name)

    def create(self, name: str, data: bytes, temporary: str) -> bool:
        stored, content = self._closed(name, data)
        return self._medium.create(stored, content, temporary)

    def _closed(self, name: str, data: bytes) -> tuple[str, bytes]:
        """Under which name which bytes are stored."""
        if (key := self._encryption.writing) is None:
            return name, data
        return name + SUFFIX, b"".join(encrypted([data], key, self._encryption.place(name)))

    def put(self, source_path: str, name: str, temporary: str) -> None:
        if (key := self._encryption.writing) is None:
            self._medium.put(source_path, name, temporary)
            return
        with tempfile.NamedTemporaryFile(prefix="clonos-", suffix=SUFFIX) as target:
            content = chunks_of(open(source_path, "rb"))  # noqa: SIM115 - closed there
            for piece in encrypted(content, key, self._encryption.place(name)):
                target.write(piece)
            target.flush()
            self._medium.put(target.name, name + SUFFIX, temporary)
        self._key_ids.pop(name + SUFFIX, None)
        self._delete(name)

    def sync(self, name: str) -> None:
        try:
            self._medium.sync(name + SUFFIX)
        except FileNotFoundError:
            self._medium.sync(name)

    def link(self, name: str, target_path: str) -> bool:
        return False

    def discard(self, temporary: str) -> None:
        self._medium.discard(temporary)

    def delete(self, name: str) -> None:
        """In both forms."""
        self._delete(name + SUFFIX)
        self._delete(name)

    def _delete(self, stored: str) -> None:
        self._key_ids.pop(stored, None)
        with suppress(FileNotFoundError):
            self._medium.delete(stored)


def _header(stored: Iterator[bytes]) -> tuple[bytes, bytes]:
    """Of a file, and what has been read behind it."""
    begun = bytearray()
    for piece in stored:
        begun += piece
        if len(begun) >= HEADER_BYTES:
            break
    return bytes(begun[:HEADER_BYTES]), bytes(begun[HEADER_BYTES:])
