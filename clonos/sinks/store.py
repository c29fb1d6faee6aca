"""What a store has to offer so that a sink can be made of it: one atomic, conditional step.

A `StoreSink` keeps everything of Clonos' own (fences, cursors, determinants, the commit record) as *records*: a key,
which is ASCII text, and a value of bytes. A step compares some records with what they are expected to be, and only
where all of them are, writes others and makes rows visible, all of it at once. That is a transaction of a database, a
script of Redis, or a conditional transaction of etcd. `StoreSink` does the rest: it decides what is expected, reads
again where a step was refused, and finds out what has become of a step whose answer was lost.

Every key begins with the query's id, and every writer's step expects the records of its fence. So a step that is
carried out late, after a newer writer has taken over, is refused by the store itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from clonos.errors import ConfigurationError
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch
from clonos.protocol.line.kept_commit import KeptCommit
from clonos.sinks import store_log
from clonos.sinks.json_rows import JsonRows
from clonos.sinks.patience import Patience, check_patience
from clonos.sinks.port import Row
from clonos.sinks.store_connection import StoreConnection
from clonos.sinks.store_writer import StoreWriter
from clonos.sinks.values import check_names, check_type

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")


class Store(Protocol):
    """A connection to the place where rows and records are. One thread uses it at a time; several processes have one
    each. Any method may raise what the sink's `unavailable` names; the connection is then closed and made anew."""

    def get(self, key: str) -> bytes | None:
        """The value of a record, as of the last step that took effect; None where there is none. It may be empty."""
        ...

    def scan(self, after: str, before: str, limit: int) -> list[tuple[str, bytes]]:
        """The first `limit` records whose key is greater than `after` and less than `before`, by rising key."""
        ...

    def step(
        self,
        expected: Mapping[str, bytes | None],
        changes: Mapping[str, bytes | None],
        rows: list[Row],
        ids: list[str],
    ) -> bool:
        """Where every record of `expected` has that value (None: is not there), write every record of `changes` (None:
        remove it), make the rows visible, each with its id, and return True. Otherwise change nothing and return False.

        All of it takes effect at once or not at all, whatever dies meanwhile; no other step comes in between. When True
        is returned, it is as durable as the sink promises. Where the store will never take a row, raise SinkError."""
        ...

    def close(self) -> None:
        """Let go of the connection. May be called twice."""
        ...


class StoreSink(ABC):
    """A sink over a `Store`; see `clonos.sinks.port.Sink` for what it gives the query. Write `connect` and `target`.

    It is made on the driver and pickled to where its writers run, so it holds what `connect` needs, and no connection.
    """

    instants = True
    parallelism: int | None = None
    """The number of instances that suits the store, or None if any number does. 1 where only one process can write."""
    unavailable: tuple[type[Exception], ...] = (OSError,)
    """Exceptions of the store that may go away by themselves, whether or not the step took effect: the connection was
    lost, a lock is held. They are tried again for `patience` seconds. Any other ends the query as a SinkError."""

    def __init__(self, *, patience: float = 30.0) -> None:
        self._patience = check_patience(patience)
        self._schema: pa.Schema | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.target!r}"

    @abstractmethod
    def connect(self) -> Store:
        """A new connection. What is missing (a file, tables) it makes."""

    @property
    @abstractmethod
    def target(self) -> Hashable:
        """Where rows become visible: equal for two sinks that write to the same place. Errors show it: no passwords."""

    @property
    def id_column(self) -> str:
        """The name that a row's id has in the store; no column may be called that."""
        return "clonos_id"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        if self._schema is None:
            raise ConfigurationError(
                "this sink has not been given a schema yet", hint="Call validate(schema) first"
            )
        return self._schema

    def as_json(self, rows: list[Row], ids: list[str]) -> list[bytes]:
        """The rows as JSON objects with all columns and the id, from which Spark's reader takes them back."""
        return JsonRows(self.schema, self.id_column).encode(rows, ids) if rows else []

    # -- the port

    def bind(self, checkpoint: str) -> None:  # noqa: B027
        """Nothing of this sink is kept in the checkpoint."""

    def validate(self, schema: pa.Schema) -> None:
        check_names(schema.names, self.id_column)
        for field in schema:
            check_type(field.type, field.name)
        self._schema = schema

    def writer(self) -> StoreWriter:
        _ = self.schema  # rows cannot be written before it is known
        return StoreWriter(self._connection(), Patience(self._patience))

    def raise_fence(self, query: str, fence: Fence) -> None:
        self._once(lambda store: store_log.raise_floor(store, query, fence))

    def standing_fence(self, query: str) -> Fence:
        return self._once(lambda store: store_log.read_floor(store, query))

    def log_reader(self, query: str) -> store_log.StoreLogReader:
        return store_log.StoreLogReader(self._connection(), Patience(self._patience), query)

    def record_commit(self, query: str, fence: Fence, epoch: Epoch, record: bytes) -> None:
        kept = KeptCommit(fence, epoch, record)
        self._once(lambda store: store_log.record_commit(store, query, kept))

    def last_commit(self, query: str) -> tuple[Epoch, bytes] | None:
        kept = self._once(lambda store: store_log.read_commit(store, query))
        return None if kept is None else (kept.epoch, kept.record)

    def truncate(self, query: str, fence: Fence, keep: Callable[[bytes], bool]) -> int:
        with self._connection() as connection:
            return store_log.trim(connection, Patience(self._patience), query, fence, keep)

    # -- inside

    def _connection(self) -> StoreConnection:
        return StoreConnection(self.connect, self.unavailable, repr(self))

    def _once(self, work: Callable[[Store], _T]) -> _T:
        with self._connection() as connection:
            return Patience(self._patience).run(lambda _: connection.run(work))
