"""Objects of one place in an object store: how it is opened, and what its requests give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    JoinError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import from_url

from clonos.errors import QueryDefinitionError, SinkError, SinkUnavailable
from clonos.storage.object_answers import in_short, is_no_bucket
from clonos.storage.object_conditions import ignored_condition, version_of

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ObjectStore

UNAVAILABLE: Final = (GenericError, JoinError, TimeoutError, ConnectionError)
"""What may go away by itself: no connection, no answer, an error of the server."""

_DENIED: Final = "code: AccessDenied"
"""Of S3, for one of several objects to delete; other requests have an error of their own."""
_CONDITIONS: Final = "Use a store that has If-None-Match and If-Match on PUT"
_READS_AT_ONCE: Final = 16
_RETRIES: Any = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=15),
}  # the sink's patience does the rest


def open_place(url: str, options: Mapping[str, Any]) -> ObjectStore:
    """Raises QueryDefinitionError where an option is wrong. No request is made."""
    try:
        return from_url(url, **{"retry_config": _RETRIES, **options})
    except (BaseError, TypeError, ValueError) as error:
        raise QueryDefinitionError(
            f"{url} cannot be opened: {in_short(error)}",
            hint="options={...} are the arguments of obstore.store.S3Store, GCSStore or AzureStore",
        ) from None


class ObjectPlace:
    """The objects below one URL. Each method is one request, but for `read` and those that list or remove.

    Raises SinkUnavailable, FileNotFoundError, or SinkError where waiting cannot help.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self.url = url
        self._store = open_place(url, options)

    def get(self, name: str) -> tuple[bytes, UpdateVersion] | None:
        """The content of an object and its version."""
        with suppress(FileNotFoundError), self._told(f"reading {name}"):
            found = self._store.get(name)
            return bytes(found.bytes()), version_of(found.meta)
        return None

    def put(self, name: str, content: bytes) -> None:
        with self._told(f"writing {name}"):
            self._store.put(name, content)

    def replace(self, name: str, content: bytes, before: UpdateVersion | None) -> UpdateVersion | None:
        """Put an object where there is that version of it (None: none). Its new version, or None where another is
        there, which may have this very content: a request whose answer is lost is sent again."""
        try:
            with self._told(f"writing {name}"):
                put = self._store.put(name, content, mode=before or "create")
        except (AlreadyExistsError, PreconditionError):
            return None
        except FileNotFoundError:
            if before is None:
                raise
            return None  # it is gone
        return version_of(put)

    def check_conditions(self, name: str) -> None:
        """Raises SinkError where the store passes over conditions. `name`: of an object that is made for it."""
        with self._told(f"writing {name}"):
            ignored = ignored_condition(self._store, name)
        if ignored:
            raise SinkError(
                f"{self.url}: the store has no conditional writes: it passes over {ignored}", hint=_CONDITIONS
            )

    def copy(self, source: str, target: str) -> None:
        """Raises FileNotFoundError where there is no source."""
        with self._told(f"copying {source}"):
            self._store.copy(source, target)

    def exists(self, name: str) -> bool:
        with suppress(FileNotFoundError), self._told(f"looking for {name}"):
            self._store.head(name)
            return True
        return False

    def read(self, names: list[str]) -> Iterator[bytes]:
        """Some at once. Raises FileNotFoundError with the name."""
        if not names:
            return
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            for name, found in zip(names, pool.map(self.get, names), strict=True):
                if found is None:
                    raise FileNotFoundError(2, "no such object", f"{self.url}/{name}")
                yield found[0]

    def remove(self, names: list[str]) -> None:
        with suppress(FileNotFoundError), self._told("removing"):
            self._store.delete(names)

    def names(self, folder: str) -> list[str]:
        """Of all objects in a folder."""
        return [each for page in self._pages(f"{folder}/") for each in page]

    def first_behind(self, name: str) -> str:
        """The first name behind that one, in the order of bytes; empty where there is none."""
        return min(next(iter(self._pages(None, name)), []), default="")

    def _pages(self, folder: str | None, offset: str | None = None) -> Iterator[list[str]]:
        with self._told("listing"):
            for page in self._store.list(folder, offset=offset):
                yield [each["path"] for each in page]

    def _told(self, what: str) -> _Told:
        return _Told(f"{self.url}: {what}")


class _Told:
    """Errors, said with what was done and what to do."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _DENIED in str(error):
            raise SinkError(
                f"{self._what} is not allowed: {error}".partition("\n")[0],
                hint="The sink needs the rights to get, put, list and delete objects there, in the words of S3 "
                "s3:GetObject, s3:PutObject, s3:ListBucket and s3:DeleteObject",
            ) from None
        if error is not None and is_no_bucket(error):
            raise SinkError(
                f"{self._what} fails: the bucket is not there", hint="Create the bucket, or mend the URL"
            ) from None
        if isinstance(error, UNAVAILABLE):
            raise SinkUnavailable(f"{self._what} fails: {in_short(error)}") from None
        if isinstance(error, NotSupportedError):
            raise SinkError(
                f"{self._what}: the store has no conditional writes: {in_short(error)}",
                hint=_CONDITIONS,
            ) from None
