"""An encrypted file, as a stream of chunks each of which is encrypted and authenticated:

    "CLEN" | u8 2 | id of the key (8 bytes) | salt (16 bytes) | chunks

A chunk is AES-256-GCM of 64 KiB of the content, the last one of what is left (of none in an empty file), with its tag
of 16 bytes. Each file has a key of its own, HKDF-SHA-256 of the archive's key, the salt, and which file it is: of which
query, and where in its archive. So a file which is put in the place of another one does not open. (Files of version 1
are bound to what they are called in their folder alone, so that those of two instances may stand for each other.) The
nonce is the chunk's number (11 bytes) and whether it is the last (1 byte), so that one which is cut, or whose chunks
are in another order, does not open either. That is STREAM, after Hoang, Reyhanitabar, Rogaway and Vizár, "Online
Authenticated-Encryption and its Nonce-Reuse Misuse-Resistance", CRYPTO 2015.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from clonos.storage.archive_keys import ID_BYTES, KEY_BYTES, ArchiveKey

MAGIC: Final = b"CLEN"
VERSION: Final = 2
_READ: Final = (1, VERSION)
CHUNK: Final = 64 * 1024
_SALT_BYTES: Final = 16
_TAG_BYTES: Final = 16
HEADER_BYTES: Final = len(MAGIC) + 1 + ID_BYTES + _SALT_BYTES


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Which file it is: its name in a folder, and that folder's path in the archive of a query."""

    name: str
    folder: str = ""
    query: str = ""

    def said(self, version: int) -> bytes:
        """What the key of a file is made of."""
        if version == 1:
            return b"clonos archive file\0" + self.name.encode()
        return b"\0".join(
            [b"clonos archive file 2", *(each.encode() for each in (self.query, self.folder, self.name))]
        )


class DoesNotOpen(Exception):
    """What is wrong with an encrypted file."""


def encrypted(content: Iterable[bytes], key: ArchiveKey, place: FilePlace) -> Iterator[bytes]:
    """A file's bytes, of its content in pieces of any size."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt = os.urandom(_SALT_BYTES)
    cipher = AESGCM(_of_file(key, salt, place.said(VERSION)))
    yield MAGIC + bytes([VERSION]) + key.id + salt
    for number, (chunk, is_last) in enumerate(_cut(content, CHUNK)):
        yield cipher.encrypt(_nonce(number, is_last), chunk, None)


def key_id(header: bytes) -> bytes:
    """Of the key of a file, which begins like this. Raises DoesNotOpen."""
    if not header.startswith(MAGIC):
        raise DoesNotOpen("does not begin as an encrypted file does")
    if len(header) < HEADER_BYTES:
        raise DoesNotOpen("is cut off")
    if header[len(MAGIC)] not in _READ:
        raise DoesNotOpen(
            f"has version {header[len(MAGIC)]}; this library reads {', '.join(map(str, _READ))}"
        )
    return header[len(MAGIC) + 1 : len(MAGIC) + 1 + ID_BYTES]


def decrypted(header: bytes, rest: Iterable[bytes], key: ArchiveKey, place: FilePlace) -> Iterator[bytes]:
    """The content of a file in pieces, each authentic; that the file is whole is known behind the last. Raises
    DoesNotOpen."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(_of_file(key, header[-_SALT_BYTES:], place.said(header[len(MAGIC)])))
    for number, (chunk, is_last) in enumerate(_cut(rest, CHUNK + _TAG_BYTES)):
        try:
            yield cipher.decrypt(_nonce(number, is_last), chunk, None)
        except InvalidTag:
            raise DoesNotOpen("is damaged, cut off, or not the file that belongs there") from None


def content_size(stored: int) -> int:
    """How long the content is of a file of this size."""
    body = stored - HEADER_BYTES
    chunks = max(1, -(-body // (CHUNK + _TAG_BYTES)))
    return max(0, body - chunks * _TAG_BYTES)


def _of_file(key: ArchiveKey, salt: bytes, said: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt, said).derive(key.secret)


def _nonce(number: int, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


def _cut(pieces: Iterable[bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    """Into chunks of a size, and whether each is the last: one at least, and that may be shorter."""
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) > size:
            yield bytes(held[:size]), False
            del held[:size]
    yield bytes(held), True
