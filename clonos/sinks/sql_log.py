"""The determinants, cursors and fences that a SQL sink keeps, as a recovery reads and a commit trims them.

The log is read in pages, each in a transaction of its own, so that a long log does not hold SQLite's write-ahead file
or PostgreSQL's old row versions. Rows are only ever appended beyond the last page or deleted, so pages fit together.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from clonos.core.kept_commit import KeptCommit, supersedes
from clonos.errors import Fenced, SinkError, SinkUnavailable, Where
from clonos.sinks.patience import Patience
from clonos.sinks.port import Cursors, Origin
from clonos.sinks.sql_dialect import is_unavailable, reason
from clonos.sinks.sql_tables import FLOOR, Books, at

_T = TypeVar("_T")
_PAGE = 500


def transact(engine: Engine, work: Callable[[Connection], _T]) -> _T:
    """One transaction on a connection of its own, its failures told apart."""
    try:
        with engine.begin() as connection:
            return work(connection)
    except sa.exc.DBAPIError as error:
        raise told(error) from error


def told(error: sa.exc.DBAPIError) -> SinkError | SinkUnavailable:
    if is_unavailable(error):
        return SinkUnavailable(f"the sink's database cannot be used now: {reason(error)}")
    return SinkError(f"the sink's database refuses: {reason(error)}")


def lock_fence(connection: Connection, books: Books, query: str, origin: Origin) -> int:
    """The fence that stands, its row locked until the transaction ends; the row is made if there is none."""
    fence, (node, instance) = books.fence, origin
    values = {"query": query, "node": node, "instance": instance}
    found = connection.execute(books.lock_fence, at(query, origin)).scalar_one_or_none()
    if found is None:
        quoted = connection.dialect.identifier_preparer.format_table(fence)
        connection.execute(
            sa.text(
                f"INSERT INTO {quoted} (query, node, instance, fence) VALUES (:query, :node, :instance, 0) "
                "ON CONFLICT DO NOTHING"
            ),
            values,
        )
        found = connection.execute(books.lock_fence, at(query, origin)).scalar_one()
    return int(found)


def take_fence(connection: Connection, books: Books, query: str, origin: Origin, fence: int) -> None:
    """Make `fence` the one that stands, or raise Fenced. The floor comes first: `raise_fence` locks it first too."""
    floor = lock_fence(connection, books, query, FLOOR)
    standing = max(floor, lock_fence(connection, books, query, origin))
    if standing > fence:
        raise fenced(fence, standing, origin)
    row = books.fence.update().filter_by(query=query, node=origin[0], instance=origin[1])
    connection.execute(row.values(fence=fence))


def check_fence(connection: Connection, books: Books, query: str, origin: Origin, fence: int) -> None:
    """Lock our fence until the transaction ends, or raise Fenced."""
    standing = connection.execute(books.lock_fence, at(query, origin)).scalar_one_or_none()
    if standing != fence:
        raise fenced(fence, standing, origin)


def fenced(fence: int, standing: int | None, origin: Origin) -> Fenced:
    return Fenced(
        f"sink node {origin[0]} was taken over: fence {standing} stands, this writer holds {fence}",
        where=Where(instance=origin[1]),
    )


def raise_floor(connection: Connection, books: Books, query: str, fence: int) -> None:
    """Lift every fence of the query, and the floor for instances yet unseen, to at least `fence`."""
    lock_fence(connection, books, query, FLOOR)
    table = books.fence
    connection.execute(table.update().filter_by(query=query).where(table.c.fence < fence).values(fence=fence))


def read_cursors(connection: Connection, books: Books, query: str, origin: Origin) -> Cursors:
    rows = connection.execute(books.read_cursors, at(query, origin))
    return {row.channel: row.position for row in rows}


def record_commit(connection: Connection, books: Books, query: str, offered: KeptCommit) -> None:
    """Keep it if it supersedes what is kept, or raise Fenced."""
    floor = lock_fence(connection, books, query, FLOOR)
    standing = read_commit(connection, books, query)
    if not supersedes(offered, standing, floor=floor):
        return
    table, content = books.commit, offered.pack()
    if standing is None:
        connection.execute(table.insert(), {"query": query, "bytes": content})
    else:
        connection.execute(table.update().filter_by(query=query).values(bytes=content))


def read_commit(connection: Connection, books: Books, query: str) -> KeptCommit | None:
    table = books.commit
    if not sa.inspect(connection).has_table(table.name, schema=table.schema):
        return None
    found = connection.execute(sa.select(table.c.bytes).filter_by(query=query)).scalar_one_or_none()
    return None if found is None else KeptCommit.unpack(bytes(found), f"table {table.fullname}")


class SqlLogReader:
    """See `clonos.sinks.port.SinkLogReader`. A database without our tables holds nothing."""

    def __init__(self, engine: Engine, books: Books, query: str, patience: float) -> None:
        self._engine, self._books, self._query = engine, books, query
        self._patience = Patience(patience)
        self._corrupt: list[str] = []

    @property
    def corrupt(self) -> list[str]:
        return list(self._corrupt)

    def deltas(self) -> Iterator[bytes]:
        self._corrupt.clear()
        for where, content, intact in pages(self._engine, self._books, self._query, self._patience):
            if intact:
                yield content
            else:
                node, instance, seq = where
                self._corrupt.append(
                    f"{self._books.log.fullname}: node {node}, instance {instance}, seq {seq}"
                )

    def cursors(self) -> dict[Origin, Cursors]:
        table = self._books.cursor
        chosen = sa.select(table.c.node, table.c.instance, table.c.channel, table.c.position)

        def read(connection: Connection) -> dict[Origin, Cursors]:
            found: dict[Origin, Cursors] = {}
            if sa.inspect(connection).has_table(table.name, schema=table.schema):
                for node, instance, channel, position in connection.execute(
                    chosen.filter_by(query=self._query)
                ):
                    found.setdefault((node, instance), {})[channel] = position
            return found

        return self._patience.run(lambda _: transact(self._engine, read))

    def close(self) -> None:
        self._engine.dispose()


Place = tuple[int, int, int]


def pages(
    engine: Engine, books: Books, query: str, patience: Patience
) -> Iterator[tuple[Place, bytes, bool]]:
    """Every log entry of the query with its place (node, instance, seq) and whether its checksum fits."""
    last: Place = (-1, -1, -1)
    while True:
        page = patience.run(lambda _, last=last: transact(engine, lambda c: _page(c, books, query, last)))  # type: ignore[misc]
        for row in page:
            last = (row.node, row.instance, row.seq)
            content = bytes(row.bytes)
            yield last, content, zlib.crc32(content) == row.checksum
        if len(page) < _PAGE:
            return


def _page(connection: Connection, books: Books, query: str, last: Place) -> Sequence[sa.Row[Any]]:
    log = books.log
    if not sa.inspect(connection).has_table(log.name, schema=log.schema):
        return []
    place = sa.tuple_(log.c.node, log.c.instance, log.c.seq)
    after = sa.tuple_(*(sa.literal(each) for each in last))
    chosen = sa.select(log).where(log.c.query == query, place > after).order_by(*place.clauses).limit(_PAGE)
    return connection.execute(chosen).all()


def trim(
    engine: Engine,
    reading: Engine,
    books: Books,
    query: str,
    keep: Callable[[bytes], bool],
    patience: Patience,
) -> int:
    """Delete the intact entries that `keep` does not want, a page per transaction. Corrupt ones stay as evidence."""
    doomed: list[Place] = []
    dropped = 0
    for where, content, intact in pages(reading, books, query, patience):
        if intact and not keep(content):
            doomed.append(where)
        if len(doomed) >= _PAGE:
            dropped += _delete(engine, books, query, doomed, patience)
            doomed = []
    return dropped + _delete(engine, books, query, doomed, patience)


def _delete(engine: Engine, books: Books, query: str, doomed: list[Place], patience: Patience) -> int:
    if not doomed:
        return 0
    log = books.log
    chosen = log.delete().where(
        log.c.query == query,
        log.c.node == sa.bindparam("n"),
        log.c.instance == sa.bindparam("i"),
        log.c.seq == sa.bindparam("s"),
    )
    values = [{"n": node, "i": instance, "s": seq} for node, instance, seq in doomed]
    patience.run(lambda _: transact(engine, lambda connection: connection.execute(chosen, values)))
    return len(doomed)
