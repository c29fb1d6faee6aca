"""An Iceberg table: what is read of it, and a commit of rows together with a number of a query.

The number is a property of the table, which outlives snapshots that expire. Each commit adds a snapshot, too, even one
without rows: a commit is refused where the table has another snapshot than the one it goes on from, and properties
alone are compared with nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import fs, types as pt
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    NotInstalledError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import PyArrowFileIO, _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AssertTableUUID

from clonos.errors import QueryDefinitionError, SinkError
from clonos.sinks.arrow_rows import misfits, with_nulls


def check_columns(schema: pa.Schema) -> None:
    """Raises QueryDefinitionError where Iceberg, or the library that writes it, cannot hold a column."""
    for field in schema:
        try:
            if pa.types.is_null(field.type):
                raise TypeError("it has no type")
            _pyarrow_to_schema_without_ids(pa.schema([field]))
        except Exception as error:
            raise QueryDefinitionError(
                f"column {field.name!r}: Iceberg has no type for {field.type}: {error}",
                hint="Cast it before the sink",
            ) from None
        _check_nested(field.type, field.name)
    try:
        assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))
    except ValueError as error:
        raise QueryDefinitionError(
            f"Iceberg tells the columns apart by names such as a.b, for the field b of a struct a: {error}",
            hint="Rename one of them before the sink",
        ) from None


def _check_nested(kind: pa.DataType, name: str) -> None:
    """pyiceberg (ArrowProjectionVisitor) makes lists and maps of structs anew, and those that are null come out empty.
    Parquet has no file for a struct without fields."""
    if pt.is_struct(kind):
        if kind.num_fields == 0:
            raise QueryDefinitionError(
                f"column {name!r}: an Iceberg table holds no struct without fields",
                hint="Drop it before the sink",
            )
        for field in kind:
            _check_nested(field.type, f"{name}.{field.name}")
        return
    inner = kind.item_type if pt.is_map(kind) else getattr(kind, "value_type", None)
    if inner is None:
        return
    if pt.is_struct(inner):
        raise QueryDefinitionError(
            f"column {name!r}: in an Iceberg table, pyiceberg would write a null {kind} as an empty one",
            hint="Make it a string with to_json before the sink, or arrays of its fields",
        )
    _check_nested(inner, f"{name}[]")


class _OneCommit(Transaction):
    """A transaction that is committed as it is or not at all. The library's own goes on from the commit of another,
    with the properties of before; and where it gives up it removes manifests, though the answer may have been lost."""

    def commit_transaction(self) -> Table:
        required = AssertTableUUID(uuid=self.table_metadata.table_uuid)
        self._table._do_commit(self._updates, (*self._requirements, required))
        return self._table


class IcebergTable:
    """One table, as of the last `refresh`. `name`: with its namespace, `shop.decisions`."""

    def __init__(self, catalog: Catalog, name: str) -> None:
        self.name, self._catalog = name, catalog
        self._table: Table | None = None

    @property
    def is_there(self) -> bool:
        """Whether there was a table at the last `refresh`."""
        return self._table is not None

    @property
    def uuid(self) -> bytes:
        return str(self._opened.metadata.table_uuid).encode()

    def refresh(self) -> None:
        """Load the table as it is now. There may be none yet."""
        try:
            found = self._catalog.load_table(self.name)
        except NoSuchTableError:
            found = None
        if self._table is not None and (
            found is None or found.metadata.table_uuid != self._table.metadata.table_uuid
        ):
            raise SinkError(
                f"the table {self.name} was removed or made anew",
                hint="Restore it, or start the query with a new checkpoint and a new table",
            )
        self._table = found

    def create(self, schema: pa.Schema) -> None:
        """Where there is none, and its namespace where that is missing."""
        namespace = self.name.rpartition(".")[0]
        with suppress(NamespaceAlreadyExistsError):  # another process was quicker
            self._catalog.create_namespace_if_not_exists(namespace)
        with suppress(TableAlreadyExistsError):
            self._catalog.create_table(self.name, with_nulls(schema))
        self.refresh()

    def number(self, query: str) -> int:
        """That the last commit of a query has; 0 where there is none."""
        return int(self._table.properties.get(property_of(query), 0)) if self._table else 0

    def commit(self, query: str, number: int, rows: pa.Table | None) -> str | None:
        """None where it has taken effect. Otherwise why it has not: another commit has come in between. Raises where
        that is not known, and SinkError where the table does not take the rows."""
        table = self._opened
        self._check_partitions()
        if rows is not None:
            self._check(rows.schema)
        adds = rows if rows is not None else table.schema().as_arrow().empty_table()
        transaction = _OneCommit(table)
        transaction.set_properties({property_of(query): str(number)})
        try:
            transaction.append(adds)
        except (ValueError, NotImplementedError, TypeError) as error:
            raise SinkError(f"the table {self.name} does not take the rows: {error}") from None
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            return str(error)
        except NoSuchTableError:
            self.refresh()
            raise
        return None

    def _check_partitions(self) -> None:
        """Rows are told apart by a package of its own, but for partitions by the values of a column."""
        table = self._opened
        for each in table.spec().fields:
            try:
                each.transform.pyarrow_transform(table.schema().find_type(each.source_id))
            except NotInstalledError:
                column = table.schema().find_column_name(each.source_id)
                raise SinkError(
                    f"the table {self.name} is partitioned by {each.transform} of {column}, "
                    "which this sink cannot write",
                    hint="Partition the table by columns as they are (identity), or not at all",
                ) from None

    def _check(self, rows: pa.Schema) -> None:
        """Compared as Arrow has the types of both: the library's own check prints."""
        table, offered = self._opened.schema(), _pyarrow_to_schema_without_ids(rows)
        columns, there = (schema_to_pyarrow(each, include_field_ids=False) for each in (offered, table))
        for reason in misfits(columns, there, "table.update_schema().add_column(...)"):
            raise SinkError(f"the table {self.name} does not take the rows: {reason}")

    def folder(self, query: str) -> IcebergFolder:
        """Beside the table's data."""
        table = self._opened
        assert isinstance(table.io, PyArrowFileIO)
        return IcebergFolder(table.io, f"{table.location().rstrip('/')}/_clonos/{query}")

    @property
    def _opened(self) -> Table:
        assert self._table is not None
        return self._table


class IcebergFolder:
    """See `clonos.sinks.kept_records.Folder`."""

    def __init__(self, io: PyArrowFileIO, location: str) -> None:
        self._io, self._location = io, location

    def __str__(self) -> str:
        return self._location

    def read(self, names: list[str]) -> Iterator[bytes]:
        for name in names:
            location = f"{self._location}/{name}"
            try:
                with self._io.new_input(location).open(seekable=False) as file:
                    yield file.read()
            except FileNotFoundError:
                raise FileNotFoundError(2, "no such file", location) from None

    def write(self, name: str, content: bytes) -> None:
        with self._io.new_output(f"{self._location}/{name}").create(overwrite=True) as file:
            file.write(content)

    def remove(self, names: list[str]) -> None:
        for name in names:
            try:
                self._io.delete(f"{self._location}/{name}")
            except FileNotFoundError:
                continue

    def names(self) -> list[str]:
        scheme, netloc, path = self._io.parse_location(self._location, self._io.properties)
        storage: Any = self._io.fs_by_scheme(scheme, netloc)
        found = storage.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return [each.base_name for each in found]


def catalog_options(catalog: str | Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The name and the properties of a catalog; one that is only named stands in the configuration of pyiceberg."""
    properties = {} if isinstance(catalog, str) else dict(catalog)
    name = catalog if isinstance(catalog, str) else properties.pop("name", "default")
    return name, {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO", **properties}


def property_of(query: str) -> str:
    """Of a table: the number of the query's last commit."""
    return f"clonos.{query}"
