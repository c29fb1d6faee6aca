"""A fenced write-ahead log per sink instance, in a directory of its own.

    <base>/<query>/fence, lock                   the floor of all instances of the query
    <base>/<query>/commit                        what `clonos.protocol.line.kept_commit` says, under the same lock
    <base>/<query>/<node>-<instance>/fence, lock
    <base>/<query>/<node>-<instance>/ahead-<n>.log

What goes into the log takes effect; what a caller does afterwards (append rows to a visible file, call a function) can
be finished or repeated from it. The writer alone touches the newest segment. It starts a new one when it opens and when
the segment has grown, with a BASE record that makes all older ones needless for it; those hold determinants for the
instances upstream and are left to the driver, which trims them.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clonos.errors import LogCorrupt, SinkError, SinkUnavailable, Where
from clonos.protocol.fence import NO_FENCE, Fence
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.line.kept_commit import KeptCommit, supersedes
from clonos.protocol.roles.sink_fence import Holder, check_driver, check_holding, check_taking
from clonos.sinks.patience import Patience
from clonos.sinks.port import Cursors
from clonos.sinks.wal_files import (
    file_name,
    locked,
    make_directories,
    read_fence,
    told,
    write_all,
    write_fence,
)
from clonos.sinks.wal_format import HEADER, Kind, Record, Scan, Tail, encode, scan
from clonos.storage.durable_files import fsync_directory, replace_file

SEGMENT_BYTES = 16 << 20
_SEGMENT = re.compile(r"ahead-(\d{10,})\.log")
_INSTANCE = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Found:
    """What a newly opened log says: the last BASE and the records after it."""

    base: Record
    records: list[Record]


class SinkWal:
    """The writing end. Every method but `close` raises SinkUnavailable where the disk fails."""

    def __init__(self, base: str, *, durable: bool, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._base = Path(base)
        self._durable = durable
        self._segment_bytes = segment_bytes
        self._owner = secrets.token_hex(8)
        self._directory = self._base
        self._origin: Origin = Origin.of(0, 0)
        self._mine = Holder(NO_FENCE)
        self._descriptor = -1
        self._number = 0
        self._length = self._empty_length = 0
        # Where the newest segment has to be cut, once what it promised is known to be fulfilled.
        self._torn_at: int | None = None

    def open(self, query: str, origin: Origin, fence: Fence) -> Found:
        """Take the fence and read the log. Must be followed by `rotate` before anything is appended."""
        self.close()
        # The same at each attempt of one writer, so that it knows what it took when it was not told.
        self._origin, self._mine = origin, Holder(fence, self._owner)
        whole = self._base / file_name(query)
        self._directory = whole / f"{origin[0]}-{origin[1]}"
        with told(f"the sink's log in {self._directory}"):
            make_directories(self._directory, durable=self._durable)
            with locked(whole / "lock"):
                floor = read_fence(whole / "fence").fence
                with locked(self._directory / "lock"):
                    standing = read_fence(self._directory / "fence")
                    check_taking(self._mine, standing, floor=floor, origin=origin)
                    write_fence(self._directory / "fence", self._mine, durable=self._durable)
        with self.held():
            return self._read()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """No other writer can take the fence meanwhile. Raises Fenced where one has, SinkError where it is gone."""
        with told(f"the sink's log in {self._directory}"), locked(self._directory / "lock"):
            path = self._directory / "fence"
            check_holding(self._mine, read_fence(path), origin=self._origin, kept_in=f"the file {path}")
            yield

    def rotate(self, start: int, cursors: Cursors) -> None:
        """Start a new segment. What was promised by the old one must be finished, and durable, before."""
        if self._torn_at is not None:
            os.truncate(segment_path(self._directory, self._number), self._torn_at)
            self._torn_at = None
        path = segment_path(self._directory, self._number + 1)
        data = HEADER + encode(Record(kind=Kind.BASE, start=start, cursors=cursors))
        replace_file(path, data, durable=self._durable)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.close()
        self._descriptor, self._number = descriptor, self._number + 1
        self._length = self._empty_length = len(data)

    def append(self, record: Record) -> None:
        """Returns when the record is in the log. If it raises, it is not."""
        data = encode(record)
        if os.fstat(self._descriptor).st_size != self._length:  # left by an append whose cut failed too
            os.ftruncate(self._descriptor, self._length)
        try:
            write_all(self._descriptor, data, self._length)
            if self._durable:
                os.fdatasync(self._descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._length)
            raise
        self._length += len(data)

    @property
    def is_full(self) -> bool:
        return self._length >= max(self._segment_bytes, self._empty_length + 1)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> Found:
        for left in self._directory.glob("*.tmp-*"):
            left.unlink(missing_ok=True)
        numbers = segments(self._directory)
        self._number, self._torn_at = 0, None
        if not numbers:
            return Found(Record(kind=Kind.BASE), [])
        self._number = numbers[-1]
        path = segment_path(self._directory, self._number)
        found = scan(path.read_bytes())
        if found.tail is Tail.CORRUPT or not found.records or found.records[0].kind is not Kind.BASE:
            raise LogCorrupt(
                f"the sink's log {path} is damaged at byte {found.length}",
                where=Where(instance=self._origin[1]),
                hint="Nothing after it can be believed. Restore the file; do not delete it while the query matters",
            )
        self._torn_at = found.length if found.tail is Tail.TORN else None
        return Found(found.records[0], found.records[1:])


def segments(directory: Path) -> list[int]:
    """The numbers of the segments, oldest first."""
    matches = (_SEGMENT.fullmatch(name) for name in os.listdir(directory))
    return sorted(int(match[1]) for match in matches if match)


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"ahead-{number:010d}.log"


def instances(base: str, query: str) -> list[tuple[Origin, Path]]:
    """The sink instances that have a log, with their directories."""
    whole = Path(base) / file_name(query)
    try:
        names = os.listdir(whole)
    except FileNotFoundError:
        return []
    matches = (_INSTANCE.fullmatch(name) for name in names)
    return sorted((Origin.of(int(match[1]), int(match[2])), whole / match[0]) for match in matches if match)


def raise_floor(base: str, query: str, fence: Fence, *, durable: bool) -> None:
    """Lift every fence of the query, and the floor for instances yet unseen, to at least `fence`."""
    whole = Path(base) / file_name(query)
    with told(f"the sink's fences in {whole}"):
        make_directories(whole, durable=durable)
        with locked(whole / "lock"):
            _raise(whole / "fence", fence, durable)
            for _, directory in instances(base, query):
                with locked(directory / "lock"):
                    _raise(directory / "fence", fence, durable)


def _raise(path: Path, fence: Fence, durable: bool) -> None:
    standing = read_fence(path)
    raised = standing.raised_to(fence)
    if raised != standing:
        write_fence(path, raised, durable=durable)


def record_commit(base: str, query: str, offered: KeptCommit, *, durable: bool) -> None:
    """Keep it if it supersedes what is kept, or raise Fenced."""
    whole = Path(base) / file_name(query)
    with told(f"the sink's commit record in {whole}"):
        make_directories(whole, durable=durable)
        with locked(whole / "lock"):
            if supersedes(offered, _read_commit(whole / "commit"), floor=read_fence(whole / "fence").fence):
                replace_file(whole / "commit", offered.pack(), durable=durable)


def read_floor(base: str, query: str) -> Fence:
    """The highest fence that was raised for the whole query; 0 where none was."""
    whole = Path(base) / file_name(query)
    with told(f"the sink's fences in {whole}"):
        return read_fence(whole / "fence").fence


def last_commit(base: str, query: str) -> tuple[Epoch, bytes] | None:
    path = Path(base) / file_name(query) / "commit"
    try:
        kept = _read_commit(path)
    except OSError as error:
        raise SinkUnavailable(f"cannot read the sink's commit record {path}: {error}") from None
    return None if kept is None else (kept.epoch, kept.record)


def _read_commit(path: Path) -> KeptCommit | None:
    try:
        return KeptCommit.unpack(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None


class SinkWalReader:
    """The reading end, for recovery; see `clonos.sinks.port.SinkLogReader`. Writers may be at work meanwhile."""

    def __init__(self, base: str, query: str, *, moved_by: Kind) -> None:
        self._base, self._query, self._moved_by = base, query, moved_by
        self._corrupt: list[str] = []

    @property
    def corrupt(self) -> list[str]:
        return list(self._corrupt)

    def deltas(self) -> Iterator[bytes]:
        self._corrupt.clear()
        for _, directory in instances(self._base, self._query):
            numbers = segments(directory)
            for number, found in self._scans(directory, numbers):
                for record in found.records:
                    yield from record.deltas
                if found.tail is Tail.CORRUPT or (found.tail is Tail.TORN and number != numbers[-1]):
                    self._corrupt.append(f"{segment_path(directory, number)}: byte {found.length}")

    def cursors(self) -> dict[Origin, Cursors]:
        return self._standing(Kind.BASE, self._moved_by)

    def reached(self) -> dict[Origin, Cursors]:
        return self._standing(Kind.BASE, self._moved_by, Kind.INTENT)

    def _standing(self, *moved_by: Kind) -> dict[Origin, Cursors]:
        result: dict[Origin, Cursors] = {}
        for origin, directory in instances(self._base, self._query):
            for _, found in self._scans(directory, segments(directory)[-1:]):
                standing: Cursors = {}
                for record in found.records:
                    if record.kind in moved_by:
                        standing.update(record.cursors)
                if standing:
                    result[origin] = standing
        return result

    def close(self) -> None:
        """Nothing is held."""

    def _scans(self, directory: Path, numbers: list[int]) -> Iterator[tuple[int, Scan]]:
        for number in numbers:
            try:
                data = segment_path(directory, number).read_bytes()
            except FileNotFoundError:  # trimmed meanwhile: no recovery needs it
                continue
            except OSError as error:
                raise SinkError(
                    f"cannot read the sink's log {segment_path(directory, number)}: {error}"
                ) from None
            yield number, scan(data)


def trim(
    base: str, query: str, fence: Fence, keep: Callable[[bytes], bool], patience: Patience, *, durable: bool
) -> int:
    """Drop unwanted determinants, and all row bytes, from every segment but the newest. Damaged ones stay.

    That the newest stays keeps the numbers of segments from being used twice. Each segment is replaced under the
    query's lock, and not after a later start of the query has raised the floor.
    """
    whole = Path(base) / file_name(query)
    dropped = 0
    for _, directory in instances(base, query):
        for number in segments(directory)[:-1]:
            path = segment_path(directory, number)
            trimmed = _trimmed(path, keep)
            if trimmed is not None:
                patience.run(lambda _, path=path, to=trimmed: _replace(whole, fence, path, to, durable))  # type: ignore[misc]
                dropped += trimmed.dropped
    return dropped


@dataclass(frozen=True, slots=True)
class _Trimmed:
    """What a trimmed segment keeps."""

    wanted: list[bytes]
    dropped: int


def _trimmed(path: Path, keep: Callable[[bytes], bool]) -> _Trimmed | None:
    """None where it stays as it is."""
    try:
        found = scan(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SinkUnavailable(f"cannot read the sink's log {path}: {error}") from None
    if found.tail is not Tail.CLEAN:
        return None
    deltas = [delta for record in found.records for delta in record.deltas]
    wanted = [delta for delta in deltas if keep(delta)]
    stays = len(wanted) == len(deltas) and not any(record.rows for record in found.records)
    return None if wanted and stays else _Trimmed(wanted, len(deltas) - len(wanted))


def _replace(whole: Path, fence: Fence, path: Path, trimmed: _Trimmed, durable: bool) -> None:
    with told(f"the sink's log {path}"), locked(whole / "lock"):
        check_driver(fence, floor=read_fence(whole / "fence").fence)
        if trimmed.wanted:
            record = Record(kind=Kind.KEPT, deltas=trimmed.wanted)
            replace_file(path, HEADER + encode(record), durable=durable)
        else:
            path.unlink(missing_ok=True)
            if durable:
                fsync_directory(str(path.parent))
