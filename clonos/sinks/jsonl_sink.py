"""Rows into JSON Lines files, exactly once and without torn lines, visible as they come.

A file system has no transactions, so each bundle is written *ahead*: first one record with the rows' bytes, where they
belong, the determinants and the new cursors goes into the sink's log; from there on the bundle counts. Then the bytes
are appended to the visible file. A crash in between leaves a visible file that is shorter than the log says, maybe in
the middle of a line, and the next `open` writes the rest: the same bytes at the same place, so no row can come twice
and no line stays torn. A crash before the record is whole leaves nothing visible, and the record is cut.

    <path>/part-<query>-<node>-<instance>.jsonl     the rows
    <path>/_clonos/<query>/...                      logs and fences, see `clonos.sinks.sink_wal`

Spark and most readers of data folders pass over names that begin with `_`.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clonos.errors import ConfigurationError, LogCorrupt, QueryDefinitionError, SinkError
from clonos.protocol.fence import Fence
from clonos.protocol.ids import InstanceId, NodeId, Origin
from clonos.sinks.bundle import check_bundle, check_counts
from clonos.sinks.file_sink import FileSink
from clonos.sinks.patience import Patience
from clonos.sinks.port import Cursors, Row, SinkPosition
from clonos.sinks.sink_wal import SEGMENT_BYTES, Found, SinkWal
from clonos.sinks.values import Encode, check_names, check_type, encode_json, json_encoder, to_columns
from clonos.sinks.wal_files import file_name, local_path, write_all
from clonos.sinks.wal_format import Kind, Record
from clonos.storage.durable_files import fsync_directory

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

    def writer(self) -> JsonlWriter:
        if self._rows is None:
            raise ConfigurationError(
                "this sink has not been given a schema yet", hint="Call validate(schema) first"
            )
        log = SinkWal(self._base, durable=self._durable, segment_bytes=self._segment_bytes)
        names = [self._id_column, *self._rows.names]
        encoders = [json_encoder(field.type) for field in self._rows]
        return JsonlWriter(self._path, log, names, encoders, Patience(self._patience), durable=self._durable)

    @property
    def _base(self) -> str:
        return os.path.join(self._path, "_clonos")


class JsonlWriter:
    """See `clonos.sinks.port.SinkWriter`."""

    def __init__(
        self,
        path: str,
        log: SinkWal,
        names: Sequence[str],
        encoders: Sequence[Encode | None],
        patience: Patience,
        *,
        durable: bool,
    ) -> None:
        self._folder = Path(path)
        self._log = log
        self._names, self._encoders = names, encoders
        self._patience = patience
        self._durable = durable
        self._visible = -1
        self._file = self._folder
        self._end = 0
        self._cursors: Cursors = {}
        self._started = False
        # In the log but not yet wholly in the visible file.
        self._unfinished: Record | None = None

    def open(self, *, query: str, node: NodeId, instance: InstanceId, fence: Fence) -> SinkPosition:
        self.close()
        self._file = self._folder / f"part-{file_name(query)}-{node}-{instance}.jsonl"
        self._patience.run(lambda _: self._recover(self._log.open(query, Origin(node, instance), fence)))
        self._started = True
        return SinkPosition(cursors=dict(self._cursors))

    def write(self, rows: list[Row], ids: list[str], cursors: Cursors, deltas: list[bytes]) -> None:
        if not self._started:
            raise SinkError("a sink writer was used before it was opened")
        check_counts(rows, ids)
        data = self._lines(rows, ids)
        moved = {c: p for c, p in cursors.items() if p != self._cursors.get(c)}
        earlier = self._unfinished
        if earlier is not None:
            self._patience.run(lambda _: self._settle())
            if (earlier.cursors, earlier.deltas, earlier.rows) == (moved, deltas, data):
                return
        check_bundle(rows, ids, cursors, self._cursors)
        if data or moved or deltas:
            record = Record(kind=Kind.BUNDLE, start=self._end, cursors=moved, deltas=deltas, rows=data)
            self._patience.run(lambda _: self._attempt(record))

    def close(self) -> None:
        self._started = False
        self._unfinished = None
        self._log.close()
        if self._visible >= 0:
            os.close(self._visible)
            self._visible = -1

    def _lines(self, rows: list[Row], ids: list[str]) -> bytes:
        names = self._names
        columns = to_columns(rows, ids, names[1:], self._encoders)
        lines = []
        for values in zip(ids, *columns, strict=True):
            try:
                lines.append(encode_json(dict(zip(names, values, strict=True))).encode())
            except (TypeError, ValueError) as error:
                raise SinkError(f"row {values[0]} cannot be written as JSON: {error}") from None
        lines.append(b"")
        return b"\n".join(lines)

    def _attempt(self, record: Record) -> None:
        if self._unfinished is record:
            self._settle()
            return
        with self._log.held():
            self._check_untouched()
            if self._log.is_full:
                if self._durable:
                    os.fdatasync(self._visible)
                self._log.rotate(self._end, self._cursors)
            self._log.append(record)
            self._unfinished = record
            self._finish(record)

    def _settle(self) -> None:
        with self._log.held():
            self._check_in_place()
            if self._unfinished is not None:
                self._finish(self._unfinished)

    def _finish(self, record: Record) -> None:
        write_all(self._visible, record.rows, record.start)
        self._end = record.start + len(record.rows)
        self._cursors.update(record.cursors)
        self._unfinished = None

    def _check_in_place(self) -> None:
        """No reader would see rows that are appended to a file which has lost its name."""
        what = "replaced by another file"
        try:
            if os.path.samestat(os.stat(self._file), os.fstat(self._visible)):
                return
        except FileNotFoundError:
            what = "removed or renamed"
        raise SinkError(
            f"{self._file} was {what} while the query wrote to it",
            hint="Put it back under this name with all that it held, and start the query again; where it is lost, "
            "begin anew with a new checkpointLocation and another folder. Move rows out by copying",
        )

    def _check_untouched(self) -> None:
        self._check_in_place()
        length = os.fstat(self._visible).st_size
        if length != self._end:
            raise SinkError(f"{self._file} was changed by another program: {length} bytes, not {self._end}")

    def _recover(self, found: Found) -> None:
        """Bring the visible file to where the log says, then begin a new segment."""
        with self._log.held():
            if self._visible >= 0:
                os.close(self._visible)
            self._visible = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            length = os.fstat(self._visible).st_size
            self._end, self._cursors = found.base.start, dict(found.base.cursors)
            if length < self._end:
                raise SinkError(
                    f"{self._file} has {length} bytes of the {self._end} that were written",
                    hint="The sink appends to it; move rows out by copying, and leave the file to the query",
                )
            for record in found.records:
                self._repeat(record, length)
            if length > self._end:
                raise LogCorrupt(
                    f"{self._file} has {length} bytes, its log explains {self._end}",
                    hint="Rows are visible whose determinants are lost, or another program wrote to the file",
                )
            if self._durable:
                os.fsync(self._visible)
                fsync_directory(str(self._folder))
            self._log.rotate(self._end, self._cursors)

    def _repeat(self, record: Record, length: int) -> None:
        """Make sure that a logged bundle is wholly visible."""
        if record.kind is not Kind.BUNDLE or record.start != self._end:
            raise LogCorrupt(f"the log of {self._file} has a record that does not follow the one before")
        there = os.pread(self._visible, len(record.rows), record.start) if length > record.start else b""
        if not _is_unfinished(there, record.rows):
            raise SinkError(f"{self._file} was changed by another program at byte {record.start} or after")
        if there != record.rows:
            write_all(self._visible, record.rows, record.start)
        self._end += len(record.rows)
        self._cursors.update(record.cursors)


def _is_unfinished(there: bytes, rows: bytes) -> bool:
    """Whether what is there is a part of the rows. A power failure leaves zeros where bytes were not yet on the disk,
    at the end and also before others; JSON has none."""
    known = rows[: len(there)]
    return there == known or all(found in (0, wanted) for found, wanted in zip(there, known, strict=True))
