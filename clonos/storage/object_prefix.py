"""Checkpoint storage in an object store: the objects of a bucket whose names begin with one prefix.

An object appears whole, by one request, so nothing is renamed; and one request can say "only if the name is not taken"
(`If-None-Match: *`), which makes claims exclusive. Where the answer of such a request is lost and the client sends it
again, the store says that the name is taken, by the first attempt: what is there is compared then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

from clonos.errors import ConfigurationError
from clonos.storage.medium import CHUNK
from clonos.storage.object_answers import in_short, is_no_bucket
from clonos.storage.object_conditions import ignored_creation
from clonos.storage.object_store import ObjectStore

_WHOSE_KEYS: Final = (
    "A query uses the keys of its Spark session (fs.s3a.access.key, ...), else those of the environment "
    "(AWS_ACCESS_KEY_ID, ...), which are all that a command has"
)
_probed: set[str] = set()


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
        self._probe(temporary)
        with _told():
            try:
                # In one request: an upload in parts has no such condition.
                obstore.put(self._store.quick, self._full(name), data, mode="create", use_multipart=False)
                return True
            except AlreadyExistsError:
                pass
        try:
            return self.read(name) == data
        except FileNotFoundError:  # withdrawn since
            return False

    def _probe(self, name: str) -> None:
        """Once per process: some stores take every put, whatever its condition says."""
        if self._store.name in _probed:
            return
        with _told():
            ignored = ignored_creation(self._store.quick, self._full(name))
        if ignored is not None:
            raise ConfigurationError(
                f"the object store {self._store.name} does not know puts under a condition ({ignored}): two drivers "
                "could take the query at once",
                hint="Put the checkpoint into a store that knows them, or on a file system",
            )
        _probed.add(self._store.name)

    def put(self, source_path: str, name: str, temporary: str) -> None:
        with _told():
            obstore.put(self._store.patient, self._full(name), Path(source_path))

    def sync(self, name: str) -> None:
        """Nothing: an object is durable when the store has answered."""

    def link(self, name: str, target_path: str) -> bool:
        return False

    def discard(self, temporary: str) -> None:
        """Nothing: there was none."""

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
        kind = OSError if is_no_bucket(error) else FileNotFoundError
        raise kind(in_short(error)) from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise OSError(f"{in_short(error)}. {_WHOSE_KEYS}") from error
    except BaseError as error:
        raise OSError(in_short(error)) from error
