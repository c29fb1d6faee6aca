"""Rows into a table of a SQL database, exactly once, visible with the bundle that brought them."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from sqlalchemy.engine import Connection, Engine

from clonos.errors import ConfigurationError, QueryDefinitionError
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch
from clonos.protocol.line.kept_commit import KeptCommit
from clonos.sinks import sql_mysql
from clonos.sinks.patience import Patience, check_patience
from clonos.sinks.sql_dialect import LONGEST_NAME, MYSQL, SQLITE, make_engine, parse_url, value_encoder
from clonos.sinks.sql_layout import ddl, prepare_books
from clonos.sinks.sql_log import (
    SqlLogReader,
    Trimmer,
    raise_floor,
    read_commit,
    read_floor,
    record_commit,
    transact,
)
from clonos.sinks.sql_tables import Books, UserTable, user_table
from clonos.sinks.sql_upsert import Newest, upsert_of
from clonos.sinks.sql_writer import SqlWriter, Target
from clonos.sinks.values import check_names, check_type

if TYPE_CHECKING:
    import pyarrow as pa


class SqlSink:
    """A table in SQLite, PostgreSQL, MySQL or MariaDB.

    `url`: `sqlite:///file`, `postgresql://user@host/db`, `mysql://user@host/db` or `mariadb://user@host/db`. `table`: a
    name, or `schema.name`. `mode`: "insert" adds each row; "upsert" keeps the newest row per `key`, one column or
    several, and deletes the key's row where the boolean column `delete` is true, which is not in the table. `columns`:
    row column to table column, where the names differ. `id_column`: where each row's id goes; it is unique.
    `id_prefix`: put before every id, so that several queries can share a table. `create`: create what is missing.
    `patience`: for how many seconds an unreachable or locked database is tried again before the query hears of it.
    `durable`: whether a commit survives a power failure of the database's machine (it survives a crash of any process
    in any case; of MySQL the server's settings say).
    """

    instants = True

    def __init__(
        self,
        url: str,
        table: str,
        *,
        mode: Literal["insert", "upsert"] = "insert",
        key: str | Sequence[str] | None = None,
        delete: str | None = None,
        create: bool = True,
        columns: Mapping[str, str] | None = None,
        id_column: str = "clonos_id",
        id_prefix: str = "",
        patience: float = 30.0,
        durable: bool = True,
    ) -> None:
        self._url = parse_url(url)
        self._backend = self._url.get_backend_name()
        self._is_mariadb = url.startswith("mariadb")
        schema, _, name = table.rpartition(".")
        self._schema, self._table = schema or None, name
        self._upsert = upsert_of(mode, key, delete)
        self._create = create
        self._columns = dict(columns or {})
        self._id_column, self._id_prefix = id_column, id_prefix
        self._patience = check_patience(patience)
        self._durable = durable
        self._rows: pa.Schema | None = None
        for each in (name, id_column, *([schema] if schema else [])):
            self._check_name(each)
        if self._backend == SQLITE and schema:
            raise QueryDefinitionError(f"SQLite has no schemas: {table!r}")

    def __repr__(self) -> str:
        return f"SqlSink({self._url.render_as_string(hide_password=True)!r}, {self._table!r})"

    @property
    def parallelism(self) -> int | None:
        return 1 if self._backend == SQLITE else None

    @property
    def target(self) -> Hashable:
        place: Hashable = self._url
        if self._backend == SQLITE:
            place = os.path.realpath(self._url.database or "")
        return "sql", place, self._schema, self._table, self._id_prefix

    def table_columns(self, names: Sequence[str]) -> dict[str, str]:
        """What columns of the rows are called in the table; without the one that is not in it."""
        gone = None if self._upsert is None else self._upsert.delete
        return {name: self._columns.get(name, name) for name in names if name != gone}

    def bind(self, checkpoint: str) -> None:
        """Nothing of this sink is kept in the checkpoint."""

    def validate(self, schema: pa.Schema) -> None:
        unknown = sorted(set(self._columns) - set(schema.names))
        if unknown:
            raise QueryDefinitionError(f"columns= names what the rows do not have: {', '.join(unknown)}")
        if self._upsert is not None:
            self._upsert.check(schema)
        names = [self._columns.get(name, name) for name in schema.names]
        check_names(names, self._id_column)
        for field, name in zip(schema, names, strict=True):
            self._check_name(name)
            check_type(field.type, field.name)
            if self._backend == MYSQL:
                sql_mysql.check_type(field.type, field.name)
        self._rows = schema

    def writer(self) -> SqlWriter:
        rows, user = self._validated()
        keys = self._upsert.key if self._upsert is not None else ()
        target = Target(
            books=Books(self._schema),
            user=user,
            id_prefix=self._id_prefix,
            names=rows.names,
            encoders=[value_encoder(field.type, self._backend, field.name in keys) for field in rows],
            newest=Newest(self._upsert, rows.names) if self._upsert is not None else None,
            create=self._create,
        )
        return SqlWriter(target, lambda: self._engine(immediate=True), Patience(self._patience))

    def raise_fence(self, query: str, fence: Fence) -> None:
        books = Books(self._schema)

        def lift(connection: Connection) -> None:
            prepare_books(connection, books, create=self._create)
            raise_floor(connection, books, query, fence)

        engine = self._engine(immediate=True)
        Patience(self._patience).run(lambda _: transact(engine, lift))

    def standing_fence(self, query: str) -> Fence:
        books, engine = Books(self._schema), self._engine(immediate=False)
        read = Patience(self._patience).run
        return read(lambda _: transact(engine, lambda connection: read_floor(connection, books, query)))

    def log_reader(self, query: str) -> SqlLogReader:
        return SqlLogReader(self._engine(immediate=False), Books(self._schema), query, self._patience)

    def record_commit(self, query: str, fence: Fence, epoch: Epoch, record: bytes) -> None:
        books, kept = Books(self._schema), KeptCommit(fence, epoch, record)

        def keep(connection: Connection) -> None:
            prepare_books(connection, books, create=self._create)
            record_commit(connection, books, query, kept)

        engine = self._engine(immediate=True)
        Patience(self._patience).run(lambda _: transact(engine, keep))

    def last_commit(self, query: str) -> tuple[Epoch, bytes] | None:
        books, engine = Books(self._schema), self._engine(immediate=False)
        read = Patience(self._patience).run
        kept = read(lambda _: transact(engine, lambda connection: read_commit(connection, books, query)))
        return None if kept is None else (kept.epoch, kept.record)

    def truncate(self, query: str, fence: Fence, keep: Callable[[bytes], bool]) -> int:
        writing, reading = self._engine(immediate=True), self._engine(immediate=False)
        trimmer = Trimmer(writing, Books(self._schema), query, fence, Patience(self._patience))
        return trimmer.trim(reading, keep)

    def ddl(self) -> str:
        """The statements that create everything this sink needs, for databases where it may not do so itself."""
        _, user = self._validated()
        dialect = self._engine(immediate=False).dialect
        if self._is_mariadb:  # as a connection would find out
            dialect.is_mariadb = True  # type: ignore[attr-defined]
        return ddl(Books(self._schema), user.table, dialect)

    def _engine(self, *, immediate: bool) -> Engine:
        return make_engine(self._url, patience=self._patience, durable=self._durable, immediate=immediate)

    def _validated(self) -> tuple[pa.Schema, UserTable]:
        if self._rows is None:
            raise ConfigurationError(
                "this sink has not been given a schema yet", hint="Call validate(schema) first"
            )
        place = (self._table, self._schema, self._id_column)
        return self._rows, user_table(*place, self._rows, self._columns, self._backend, self._upsert)

    def _check_name(self, name: str) -> None:
        longest = LONGEST_NAME[self._backend]
        if not name or "\0" in name or len(name.encode()) > longest:
            raise QueryDefinitionError(f"{self._backend} takes names of 1 to {longest} bytes, not {name!r}")
