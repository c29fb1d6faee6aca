"""Whether an object store keeps the conditions of puts, which some servers take and pass over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from obstore.exceptions import AlreadyExistsError, PreconditionError

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ObjectStore


def ignored_condition(store: ObjectStore, name: str) -> str | None:
    """Which condition the store passes over, or None. `name`: of an object that is made for it, and removed.

    Raises what the store raises. Only a put that takes effect though it must not speaks against a store: one may be
    refused because the client has sent it a second time.
    """

    def is_refused(content: bytes, mode: UpdateVersion | str) -> bool:
        try:
            store.put(name, content, mode=mode)  # type: ignore[arg-type]
        except (AlreadyExistsError, PreconditionError):
            return True
        return False

    ignored = None
    is_refused(b"made", "create")
    if not is_refused(b"made twice", "create"):
        ignored = "If-None-Match: *"
    else:
        first = version_of(store.head(name))
        is_refused(b"replaced", first)
        if not is_refused(b"replaced twice", first):
            ignored = "If-Match"
    store.delete(name)
    return ignored


def version_of(said: Any) -> UpdateVersion:
    """Of an object, as a condition of a put. Stores use an etag, a version, or both."""
    return {key: said[key] for key in ("e_tag", "version") if said[key] is not None}  # type: ignore[return-value]
