"""A Delta table in a local or shared folder: what may be written to it, commits of rows with a number, and syncing."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import parquet

from clonos.errors import QueryDefinitionError, SinkError
from clonos.json_text import parsed_json
from clonos.sinks.arrow_rows import misfits, with_nulls
from clonos.storage.durable_files import fsync_directory, make_directory

# What a table may ask of its writers: what a plain append does by itself, or what is looked for below by its use.
_FEATURES: Final = frozenset(
    """appendOnly changeDataFeed checkConstraints columnMapping deletionVectors generatedColumns identityColumns
    invariants timestampNtz v2Checkpoint variantType variantType-preview""".split()
)
_LAST_WITHOUT_FEATURES: Final = 6
_OF_COLUMNS: Final = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generated columns",
    "delta.identity.start": "identity columns",
}
_MAPPING: Final = "delta.columnMapping.mode"
_NOT_IN_NAMES: Final = frozenset(" ,;{}()\n\t=")
_FORGETS: Final = "delta.setTransactionRetentionDuration"


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """With the types that Delta gives the columns. Raises QueryDefinitionError."""
    for field in schema:
        if set(field.name) & _NOT_IN_NAMES:
            raise QueryDefinitionError(
                f"column {field.name!r}: Delta takes no name with a space or one of ,;{{}}()= in it",
                hint="Rename it before the sink",
            )
        try:
            Schema.from_arrow(pa.schema([field]))
        except Exception as error:
            raise QueryDefinitionError(
                f"column {field.name!r}: Delta has no type for {field.type}: {first_line(error)}",
                hint="Cast it before the sink",
            ) from None
        if pa.types.is_null(field.type):
            raise QueryDefinitionError(f"column {field.name!r} has no type", hint="Cast it before the sink")
    return pa.schema(Schema.from_arrow(schema).to_arrow())


def first_line(error: Exception) -> str:
    """Without the addresses of functions that follow."""
    return str(error).partition("\n")[0]


class LocalTable:
    """One table, as of the last `refresh`."""

    def __init__(self, path: str, *, durable: bool) -> None:
        self.path, self._durable = path, durable
        self._log = os.path.join(path, "_delta_log")
        self._table: DeltaTable | None = None
        self._synced = -1
        self._checked: set[str] = set()

    def refresh(self) -> None:
        """Read on in the table's log, and make durable what is read. There may be no table yet."""
        if self._table is None:
            with suppress(TableNotFoundError):
                self._table = self._opened_anew()
            if self._table is None:
                return
        elif self._has(self._table.version()):
            self._table.update_incremental()
        else:
            self._table = self._cleaned_up(self._table)
        version = self._table.version()
        if self._durable and version > self._synced:
            self._sync(version)

    @property
    def is_there(self) -> bool:
        """Whether there was a table at the last `refresh`."""
        return self._table is not None

    def create(self, schema: pa.Schema) -> None:
        """Where there is none."""
        if self._durable:
            make_directory(self._log)
        try:
            DeltaTable.create(self.path, Schema.from_arrow(with_nulls(schema)), mode="error")
        except (CommitFailedError, DeltaError) as error:
            if not DeltaTable.is_deltatable(self.path):  # otherwise another process was quicker
                raise SinkError(f"cannot make the table {self.path}: {first_line(error)}") from None
        self.refresh()

    def check(self, schema: pa.Schema | None) -> None:
        """Raises SinkError where nothing can be appended without more ado, or no rows of this schema, where given."""
        table = self._opened
        seen = f"{schema is not None} {table.metadata()} {table.protocol()} {table.schema().to_json()}"
        if seen not in self._checked:
            for reason in (*self._asks_too_much(), *self._misfits(schema)):
                raise SinkError(f"the table {self.path} does not take the rows: {reason}")
            self._checked.add(seen)

    def number(self, application: str) -> int:
        """That the last commit of an application has; 0 where there is none."""
        return (self._table.transaction_version(application) if self._table else None) or 0

    def write_rows(self, rows: pa.Table) -> AddAction:
        """A file that is no part of the table until it is committed."""
        name = f"part-{uuid.uuid4()}-clonos.parquet"
        path = os.path.join(self.path, name)
        with open(path, "xb") as file:
            parquet.write_table(rows, file)
            file.flush()
            if self._durable:
                os.fsync(file.fileno())
        if self._durable:
            fsync_directory(self.path)
        statistics = json.dumps({"numRecords": rows.num_rows})
        return AddAction(name, os.path.getsize(path), {}, int(time.time() * 1000), True, statistics)

    def commit(self, application: str, number: int, added: list[AddAction | RemoveAction]) -> str | None:
        """None where it has taken effect. Otherwise why it has not: a commit of the application has come in between, or
        one that has changed the table. Raises where that is not known."""
        table = self._opened
        properties = CommitProperties(app_transactions=[Transaction(application, number)])
        try:
            table.create_write_transaction(added, "append", table.schema(), commit_properties=properties)
        except CommitFailedError as error:
            return first_line(error)
        return None

    def _has(self, version: int) -> bool:
        """Whether the log goes on from there; a version has one of two files."""
        return any(os.path.exists(self._file(version, kind)) for kind in ("json", "checkpoint.parquet"))

    def _cleaned_up(self, table: DeltaTable) -> DeltaTable:
        """The same table from a later checkpoint on: of its log, what was read has been cleaned up. Raises SinkError
        where it is not the same."""
        with suppress(TableNotFoundError):
            found = self._opened_anew()
            if found.metadata().id == table.metadata().id and found.version() >= table.version():
                return found
        raise SinkError(
            f"the table {self.path} does not have its version {table.version()} any more: it was removed or made anew",
            hint="Restore it, or start the query with a new checkpoint and a new table",
        )

    def _opened_anew(self) -> DeltaTable:
        table = DeltaTable(self.path)
        self._synced = self._last_checkpoint() - 1
        return table

    @property
    def _opened(self) -> DeltaTable:
        assert self._table is not None
        return self._table

    def _asks_too_much(self) -> Iterator[str]:
        table = self._opened
        metadata, protocol = table.metadata(), table.protocol()
        if metadata.partition_columns:
            yield f"it is partitioned by {', '.join(metadata.partition_columns)}, which this sink cannot write"
        if _FORGETS in metadata.configuration:
            yield f"{_FORGETS} is set: it would forget how far the query has come. Unset it"
        used = {"constraints": any(name.startswith("delta.constraints.") for name in metadata.configuration)}
        used |= {what: f'"{name}"' in table.schema().to_json() for name, what in _OF_COLUMNS.items()}
        used["column mapping"] = metadata.configuration.get(_MAPPING, "none") != "none"
        asked = {what for what, is_used in used.items() if is_used}
        asked |= {str(feature) for feature in protocol.writer_features or ()} - _FEATURES
        if protocol.writer_features is None and protocol.min_writer_version > _LAST_WITHOUT_FEATURES:
            asked.add(f"version {protocol.min_writer_version} of the protocol")
        if asked:
            yield f"it asks of its writers what this sink does not have: {', '.join(sorted(asked))}"

    def _misfits(self, schema: pa.Schema | None) -> Iterator[str]:
        there = pa.schema(self._opened.schema().to_arrow())
        return (
            misfits(schema, there, "DeltaTable(path).alter.add_columns(...)")
            if schema is not None
            else iter(())
        )

    def _sync(self, version: int) -> None:
        """The log up to a version: the library that writes it leaves that to the operating system."""
        for each in range(self._synced + 1, version + 1):
            for kind in ("json", "checkpoint.parquet"):
                _sync_file(self._file(each, kind))
        _sync_file(os.path.join(self._log, "_last_checkpoint"))
        fsync_directory(self._log)
        self._synced = version

    def _last_checkpoint(self) -> int:
        with suppress(FileNotFoundError), open(os.path.join(self._log, "_last_checkpoint"), "rb") as file:
            return int(parsed_json(file.read())["version"])
        return 0

    def _file(self, version: int, kind: str) -> str:
        return os.path.join(self._log, f"{version:020d}.{kind}")


def _sync_file(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # no checkpoint of that version, or cleaned up
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
