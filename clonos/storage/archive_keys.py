"""The keys of an archive that is encrypted at rest, as a file on each host has them.

A key is 32 random bytes in base64, one on a line; lines that begin with # and empty ones are passed over. The first
encrypts what is written, and all of them decrypt: to go over to another key, put it in front of the old one, which
can go when nothing in the archive is encrypted with it any more.
"""

from __future__ import annotations

import binascii
import hashlib
import os
from base64 import b64decode
from dataclasses import dataclass, field
from typing import Final

from clonos.errors import ConfigurationError
from clonos.extras import needs

VARIABLE: Final = "CLONOS_ARCHIVE_KEY_FILE"
"""In the environment of a command, which file has the keys."""
KEY_HINT: Final = (
    f"Name the file with the key: {VARIABLE}=/path/of/the/file clonos ...; in a job, set "
    "spark.clonos.archive.keyFile"
)
KEY_BYTES: Final = 32
ID_BYTES: Final = 8
_MAKE: Final = "`openssl rand -base64 32` makes a key"


@dataclass(frozen=True, slots=True)
class ArchiveKey:
    """`id` is said of what it has encrypted, and tells nothing of the key."""

    secret: bytes = field(repr=False)

    @property
    def id(self) -> bytes:
        return hashlib.sha256(b"clonos archive key" + self.secret).digest()[:ID_BYTES]


@dataclass(frozen=True, slots=True)
class ArchiveKeys:
    """None at all: what is written is not encrypted, and what is cannot be read."""

    all: tuple[ArchiveKey, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.all)

    @property
    def writing(self) -> ArchiveKey | None:
        """With which what is written is encrypted."""
        return self.all[0] if self.all else None

    def find(self, key_id: bytes) -> ArchiveKey | None:
        return next((key for key in self.all if key.id == key_id), None)


NO_KEYS: Final = ArchiveKeys()


def read_keys(path: str) -> ArchiveKeys:
    """Of a file; none where `path` is empty. Raises ConfigurationError, whose messages have nothing of the file."""
    if not path:
        return NO_KEYS
    needs("cryptography", "an archive that is encrypted")
    try:
        with open(path, encoding="ascii") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text of base64"
        raise ConfigurationError(
            f"the file {path} with keys of the archive cannot be read here: {why}",
            hint="It has to be on each host of the query, and where its archive is read",
        ) from error
    keys = [
        _key(line, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
        if line and not line.startswith("#")
    ]
    if not keys:
        raise ConfigurationError(f"the file {path} has no key of the archive", hint=_MAKE)
    return ArchiveKeys(tuple(keys))


def key_file_of_environment() -> str:
    """As a command is told of it; empty where it is not."""
    return os.environ.get(VARIABLE, "")


def _key(line: str, where: str) -> ArchiveKey:
    try:
        secret = b64decode(line, validate=True)
    except binascii.Error:
        secret = b""
    if len(secret) != KEY_BYTES:
        raise ConfigurationError(f"{where} is not {KEY_BYTES} bytes in base64", hint=_MAKE)
    return ArchiveKey(secret)
