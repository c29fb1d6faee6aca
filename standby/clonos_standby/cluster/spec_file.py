"""The file through which a driver gives the query's spec to a replica server and to its replicas.

It lies in the server's data directory, with a checksum. The driver writes it again where it is missing or damaged, so
one that cannot be read is an outage that the next start of the query ends, not a mistake of the user's.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack

from clonos.errors import ConfigurationError, StorageUnavailable
from clonos.storage.durable_files import PRIVATE, replace_file

VERSION = 1


class SpecFile:
    """One of them, with what it is to hold."""

    def __init__(self, path: Path, document: Mapping[str, Any]) -> None:
        self.path = path
        body = msgpack.packb(dict(document), use_bin_type=True)
        self._content: bytes = msgpack.packb([zlib.crc32(body), body])

    def is_whole(self) -> bool:
        """Whether it is there and holds what it is to hold. Raises OSError where that cannot be read."""
        try:
            return self.path.read_bytes() == self._content
        except FileNotFoundError:
            return False

    def write(self) -> None:
        """Puts it in place, and its directory where that was removed. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, self._content, mode=PRIVATE)


def read_document(path: str | Path) -> dict[str, Any]:
    """The msgpack map of the file. Raises StorageUnavailable where the file cannot be read or is damaged, and
    ConfigurationError where a library with another version of the spec has written it."""
    directory = Path(path).parent
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise StorageUnavailable(
            f"what the query consists of cannot be read from its data directory {directory}: {error}",
            hint="Was the directory removed, or its disk taken away? The next start of the query writes it again",
        ) from error
    document = _unpacked(raw)
    if document is None:
        raise StorageUnavailable(
            f"{path}, which says what the query consists of, is damaged",
            hint="The next start of the query writes it again",
        )
    if document.get("version") != VERSION:
        raise ConfigurationError(
            f"{path} has spec version {document.get('version')}, this library reads {VERSION}"
        )
    return document


def _unpacked(raw: bytes) -> dict[str, Any] | None:
    """The map; None where the checksum does not hold."""
    try:
        checksum, body = msgpack.unpackb(raw)
        if checksum != zlib.crc32(body):
            return None
        document = msgpack.unpackb(body, raw=False, strict_map_key=False)
    except Exception:  # msgpack raises many kinds
        return None
    return document if isinstance(document, dict) else None


def read_spec(path: str) -> dict[str, Any]:
    """The query's spec, of which the server reads the token and its own settings. Raises as read_document does."""
    spec = read_document(path)
    if not isinstance(spec.get("token"), str) or not spec["token"]:
        raise ConfigurationError(f"the spec file {path} has no token")
    return spec
