"""Remembers to which table and columns a query's rows were written, and refuses what cannot be that table.

The record is written with the first rows that go there, in their transaction, so a start that has shown nothing leaves
none. It counts only beside cursors that say that rows are out. Where rows were written before there was a record, all
that is noticed is that the table is not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from clonos.errors import SinkError
from clonos.json_text import parsed_json
from clonos.protocol.ids import NodeId
from clonos.sinks.sql_dialect import put
from clonos.sinks.sql_tables import Books


@dataclass(frozen=True, slots=True)
class Written:
    """What is out of a sink node: up to how many rows, in which table and columns, or None where that is not known."""

    rows: int
    table: str | None = None
    columns: frozenset[str] = frozenset()

    def is_to(self, table: sa.Table) -> bool:
        """Whether the record says just this."""
        return self.table == table.name and self.columns == _columns(table)


def read_written(connection: Connection, books: Books, query: str, node: NodeId) -> Written | None:
    """None where nothing is out yet."""
    cursor, target = books.cursor, books.target
    reached = sa.func.max(cursor.c.position).label("reached")
    each = sa.select(reached).filter_by(query=query, node=node).group_by(cursor.c.channel).subquery()
    rows = connection.execute(sa.select(sa.func.sum(each.c.reached))).scalar()
    if not rows:
        return None
    chosen = sa.select(target.c.table_name, target.c.column_names).filter_by(query=query, node=node)
    found = connection.execute(chosen).one_or_none()
    if found is None:
        return Written(int(rows))
    return Written(int(rows), found.table_name, frozenset(parsed_json(found.column_names)))


def keep_target(connection: Connection, books: Books, query: str, node: NodeId, table: sa.Table) -> None:
    """In the transaction with rows."""
    names = json.dumps(sorted(_columns(table)))
    values = {"query": query, "node": node, "table_name": table.name, "column_names": names}
    put(connection, books.target, values, changed=("table_name", "column_names"))


def check_table(written: Written, books: Books, table: sa.Table, *, there: bool) -> None:
    """Raises SinkError where the query's rows are, or were, in another table than this one."""
    anew = "to begin anew, take a new checkpointLocation and a new table"
    if written.table not in (None, table.name):
        raise SinkError(
            f"this query has written up to {written.rows} rows to table {written.table!r} "
            f"({books.cursor.fullname} and {books.target.fullname} say so) and is now given {table.name!r}",
            hint=f"Name the former table, by its former name if it was renamed; {anew}",
        )
    if not there:
        raise SinkError(
            f"table {table.fullname} is not there, and {books.cursor.fullname} says that up to {written.rows} rows of "
            "this query are out",
            hint=f"Restore the table with its rows, or name the one that holds them; {anew}",
        )


def check_columns(written: Written, table: sa.Table, lacking: Iterable[str]) -> None:
    """Raises SinkError unless columns that the table lacks can only be ones that the query's rows have gained."""
    lacking = list(lacking)
    gone = [name for name in lacking if name in written.columns]
    if gone:
        raise SinkError(
            f"table {table.fullname} lacks the columns {', '.join(gone)}, to which this query has written: up to "
            f"{written.rows} rows are out",
            hint="Rename or restore them, or say in columns= what they are called now; added anew they would be null "
            "in the rows before",
        )
    left = sorted(written.columns - _columns(table))
    if lacking and left:
        raise SinkError(
            f"table {table.fullname} lacks the columns {', '.join(lacking)}, and this query does not write "
            f"{', '.join(left)} any more, to which it has written up to {written.rows} rows",
            hint="Where one is the other under a new name, rename it in the table, too, or name it in columns= as "
            "before",
        )


def _columns(table: sa.Table) -> frozenset[str]:
    return frozenset(column.name for column in table.columns)
