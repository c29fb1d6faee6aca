"""A user's state as one bundle sees it: loaded when it is first asked for, handed back once."""

from __future__ import annotations

from typing import Any, Protocol

from clonos.errors import StateError


class UserState(Protocol):
    """The part of keyed state that is for a user's objects."""

    def load(self, key: bytes) -> Any | None: ...

    def save(self, key: bytes, value: Any) -> None: ...

    def delete(self, key: bytes) -> None: ...


class BundleState:
    """The states of the keys that a bundle has asked for, each a dict."""

    __slots__ = ("_origin", "loaded")

    def __init__(self) -> None:
        self.loaded: dict[Any, dict[Any, Any]] = {}
        self._origin: dict[Any, tuple[bytes, bool]] = {}  # its bytes, whether state was kept before

    def load(self, port: UserState, key: Any, data: bytes) -> dict[Any, Any]:
        """The state of a key that was not asked for before; `data` is the key's bytes."""
        kept = port.load(data)
        if kept is not None and not isinstance(kept, dict):
            raise StateError(
                f"the kept state of key {key!r} is of type {type(kept).__name__}, not a dict",
                hint="The checkpoint was written by another operator; start from a new one",
            )
        self._origin[key] = (data, kept is not None)
        state = self.loaded[key] = {} if kept is None else kept
        return state

    def keep(self, port: UserState) -> None:
        """The bundle is done: hand every state back. An empty one is none. What cannot be kept is not kept in mind."""
        try:
            self._keep_all(port)
        finally:
            self.forget()

    def _keep_all(self, port: UserState) -> None:
        for key, state in self.loaded.items():
            data, existed = self._origin[key]
            if state:
                try:
                    port.save(data, state)
                except StateError as error:
                    raise StateError(f"the state of key {key!r}: {error.message}", hint=error.hint) from error
            elif existed:
                port.delete(data)

    def forget(self) -> None:
        self.loaded.clear()
        self._origin.clear()
