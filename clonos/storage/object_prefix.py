"""Checkpoint storage in an object store: the objects of a bucket whose names begin with one prefix.

An object appears whole, by one request, so nothing is renamed; and one request can say "only if the name is not taken"
(`If-None-Match: *`), which makes claims exclusive. Where the answer of such a request is lost and the client sends it
again, the store says that the name is taken, by the first attempt: what is there is compared then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from clonos.storage.medium import CHUNK
from clonos.storage.object_store import ObjectStore

_STORE_SAYS: Final = re.compile(r"<(?:Code|Message)>([^<]*)<")


class ObjectPrefix:
    """See `Medium`."""

    local = None
    exclusive = True

    def __init__(self, store: ObjectStore, root: str) -> None:
        self._store, self._root = store, root.strip("/")

    def __str__(self) -> str:
        return f"{self._store.name}/{self._root}".rstrip("/")

    def _full(self, name: str) -> str:
        return f"{self._root}/{name}".strip("/")

    def sizes(self, directory: str) -> dict[str, int]:
        with _told():
            found = obstore.list_with_delimiter(self._store.quick, prefix=self._full(directory) or None)
            return {each["path"].rpartition("/")[2]: each["size"] for each in found["objects"]}

    def read(self, name: str) -> bytes:
        with _told():
            return bytes(obstore.get(self._store.quick, self._full(name)).bytes())

    def chunks(self, name: str) -> Iterator[bytes]:
        with _told():
            stream = obstore.get(self._store.patient, self._full(name)).stream(min_chunk_size=CHUNK)
        return _told_chunks(iter(stream))

    def write(self, name: str, data: bytes, temporary: str) -> None:
        with _told():
            obstore.put(self._store.quick, self._full(name), data)

    def create(self, name: str, data: bytes, temporary: str) -> bool:
        with _told():
            try:
                # In one request: an upload in parts has no such condition.
                obstore.put(self._store.quick, self._full(name), data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return self.read(name) == data
        return True

    def put(self, source_path: str, name: str, temporary: str) -> None:
        with _told():
            obstore.put(self._store.patient, self._full(name), Path(source_path))

    def sync(self, name: str) -> None:
        """Nothing: an object is durable when the store has answered."""

    def link(self, name: str, target_path: str) -> bool:
        return False

    def delete(self, name: str) -> None:
        with _told():
            obstore.delete(self._store.quick, self._full(name))


def _told_chunks(stream: Iterator[bytes]) -> Iterator[bytes]:
    with _told():
        for chunk in stream:
            yield bytes(chunk)


@contextmanager
def _told() -> Iterator[None]:
    """What the store says, as an error of the operating system."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(_in_short(error)) from error
    except BaseError as error:
        raise OSError(_in_short(error)) from error


def _in_short(error: Exception) -> str:
    """The first line of what the library says, which goes on with an account of its own, and what the store says."""
    text = str(error)
    first = text.partition("\n")[0].partition("<?xml")[0].rstrip(" :")
    return ": ".join([first, *_STORE_SAYS.findall(text.partition("Debug source")[0])])
