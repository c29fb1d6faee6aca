"""Says which row a table refuses or does not keep, why, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from clonos.errors import SinkError
from clonos.sinks.sql_dialect import execute_rows, is_unavailable, reason
from clonos.sinks.sql_mysql import is_guard
from clonos.sinks.sql_statements import Statements, is_later_output
from clonos.sinks.sql_tables import Books, UserTable
from clonos.sinks.sql_upsert import Change, Newest

NOTHING_WRITTEN = "Nothing of its bundle was written"
_PAGE = 500
_NAMED = 4


@dataclass(frozen=True, slots=True)
class Place:
    """Where a query's rows go; `newest` where a table holds the newest row per key."""

    books: Books
    user: UserTable
    query: str
    newest: Newest | None = None
    packet: int | None = None


class Skipped(Exception):
    """The table has not kept a row, without an error."""


def first_refused(
    connection: Connection, place: Place, statements: Statements, changes: Sequence[Change]
) -> tuple[Change, str, Exception] | None:
    """The first row that cannot be written behind those before it, and why. Leaves the others written."""
    for change in changes:
        statement = statements.delete if change.deletes else statements.write
        for row_id, each in zip(change.ids, change.values, strict=True):
            try:
                written = execute_rows(connection, statement, [each], place.packet)
                if place.newest and not change.deletes and not written:
                    return change, row_id, Skipped()
            except sa.exc.DBAPIError as error:
                if is_unavailable(error):
                    raise
                return change, row_id, error
            except (TypeError, ValueError, ArithmeticError) as error:
                return change, row_id, error
    return None


def verdict(connection: Connection, place: Place, change: Change, row_id: str, error: Exception) -> SinkError:
    """The error for a row that was refused. Needs a transaction."""
    guarded = isinstance(error, sa.exc.IntegrityError) and _is_guard(error, place)
    if isinstance(error, (sa.exc.IntegrityError, Skipped)) and _held(connection, place, [row_id]):
        return _twice(connection, place, row_id)
    if guarded or isinstance(error, Skipped):
        return _why_skipped(connection, place, change, row_id, guarded=guarded)
    return SinkError(
        f"table {place.user.table.fullname} refuses row {row_id}: {reason(error)}", hint=NOTHING_WRITTEN
    )


def _twice(connection: Connection, place: Place, row_id: str) -> SinkError:
    table = place.user.table.fullname
    return _again(
        connection, place, f"output {row_id} would become visible twice: table {table} already holds it"
    )


def _again(connection: Connection, place: Place, message: str) -> SinkError:
    """What to do where the table has rows that this query, by its cursors, has not written."""
    query, cursor = place.query, place.books.cursor.fullname
    others = _other_queries(connection, place.books, query)
    if not others:
        return SinkError(
            f"{message}, and {cursor} knows no other query",
            hint=f"{NOTHING_WRITTEN}. The clonos_... tables beside it were lost or cleared, or another program wrote "
            "the row. Restore them together with the table, or begin anew with a new checkpointLocation and a new "
            "table",
        )
    named = ", ".join(others[:_NAMED]) + (", ..." if len(others) > _NAMED else "")
    wrong = (
        "with an id_prefix the rows of keys that do not come again would stay"
        if place.newest
        else "with an id_prefix all rows would come a second time"
    )
    return SinkError(
        f"{message}; {cursor} knows query {named}, this one is {query}",
        hint=f"{NOTHING_WRITTEN}. If that was this query, under a checkpoint that is lost or was replaced, restore the "
        f"checkpoint, or begin anew with a new checkpointLocation and a new table: {wrong}. If it is an unrelated "
        "query, give this one an id_prefix",
    )


def _other_queries(connection: Connection, books: Books, query: str) -> list[str]:
    chosen = sa.union(*(sa.select(table.c.query) for table in (books.cursor, books.commit)))
    return sorted(each for (each,) in connection.execute(chosen) if each != query)


def check_unused(connection: Connection, place: Place, prefix: str) -> None:
    """Raises SinkError where a table with one row per key holds rows under the ids of a query that has shown none. What
    it wrote there would be told only when one of these ids, or an older one of its instance, came again."""
    cursor, ids = place.books.cursor, place.user.ids
    shown = sa.select(cursor.c.query).where(cursor.c.query == place.query, cursor.c.position > 0).limit(1)
    begins = sa.func.substr(ids, 1, len(prefix) + 1).in_([f"{prefix}{digit}" for digit in range(10)])
    hyphens = sa.func.length(ids) - sa.func.length(sa.func.replace(ids, "-", ""))
    chosen = sa.select(ids).where(begins, hyphens == prefix.count("-") + 2).limit(1)
    if connection.execute(shown).first() is not None:
        return
    found = connection.execute(chosen).scalar()
    # Asked again: other instances of the query may have begun in between.
    if found is not None and connection.execute(shown).first() is None:
        table = place.user.table.fullname
        said = f"table {table} has rows that this query has not written, one of them is {found}"
        raise _again(connection, place, said)


def check_arrived(connection: Connection, place: Place, ids: Sequence[str], inserted: int) -> None:
    """Raises SinkError where the table has not kept every row of an insert. `inserted` is what the driver counted:
    where that falls short (or it does not count) rows may have gone to a part of the table, so they are looked for."""
    if inserted == len(ids):
        return
    held: set[str] = set()
    for first in range(0, len(ids), _PAGE):
        held |= _held(connection, place, ids[first : first + _PAGE])
    lost = [each for each in ids if each not in held]
    if lost:
        raise _lost(place, f"{len(lost)} of {len(ids)} rows without an error, the first is {lost[0]}")


def _lost(place: Place, what: str) -> SinkError:
    return SinkError(
        f"table {place.user.table.fullname} has skipped {what}",
        hint=f"{NOTHING_WRITTEN}. A trigger or rule of the table does that (RETURN NULL, RAISE(IGNORE), DO "
        "INSTEAD): remove it, and filter in the query",
    )


def _is_guard(error: sa.exc.IntegrityError, place: Place) -> bool:
    cause = error.orig
    return place.packet is not None and cause is not None and is_guard(cause, place.user.id_column)


def _why_skipped(
    connection: Connection, place: Place, change: Change, row_id: str, *, guarded: bool
) -> SinkError:
    """Of a row that neither came in addition nor took the place of another."""
    assert place.newest is not None
    user = place.user
    key = zip(user.key, place.newest.key_of(change, row_id), strict=True)
    chosen = sa.select(user.ids).where(*(user.table.c[name] == value for name, value in key))
    standing = connection.execute(chosen).scalar()
    if standing is not None and is_later_output(standing, row_id):
        table = user.table.fullname
        said = f"output {row_id} would take the place of a later one: table {table} holds {standing} under its key"
        return _again(connection, place, said)
    if guarded:
        return SinkError(
            f"table {user.table.fullname} refuses row {row_id}: a row with another key has the same value in another "
            "unique index",
            hint=NOTHING_WRITTEN,
        )
    return _lost(place, f"row {row_id} without an error")


def _held(connection: Connection, place: Place, ids: Sequence[str]) -> set[str]:
    column = place.user.ids
    return set(connection.execute(sa.select(column).where(column.in_(ids))).scalars())
