"""Makes the tables of a SQL sink, checks that what is there fits, and takes over older layouts.

| layout | differs from the next |
| --- | --- |
| 1 | `clonos_fence.fence` is a number of 64 bits; no `owner`, no `clonos_trimmed` |
| 2 | today's |

`clonos_commit` and `clonos_target` came without another number: versions that do not know them leave them alone.

Another layout is taken over where tables may be created, in the transaction that finds it. Processes of the version
before then fail at their next write, without effect.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from clonos.errors import SinkError
from clonos.protocol.fence import Fence
from clonos.protocol.ids import NodeId
from clonos.protocol.roles.sink_fence import NO_WRITER
from clonos.sinks import sql_mysql
from clonos.sinks.sql_dialect import MYSQL, schema_lock
from clonos.sinks.sql_tables import FLOOR, Books, UserTable
from clonos.sinks.sql_target import Written, check_columns, check_table, read_written

FORMAT_VERSION = 2
_NARROW_FENCES = 1
_BEYOND_LAYOUT_1 = 1 << 40


def prepare(
    connection: Connection,
    books: Books,
    user: UserTable,
    *,
    create: bool,
    query: str,
    node: NodeId,
) -> Written | None:
    """Create what is missing (if we may) and check that what is there fits, also to what the query has written before;
    gives that. Needs a write transaction."""
    table = user.table
    with schema_lock(connection, books.schema):
        prepare_books(connection, books, create=create)
        written = read_written(connection, books, query, node)
        _check_spelling(connection, table)
        if written is not None:
            there = sa.inspect(connection).has_table(table.name, schema=table.schema)
            check_table(written, books, table, there=there)
        if not _create_missing(connection, [table], create=create):
            if written is not None:
                _add_columns(connection, table, written, create=create)
            _check_fit(connection, user)
    return written


def _check_spelling(connection: Connection, table: sa.Table) -> None:
    """SQLite finds a table whatever the case of its name, but describes only what has the name as it was given."""
    inspector = sa.inspect(connection)
    names = [*inspector.get_table_names(table.schema), *inspector.get_view_names(table.schema)]
    alike = [name for name in names if name.lower() == table.name.lower()]
    if alike and table.name not in alike and inspector.has_table(table.name, schema=table.schema):
        raise SinkError(
            f"table {table.fullname} is there as {alike[0]}",
            hint=f"Give the sink the name as it is there, table={alike[0]!r}, or another one",
        )


def _add_columns(connection: Connection, table: sa.Table, written: Written, *, create: bool) -> None:
    """Columns that a query's rows have in addition to those that it has shown before; its older rows are null there. A
    table that it has not written to is left as it is: it may be another one."""
    known = sa.inspect(connection).get_columns(table.name, schema=table.schema)
    there = {each["name"] for each in known}
    lacking = [column for column in table.columns if column.name not in there]
    check_columns(written, table, [column.name for column in lacking])
    dialect = connection.dialect
    for column in lacking if create else []:
        if column.nullable:  # neither the id nor the key: no value would be right in the rows that are there
            added = sa.schema.CreateColumn(column).compile(dialect=dialect)
            name = dialect.identifier_preparer.format_table(table)
            connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {added}")


def prepare_books(connection: Connection, books: Books, *, create: bool) -> None:
    """The same for our own tables alone."""
    with schema_lock(connection, books.schema):
        found = _layout(connection, books)
        if found == _NARROW_FENCES and create and connection.dialect.name != MYSQL:
            _create_missing(connection, books.all, create=True)
            _widen_fences(connection, books)
        elif found is None:
            _create_missing(connection, books.all, create=create)
            connection.execute(books.format.insert(), {"version": FORMAT_VERSION})
        elif found == FORMAT_VERSION:
            _create_missing(connection, books.all, create=create)
        else:
            raise _unknown(books, found)


def _layout(connection: Connection, books: Books) -> int | None:
    """The version of what is there; None where nothing is."""
    if not sa.inspect(connection).has_table(books.format.name, schema=books.schema):
        return None
    versions = [version for (version,) in connection.execute(sa.select(books.format.c.version))]
    if not versions and connection.dialect.name == MYSQL:
        return None  # each table is there at once, and the first start was interrupted before this row was
    if len(versions) != 1:
        raise SinkError(f"{books.format.fullname} says layout {versions}", hint="Restore it from a backup")
    return int(versions[0])


def _unknown(books: Books, found: int) -> SinkError:
    hint = "Use the version that wrote it, or another database schema"
    if found == _NARROW_FENCES:
        hint = "Let a sink with create=True open it once, under a user who may create and drop tables"
    return SinkError(
        f"{books.format.fullname} says layout {found}, this version of Clonos knows {FORMAT_VERSION}",
        hint=hint,
    )


def _widen_fences(connection: Connection, books: Books) -> None:
    """From layout 1, in which fences had 64 bits and log entries were deleted by their number alone, and numbers given
    again. A delete from then may still be under way, so the numbers go on far above all that were given."""
    columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in ("query", "node", "instance", "fence")]
    old = sa.table(books.fence.name, *columns, schema=books.schema)
    rows = connection.execute(sa.select(*columns).select_from(old)).all()
    books.fence.drop(connection)
    books.fence.create(connection)
    for query, node, instance, fence in rows:
        place = {"query": query, "node": node, "instance": instance}
        connection.execute(
            books.fence.insert(), {**place, "fence": Fence.widened(fence).text, "owner": NO_WRITER}
        )
        if (node, instance) != FLOOR:
            connection.execute(books.trimmed.insert(), {**place, "seq": _BEYOND_LAYOUT_1})
    connection.execute(books.format.update().values(version=FORMAT_VERSION))


def _create_missing(connection: Connection, tables: list[sa.Table], *, create: bool) -> list[sa.Table]:
    inspector = sa.inspect(connection)
    missing = [each for each in tables if not inspector.has_table(each.name, schema=each.schema)]
    if missing and not create:
        raise SinkError(
            f"tables are missing: {', '.join(each.fullname for each in missing)}",
            hint="Create them (the sink's ddl() gives the statements) or build the sink with create=True",
        )
    for each in missing:
        each.create(connection, checkfirst=False)
    return missing


def _check_fit(connection: Connection, user: UserTable) -> None:
    table, inspector = user.table, sa.inspect(connection)
    there = {each["name"] for each in inspector.get_columns(table.name, schema=table.schema)}
    lacking = [each.name for each in table.columns if each.name not in there]
    if lacking:
        raise SinkError(
            f"table {table.fullname} lacks the columns {', '.join(lacking)}",
            hint="Add them, without NOT NULL; with create=True a query adds them to a table that it has written to",
        )
    is_mysql = connection.dialect.name == MYSQL
    uniques = sql_mysql.uniques(connection, table) if is_mysql else _uniques(inspector, table)
    if {user.id_column} not in uniques:
        raise SinkError(
            f"column {user.id_column!r} of table {table.fullname} is not unique",
            hint="Without a unique index on it a repeated output could not be refused; create one",
        )
    if user.key and set(user.key) not in uniques:
        key = ", ".join(user.key)
        raise SinkError(
            f"table {table.fullname} has no unique index on just the key ({key})",
            hint="Without one the database cannot tell which row is to be replaced. Create one: CREATE UNIQUE INDEX "
            f"ON the columns ({key}), all of them in one index without WHERE, after removing all but one row per key",
        )
    if is_mysql:
        sql_mysql.check_columns(connection, table, user.kinds, user.id_column, user.key)


def _uniques(inspector: sa.Inspector, table: sa.Table) -> list[set[str]]:
    """The columns of which the table has no two rows with the same values."""
    place = {"schema": table.schema}
    found = [set(each["column_names"]) for each in inspector.get_unique_constraints(table.name, **place)]
    found.append(set(inspector.get_pk_constraint(table.name, **place)["constrained_columns"]))
    for index in inspector.get_indexes(table.name, include_auto_indexes=True, **place):
        partial = any(key.endswith("_where") for key in index.get("dialect_options", {}))
        if index["unique"] and not partial:
            found.append({str(each) for each in index["column_names"]})
    return found


def ddl(books: Books, table: sa.Table, dialect: sa.Dialect) -> str:
    """The statements that create everything this sink needs."""
    statements = [
        str(sa.schema.CreateTable(each).compile(dialect=dialect)).strip() for each in (*books.all, table)
    ]
    statements.append(
        f"INSERT INTO {dialect.identifier_preparer.format_table(books.format)} VALUES ({FORMAT_VERSION})"
    )
    return ";\n\n".join(statements) + ";\n"
