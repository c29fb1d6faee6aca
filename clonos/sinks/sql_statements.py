"""The statements that change the user's table.

Written out once per writer and given to the driver as they are: building them for every bundle costs more than
SQLite takes to run them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

_OLD, _NEW = "clonos_old", "clonos_new"
_DIGITS = "0123456789"
_GIVEN = "\0"  # stands for a parameter; no name has it


@dataclass(frozen=True, slots=True)
class Statement:
    """`row` is said for each row, with its parameters, of which it says the first one `ids` times."""

    head: str
    row: str
    between: str = ", "
    tail: str = ""
    ids: int = 1

    def of(self, count: int) -> str:
        return self.head + self.between.join([self.row] * count) + self.tail

    def parameters(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return rows if self.ids == 1 else [(row[0],) * self.ids + row[1:] for row in rows]


@dataclass(frozen=True, slots=True)
class Statements:
    """`write` takes a row's id and values, `delete` an id and a key. Without a key rows are only inserted."""

    write: Statement
    delete: Statement


def statements_of(
    table: sa.Table, id_column: str, names: Sequence[str], key: Sequence[str], dialect: sa.Dialect
) -> Statements:
    """With a key, a row takes the place of the one with its key, unless that is the same output or a later one of its
    instance."""
    quote = dialect.identifier_preparer
    columns = {name: quote.format_column(table.c[name]) for name in (id_column, *names)}
    into, own = quote.format_table(table), columns[id_column]
    mark = "?" if dialect.name == "sqlite" else "%s"
    marks = f"({', '.join([mark] * len(columns))})"
    head = f"INSERT INTO {into} ({', '.join(columns.values())}) VALUES "
    if not key:
        return Statements(Statement(head, marks), Statement("", ""))
    unique = [columns[name] for name in key]
    chosen = " AND ".join(f"{_OLD}.{column} = {mark}" for column in unique)
    if dialect.name == "mysql":
        tail = _replacing_of_mysql(quote.quote(table.name), list(columns.values()), unique, dialect)
        later = _is_later_to_mysql(f"{_OLD}.{own}", _GIVEN)
        delete = f"DELETE {_OLD} FROM {into} AS {_OLD} WHERE "
        write = Statement(head, marks, tail=tail)
    else:
        tail = (
            f" ON CONFLICT ({', '.join(unique)}) DO UPDATE "
            f"SET {', '.join(f'{column} = excluded.{column}' for column in columns.values())} "
            f"WHERE {_is_later(f'{_OLD}.{own}', f'excluded.{own}')}"
        )
        later = _is_later(f"{_OLD}.{own}", f"CAST({_GIVEN} AS TEXT)")
        delete = f"DELETE FROM {into} AS {_OLD} WHERE "
        write = Statement(head.replace(f"INTO {into}", f"INTO {into} AS {_OLD}", 1), marks, tail=tail)
    row = f"({later.replace(_GIVEN, mark)} AND {chosen})"
    return Statements(write, Statement(delete, row, between=" OR ", ids=later.count(_GIVEN)))


def _replacing_of_mysql(table: str, columns: Sequence[str], key: Sequence[str], dialect: sa.Dialect) -> str:
    """MySQL replaces a row that is equal in any unique index, not only in the one of the key, and has no WHERE. So
    where a row is not to be replaced its id, which may not be null, becomes null, and the server refuses. Assignments
    take effect from left to right, so this one is the first."""
    is_mariadb = getattr(dialect, "is_mariadb", False)

    def new(column: str) -> str:  # each of the two has a form that the other one does not know, or warns of
        return f"VALUES({column})" if is_mariadb else f"{_NEW}.{column}"

    own, *others = columns
    same = " AND ".join(f"{table}.{column} = {new(column)}" for column in key)
    may = f"{same} AND {_is_later_to_mysql(f'{table}.{own}', new(own))}"
    assigned = [f"{own} = IF({may}, {new(own)}, NULL)", *(f"{each} = {new(each)}" for each in others)]
    alias = "" if is_mariadb else f" AS {_NEW}"
    return f"{alias} ON DUPLICATE KEY UPDATE {', '.join(assigned)}"


def _is_later(old: str, new: str) -> str:
    """Whether the row with the id `new` may take the place of the one with the id `old`. Ids are what stands before the
    output number, and that in digits, without zeros in front: the longer number is the larger one."""
    origin = [f"rtrim({each}, '{_DIGITS}')" for each in (old, new)]
    return (
        f"({old} IS NULL OR {origin[0]} <> {origin[1]} OR length({old}) < length({new}) "
        f"OR (length({old}) = length({new}) AND {old} < {new}))"
    )


def _is_later_to_mysql(old: str, new: str) -> str:
    """The same, whatever character set and collation the column and the connection have."""
    one, other = (f"CONVERT({each} USING utf8mb4) COLLATE utf8mb4_bin" for each in (old, new))
    origin = [f"REGEXP_REPLACE({each}, '[0-9]+$', '')" for each in (one, other)]
    return (
        f"({old} IS NULL OR {origin[0]} <> {origin[1]} OR LENGTH({one}) < LENGTH({other}) "
        f"OR (LENGTH({one}) = LENGTH({other}) AND {one} < {other}))"
    )


def is_later_output(one: str, other: str) -> bool:
    """Whether the id `one` is of a later output of the instance that made `other`; what the statements compare."""
    origins = [each.rstrip(_DIGITS) for each in (one, other)]
    return origins[0] == origins[1] and (len(one), one) > (len(other), other)
