"""What sinks have in common that append rows as JSON objects to files (`appended_file`)."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import TYPE_CHECKING

from clonos.errors import ConfigurationError, QueryDefinitionError
from clonos.sinks.appended_file import AppendedFileWriter, Entries
from clonos.sinks.file_sink import FileSink
from clonos.sinks.json_rows import JsonRows
from clonos.sinks.patience import Patience
from clonos.sinks.sink_wal import SEGMENT_BYTES, SinkWal
from clonos.sinks.values import check_names, check_type
from clonos.sinks.wal_format import Kind

if TYPE_CHECKING:
    import pyarrow as pa


class AppendedFileSink(FileSink):
    """Its log is in the folder of its files, under `_clonos`."""

    moved_by = Kind.BUNDLE
    instants = True

    def __init__(
        self, *, id_column: str, patience: float, durable: bool, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        super().__init__(patience=patience, durable=durable)
        if not id_column:
            raise QueryDefinitionError("the id column needs a name")
        if segment_bytes < 1:
            raise ConfigurationError(f"segment_bytes must be positive, not {segment_bytes}")
        self._id_column = id_column
        self._segment_bytes = segment_bytes
        self._rows: pa.Schema | None = None

    @property
    @abstractmethod
    def folder(self) -> str:
        """Of the files."""

    @abstractmethod
    def entries(self, rows: JsonRows) -> Entries:
        """How rows stand in a file."""

    def validate(self, schema: pa.Schema) -> None:
        check_names(schema.names, self._id_column)
        for field in schema:
            check_type(field.type, field.name)
        self._rows = schema

    def writer(self) -> AppendedFileWriter:
        if self._rows is None:
            raise ConfigurationError(
                "this sink has not been given a schema yet", hint="Call validate(schema) first"
            )
        entries = self.entries(JsonRows(self._rows, self._id_column))
        log = SinkWal(self._base, durable=self._durable, segment_bytes=self._segment_bytes)
        return AppendedFileWriter(self.folder, entries, log, Patience(self._patience), durable=self._durable)

    @property
    def _base(self) -> str:
        return os.path.join(self.folder, "_clonos")
