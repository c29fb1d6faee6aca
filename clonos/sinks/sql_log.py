"""The determinants, cursors and fences that a SQL sink keeps, as a recovery reads and a commit trims them.

The log is read in pages, each in a transaction of its own, so that a long log does not hold SQLite's write-ahead file
or PostgreSQL's old row versions. Rows are only ever appended beyond the last page or deleted, so pages fit together. It
is deleted in pages, too; `clonos.protocol.line.sink_trim` has the rule of what one may remove, however late it comes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from clonos.errors import SinkError, SinkUnavailable
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Origin
from clonos.protocol.line.kept_commit import KeptCommit, supersedes
from clonos.protocol.line.sink_trim import Entry, Page, next_number
from clonos.protocol.roles.sink_fence import NO_WRITER, Holder, check_driver, check_holding, check_taking
from clonos.sinks.patience import Patience
from clonos.sinks.port import Cursors
from clonos.sinks.sql_dialect import MYSQL, is_unavailable, put, reason
from clonos.sinks.sql_tables import FLOOR, Books, at

_T = TypeVar("_T")
_PAGE = 500


def transact(engine: Engine, work: Callable[[Connection], _T]) -> _T:
    """One transaction on a connection of its own, its failures told apart."""
    try:
        with engine.begin() as connection:
            return work(connection)
    except sa.exc.DBAPIError as error:
        raise told(error) from None


def told(error: sa.exc.DBAPIError) -> SinkError | SinkUnavailable:
    if is_unavailable(error):
        return SinkUnavailable(f"the sink's database cannot be used now: {reason(error)}")
    return SinkError(f"the sink's database refuses: {reason(error)}")


def lock_fence(connection: Connection, books: Books, query: str, origin: Origin) -> Holder:
    """Who holds it, the row locked until the transaction ends; the row is made if there is none."""
    fence, (node, instance) = books.fence, origin
    values = {"query": query, "node": node, "instance": instance, "fence": Fence(0).text, "owner": NO_WRITER}
    found = connection.execute(books.lock_fence, at(query, origin)).one_or_none()
    if found is None:
        put(connection, fence, values, changed=())
        found = connection.execute(books.lock_fence, at(query, origin)).one()
    return _holder(found)


def _holder(row: sa.Row[Any]) -> Holder:
    return Holder(Fence.parse(row.fence), row.owner)


def read_floor(connection: Connection, books: Books, query: str) -> Fence:
    """The highest fence that was raised for the whole query; 0 where there are no tables yet."""
    table, inspector = books.fence, sa.inspect(connection)
    if not inspector.has_table(table.name, schema=table.schema):
        return LOWEST_FENCE
    if all(column["name"] != "owner" for column in inspector.get_columns(table.name, schema=table.schema)):
        return LOWEST_FENCE  # tables from before fences had owners: their starts are in the checkpoint's old counter
    chosen: sa.Select[Any] = sa.select(table.c.fence, table.c.owner).filter_by(
        query=query, node=FLOOR.node, instance=FLOOR.instance
    )
    found = connection.execute(chosen).one_or_none()
    return _holder(found).fence if found is not None else LOWEST_FENCE


def take_fence(connection: Connection, books: Books, query: str, origin: Origin, mine: Holder) -> None:
    """Make `mine` the holder, or raise Fenced. The floor comes first: `raise_fence` locks it first too."""
    floor = lock_fence(connection, books, query, FLOOR)
    standing = lock_fence(connection, books, query, origin)
    check_taking(mine, standing, floor=floor.fence, origin=origin)
    _write_fence(connection, books, query, origin, mine)


def _write_fence(connection: Connection, books: Books, query: str, origin: Origin, holder: Holder) -> None:
    row = books.fence.update().filter_by(query=query, node=origin[0], instance=origin[1])
    connection.execute(row.values(fence=Fence(holder.fence).text, owner=holder.owner))


def check_fence(connection: Connection, books: Books, query: str, origin: Origin, mine: Holder) -> None:
    """Lock our fence until the transaction ends, or raise Fenced."""
    found = connection.execute(books.lock_fence, at(query, origin)).one_or_none()
    standing = Holder() if found is None else _holder(found)
    check_holding(mine, standing, origin=origin, kept_in=f"table {books.fence.fullname}")


def raise_floor(connection: Connection, books: Books, query: str, fence: Fence) -> None:
    """Lift every fence of the query, and the floor for instances yet unseen, to at least `fence`."""
    lock_fence(connection, books, query, FLOOR)
    table = books.fence
    rows = connection.execute(
        sa.select(table).filter_by(query=query).order_by(table.c.node, table.c.instance).with_for_update()
    ).all()
    for row in rows:
        standing = _holder(row)
        raised = standing.raised_to(fence)
        if raised != standing:
            _write_fence(connection, books, query, Origin(row.node, row.instance), raised)


def read_cursors(connection: Connection, books: Books, query: str, origin: Origin) -> Cursors:
    rows = connection.execute(books.read_cursors, at(query, origin))
    return {row.channel: row.position for row in rows}


def record_commit(connection: Connection, books: Books, query: str, offered: KeptCommit) -> None:
    """Keep it if it supersedes what is kept, or raise Fenced."""
    floor = lock_fence(connection, books, query, FLOOR)
    standing = read_commit(connection, books, query)
    if not supersedes(offered, standing, floor=floor.fence):
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
        for found in pages(self._engine, self._books, self._query, self._patience):
            if found.intact:
                yield found.content
            else:
                (node, instance), seq = found.origin, found.entry.number
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
                    found.setdefault(Origin(node, instance), {})[channel] = position
            return found

        return self._patience.run(lambda _: transact(self._engine, read))

    def reached(self) -> dict[Origin, Cursors]:
        return self.cursors()

    def close(self) -> None:
        self._engine.dispose()


def next_number_of(connection: Connection, books: Books, query: str, origin: Origin) -> int:
    """The number of the next entry of a sink instance's log."""
    log, trimmed = books.log, books.trimmed
    place = {"query": query, "node": origin[0], "instance": origin[1]}
    last = connection.execute(sa.select(sa.func.max(log.c.seq)).filter_by(**place)).scalar_one_or_none()
    removed = connection.execute(sa.select(trimmed.c.seq).filter_by(**place)).scalar_one_or_none()
    return next_number(last or 0, removed or 0)


@dataclass(frozen=True, slots=True)
class Found:
    """An entry of the log: of which sink instance, its name, its content, and whether that fits its checksum."""

    origin: Origin
    entry: Entry
    content: bytes
    intact: bool


def pages(engine: Engine, books: Books, query: str, patience: Patience) -> Iterator[Found]:
    """Every log entry of the query, in order."""
    last = (-1, -1, -1)
    while True:
        page = patience.run(lambda _, last=last: transact(engine, lambda c: _page(c, books, query, last)))  # type: ignore[misc]
        for row in page:
            last = (row.node, row.instance, row.seq)
            content = bytes(row.bytes)
            intact = zlib.crc32(content) == row.checksum
            yield Found(Origin(row.node, row.instance), Entry(row.seq, row.checksum), content, intact)
        if len(page) < _PAGE:
            return


def _page(
    connection: Connection, books: Books, query: str, last: tuple[int, int, int]
) -> Sequence[sa.Row[Any]]:
    log = books.log
    if not sa.inspect(connection).has_table(log.name, schema=log.schema):
        return []
    place = (log.c.node, log.c.instance, log.c.seq)
    after = _beyond(place, last) if connection.dialect.name == MYSQL else sa.tuple_(*place) > sa.tuple_(*last)
    chosen = sa.select(log).where(log.c.query == query, after).order_by(*place).limit(_PAGE)
    return connection.execute(chosen).all()


def _beyond(place: Sequence[sa.ColumnElement[int]], last: Sequence[int]) -> sa.ColumnElement[bool]:
    """The same, spelt out. MySQL uses no index to compare tuples, and would read all pages again for each."""
    (column, *columns), (value, *values) = place, last
    if not columns:
        return column > value
    return sa.or_(column > value, sa.and_(column == value, _beyond(columns, values)))


class Trimmer:
    """Deletes the intact entries that no recovery needs, a page per transaction. Corrupt ones stay as evidence."""

    def __init__(self, engine: Engine, books: Books, query: str, fence: Fence, patience: Patience) -> None:
        self._engine, self._books = engine, books
        self._query, self._fence = query, fence
        self._patience = patience

    def trim(self, reading: Engine, keep: Callable[[bytes], bool]) -> int:
        """How many are gone."""
        to_remove: list[Entry] = []
        origin: Origin = FLOOR
        dropped = 0
        for found in pages(reading, self._books, self._query, self._patience):
            if len(to_remove) >= _PAGE or found.origin != origin:
                dropped += self._remove(origin, Page.of(to_remove))
                origin, to_remove = found.origin, []
            if found.intact and not keep(found.content):
                to_remove.append(found.entry)
        return dropped + self._remove(origin, Page.of(to_remove))

    def _remove(self, origin: Origin, page: Page) -> int:
        if page.entries:
            work = self._patience.run
            work(lambda _: transact(self._engine, lambda connection: self.remove(connection, origin, page)))
        return len(page.entries)

    def remove(self, connection: Connection, origin: Origin, page: Page) -> None:
        """One page, in one transaction. Raises Fenced where a later start of the query has raised the floor."""
        books, log = self._books, self._books.log
        check_driver(self._fence, floor=lock_fence(connection, books, self._query, FLOOR).fence)
        place = {"query": self._query, "node": origin[0], "instance": origin[1]}
        self._count(connection, place, page)
        chosen = (
            log.delete()
            .filter_by(**place)
            .where(log.c.seq == sa.bindparam("s"), log.c.checksum == sa.bindparam("c"))
        )
        connection.execute(chosen, [{"s": one.number, "c": one.checksum} for one in sorted(page.entries)])

    def _count(self, connection: Connection, place: dict[str, Any], page: Page) -> None:
        """Note the highest number that was removed: the next writer of the log must not give it again."""
        table = self._books.trimmed
        before = connection.execute(sa.select(table.c.seq).filter_by(**place)).scalar_one_or_none()
        upto = page.removed_upto(before or 0)
        if before is None:
            connection.execute(table.insert(), {**place, "seq": upto})
        elif upto > before:
            connection.execute(table.update().filter_by(**place).values(seq=upto))
