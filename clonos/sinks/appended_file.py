"""Rows appended to one file per sink instance, exactly once and without torn entries, visible as they come.

A file system has no transactions, so each bundle is written *ahead*: first one record with the rows' bytes, where they
belong, the determinants and the new cursors goes into the sink's log; from there on the bundle counts. Then the bytes
are appended to the visible file. A crash in between leaves a visible file that is shorter than the log says, maybe in
the middle of a row, and the next `open` writes the rest: the same bytes at the same place, so no row can come twice
and none stays torn. A crash before the record is whole leaves nothing visible, and the record is cut.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from clonos.errors import LogCorrupt, SinkError
from clonos.protocol.fence import Fence
from clonos.protocol.ids import InstanceId, NodeId, Origin
from clonos.sinks.bundle import check_bundle, check_counts
from clonos.sinks.patience import Patience
from clonos.sinks.port import Cursors, Row, SinkPosition
from clonos.sinks.sink_wal import Found, SinkWal
from clonos.sinks.wal_files import write_all
from clonos.sinks.wal_format import Kind, Record
from clonos.storage.durable_files import fsync_directory


class Entries(Protocol):
    """How rows stand in the visible file."""

    @property
    def begin(self) -> bytes:
        """What stands before the first one."""

    def file(self, query: str, origin: Origin) -> str:
        """The name of a sink instance's file. Raises SinkError where it has none."""

    def encode(self, rows: list[Row], ids: list[str]) -> bytes:
        """Raises SinkError where a row cannot be written."""


class AppendedFileWriter:
    """See `clonos.sinks.port.SinkWriter`."""

    def __init__(
        self, folder: str, entries: Entries, log: SinkWal, patience: Patience, *, durable: bool
    ) -> None:
        self._folder = Path(folder)
        self._entries = entries
        self._log = log
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
        origin = Origin(node, instance)
        self._file = self._folder / self._entries.file(query, origin)
        self._patience.run(lambda _: self._recover(self._log.open(query, origin, fence)))
        self._started = True
        return SinkPosition(cursors=dict(self._cursors))

    def write(self, rows: list[Row], ids: list[str], cursors: Cursors, deltas: list[bytes]) -> None:
        if not self._started:
            raise SinkError("a sink writer was used before it was opened")
        check_counts(rows, ids)
        data = self._entries.encode(rows, ids)
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

    def counted(self) -> dict[str, float]:
        return {"sink_retries": self._patience.retries}

    def close(self) -> None:
        self._started = False
        self._unfinished = None
        self._log.close()
        if self._visible >= 0:
            os.close(self._visible)
            self._visible = -1

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
            if self._end == 0 and self._entries.begin:
                self._end = length = self._begin(length)
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

    def _begin(self, length: int) -> int:
        """Where rows begin in a file in which none is; it may have been made with what stands before them."""
        begin = self._entries.begin
        if length <= len(begin):
            write_all(self._visible, begin, 0)
            return len(begin)
        raise LogCorrupt(
            f"{self._file} has {length} bytes, and this query has written none of them",
            hint="Another query or program wrote it; give this one a folder of its own",
        )

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
    at the end and also before others."""
    known = rows[: len(there)]
    return there == known or all(found in (0, wanted) for found, wanted in zip(there, known, strict=True))
