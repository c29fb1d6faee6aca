"""Where the logs of events of one instance are kept: files that are appended to, or rows of a database."""

from __future__ import annotations

from typing import Final, Protocol

from clonos.errors import StateError


class EventMedium(Protocol):
    """Each log has a name, and is known by its bytes. Raises StorageUnavailable. Used by several threads."""

    def __str__(self) -> str: ...

    def logs(self) -> dict[str, int]:
        """The logs that there are, with how many bytes each has."""
        ...

    def read(self, log: str, at: int, upto: int | None = None) -> bytes:
        """From there on, to where an entry ends, or to the end: there what was being written when a process or a
        machine died may be in part. `FileNotFoundError` where there is no such log any more."""
        ...

    def append(self, log: str, at: int, data: bytes) -> None:
        """Behind the first `at` bytes, durably; a log begins with its first bytes. It may be said again."""
        ...

    def sync(self, log: str) -> None:
        """Make durable what another process has written. `FileNotFoundError` as `read`."""
        ...

    def delete(self, log: str) -> None:
        """It may be gone already."""
        ...

    def close(self) -> None:
        """Of what is held open. It may be used again."""
        ...


class _NoEvents:
    """Of an instance that has no logs."""

    def __str__(self) -> str:
        return "nowhere"

    def logs(self) -> dict[str, int]:
        return {}

    def read(self, log: str, at: int, upto: int | None = None) -> bytes:
        raise FileNotFoundError(log)

    def append(self, log: str, at: int, data: bytes) -> None:
        raise StateError(f"there is no place for {log}")

    def sync(self, log: str) -> None:
        raise FileNotFoundError(log)

    def delete(self, log: str) -> None:
        """There is none."""

    def close(self) -> None:
        """Nothing is open."""


NO_EVENTS: Final[EventMedium] = _NoEvents()
