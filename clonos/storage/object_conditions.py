"""Whether an object store keeps the conditions of puts, which some servers take and pass over.

Only a put that takes effect though it must not speaks against a store: one may be refused because the client has sent
it a second time. `name` is of an object that is made for the question, and removed. All raise what the store raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from obstore.exceptions import AlreadyExistsError, PreconditionError

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ObjectStore


def ignored_creation(store: ObjectStore, name: str) -> str | None:
    """The condition that there be no such object, if the store passes over it."""
    ignored = _ignored_creation(store, name)
    store.delete(name)
    return ignored


def ignored_condition(store: ObjectStore, name: str) -> str | None:
    """Which condition the store passes over: that, or the one that it be a certain version of the object."""
    ignored = _ignored_creation(store, name)
    if ignored is None:
        first = version_of(store.head(name))
        _is_refused(store, name, b"replaced", first)
        if not _is_refused(store, name, b"replaced twice", first):
            ignored = "If-Match"
    store.delete(name)
    return ignored


def _ignored_creation(store: ObjectStore, name: str) -> str | None:
    _is_refused(store, name, b"made", "create")
    return None if _is_refused(store, name, b"made twice", "create") else "If-None-Match: *"


def _is_refused(store: ObjectStore, name: str, content: bytes, mode: UpdateVersion | str) -> bool:
    try:
        store.put(name, content, mode=mode)  # type: ignore[arg-type]
    except (AlreadyExistsError, PreconditionError):
        return True
    return False


def version_of(said: Any) -> UpdateVersion:
    """Of an object, as a condition of a put. Stores use an etag, a version, or both."""
    return {key: said[key] for key in ("e_tag", "version") if said[key] is not None}  # type: ignore[return-value]
