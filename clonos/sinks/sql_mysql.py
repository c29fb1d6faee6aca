"""What is particular to MySQL and MariaDB, through PyMySQL.

*Sessions* say for themselves what a server may be set to otherwise: strict, so that no value is cut or replaced; in
UTC; READ COMMITTED, so that what is read behind the locked fence is what was committed before, not what was when the
transaction first read. A transaction of a process that is stopped is ended by the server: MariaDB has a time for idle
transactions, MySQL only one for idle connections. There a writer that had nothing to write for so long connects again.

*DDL commits*, and takes what is open with it. Tables are made under a lock that outlives transactions, each step may be
the last, and the version of the layout is written when everything is there.

*Silent conversions* that no mode forbids: rounding to the scale of a decimal and cutting spaces give notes, which are
read after every statement; rounding to integers, to FLOAT and to seconds gives none, so that columns are looked at.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pyarrow import types as pt
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Connection

from clonos.errors import QueryDefinitionError, SinkError, SinkUnavailable
from clonos.sinks.sql_statements import Statement
from clonos.sinks.values import Encode, is_binary, is_nested, json_text_encoder, microseconds

TABLE: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mysql_row_format": "DYNAMIC",
}
"""Of tables that are created: with transactions, and text compared byte by byte."""

LOCK_WAIT_S = 2
_LEAST_VERSION, _LEAST_MARIADB = (8, 0, 19), (10, 5)
_MODE = (
    "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,"
    "NO_AUTO_VALUE_ON_ZERO"
)
_KEY_LENGTH, _INDEX_CHARACTERS = 255, 760  # an index of InnoDB has 3072 bytes, a character up to 4
_LARGEST_SCALE = 30
_LARGEST_STATEMENT = 1 << 20
_DDL_LOCK = "clonos"
_BINARY = re.compile(r"_bin$|^binary$")

_WAITS = frozenset(
    {
        # locks: timeout, deadlock, changed since it was read
        1205, 1213, 1020, 1412, 3572,
        # connections: too many, aborted, network, killed, idle for too long
        1040, 1203, 1226, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 4031, 2002, 2003, 2006, 2013, 2014, 2055, 0,
        # the server stops, is read-only (another one has taken over), interrupts, is out of memory or disk
        1053, 1290, 1836, 1317, 1969, 3024, 1021, 1037, 1038, 1041, 1114, 1180,
    }
)  # fmt: skip
_LOST_VALUES = frozenset({1264, 1265, 1292, 1366, 1367, 1406, 1411, 1918})
_WITH_VALUES = (
    (re.compile(r"^(Duplicate entry) '.*' (for key '[^']*')$", re.DOTALL), r"\1 \2"),
    (re.compile(r"^((?:Truncated )?[Ii]ncorrect [\w ]+ value): '.*'( for .*)?$", re.DOTALL), r"\1\2"),
)


def connect_args(patience: float) -> dict[str, Any]:
    timeout = max(1, round(patience))
    return {
        "charset": "utf8mb4",
        "connect_timeout": min(timeout, 10),
        "read_timeout": max(60, 2 * timeout),
        "write_timeout": max(60, 2 * timeout),
        "program_name": "clonos",
    }


def prepare_session(raw: Any, patience: float) -> None:
    """Of a new connection. Raises SinkError where the server is too old."""
    is_mariadb = check_version(str(raw.get_server_info()))
    idle = max(1, round(patience))
    limit = "idle_transaction_timeout" if is_mariadb else "wait_timeout"
    with raw.cursor() as cursor:
        cursor.execute(
            f"SET SESSION sql_mode = '{_MODE}', time_zone = '+00:00', sql_notes = 1, autocommit = 0, "
            f"innodb_lock_wait_timeout = {LOCK_WAIT_S}, lock_wait_timeout = {LOCK_WAIT_S}, {limit} = {idle}, "
            f"net_read_timeout = {max(idle, 10)}, net_write_timeout = {max(idle, 10)}"
        )
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    raw.commit()


def check_version(said: str) -> bool:
    """Whether it is MariaDB. Raises SinkError where it is too old."""
    is_mariadb = "mariadb" in said.lower()
    # MariaDB may say 5.5.5 first, for programs that know only MySQL.
    numbers = [tuple(map(int, each)) for each in re.findall(r"(\d+)\.(\d+)\.(\d+)", said)]
    version = numbers[-1 if is_mariadb and numbers[0] == (5, 5, 5) else 0] if numbers else (0,)
    if version < (_LEAST_MARIADB if is_mariadb else _LEAST_VERSION):
        raise SinkError(
            f"the sink's database is {said}", hint="A SQL sink needs MySQL 8.0.19 or newer, or MariaDB 10.5"
        )
    return is_mariadb


@contextmanager
def schema_lock(connection: Connection, schema: str | None) -> Iterator[None]:
    """One schema change at a time. What was done is committed before the next one begins."""
    place = str(schema or connection.engine.url.database)
    name = f"{_DDL_LOCK}.{hashlib.sha256(place.encode()).hexdigest()[:40]}"  # of 64 characters at most
    if connection.execute(sa.select(sa.func.get_lock(name, LOCK_WAIT_S))).scalar() != 1:
        raise SinkUnavailable("the sink's database cannot be used now: another process changes its tables")
    try:
        yield
        connection.exec_driver_sql("COMMIT")
    finally:
        with suppress(sa.exc.SQLAlchemyError):  # the lock of a connection that is gone is gone, too
            connection.execute(sa.select(sa.func.release_lock(name)))


def is_unavailable(error: BaseException) -> bool:
    code = error.args[0] if error.args else None
    return code in _WAITS


def reason(error: BaseException) -> str:
    """The server's words without values of rows."""
    words = str(error.args[1]) if len(error.args) > 1 else str(error)
    for with_value, without in _WITH_VALUES:
        words = with_value.sub(without, words)
    return words


def _is_mariadb(dialect: sa.Dialect) -> bool:
    return bool(getattr(dialect, "is_mariadb", False))


# -- types


class KeyText(sa.types.TypeDecorator[str]):
    """Text in a key: to no other collation is it exact, but for the end, in which others pass over spaces."""

    impl = sa.String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self._length = length

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        collation = "utf8mb4_nopad_bin" if _is_mariadb(dialect) else "utf8mb4_0900_bin"
        return mysql.VARCHAR(self._length, charset="utf8mb4", collation=collation)


def column_type(kind: pa.DataType, keys: int) -> sa.types.TypeEngine[Any]:
    """`keys`: of a column of the key, of how many columns that is; else 0."""
    if pt.is_boolean(kind):
        return mysql.TINYINT(1)
    if pt.is_signed_integer(kind):
        narrow = mysql.SMALLINT() if kind.bit_width <= 16 else mysql.INTEGER()
        return narrow if kind.bit_width <= 32 else mysql.BIGINT()
    if pt.is_floating(kind):
        return mysql.DOUBLE()
    if pt.is_duration(kind):
        return mysql.BIGINT()
    if pt.is_decimal(kind):
        return mysql.DECIMAL(kind.precision, kind.scale)
    if pt.is_timestamp(kind):
        return mysql.DATETIME(fsp=6)
    if pt.is_date(kind):
        return mysql.DATE()
    binary = is_binary(kind)
    if keys:
        length = min(_KEY_LENGTH, _INDEX_CHARACTERS // keys)
        return mysql.VARBINARY(length) if binary else KeyText(length)
    return mysql.LONGBLOB() if binary else mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")


def check_type(kind: pa.DataType, name: str) -> None:
    """Refuse what MySQL has no type for."""
    if pt.is_decimal(kind) and kind.scale > _LARGEST_SCALE:
        raise QueryDefinitionError(
            f"column {name!r}: MySQL has no decimals with {kind.scale} digits behind the point",
            hint=f"Cast it before the sink, to {_LARGEST_SCALE} of them or to a string",
        )


def value_encoder(kind: pa.DataType) -> Encode | None:
    if is_nested(kind):
        return json_text_encoder(kind)
    if pt.is_floating(kind):
        return _finite
    if pt.is_timestamp(kind):
        return _utc
    return microseconds if pt.is_duration(kind) else None


def _finite(value: float) -> float:
    if math.isfinite(value):
        return value
    raise ValueError(f"MySQL has no {value}")


def _utc(value: dt.datetime) -> dt.datetime:
    """An instant as UTC without a zone, since the driver would drop the zone and keep the rest."""
    return value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)


# -- tables that are there

_THIS_TABLE = "table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name"


def check_columns(
    connection: Connection,
    table: sa.Table,
    kinds: Mapping[str, pa.DataType],
    id_column: str,
    key: Sequence[str],
) -> None:
    """Raises SinkError where a table that is there would lose values without a word, or take two keys for one."""
    inspector = sa.inspect(connection)
    engine = inspector.get_table_options(table.name, schema=table.schema).get("mysql_engine")
    if str(engine).lower() != "innodb":
        raise SinkError(
            f"table {table.fullname} has the engine {engine}, which has no transactions",
            hint=f"Change it: ALTER TABLE {table.fullname} ENGINE=InnoDB",
        )
    there = {each["name"]: each for each in inspector.get_columns(table.name, schema=table.schema)}
    for name, kind in kinds.items():
        needed = _needed(kind, there[name]["type"])
        if needed is not None:
            raise SinkError(
                f"column {name} of table {table.fullname} is of type {there[name]['type']}, which would round values "
                f"of type {kind} without a word",
                hint=f"Make it {needed}",
            )
    if key and there[id_column]["nullable"]:
        raise SinkError(
            f"column {id_column} of table {table.fullname} may be null",
            hint="Make it NOT NULL: that a row is not to be replaced is said to MySQL by a null there",
        )
    for name, collation in _collations(connection, table, key).items():
        if not _BINARY.search(collation):
            raise SinkError(
                f"column {name} of table {table.fullname} has the collation {collation}, to which keys that differ in "
                "case or accents are one",
                hint="Give it one that compares bytes: utf8mb4_0900_bin of MySQL, utf8mb4_nopad_bin of MariaDB",
            )


def merging(connection: Connection, table: sa.Table, key: Sequence[str]) -> dict[int, str]:
    """Of the columns of the key, the character by which the server may take two texts for one: a space at the end where
    it does not count, else, in MariaDB, U+0000 (10.11.5 takes what continues with it for the text that ends there)."""
    is_mariadb = _is_mariadb(connection.dialect)
    found: dict[int, str] = {}
    for at, collation in enumerate(_collations(connection, table, key).values()):
        # MariaDB has utf8mb4_0900_bin, too, by its name only.
        if not collation.endswith(("nopad_bin" if is_mariadb else "_0900_bin", "binary")):
            found[at] = " "
        elif is_mariadb and collation != "binary":
            found[at] = "\0"
    return found


def _collations(connection: Connection, table: sa.Table, names: Sequence[str]) -> dict[str, str]:
    """By column; "binary" for what is no text. What a table's own statement says is only what is not its default."""
    found = connection.execute(
        sa.text(f"SELECT column_name, collation_name FROM information_schema.columns WHERE {_THIS_TABLE}"),
        {"schema": table.schema, "name": table.name},
    ).all()
    said = {column: collation or "binary" for column, collation in found}
    return {name: said[name] for name in names}


def uniques(connection: Connection, table: sa.Table) -> list[set[str]]:
    """The columns of which the table has no two rows with the same values, as a whole and not by how they begin."""
    parts = connection.execute(
        sa.text(
            "SELECT index_name, column_name, sub_part FROM information_schema.statistics "
            f"WHERE {_THIS_TABLE} AND non_unique = 0"
        ),
        {"schema": table.schema, "name": table.name},
    ).all()
    found: dict[str, set[str | None]] = {}
    for index, column, length in parts:
        found.setdefault(index, set()).add(column if length is None else None)
    return [{str(each) for each in columns} for columns in found.values() if None not in columns]


def _needed(kind: pa.DataType, column: sa.types.TypeEngine[Any]) -> str | None:
    """The type that keeps every value, where this one rounds; None where this one keeps it, or refuses it."""
    whole = isinstance(column, sa.Integer)
    approximate = isinstance(column, (mysql.FLOAT, mysql.DOUBLE, mysql.REAL, sa.Float))
    single = isinstance(column, mysql.FLOAT)
    if pt.is_timestamp(kind):
        timed = isinstance(column, (mysql.DATETIME, mysql.TIMESTAMP))
        return "DATETIME(6)" if timed and column.fsp != 6 else None  # type: ignore[attr-defined]
    if pt.is_floating(kind):
        exact = isinstance(column, sa.Numeric) and not approximate
        return "DOUBLE" if whole or exact or (single and kind.bit_width > 32) else None
    if pt.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})" if approximate or (whole and kind.scale) else None
    if pt.is_signed_integer(kind) or pt.is_duration(kind):
        exact_bits = 24 if single else 53
        return "BIGINT" if approximate and kind.bit_width > exact_bits else None
    return None


# -- statements


class TooLarge(ValueError):
    """A row, or determinants, that the server would not read."""


def largest_packet(connection: Connection) -> int:
    return int(connection.exec_driver_sql("SELECT @@SESSION.max_allowed_packet").scalar_one())


def check_sizes(deltas: Sequence[bytes], packet: int) -> None:
    """Raises SinkError where determinants are larger than what the server reads."""
    for delta in deltas:
        if _size(delta) + _ROOM <= packet:
            continue
        raise SinkError(
            f"determinants of {len(delta)} bytes are larger than what the sink's database takes: max_allowed_packet is "
            f"{packet}",
            hint="Raise max_allowed_packet of the server, or take smaller bundles (spark.clonos.bundle.rows)",
        )


_ROOM = 1_000  # for the rest of a statement about our own tables
_ESCAPED = "\0\n\r\x1a\"'\\"


def _size(value: Any) -> int:
    """How many bytes of a statement a value takes at most."""
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
    elif isinstance(value, (bytes, bytearray)):
        raw = bytes(value)
    else:
        return 100  # numbers and times; the longest is a decimal
    return len(raw) + sum(raw.count(each.encode()) for each in _ESCAPED) + 12


def execute_rows(
    connection: Connection, statement: Statement, values: Sequence[tuple[Any, ...]], packet: int
) -> int:
    """Many rows in few statements; how many the server counted. Raises TooLarge, LostValue, DBAPIError."""
    counted = 0
    for rows in _pages(statement, values, packet):
        text = statement.of(len(rows))
        result = connection.exec_driver_sql(text, tuple(chain.from_iterable(statement.parameters(rows))))
        counted += result.rowcount
        if result.context.cursor.warning_count:
            _check_warnings(connection)
    return counted


def _pages(
    statement: Statement, values: Sequence[tuple[Any, ...]], packet: int
) -> Iterator[list[tuple[Any, ...]]]:
    fixed = len(statement.of(1).encode())
    room = min(packet, _LARGEST_STATEMENT)
    page: list[tuple[Any, ...]] = []
    size = fixed
    for row in values:
        own = len(statement.row) + sum(map(_size, row)) + (statement.ids - 1) * _size(row[0])
        if fixed + own > packet:
            raise TooLarge(f"it takes {fixed + own} bytes, and max_allowed_packet of the server is {packet}")
        if page and size + own > room:
            yield page
            page, size = [], fixed
        page.append(row)
        size += own
    if page:
        yield page


class LostValue(ValueError):
    """The server took a value, and changed it."""


def _check_warnings(connection: Connection) -> None:
    for _, code, words in connection.exec_driver_sql("SHOW WARNINGS").all():
        if code in _LOST_VALUES:
            raise LostValue(reason(Exception(code, words)))


def is_guard(error: BaseException, id_column: str) -> bool:
    """Whether it is the null by which a statement of ours says that a row is not to be replaced."""
    return len(error.args) > 1 and error.args[0] == 1048 and f"'{id_column}'" in str(error.args[1])
