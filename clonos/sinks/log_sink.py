"""Rows into an embedded log, exactly once, as JSON objects: another query, or the same one, reads them as its source.

<path>/<n>.log, _meta.json          the log (`clonos.storage.embedded_log`); sink instance n appends to partition n
<path>/_clonos/<query>/...          logs and fences, see `clonos.sinks.sink_wal`
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from clonos.errors import QueryDefinitionError, SinkError
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.sinks.appended_file_sink import AppendedFileSink
from clonos.sinks.json_rows import JsonRows
from clonos.sinks.port import Row
from clonos.sinks.sink_wal import SEGMENT_BYTES
from clonos.sinks.wal_files import file_name, local_path
from clonos.storage.embedded_log import MAGIC, create_log, encode_entries

if TYPE_CHECKING:
    pass


class LogSink(AppendedFileSink):
    """An embedded log in a local (or shared POSIX) folder that only this query writes to, made where it is missing.

    `partitions`: how many it has; so many instances append to it. `id_column`, `durable`,
    `patience`, `segment_bytes`: as of `JsonlSink`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        partitions: int = 1,
        *,
        id_column: str = "clonos_id",
        patience: float = 30.0,
        durable: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        super().__init__(id_column=id_column, patience=patience, durable=durable, segment_bytes=segment_bytes)
        self._path = local_path(path, "the folder of an embedded log")
        if not isinstance(partitions, int) or partitions < 1:
            raise QueryDefinitionError(f"a log has at least one partition, not {partitions!r}")
        self._partitions = partitions

    def __repr__(self) -> str:
        return f"LogSink({self._path!r})"

    @property
    def parallelism(self) -> int | None:
        return self._partitions

    @property
    def target(self) -> Hashable:
        return "log", os.path.realpath(self._path)

    def bind(self, checkpoint: str) -> None:
        """Nothing of this sink is kept in the checkpoint."""

    @property
    def folder(self) -> str:
        return self._path

    def entries(self, rows: JsonRows) -> LogEntries:
        return LogEntries(rows, self._partitions)

    def create(self) -> None:
        """An empty log where there is none, for readers. Raises ConfigurationError where one has other partitions."""
        create_log(self._path, self._partitions)

    def has_rows_of(self, query: str) -> bool:
        """Whether it has been written to by the query."""
        return os.path.isdir(os.path.join(self._base, file_name(query)))

    def raise_fence(self, query: str, fence: Fence) -> None:
        self.create()
        super().raise_fence(query, fence)


LONGEST: Final = 20_000_000
"""Spark's reader takes no text that is longer."""


class EntriesOfBundles:
    """Rows as entries of an embedded log: what `clonos.sinks.appended_file.Entries` asks for, but for the file."""

    begin = MAGIC

    def __init__(self, rows: JsonRows) -> None:
        self._rows = rows
        self._last: tuple[list[str], list[Row], bytes] = [], [], b""

    def encode(self, rows: list[Row], ids: list[str]) -> bytes:
        """A bundle that is tried again was appended when it was tried first."""
        if (ids, rows) != self._last[:2]:
            objects = self._rows.encode(rows, ids)
            for row_id, each in zip(ids, objects, strict=True):
                if len(each) > LONGEST:
                    raise SinkError(
                        f"row {row_id} has {len(each)} bytes as JSON; one of more than {LONGEST} could not be read back"
                    )
            data = encode_entries(objects, time.time_ns() // 1000)
            self._last = list(ids), list(rows), data
        return self._last[2]


class LogEntries(EntriesOfBundles):
    """See `clonos.sinks.appended_file.Entries`."""

    def __init__(self, rows: JsonRows, partitions: int) -> None:
        super().__init__(rows)
        self._partitions = partitions

    def file(self, query: str, origin: Origin) -> str:
        if origin.instance >= self._partitions:
            raise SinkError(
                f"instance {origin.instance} of a sink has no partition in a log of {self._partitions}",
                hint="Give the sink a parallelism of at most the log's partitions, or leave it out",
            )
        return f"{origin.instance}.log"
