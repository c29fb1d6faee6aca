"""The statements that change the user's table, one row's parameters at a time.

Written out once per writer and given to the driver as they are: building them for every bundle costs more than
SQLite takes to run them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from clonos.sinks.sql_dialect import SQLITE

_OLD, _NEW = "clonos_old", "excluded"
_DIGITS = "0123456789"


@dataclass(frozen=True, slots=True)
class Statements:
    """`write` takes a row's id and values, `delete` an id and a key."""

    write: str
    delete: str = ""


def insert_of(table: sa.Table, id_column: str, names: Sequence[str], dialect: sa.Dialect) -> Statements:
    """Every row comes in addition."""
    return Statements(_insert(table, [id_column, *names], dialect))


def upsert_of(
    table: sa.Table, id_column: str, names: Sequence[str], key: Sequence[str], dialect: sa.Dialect
) -> Statements:
    """A row takes the place of the one with its key, unless that is the same output or a later one of its instance."""
    quote = dialect.identifier_preparer
    columns = [quote.format_column(table.c[name]) for name in (id_column, *names)]
    unique = ", ".join(quote.format_column(table.c[name]) for name in key)
    own = quote.format_column(table.c[id_column])
    write = (
        f"{_insert(table, [id_column, *names], dialect, alias=_OLD)} ON CONFLICT ({unique}) DO UPDATE "
        f"SET {', '.join(f'{column} = {_NEW}.{column}' for column in columns)} "
        f"WHERE {_is_later(f'{_OLD}.{own}', f'{_NEW}.{own}')}"
    )
    mark = _mark(dialect)
    chosen = " AND ".join(f"{_OLD}.{quote.format_column(table.c[name])} = {mark}" for name in key)
    # The id is named once, so that one parameter is enough.
    given = f"(SELECT CAST({mark} AS TEXT) AS id) AS clonos_new"
    later = f"EXISTS (SELECT 1 FROM {given} WHERE {_is_later(f'{_OLD}.{own}', 'clonos_new.id')})"
    return Statements(write, f"DELETE FROM {quote.format_table(table)} AS {_OLD} WHERE {later} AND {chosen}")


def _insert(table: sa.Table, names: Sequence[str], dialect: sa.Dialect, alias: str | None = None) -> str:
    quote = dialect.identifier_preparer
    columns = ", ".join(quote.format_column(table.c[name]) for name in names)
    into = quote.format_table(table) + (f" AS {alias}" if alias else "")
    marks = ", ".join([_mark(dialect)] * len(names))
    return f"INSERT INTO {into} ({columns}) VALUES ({marks})"


def _mark(dialect: sa.Dialect) -> str:
    return "?" if dialect.name == SQLITE else "%s"


def _is_later(old: str, new: str) -> str:
    """Whether the row with the id `new` may take the place of the one with the id `old`. Ids are what stands before the
    output number, and that in digits, without zeros in front: the longer number is the larger one."""
    origin = [f"rtrim({each}, '{_DIGITS}')" for each in (old, new)]
    return (
        f"({old} IS NULL OR {origin[0]} <> {origin[1]} OR length({old}) < length({new}) "
        f"OR (length({old}) = length({new}) AND {old} < {new}))"
    )


def is_later_output(one: str, other: str) -> bool:
    """Whether the id `one` is of a later output of the instance that made `other`; what the statements compare."""
    origins = [each.rstrip(_DIGITS) for each in (one, other)]
    return origins[0] == origins[1] and (len(one), one) > (len(other), other)
