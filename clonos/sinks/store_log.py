"""The determinants, cursors and fences that a sink keeps in a `Store`, as a recovery reads and a commit trims them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from clonos.errors import SinkError
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.protocol.line.kept_commit import KeptCommit, supersedes
from clonos.protocol.roles.sink_fence import check_driver
from clonos.sinks.patience import Patience
from clonos.sinks.port import Cursors
from clonos.sinks.store_connection import StoreConnection
from clonos.sinks.store_records import LAST, Keys, Position, pack_floor, unpack, unpack_floor

if TYPE_CHECKING:
    from clonos.sinks.store import Store

_PAGE: Final = 500
_TRIES: Final = 1000

_T = TypeVar("_T")


def until_taken(attempt: Callable[[], _T | None]) -> _T:
    """What an attempt gives that was not refused: None means that a record had been changed since it was read."""
    for _ in range(_TRIES):
        found = attempt()
        if found is not None:
            return found
    raise SinkError(
        f"the sink's store refused a step {_TRIES} times, each time right after what it expects was read",
        hint="Run clonos.testing.conformance.stores against the store: its `step` may compare wrongly",
    )


def read_floor(store: Store, query: str) -> Fence:
    """The highest fence that was raised for the whole query; 0 where none was."""
    key = Keys(query).floor
    return unpack_floor(store.get(key), key)


def raise_floor(store: Store, query: str, fence: Fence) -> None:
    """Lift the fence below which no writer of the query writes, to at least `fence`."""
    key = Keys(query).floor

    def attempt() -> bool | None:
        standing = store.get(key)
        if unpack_floor(standing, key) >= fence:
            return True
        return store.step({key: standing}, {key: pack_floor(fence)}, [], []) or None

    until_taken(attempt)


def record_commit(store: Store, query: str, offered: KeptCommit) -> None:
    """Keep it if it supersedes what is kept, or raise Fenced."""
    keys, content = Keys(query), offered.pack()

    def attempt() -> bool | None:
        floor, standing = store.get(keys.floor), store.get(keys.commit)
        if not supersedes(offered, _kept(standing, keys), floor=unpack_floor(floor, keys.floor)):
            return True
        expected = {keys.floor: floor, keys.commit: standing}
        return store.step(expected, {keys.commit: content}, [], []) or None

    until_taken(attempt)


def read_commit(store: Store, query: str) -> KeptCommit | None:
    keys = Keys(query)
    return _kept(store.get(keys.commit), keys)


def _kept(value: bytes | None, keys: Keys) -> KeptCommit | None:
    return None if value is None else KeptCommit.unpack(value, f"the sink's record {keys.commit}")


def pages(connection: StoreConnection, patience: Patience, prefix: str) -> Iterator[list[tuple[str, bytes]]]:
    """Every record whose key begins so, by rising key, a page after the other."""
    after = prefix
    while True:
        page = patience.run(
            lambda _, after=after: connection.run(lambda store: store.scan(after, prefix + LAST, _PAGE))  # type: ignore[misc]
        )
        if page:
            yield page
        if len(page) < _PAGE:
            return
        after = page[-1][0]


class StoreLogReader:
    """See `clonos.sinks.port.SinkLogReader`. Writers may be at work meanwhile."""

    def __init__(self, connection: StoreConnection, patience: Patience, query: str) -> None:
        self._connection, self._patience, self._keys = connection, patience, Keys(query)
        self._corrupt: list[str] = []

    @property
    def corrupt(self) -> list[str]:
        return list(self._corrupt)

    def deltas(self) -> Iterator[bytes]:
        self._corrupt.clear()
        for page in pages(self._connection, self._patience, self._keys.logs):
            for key, value in page:
                delta = unpack(value)
                if delta is not None:
                    yield delta
                else:
                    self._corrupt.append(f"{self._connection.place}: record {key}")

    def cursors(self) -> dict[Origin, Cursors]:
        return {
            self._keys.origin(key): Position.unpack(value, key).cursors
            for page in pages(self._connection, self._patience, self._keys.positions)
            for key, value in page
        }

    def reached(self) -> dict[Origin, Cursors]:
        return self.cursors()

    def close(self) -> None:
        self._connection.close()


def trim(
    connection: StoreConnection,
    patience: Patience,
    query: str,
    fence: Fence,
    keep: Callable[[bytes], bool],
) -> int:
    """Remove the intact entries that no recovery needs, a page in one step. Damaged ones stay as evidence."""
    keys, dropped = Keys(query), 0
    for page in pages(connection, patience, keys.logs):
        unwanted = [key for key, value in page if (delta := unpack(value)) is not None and not keep(delta)]
        if unwanted:
            patience.run(lambda _, of=unwanted: connection.run(lambda store: _remove(store, keys, fence, of)))  # type: ignore[misc]
        dropped += len(unwanted)
    return dropped


def _remove(store: Store, keys: Keys, fence: Fence, entries: Iterable[str]) -> None:
    """Raises Fenced where a later start of the query has raised the floor."""
    changes = dict.fromkeys(entries)

    def attempt() -> bool | None:
        floor = store.get(keys.floor)
        check_driver(fence, floor=unpack_floor(floor, keys.floor))
        return store.step({keys.floor: floor}, changes, [], []) or None

    until_taken(attempt)
