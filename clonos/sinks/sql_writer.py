"""One transaction per bundle: rows, determinants and cursors, under a locked fence.

Steps of a write transaction: lock our fence row and compare; write rows; append determinants; move the cursors, each
from exactly where we believe it stands; commit. The fence row stays locked until the commit, so a newer writer's
`open` waits for a transaction under way and its cursors include it, or comes first and the transaction is refused.

A commit whose answer is lost is resolved inside the next attempt's transaction: after the fence row is locked no other
transaction of ours can still be pending, so the cursors read then are the truth.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from clonos.errors import ClonosError, SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.ids import InstanceId, NodeId, Origin
from clonos.protocol.line.sink_trim import numbers
from clonos.protocol.roles.sink_fence import Holder
from clonos.sinks.bundle import check_bundle
from clonos.sinks.patience import Patience
from clonos.sinks.port import Cursors, Row, SinkPosition
from clonos.sinks.sql_dialect import MYSQL, execute_rows, is_unavailable, reason
from clonos.sinks.sql_layout import prepare
from clonos.sinks.sql_log import check_fence, next_number_of, read_cursors, take_fence, told
from clonos.sinks.sql_mysql import check_sizes, largest_packet, merging
from clonos.sinks.sql_refusal import (
    NOTHING_WRITTEN,
    Place,
    Skipped,
    check_arrived,
    check_unused,
    first_refused,
    verdict,
)
from clonos.sinks.sql_statements import Statements, statements_of
from clonos.sinks.sql_tables import Books, UserTable, at
from clonos.sinks.sql_target import keep_target
from clonos.sinks.sql_upsert import Change, Newest, inserts
from clonos.sinks.values import Encode, to_columns

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the rows go and how their values are written."""

    books: Books
    user: UserTable
    id_prefix: str
    names: Sequence[str]
    encoders: Sequence[Encode | None]
    newest: Newest | None
    create: bool

    def changes(self, ids: Sequence[str], columns: Sequence[Any], merging: Mapping[int, str]) -> list[Change]:
        """What these rows do to the table; for `merging` see `Newest.check_merging`. Raises SinkError."""
        if not ids:  # there are no columns either
            return []
        if self.newest is None:
            return inserts(ids, columns)
        self.newest.check_merging(ids, columns, merging)
        return self.newest.changes(ids, columns)


@dataclass(frozen=True, kw_only=True)
class _Bundle:
    changes: list[Change]
    cursors: Cursors
    deltas: list[bytes]


class SqlWriter:
    """See `clonos.sinks.port.SinkWriter`."""

    def __init__(self, target: Target, engine: Callable[[], Engine], patience: Patience) -> None:
        self._target = target
        self._make_engine = engine
        self._patience = patience
        self._engine: Engine | None = None
        self._connection: Connection | None = None
        self._query, self._origin = "", Origin.of(0, 0)
        self._owner = secrets.token_hex(8)
        self._mine: Holder | None = None
        self._cursors: Cursors = {}
        self._seq = 0
        self._in_doubt = False
        self._statements: Statements | None = None
        # Of MySQL: the longest statement, and what makes it take two keys for one.
        self._packet: int | None = None
        self._merging: dict[int, str] = {}
        # Whether the database knows that this query's rows are in this table.
        self._target_kept = False

    def open(self, *, query: str, node: NodeId, instance: InstanceId, fence: Fence) -> SinkPosition:
        # The same at each attempt of one writer, so that it knows what it took when it was not told.
        self._query, self._origin, self._mine = query, Origin(node, instance), Holder(fence, self._owner)
        self._patience.run(lambda _: self._transact(self._take_over))
        self._in_doubt = False
        return SinkPosition(cursors=dict(self._cursors))

    def write(self, rows: list[Row], ids: list[str], cursors: Cursors, deltas: list[bytes]) -> None:
        if self._mine is None:
            raise SinkError("a sink writer was used before it was opened")
        check_bundle(rows, ids, cursors, self._cursors)
        columns = to_columns(rows, ids, self._target.names, self._target.encoders)
        prefix = self._target.id_prefix
        stored = [prefix + each for each in ids] if prefix else ids
        moved = {c: p for c, p in cursors.items() if p != self._cursors.get(c)}
        bundle = _Bundle(
            changes=self._target.changes(stored, columns, self._merging), cursors=moved, deltas=deltas
        )
        if not (stored or moved or deltas):
            return
        self._patience.run(lambda _: self._attempt(bundle))
        self._cursors.update(moved)
        self._seq += len(deltas)

    def counted(self) -> dict[str, float]:
        return {"sink_retries": self._patience.retries}

    def close(self) -> None:
        self._disconnect()
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def _take_over(self, connection: Connection) -> None:
        target, origin = self._target, self._origin
        written = prepare(
            connection,
            target.books,
            target.user,
            create=target.create,
            query=self._query,
            node=origin.node,
        )
        self._target_kept = written is not None and written.is_to(target.user.table)
        if target.newest is not None:
            check_unused(connection, self._place, target.id_prefix)
        assert self._mine is not None
        take_fence(connection, target.books, self._query, origin, self._mine)
        self._cursors = read_cursors(connection, target.books, self._query, origin)
        self._seq = next_number_of(connection, target.books, self._query, origin)
        user = target.user
        self._statements = statements_of(user.table, user.id_column, user.names, user.key, connection.dialect)
        if connection.dialect.name == MYSQL:
            self._packet = largest_packet(connection)
            self._merging = merging(connection, user.table, user.key)

    def _attempt(self, bundle: _Bundle) -> None:
        """Raises SinkUnavailable with the outcome in doubt, which the next attempt resolves."""
        try:
            self._transact(lambda connection: self._apply(connection, bundle))
        except SinkUnavailable:
            self._in_doubt = True
            raise
        except _Refused as refusal:
            raise self._blame(bundle, refusal.cause) from None
        self._in_doubt = False
        self._target_kept = self._target_kept or bool(bundle.changes)

    def _apply(self, connection: Connection, bundle: _Bundle) -> None:
        books, (node, instance) = self._target.books, self._origin
        assert self._mine is not None
        check_fence(connection, books, self._query, self._origin, self._mine)
        if self._in_doubt and self._took_effect(connection, bundle):
            return
        if bundle.changes:
            self._change_rows(connection, bundle.changes)
        place = {"query": self._query, "node": node, "instance": instance}
        if bundle.deltas:
            if self._packet is not None:
                check_sizes(bundle.deltas, self._packet)
            log = [
                {**place, "seq": number, "checksum": zlib.crc32(delta), "bytes": delta}
                for number, delta in zip(numbers(self._seq, len(bundle.deltas)), bundle.deltas, strict=True)
            ]
            connection.execute(books.append_log, log)
        self._move_cursors(connection, bundle, place)

    def _change_rows(self, connection: Connection, changes: list[Change]) -> None:
        target, statements = self._target, self._statements
        assert statements is not None
        for change in changes:
            statement = statements.delete if change.deletes else statements.write
            try:
                counted = execute_rows(connection, statement, change.values, self._packet)
            except sa.exc.DBAPIError as error:
                if is_unavailable(error):
                    raise
                raise _Refused(error) from None
            except (TypeError, ValueError, ArithmeticError) as error:
                raise _Refused(error) from None
            if target.newest is None:
                check_arrived(connection, self._place, change.ids, counted)
            elif not change.deletes and counted < len(change.ids):  # what is to be deleted need not be there
                raise _Refused(Skipped())
        if not self._target_kept:
            keep_target(connection, target.books, self._query, self._origin.node, target.user.table)

    @property
    def _place(self) -> Place:
        return Place(self._target.books, self._target.user, self._query, self._target.newest, self._packet)

    def _took_effect(self, connection: Connection, bundle: _Bundle) -> bool:
        standing = read_cursors(connection, self._target.books, self._query, self._origin)
        if standing == self._cursors:
            return False
        if standing == {**self._cursors, **bundle.cursors}:
            return True
        raise SinkError(
            "the sink's cursors are neither where this bundle starts nor where it ends",
            hint="After a failed write repeat that very bundle or open a new writer",
        )

    def _move_cursors(self, connection: Connection, bundle: _Bundle, place: dict[str, Any]) -> None:
        books, stands = self._target.books, self._cursors
        new = [{**place, "channel": c, "position": p} for c, p in bundle.cursors.items() if c not in stands]
        if new:
            connection.execute(books.new_cursor, new)
        here = at(self._query, self._origin)
        known = [
            {**here, "c": c, "to": p, "was": stands[c]} for c, p in bundle.cursors.items() if c in stands
        ]
        if known and connection.execute(books.move_cursor, known).rowcount != len(known):
            raise SinkError("a cursor of this sink was moved by another writer", hint="Nothing was written")

    def _transact(self, work: Callable[[Connection], _T]) -> _T:
        """One transaction on the standing connection; after any failure the next one gets a new connection."""
        try:
            connection = self._connect()
            with connection.begin():
                return work(connection)
        except (_Refused, ClonosError):
            raise
        except sa.exc.DBAPIError as error:
            self._disconnect()
            raise told(error) from None
        except BaseException:
            self._disconnect()
            raise

    def _connect(self) -> Connection:
        if self._engine is None:
            self._engine = self._make_engine()
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception:  # a broken connection may fail to close; it is gone either way
                connection.invalidate()

    def _blame(self, bundle: _Bundle, error: Exception) -> SinkError:
        """Find the row that the table refuses by offering one after another, and take everything back."""
        assert self._statements is not None
        try:
            connection = self._connect()
            with connection.begin() as attempt:
                found = first_refused(connection, self._place, self._statements, bundle.changes)
                attempt.rollback()
            if found is not None:
                with connection.begin():
                    return verdict(connection, self._place, *found)
        except sa.exc.DBAPIError:
            self._disconnect()
        table = self._target.user.table.fullname
        return SinkError(f"table {table} refuses a row: {reason(error)}", hint=NOTHING_WRITTEN)


class _Refused(Exception):
    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause
