"""Rows into a Delta table, exactly once: a commit per bundle, with what Clonos keeps beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

import pyarrow as pa

from clonos.errors import SinkUnavailable
from clonos.sinks.arrow_rows import to_arrow
from clonos.sinks.delta_table import LocalTable, delta_schema
from clonos.sinks.kept_records import RecordFiles, Records, RecordStore, query_of
from clonos.sinks.local_folder import LocalFolder
from clonos.sinks.port import Row
from clonos.sinks.store import StoreSink
from clonos.sinks.wal_files import file_name, local_path

_TRIES: Final = 100


class DeltaSink(StoreSink):
    """A table of Delta Lake in a folder, local or shared; it is made if it is missing.

    `id_column`: the column of a row's id. `patience`: for how many seconds a failing disk is tried again before the
    query hears of it. `durable`: whether commits survive a power failure (they survive a crash of any process anyhow).
    """

    parallelism = 1  # a table takes one commit after the other

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        id_column: str = "clonos_id",
        patience: float = 30.0,
        durable: bool = True,
    ) -> None:
        super().__init__(patience=patience)
        self._path = local_path(path, "the path of a Delta sink")
        self._id_column, self._durable = id_column, durable

    def __repr__(self) -> str:
        return f"DeltaSink({self._path!r})"

    @property
    def target(self) -> Hashable:
        return "delta", os.path.realpath(self._path)

    @property
    def id_column(self) -> str:
        return self._id_column

    def validate(self, schema: pa.Schema) -> None:
        super().validate(schema)
        self._columns(schema)

    def connect(self) -> DeltaStore:
        return DeltaStore(self._path, lambda: self._columns(self.schema), durable=self._durable)

    def _columns(self, schema: pa.Schema) -> pa.Schema:
        return delta_schema(pa.schema([pa.field(self._id_column, pa.string()), *schema]))


class DeltaStore(RecordStore):
    """See `clonos.sinks.store.Store`. All records of a query are of one number, which is the version of the application
    transaction `clonos/<query>`; the commit that brings the rows writes it. So each step is one commit."""

    def __init__(self, path: str, columns: Callable[[], pa.Schema], *, durable: bool) -> None:
        super().__init__(f"the table {path}")
        self._path, self._columns, self._durable = path, columns, durable
        self._table = LocalTable(path, durable=durable)
        self._known: dict[str, Records] = {}

    def current(self, query: str) -> Records:
        self._table.refresh()
        number = self._table.number(f"clonos/{query}")
        records = self._known.get(query, Records())
        if records.number != number:
            records = self._known[query] = self.files(query).read(number) if number else Records()
        return records

    def files(self, query: str) -> RecordFiles:
        path = os.path.join(self._path, "_clonos", file_name(query))
        return RecordFiles(LocalFolder(path, durable=self._durable))

    def step(
        self,
        expected: Mapping[str, bytes | None],
        changes: Mapping[str, bytes | None],
        rows: list[Row],
        ids: list[str],
    ) -> bool:
        (query,) = {query_of(key) for key in (*expected, *changes)}
        files, added, why = self.files(query), list[Any](), ""
        for _ in range(_TRIES):
            before = self.read(query, lambda records: records)
            if not self.as_expected(before, expected):
                return False
            # From here on the table is not read on in: the commit is refused where one has come since `before`.
            if not self._table.is_there:
                self._table.create(self._columns())
                continue
            self._table.check(self._columns() if rows else None)
            if rows:
                added = added or [self._table.write_rows(to_arrow(rows, ids, self._columns()))]
            after = files.write(before, changes)
            failure = self._table.commit(f"clonos/{query}", after.number, added)
            if failure is None:
                self._table.refresh()  # makes it durable
                self._known[query] = after
                self._tidy(files, before, after, trimmed=None in changes.values())
                return True
            why = failure
        raise SinkUnavailable(f"the table {self._path} took no commit in {_TRIES} attempts: {why}")

    def close(self) -> None:
        """Nothing is held."""

    def _tidy(self, files: RecordFiles, before: Records, after: Records, *, trimmed: bool) -> None:
        """A commit that is not synced may be undone by a power failure: what it has replaced stays for a while then."""
        if self._durable:
            files.forget(before)
        if trimmed:
            files.clean(after)
