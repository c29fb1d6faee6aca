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

from clonos.protocol.ids import Origin
from clonos.sinks.appended_file_sink import AppendedFileSink
from clonos.sinks.json_rows import JsonRows
from clonos.sinks.port import Row
from clonos.sinks.sink_wal import SEGMENT_BYTES
from clonos.sinks.wal_files import file_name, local_path

if TYPE_CHECKING:
    pass


class JsonlSink(AppendedFileSink):
    """JSON Lines files in a local (or shared POSIX) folder, one per sink instance.

    `id_column`: where each row's id goes. `durable`: whether what is visible survives a power failure of the machine
    (it survives a crash of any process in any case). `patience`: for how many seconds a full disk or a lock held by
    another process is waited for. `segment_bytes`: how large a log segment grows before a new one is begun.
    """

    parallelism: int | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        id_column: str = "clonos_id",
        patience: float = 30.0,
        durable: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        super().__init__(id_column=id_column, patience=patience, durable=durable, segment_bytes=segment_bytes)
        self._path = local_path(path, "the folder of a JSON Lines sink")

    def __repr__(self) -> str:
        return f"JsonlSink({self._path!r})"

    @property
    def target(self) -> Hashable:
        return "jsonl", os.path.realpath(self._path)

    def bind(self, checkpoint: str) -> None:
        """Nothing of this sink is kept in the checkpoint."""

    @property
    def folder(self) -> str:
        return self._path

    def entries(self, rows: JsonRows) -> JsonLines:
        return JsonLines(rows)


@dataclass(frozen=True)
class JsonLines:
    rows: JsonRows
    begin: bytes = b""

    def file(self, query: str, origin: Origin) -> str:
        return f"part-{file_name(query)}-{origin.node}-{origin.instance}.jsonl"

    def encode(self, rows: list[Row], ids: list[str]) -> bytes:
        return b"\n".join([*self.rows.encode(rows, ids), b""])
