"""Rows into an Iceberg table, exactly once: a commit per bundle, with what Clonos keeps beside it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    WaitingForLockException,
)
from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError

from clonos.errors import LogCorrupt, QueryDefinitionError, SinkUnavailable
from clonos.sinks.arrow_rows import to_arrow
from clonos.sinks.iceberg_table import IcebergTable, catalog_options, check_columns, property_of
from clonos.sinks.kept_records import RecordFiles, Records, RecordStore, query_of
from clonos.sinks.port import Row
from clonos.sinks.store import StoreSink
from clonos.sinks.wal_files import file_name

_TABLE: Final = "table"
"""The key of the record that says to which table the others belong; a sink's own have slashes."""
_TRIES: Final = 100


class IcebergSink(StoreSink):
    """A table of Iceberg in a catalog; table and namespace are made if they are missing.

    `catalog`: its properties, as `pyiceberg.catalog.load_catalog` takes them (`{"uri": ..., "warehouse": ...}`, with a
    `name` where the catalog has one), or the name of one that is configured where the query's processes run.
    `id_column`: the column of a row's id. `patience`: for how many seconds catalog and storage are waited for.
    """

    parallelism = 1  # a table takes one commit after the other
    unavailable = (
        OSError,
        CommitStateUnknownException,
        ServerError,
        ServiceUnavailableError,
        TooManyRequestsError,
        WaitingForLockException,
        OperationalError,
        InterfaceError,
        IntegrityError,  # two processes make tables or namespace at once
    )

    def __init__(
        self,
        table: str,
        catalog: str | Mapping[str, str],
        *,
        id_column: str = "clonos_id",
        patience: float = 30.0,
    ) -> None:
        super().__init__(patience=patience)
        if not all(table.split(".")) or "." not in table:
            raise QueryDefinitionError(f"{table!r} is no table of a catalog", hint="Say namespace.table")
        self._table, self._id_column = table, id_column
        self._name, self._properties = catalog_options(catalog)

    def __repr__(self) -> str:
        return f"IcebergSink({self._table!r} of the catalog {self._name!r})"

    @property
    def target(self) -> Hashable:
        parts = urlsplit(self._properties.get("uri", ""))
        return "iceberg", self._name, parts.hostname or "", parts.port or 0, parts.path, self._table

    @property
    def id_column(self) -> str:
        return self._id_column

    def validate(self, schema: pa.Schema) -> None:
        super().validate(schema)
        check_columns(schema)

    def connect(self) -> IcebergStore:
        catalog = load_catalog(self._name, **self._properties)
        return IcebergStore(IcebergTable(catalog, self._table), self._columns, catalog.close)

    def _columns(self) -> pa.Schema:
        return pa.schema([pa.field(self._id_column, pa.string()), *self.schema])


class IcebergStore(RecordStore):
    """See `clonos.sinks.store.Store`. All records of a query are of one number, which the commit that brings the rows
    sets as a property of the table. So each step is one commit."""

    def __init__(
        self, table: IcebergTable, columns: Callable[[], pa.Schema], close: Callable[[], None]
    ) -> None:
        super().__init__(f"the table {table.name}")
        self._table, self._columns, self._close = table, columns, close
        self._known: dict[str, Records] = {}

    def current(self, query: str) -> Records:
        self._table.refresh()
        number = self._table.number(file_name(query))
        if number == 0:
            self._check_begins(query)
            return Records()
        records = self._known.get(query, Records())
        if records.number != number:
            records = self.files(query).read(number)
            if records.inline.get(_TABLE) != self._table.uuid:
                raise self._is_another(query, "it was made anew")
            self._known[query] = records
        return records

    def _check_begins(self, query: str) -> None:
        """Raises LogCorrupt where the query has written here, of which the table knows nothing."""
        if not self._table.is_there or self.files(query).last_count() <= 1:
            return  # the files of a first step may be there without its commit
        self._table.refresh()  # it may have begun meanwhile
        if self._table.number(file_name(query)) == 0:
            raise self._is_another(query, "its property is gone, or the table was made anew")

    def _is_another(self, query: str, why: str) -> LogCorrupt:
        return LogCorrupt(
            f"{self._place} is not as the query {query} has left it, whose files are in {self.files(query)}: {why}",
            hint=f"Restore the table with its property {property_of(file_name(query))}, or start the query with a new "
            "checkpoint and a new table",
        )

    def files(self, query: str) -> RecordFiles:
        return RecordFiles(self._table.folder(file_name(query)))

    def step(
        self,
        expected: Mapping[str, bytes | None],
        changes: Mapping[str, bytes | None],
        rows: list[Row],
        ids: list[str],
    ) -> bool:
        (query,) = {query_of(key) for key in (*expected, *changes)}
        arrow, why = to_arrow(rows, ids, self._columns()) if rows else None, ""
        for _ in range(_TRIES):
            before = self.read(query, lambda records: records)
            if not self._table.is_there:
                self._table.create(self._columns())
                continue
            if not self.as_expected(before, expected):
                return False
            # From here on the table is not read again: the commit is refused where one has come since `before`.
            files = self.files(query)
            after = files.write(before, {**changes, _TABLE: self._table.uuid})
            failure = self._table.commit(file_name(query), after.number, arrow)
            if failure is None:
                self._known[query] = after
                files.forget(before)
                if None in changes.values():
                    files.clean(after)
                return True
            why = failure
        raise SinkUnavailable(f"{self._place} took no commit in {_TRIES} attempts: {why}")

    def close(self) -> None:
        self._close()
