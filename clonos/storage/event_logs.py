"""The logs of events of one instance: checkpoints that are a whole one and transactions behind it.

A log is known by its bytes, whatever keeps them (`event_medium`). It has the name of the whole checkpoint that it
begins with, and is a sequence of entries:

    u16 version (1)  u32 length of the body  u32 CRC-32 of version and body  body

The body of the first one is the manifest of the whole checkpoint (`storage.manifest`), so the log goes on to count when
that is gone. Each other one is a transaction, a msgpack list:

    [name, meta (bytes of the instance), increment (what has changed since the transaction before)]

An entry that is there in part, at the end, was being written when its process or host died: it never counted. One that
is damaged in between is said, and nothing behind it counts, as it needs what was there.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgpack

from clonos.errors import SnapshotCorrupt
from clonos.protocol.fence import Fence
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.recovery.event_log.logged_checkpoints import LoggedCheckpoints, LogName
from clonos.storage.event_medium import EventMedium
from clonos.storage.increment import file_name
from clonos.storage.manifest import Manifest, SnapshotFile

VERSION: Final = 1
_HEADER: Final = struct.Struct("<HII")
MOST_TRANSACTIONS: Final = 1000
"""Of one log: then a whole checkpoint is due."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One step of an instance: a checkpoint, given the one before. `changes` is an increment."""

    name: SnapshotName
    meta: bytes
    changes: bytes

    def to_bytes(self) -> bytes:
        """The body of an entry."""
        packed: bytes = msgpack.packb([str(self.name), self.meta, self.changes])
        return packed

    @classmethod
    def from_bytes(cls, body: bytes) -> Transaction:
        """Raises ValueError."""
        try:
            text, meta, changes = msgpack.unpackb(body)
            name = SnapshotName.parse(text)
        except (TypeError, msgpack.UnpackException) as error:
            raise ValueError(str(error)) from error
        if name is None or not (isinstance(meta, bytes) and isinstance(changes, bytes)):
            raise ValueError("it is no transaction")
        return cls(name, meta, changes)

    def file(self, number: int) -> SnapshotFile:
        """Its changes as a file of a checkpoint, the how-manieth of its kind."""
        digest = hashlib.sha256(self.changes).digest()
        return SnapshotFile(file_name(number), len(self.changes), digest, "", self.changes, None)


def entry(body: bytes) -> bytes:
    """As it stands in a log."""
    return _HEADER.pack(VERSION, len(body), _checksum(VERSION, body)) + body


def entries(data: bytes, where: str) -> Iterator[tuple[bytes, int]]:
    """The bodies, each with where the next entry begins. Raises SnapshotCorrupt where something is damaged."""
    at = 0
    while at + _HEADER.size <= len(data):
        version, length, checksum = _HEADER.unpack_from(data, at)
        end = at + _HEADER.size + length
        if end > len(data):
            return
        body = data[at + _HEADER.size : end]
        if version != VERSION or _checksum(version, body) != checksum:
            if end == len(data) or not any(data[at:]):  # after a power failure there may be zeros instead
                return
            raise SnapshotCorrupt(
                f"{where} is damaged at byte {at}, with {len(data) - at} bytes from there on"
            )
        yield body, end
        at = end


def _checksum(version: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(version.to_bytes(2, "little")))


@dataclass(slots=True)
class _Log:
    """What is known of one: the checkpoint that it begins with, and how much of it has been read."""

    base: Manifest | None = None
    read: int = 0
    damage: str = ""
    places: dict[SnapshotName, tuple[int, int]] = field(default_factory=dict)  # where entries begin and end


class EventLogs:
    """See the module. `may_look_again`: other processes write them, and this one only reads."""

    def __init__(self, medium: EventMedium, *, may_look_again: bool) -> None:
        self._medium = medium
        self._may_look_again = may_look_again
        self._has_looked = False
        self._known = LoggedCheckpoints(most=MOST_TRANSACTIONS)
        self._logs: dict[LogName, _Log] = {}
        self._writing: LogName | None = None
        self.corrupt: list[str] = []

    def names(self) -> list[SnapshotName]:
        """Of the checkpoints in them."""
        if self._may_look_again or not self._has_looked:
            self._look()
            self._has_looked = True
        return list(self._known)

    def __contains__(self, name: SnapshotName) -> bool:
        return self._known.log_of(name) is not None

    def look_again(self) -> None:
        """Another process may have written until now."""
        self._has_looked = False

    def read(self, name: SnapshotName) -> Manifest | None:
        """A checkpoint; None if it is in no log, or gone since. Raises SnapshotCorrupt."""
        log = self._known.log_of(name)
        base = self._logs[log].base if log is not None else None
        if log is None or base is None:
            return None
        files: list[SnapshotFile] = []
        for transaction in self._transactions(log):
            files.append(transaction.file(len(files)))
            if transaction.name == name:
                return _checkpoint(base, transaction, files)
        return None

    def meta(self, name: SnapshotName) -> bytes | None:
        """What the instance has said of itself with it, None as in `read`."""
        log = self._known.log_of(name)
        if log is None:
            return None
        where = f"{self._medium}/{log}"
        try:
            raw = self._medium.read(log, *self._logs[log].places[name])
        except FileNotFoundError:
            return None
        return next((_transaction(body, where).meta for body, _ in entries(raw, where)), None)

    def is_full(self, base: Manifest) -> bool:
        """Whether a whole checkpoint is due behind what has been appended to `base`."""
        return self._known.is_full(_log_behind(base))

    def close(self) -> None:
        """Of what the medium holds open. It may be used again."""
        self._medium.close()

    def append(self, base: Manifest, transaction: Transaction) -> None:
        """Behind what has been appended to `base`. It is a checkpoint, and durable."""
        log = _log_behind(base)
        if self._writing != log:
            head = entry(base.to_bytes())
            self._medium.append(log, 0, head)
            self._logs[log], self._writing = _Log(base, len(head)), log
            self._known.add(log, ())
        known, data = self._logs[log], entry(transaction.to_bytes())
        self._medium.append(log, known.read, data)
        begins, known.read = known.read, known.read + len(data)
        known.places[transaction.name] = begins, known.read
        self._known.add(log, [transaction.name])

    def sync(self, name: SnapshotName) -> None:
        """An instance begins with it: it is to outlive this host, too, though its writer may have died before."""
        log = self._known.log_of(name)
        if log is not None:
            try:
                self._medium.sync(log)
            except FileNotFoundError as error:
                raise SnapshotCorrupt(f"{self._medium}/{log} is gone") from error

    def drop(self, names: Iterable[SnapshotName], *, mine: Callable[[Fence | None], bool]) -> None:
        """Nothing begins with these any more, nor with those of them that are in no log. Logs go that only had such
        ones."""
        for log in self._known.drop(names):
            if mine(_fence(log)):
                self._medium.delete(log)
                self._forget(log)

    @property
    def bases(self) -> Sequence[Manifest]:
        """The whole checkpoints that they begin with, whose files they need."""
        return [log.base for log in self._logs.values() if log.base is not None]

    def _look(self) -> None:
        found = self._medium.logs()
        for log in [log for log in self._logs if log not in found]:
            self._forget(log)
        for text, size in found.items():
            log = LogName(text)
            if log not in self._logs:
                self._logs[log] = _Log()
                self._known.add(log, ())  # so that it may go, although it may never have an entry
            known = self._logs[log]
            if size > known.read and not known.damage:
                self._read_on(log, known)

    def _read_on(self, log: LogName, known: _Log) -> None:
        """What has come to it since it was read last."""
        where, begins = f"{self._medium}/{log}", known.read
        names: list[SnapshotName] = []
        try:
            for body, end in entries(self._medium.read(log, begins), where):
                if known.base is None:
                    known.base = Manifest.from_bytes(body, where)
                else:
                    names.append(_transaction(body, where).name)
                    known.places[names[-1]] = known.read, begins + end
                known.read = begins + end
        except FileNotFoundError:
            self._forget(log)
            return
        except SnapshotCorrupt as error:
            known.damage = error.message
            self.corrupt.append(error.message)
        self._known.add(log, names)

    def _transactions(self, log: LogName) -> Iterator[Transaction]:
        where = f"{self._medium}/{log}"
        try:
            data = self._medium.read(log, 0, self._logs[log].read)
        except FileNotFoundError:
            return
        for number, (body, _) in enumerate(entries(data, where)):
            if number:
                yield _transaction(body, where)

    def _forget(self, log: LogName) -> None:
        self._logs.pop(log, None)
        self._known.forget(log)
        if self._writing == log:
            self._writing = None


def _checkpoint(base: Manifest, last: Transaction, files: Sequence[SnapshotFile]) -> Manifest:
    name = last.name
    return replace(
        base,
        epoch=name.epoch,
        sequence=name.sequence,
        final=name.final,
        resumed=name.resumed,
        narrow=name.narrow,
        fence=name.fence,
        meta=last.meta,
        files=(*base.files, *files),
    )


def _transaction(body: bytes, where: str) -> Transaction:
    try:
        return Transaction.from_bytes(body)
    except ValueError as error:
        raise SnapshotCorrupt(f"{where} has an entry that is malformed: {error}") from error


def _log_behind(base: Manifest) -> LogName:
    return LogName(str(base.name))


def _fence(log: LogName) -> Fence | None:
    name = SnapshotName.parse(log)
    return name.fence if name is not None else None
