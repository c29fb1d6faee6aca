"""Says which row a table refuses or does not keep, why, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from clonos.errors import SinkError
from clonos.sinks.sql_dialect import is_unavailable, reason
from clonos.sinks.sql_tables import Books

NOTHING_WRITTEN = "Nothing of its bundle was written"
_PAGE = 500
_NAMED = 4


def first_refused(
    connection: Connection, insert: str, ids: Sequence[str], values: Sequence[tuple[Any, ...]]
) -> tuple[str, Exception] | None:
    """The first row that cannot be inserted behind those before it, and why. Leaves the others inserted."""
    for row_id, each in zip(ids, values, strict=True):
        try:
            connection.exec_driver_sql(insert, each)
        except sa.exc.DBAPIError as error:
            if is_unavailable(error):
                raise
            return row_id, error
        except (TypeError, ValueError, ArithmeticError) as error:
            return row_id, error
    return None


def verdict(
    connection: Connection, books: Books, column: sa.Column[Any], query: str, row_id: str, error: Exception
) -> SinkError:
    """The error for a row that was refused. `column` is that of the ids. Needs a transaction."""
    table = column.table.fullname
    if isinstance(error, sa.exc.IntegrityError) and _held(connection, column, [row_id]):
        return _twice(table, row_id, query, _other_queries(connection, books, query), books)
    return SinkError(f"table {table} refuses row {row_id}: {reason(error)}", hint=NOTHING_WRITTEN)


def _twice(table: str, row_id: str, query: str, others: list[str], books: Books) -> SinkError:
    message = f"output {row_id} would become visible twice: table {table} already holds it"
    if not others:
        return SinkError(
            f"{message}, and {books.cursor.fullname} knows no other query",
            hint=f"{NOTHING_WRITTEN}. The clonos_... tables beside it were lost or cleared, or another program wrote "
            "the row. Restore them together with the table, or begin anew with a new checkpointLocation and a new "
            "table",
        )
    named = ", ".join(others[:_NAMED]) + (", ..." if len(others) > _NAMED else "")
    return SinkError(
        f"{message}; {books.cursor.fullname} knows query {named}, this one is {query}",
        hint=f"{NOTHING_WRITTEN}. If that was this query, under a checkpoint that is lost or was replaced, restore the "
        "checkpoint, or begin anew with a new checkpointLocation and a new table: with an id_prefix all rows would "
        "come a second time. If it is an unrelated query, give this one an id_prefix",
    )


def _other_queries(connection: Connection, books: Books, query: str) -> list[str]:
    chosen = sa.union(*(sa.select(table.c.query) for table in (books.cursor, books.commit)))
    return sorted(each for (each,) in connection.execute(chosen) if each != query)


def check_arrived(connection: Connection, column: sa.Column[Any], ids: Sequence[str], inserted: int) -> None:
    """Raises SinkError where the table has not kept every row of an insert. `inserted` is what the driver counted:
    where that falls short (or it does not count) rows may have gone to a part of the table, so they are looked for."""
    if inserted == len(ids):
        return
    held: set[str] = set()
    for first in range(0, len(ids), _PAGE):
        held |= _held(connection, column, ids[first : first + _PAGE])
    lost = [each for each in ids if each not in held]
    if lost:
        raise SinkError(
            f"table {column.table.fullname} has skipped {len(lost)} of {len(ids)} rows without an error, the first is "
            f"{lost[0]}",
            hint=f"{NOTHING_WRITTEN}. A trigger or rule of the table does that (RETURN NULL, RAISE(IGNORE), DO "
            "INSTEAD): remove it, and filter in the query",
        )


def _held(connection: Connection, column: sa.Column[Any], ids: Sequence[str]) -> set[str]:
    return set(connection.execute(sa.select(column).where(column.in_(ids))).scalars())
