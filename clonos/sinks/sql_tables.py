"""The tables a SQL sink lives in: the user's own, and seven of ours beside it in the same schema.

| table | holds |
| --- | --- |
| `clonos_format` | the version of this layout, one row |
| `clonos_fence` | per sink instance the fence that stands, and who took it; of node 0, instance -1 the query's floor |
| `clonos_cursor` | per sink instance and channel the last output number that is visible |
| `clonos_log` | the determinants, each with a CRC-32, in the order written |
| `clonos_trimmed` | per sink instance the highest number that was ever removed from `clonos_log` |
| `clonos_target` | per sink node the user's table and columns that its rows were written to, as a JSON array |
| `clonos_commit` | per query the commit record, as `clonos.protocol.line.kept_commit` packs it |

The user's table has one more column than the rows: their id, unique. It is the last line of defence: should anything
try to make an output number visible a second time, the database itself refuses. A table with one row per key has that
key as its primary key (`clonos.sinks.sql_upsert`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from clonos.protocol.ids import Origin
from clonos.sinks import sql_mysql
from clonos.sinks.sql_dialect import SQLITE, column_type
from clonos.sinks.sql_upsert import Upsert

FLOOR = Origin.of(0, -1)
_Id = sa.String(255).with_variant(mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin"), "mysql")
_Bytes = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql")
_Text = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql")
_S = TypeVar("_S", bound=sa.Select[Any])


@dataclass(frozen=True, eq=False)
class Books:
    """Our own tables."""

    schema: str | None

    @cached_property
    def metadata(self) -> sa.MetaData:
        return sa.MetaData(schema=self.schema)

    def _table(self, name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
        return sa.Table(name, self.metadata, *columns, **sql_mysql.TABLE)

    @cached_property
    def format(self) -> sa.Table:
        version = sa.Column("version", sa.Integer, nullable=False, autoincrement=False)
        # Some servers of MySQL make no table without a primary key; others have tables from before that have none.
        key = sa.PrimaryKeyConstraint("version").ddl_if(dialect="mysql")
        return self._table("clonos_format", version, key)

    @cached_property
    def fence(self) -> sa.Table:
        fence = sa.Column("fence", sa.String(32), nullable=False)
        owner = sa.Column("owner", sa.String(32), nullable=False)
        return self._table("clonos_fence", *_origin(), fence, owner)

    @cached_property
    def cursor(self) -> sa.Table:
        channel = sa.Column("channel", sa.BigInteger, primary_key=True, autoincrement=False)
        return self._table("clonos_cursor", *_origin(), channel, _big("position"))

    @cached_property
    def log(self) -> sa.Table:
        seq = sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False)
        content = sa.Column("bytes", _Bytes, nullable=False)
        return self._table("clonos_log", *_origin(), seq, _big("checksum"), content)

    @cached_property
    def trimmed(self) -> sa.Table:
        return self._table("clonos_trimmed", *_origin(), _big("seq"))

    @cached_property
    def commit(self) -> sa.Table:
        content = sa.Column("bytes", _Bytes, nullable=False)
        return self._table("clonos_commit", sa.Column("query", _Id, primary_key=True), content)

    @cached_property
    def target(self) -> sa.Table:
        node = sa.Column("node", sa.Integer, primary_key=True, autoincrement=False)
        names = [sa.Column(each, _Text, nullable=False) for each in ("table_name", "column_names")]
        query = sa.Column("query", _Id, primary_key=True)
        return self._table("clonos_target", query, node, *names)

    # The statements of every bundle are built once: building them costs more than SQLite takes to run them.
    @cached_property
    def lock_fence(self) -> sa.Select[Any]:
        return _at_origin(sa.select(self.fence.c.fence, self.fence.c.owner), self.fence).with_for_update()

    @cached_property
    def read_cursors(self) -> sa.Select[Any]:
        return _at_origin(sa.select(self.cursor.c.channel, self.cursor.c.position), self.cursor)

    @cached_property
    def append_log(self) -> sa.Insert:
        return self.log.insert()

    @cached_property
    def new_cursor(self) -> sa.Insert:
        return self.cursor.insert()

    @cached_property
    def move_cursor(self) -> sa.Update:
        columns = self.cursor.c
        return (
            self.cursor.update()
            .values(position=sa.bindparam("to"))
            .where(
                columns.query == sa.bindparam("q"),
                columns.node == sa.bindparam("n"),
                columns.instance == sa.bindparam("i"),
                columns.channel == sa.bindparam("c"),
                columns.position == sa.bindparam("was"),
            )
        )

    @property
    def all(self) -> list[sa.Table]:
        return [self.format, self.fence, self.cursor, self.log, self.trimmed, self.commit, self.target]


def at(query: str, origin: Origin) -> dict[str, Any]:
    """The parameters of a statement about one sink instance."""
    return {"q": query, "n": origin[0], "i": origin[1]}


def _at_origin(chosen: _S, table: sa.Table) -> _S:
    columns = table.c
    return chosen.where(
        columns.query == sa.bindparam("q"),
        columns.node == sa.bindparam("n"),
        columns.instance == sa.bindparam("i"),
    )


def _origin() -> list[sa.Column[Any]]:
    return [
        sa.Column("query", _Id, primary_key=True),
        sa.Column("node", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("instance", sa.Integer, primary_key=True, autoincrement=False),
    ]


def _big(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


@dataclass(frozen=True, kw_only=True)
class UserTable:
    """The user's table as this sink would create it. `names`: the columns that rows are written to, besides the id;
    `key`: those of them that make the key, none where rows are only inserted."""

    table: sa.Table
    id_column: str
    names: tuple[str, ...]
    kinds: Mapping[str, pa.DataType]
    key: tuple[str, ...] = ()

    @property
    def ids(self) -> sa.Column[Any]:
        return self.table.c[self.id_column]


def user_table(
    name: str,
    schema: str | None,
    id_column: str,
    rows: pa.Schema,
    names: Mapping[str, str],
    backend: str,
    upsert: Upsert | None,
) -> UserTable:
    """`names`: row column to table column, where they differ."""
    key = tuple(names.get(each, each) for each in upsert.key) if upsert else ()
    kept = [field for field in rows if upsert is None or field.name != upsert.delete]
    kinds = {names.get(each.name, each.name): each.type for each in kept}
    columns: list[sa.Column[Any]] = [
        sa.Column(each, column_type(kind, backend, len(key) if each in key else 0), nullable=each not in key)
        for each, kind in kinds.items()
    ]
    own: sa.Column[Any] = sa.Column(
        id_column, sa.Text() if backend == SQLITE else _Id, nullable=False, unique=bool(key)
    )
    primary = sa.PrimaryKeyConstraint(*(key or [id_column]))
    table = sa.Table(name, sa.MetaData(schema=schema), own, *columns, primary, **sql_mysql.TABLE)
    for column in primary.columns:
        column.autoincrement = False
    return UserTable(table=table, id_column=id_column, names=tuple(kinds), kinds=kinds, key=key)
