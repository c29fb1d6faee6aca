"""Rows into JSON Lines files, exactly once and without torn lines, visible as they come (`appended_file`).

    <path>/part-<query>-<node>-<instance>.jsonl     the rows
    <path>/_clonos/<query>/...                      logs and fences, see `clonos.sinks.sink_wal`

Spark and most readers of data folders pass over names that begin with `_`.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clonos.errors import ConfigurationError, QueryDefinitionError
from clonos.protocol.ids import Origin
from clonos.sinks.appended_file import AppendedFileWriter
from clonos.sinks.file_sink import FileSink
from clonos.sinks.json_rows import JsonRows
from clonos.sinks.patience import Patience
from clonos.sinks.port import Row
from clonos.sinks.sink_wal import SEGMENT_BYTES, SinkWal
from clonos.sinks.values import check_names, check_type
from clonos.sinks.wal_files import file_name, local_path
from clonos.sinks.wal_format import Kind

if TYPE_CHECKING:
    import pyarrow as pa


class JsonlSink(FileSink):
    """JSON Lines files in a local (or shared POSIX) folder, one per sink instance.

    `id_column`: where each row's id goes. `durable`: whether what is visible survives a power failure of the machine
    (it survives a crash of any process in any case). `patience`: for how many seconds a full disk or a lock held by
    another process is waited for. `segment_bytes`: how large a log segment grows before a new one is begun.
    """

    moved_by = Kind.BUNDLE
    parallelism: int | None = None
    instants = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        id_column: str = "clonos_id",
        patience: float = 30.0,
        durable: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        super().__init__(patience=patience, durable=durable)
        self._path = local_path(path, "the folder of a JSON Lines sink")
        if not id_column:
            raise QueryDefinitionError("the id column needs a name")
        if segment_bytes < 1:
            raise ConfigurationError(f"segment_bytes must be positive, not {segment_bytes}")
        self._id_column = id_column
        self._segment_bytes = segment_bytes
        self._rows: pa.Schema | None = None

    def __repr__(self) -> str:
        return f"JsonlSink({self._path!r})"

    @property
    def target(self) -> Hashable:
        return "jsonl", os.path.realpath(self._path)

    def bind(self, checkpoint: str) -> None:
        """Nothing of this sink is kept in the checkpoint."""

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
        log = SinkWal(self._base, durable=self._durable, segment_bytes=self._segment_bytes)
        lines = JsonLines(JsonRows(self._rows, self._id_column))
        return AppendedFileWriter(self._path, lines, log, Patience(self._patience), durable=self._durable)

    @property
    def _base(self) -> str:
        return os.path.join(self._path, "_clonos")


@dataclass(frozen=True)
class JsonLines:
    rows: JsonRows
    begin: bytes = b""

    def file(self, query: str, origin: Origin) -> str:
        return f"part-{file_name(query)}-{origin.node}-{origin.instance}.jsonl"

    def encode(self, rows: list[Row], ids: list[str]) -> bytes:
        return b"\n".join([*self.rows.encode(rows, ids), b""])
