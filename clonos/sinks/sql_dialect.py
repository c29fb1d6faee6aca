"""What differs between the databases: how to reach one, begin a write on it, write values, and read its errors.

Three are supported, because the guarantees rest on behaviour that has to be tested: SQLite (one file, one writer at a
time, any number of readers), PostgreSQL through psycopg 3, and MySQL or MariaDB (`clonos.sinks.sql_mysql`). An error
is *unavailable* when waiting can mend it (no connection, a lock, a full disk, a server that starts or stops) and a
refusal otherwise.

A process that is stopped in the middle of a transaction holds locks. PostgreSQL is told to end such a transaction by
itself (`idle_in_transaction_session_timeout`), and so is MySQL, so that a hung writer cannot keep its successor out.
SQLite has no server that could: there the hung process must be killed.
"""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pyarrow import types as pt
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import URL, Connection, Engine, make_url

from clonos.errors import QueryDefinitionError
from clonos.extras import needs
from clonos.sinks import sql_mysql
from clonos.sinks.sql_statements import Statement
from clonos.sinks.values import Encode, is_binary, is_nested, json_text_encoder, microseconds, plain

SQLITE, POSTGRESQL, MYSQL = "sqlite", "postgresql", "mysql"
LONGEST_NAME = {SQLITE: 1_000, POSTGRESQL: 63, MYSQL: 64}
_LOCK_WAIT_MS = 2_000
_DDL_LOCK = 0x636C6F6E6F73  # "clonos": one schema change at a time
_SQLITE_WAITS = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}
# By SQLSTATE class: connection, rollback (deadlock, serialization), resources, operator intervention, system error.
_POSTGRESQL_WAIT_CLASSES = {"08", "40", "53", "57", "58"}
_POSTGRESQL_WAITS = {"55P03", "25006", "25P03"}  # lock timeout, read-only standby, idle transaction ended


def parse_url(text: str) -> URL:
    """A URL that this sink can serve, with its driver spelled out and its file path absolute."""
    try:
        url = make_url(text.replace("postgres://", "postgresql://", 1))
    except sa.exc.ArgumentError:
        raise QueryDefinitionError(
            "not a database URL", hint="Write sqlite:///file, postgresql://host/db or mysql://host/db"
        ) from None
    backend, driver = url.get_backend_name(), url.drivername.partition("+")[2]
    if backend == SQLITE and driver in ("", "pysqlite"):
        path = url.database
        if not path or path == ":memory:" or path.startswith("file:"):
            raise QueryDefinitionError(
                "a SQLite sink needs a file: several processes write to it and read it",
                hint="Write sqlite:///file",
            )
        return url.set(drivername="sqlite+pysqlite", database=os.path.abspath(path))
    if backend == POSTGRESQL and driver in ("", "psycopg"):
        needs("psycopg", "a PostgreSQL sink")
        return url.set(drivername="postgresql+psycopg")
    if backend in (MYSQL, "mariadb") and driver in ("", "pymysql"):
        needs("pymysql", "a MySQL sink")
        if not url.database:
            raise QueryDefinitionError("the URL names no database", hint="Write mysql://host/db")
        return url.set(drivername="mysql+pymysql")
    raise QueryDefinitionError(
        f"no SQL sink for {url.drivername!r}",
        hint="Supported: sqlite (built in), postgresql+psycopg (psycopg 3), mysql+pymysql and mariadb+pymysql",
    )


def make_engine(url: URL, *, patience: float, durable: bool, immediate: bool) -> Engine:
    """An engine without a pool. With `immediate`, a SQLite transaction takes the write lock when it begins."""
    backend = url.get_backend_name()
    engine = sa.create_engine(
        url,
        poolclass=sa.pool.NullPool,
        connect_args=_connect_args(url, patience),
        hide_parameters=True,  # they are the user's rows, and errors go into logs
    )

    def on_connect(raw: Any, _record: object) -> None:
        if backend == SQLITE:
            _prepare_sqlite(raw, durable)
        elif backend == MYSQL:
            sql_mysql.prepare_session(raw, patience)
        else:
            _prepare_postgresql(raw, patience, durable)

    sa.event.listen(engine, "connect", on_connect)
    if backend == SQLITE:
        begin = "BEGIN IMMEDIATE" if immediate else "BEGIN"
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _connect_args(url: URL, patience: float) -> dict[str, Any]:
    if url.get_backend_name() == SQLITE:
        return {"timeout": _LOCK_WAIT_MS / 1000, "check_same_thread": False}
    if url.get_backend_name() == MYSQL:
        return sql_mysql.connect_args(patience)
    timeout = max(1, round(patience))
    wanted = {
        "connect_timeout": min(timeout, 10),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": timeout * 1000,
        "application_name": "clonos",
        "client_encoding": "utf8",  # a database in SQL_ASCII says none, and the client would hand out bytes
    }
    return {name: value for name, value in wanted.items() if name not in url.query}


def _prepare_sqlite(raw: sqlite3.Connection, durable: bool) -> None:
    raw.isolation_level = None  # we begin and commit, the driver does not
    raw.execute("PRAGMA journal_mode=WAL")
    raw.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")


def _prepare_postgresql(raw: Any, patience: float, durable: bool) -> None:
    idle_ms = max(1_000, round(patience * 1000))
    with raw.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = {_LOCK_WAIT_MS}")
        cursor.execute(f"SET idle_in_transaction_session_timeout = {idle_ms}")
        if not durable:
            cursor.execute("SET synchronous_commit = off")
    raw.commit()


@contextmanager
def schema_lock(connection: Connection, schema: str | None) -> Iterator[None]:
    """Wait for other instances that create tables. SQLite's write lock does it already."""
    if connection.dialect.name == MYSQL:
        with sql_mysql.schema_lock(connection, schema):
            yield
        return
    if connection.dialect.name == POSTGRESQL:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_DDL_LOCK)))
    yield


def put(connection: Connection, table: sa.Table, values: Mapping[str, Any], changed: Sequence[str]) -> None:
    """Insert a row, or change these columns of the one with its primary key, or nothing."""
    if connection.dialect.name == MYSQL:
        row = mysql.insert(table).values(values)
        (own, *_) = table.primary_key.columns
        changes = {name: row.inserted[name] for name in changed} or {own.name: own}
        connection.execute(row.on_duplicate_key_update(changes))
        return
    insert = sqlite.insert if connection.dialect.name == SQLITE else postgresql.insert
    made: Any = insert(table).values(values)
    if not changed:
        connection.execute(made.on_conflict_do_nothing())
        return
    changes = {name: made.excluded[name] for name in changed}
    connection.execute(
        made.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=changes)
    )


def execute_rows(
    connection: Connection, statement: Statement, values: list[tuple[Any, ...]], packet: int | None
) -> int:
    """How many rows the database counted. `packet`: the longest statement that MySQL takes."""
    if packet is not None:
        return sql_mysql.execute_rows(connection, statement, values, packet)
    options = {"preserve_rowcount": True}
    return connection.exec_driver_sql(
        statement.of(1), statement.parameters(values), execution_options=options
    ).rowcount


def is_unavailable(error: sa.exc.DBAPIError) -> bool:
    """Whether waiting can mend it."""
    if error.connection_invalidated:
        return True
    cause: Any = error.orig
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", None)
        return code is not None and (code & 0xFF) in _SQLITE_WAITS
    if _is_of_mysql(cause):
        return sql_mysql.is_unavailable(cause)
    state = getattr(cause, "sqlstate", None)
    if state is None:
        return isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError))
    return state[:2] in _POSTGRESQL_WAIT_CLASSES or state in _POSTGRESQL_WAITS


def _is_of_mysql(cause: Any) -> bool:
    return type(cause).__module__.partition(".")[0] == "pymysql"


def reason(error: BaseException) -> str:
    """The driver's words on one line, without the statement and its values, and without PostgreSQL's DETAIL, which
    shows the whole row."""
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) and error.orig is not None else error
    if _is_of_mysql(cause):
        return " ".join(sql_mysql.reason(cause).split())
    words = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
    return " ".join(words.split()) or type(cause).__name__


def column_type(kind: pa.DataType, backend: str, keys: int = 0) -> sa.types.TypeEngine[Any]:
    """The SQL type of a column that this sink creates. `keys`: of a column of the key, of how many columns that is."""
    if backend == MYSQL:
        return sql_mysql.column_type(kind, keys)
    postgres = backend == POSTGRESQL
    if is_nested(kind):
        return postgresql.JSON() if postgres else sa.Text()
    if pt.is_boolean(kind):
        return sa.Boolean()
    if pt.is_signed_integer(kind):
        return (
            sa.SmallInteger()
            if kind.bit_width <= 16
            else sa.Integer()
            if kind.bit_width == 32
            else sa.BigInteger()
        )
    if pt.is_floating(kind):
        return postgresql.REAL() if postgres and kind.bit_width <= 32 else sa.Double()
    if pt.is_duration(kind):
        return postgresql.INTERVAL() if postgres else sa.BigInteger()
    if is_binary(kind):
        return sa.LargeBinary()
    if not postgres:
        return sa.Text()  # exact and sortable; SQLite has neither decimals nor dates
    if pt.is_decimal(kind):
        return sa.Numeric(kind.precision, kind.scale)
    if pt.is_timestamp(kind):
        return sa.TIMESTAMP(timezone=kind.tz is not None)
    return sa.Date() if pt.is_date(kind) else sa.Text()


def value_encoder(kind: pa.DataType, backend: str, is_key: bool = False) -> Encode | None:
    """A function to a value that the driver takes, or None where it takes the value as it is. Of a key's column equal
    values have one form."""
    if backend == MYSQL:
        return sql_mysql.value_encoder(kind)
    if is_nested(kind):
        return json_text_encoder(kind)
    if backend == POSTGRESQL:
        return None
    if pt.is_decimal(kind):
        return _digits if is_key else plain
    if pt.is_timestamp(kind):
        return _timestamp
    if pt.is_date(kind):
        return dt.date.isoformat
    return microseconds if pt.is_duration(kind) else None


def _digits(value: Decimal) -> str:
    """Of a number without a fraction: one of scale 0 may be `Decimal("7.0")`, too."""
    return str(int(value))


def _timestamp(value: dt.datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC)
    return value.isoformat(sep=" ", timespec="microseconds")
