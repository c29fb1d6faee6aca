"""The records of a sink whose store takes one small step at once, and has a folder beside for whatever is larger.

A step writes what it brings into the folder, under a number, and takes effect when the store takes that number (as the
version of a transaction, or in a head) instead of the one before. So files without such a step, which a dead or
defeated writer has left, mean nothing.

    <number>.log         the determinants that one step brought
    <number>.records     all records of the query as of one step, where the store itself keeps nothing but the number

A number is a count of steps, and random bits so that two writers which go on from one step choose different names. The
store moves on only from the number before, so once a number is the store's, no file with as high a count or less can
become it: those may be removed.

A snapshot of all records is a checksummed JSON object of the form of `clonos.sinks.store_records`: `inline` has keys
and values in base64, `logged` the number, offset and length of what lies in a `.log` file. Entries there have checksums
of their own.
"""

from __future__ import annotations

import base64
import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from clonos.errors import LogCorrupt, SinkError
from clonos.json_text import parsed_json
from clonos.sinks.store_records import pack, unpack

_RANDOM_BITS: Final = 23
_IN_A_LOG: Final = "/log/"
_T = TypeVar("_T")

Place = tuple[int, int, int]
"""In a `.log` file: its number, the offset and the length."""


class Folder(Protocol):
    """Files of one query, which never change."""

    def read(self, names: list[str]) -> Iterator[bytes]:
        """The contents, in that order. Raises FileNotFoundError, whose `filename` says which one is gone."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """It is durable when a step takes effect that comes after."""
        ...

    def remove(self, names: list[str]) -> None:
        """One may be gone already."""
        ...

    def names(self) -> list[str]:
        """Of all files."""
        ...


@dataclass(frozen=True, slots=True)
class Records:
    """As of one step; `number` is 0 before the first."""

    number: int = 0
    inline: Mapping[str, bytes] = field(default_factory=dict)
    logged: Mapping[str, Place] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return self.number >> _RANDOM_BITS

    @property
    def keys(self) -> list[str]:
        return sorted((*self.inline, *self.logged))

    def pack(self) -> bytes:
        inline = {key: base64.b64encode(value).decode() for key, value in self.inline.items()}
        return json.dumps({"inline": inline, "logged": self.logged}, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, number: int, content: bytes) -> Records:
        said = parsed_json(content)
        inline = {key: base64.b64decode(value) for key, value in said["inline"].items()}
        return cls(number, inline, {key: tuple(place) for key, place in said["logged"].items()})


class RecordFiles:
    """Of one query. Raises FileNotFoundError where a file has been removed, since a newer step counts."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def last_count(self) -> int:
        """The greatest of all files' counts, 0 where there are none. A step of that count was begun, and the one before
        has taken effect."""
        return max((count for name in self._folder.names() if (count := _count(name)) is not None), default=0)

    def read(self, number: int) -> Records:
        """Of a store that keeps nothing but the number."""
        name = _name(number, "records")
        (content,) = self._folder.read([name])
        return Records.unpack(number, checked(content, f"{self._folder}/{name}"))

    def value(self, records: Records, key: str) -> bytes | None:
        """Of one record."""
        if key in records.logged:
            return next(value for _, value in self.entries(records, [key]))
        return records.inline.get(key)

    def entries(self, records: Records, keys: list[str]) -> Iterator[tuple[str, bytes]]:
        """Records and their values, in the order of `keys`. Each file is read once where its entries stand together."""
        asked: list[int] = []
        for key in keys:
            if key in records.logged and [records.logged[key][0]] != asked[-1:]:
                asked.append(records.logged[key][0])
        contents = self._folder.read([_name(number, "log") for number in asked])
        number, content = -1, b""
        for key in keys:
            if key not in records.logged:
                yield key, records.inline[key]
                continue
            wanted, offset, length = records.logged[key]
            if wanted != number:
                number, content = wanted, next(contents)
            yield key, content[offset : offset + length]

    def prepare(self, before: Records, changes: Mapping[str, bytes | None]) -> Records:
        """The records after a step; what it brings to the log is written. They count once the store takes them."""
        number = (before.count + 1) << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
        inline = {key: value for key, value in before.inline.items() if key not in changes}
        logged = {key: place for key, place in before.logged.items() if key not in changes}
        entries = bytearray()
        for key, value in changes.items():
            if value is None:
                continue
            if _IN_A_LOG in key:
                logged[key] = number, len(entries), len(value)
                entries += value
            else:
                inline[key] = value
        if entries:
            self._folder.write(_name(number, "log"), bytes(entries))
        return Records(number, inline, logged)

    def write(self, before: Records, changes: Mapping[str, bytes | None]) -> Records:
        """`prepare`, for a store that keeps nothing but the number."""
        after = self.prepare(before, changes)
        self._folder.write(_name(after.number, "records"), pack(after.pack()))
        return after

    def forget(self, records: Records) -> None:
        """Records that do not count any more, since a newer step does. Its entries may still be those of newer ones."""
        self._folder.remove([_name(records.number, "records")])

    def clean(self, current: Records) -> None:
        """Remove whatever no step can need any more, also of writers that are dead."""
        needed = {
            _name(current.number, "records"),
            *(_name(place[0], "log") for place in current.logged.values()),
        }
        unwanted = [name for name in self._folder.names() if name not in needed and _is_before(name, current)]
        if unwanted:
            self._folder.remove(unwanted)


class RecordStore(ABC):
    """The part of a `clonos.sinks.store.Store` that reads. `place` names it in errors."""

    def __init__(self, place: str) -> None:
        self._place = place

    @abstractmethod
    def current(self, query: str) -> Records:
        """As of the last step that took effect."""

    @abstractmethod
    def files(self, query: str) -> RecordFiles: ...

    def get(self, key: str) -> bytes | None:
        query = query_of(key)
        return self.read(query, lambda records: self._value(records, key))

    def scan(self, after: str, before: str, limit: int) -> list[tuple[str, bytes]]:
        query = query_of(after)

        def between(records: Records) -> list[tuple[str, bytes]]:
            keys = [key for key in records.keys if after < key < before]
            return list(self.files(query).entries(records, keys[:limit])) if keys else []

        return self.read(query, between)

    def read(self, query: str, read: Callable[[Records], _T]) -> _T:
        """What is read of the records that count now; a newer step may have removed files meanwhile."""
        missing: tuple[int, str] | None = None
        while True:
            number = 0
            try:
                records = self.current(query)
                number = records.number
                return read(records)
            except FileNotFoundError as error:
                if missing == (number, str(error.filename)):
                    raise SinkError(
                        f"the file {error.filename} is gone, which {self._place} needs",
                        hint="Restore the folder _clonos, and leave it alone while its query matters",
                    ) from None
                missing = number, str(error.filename)

    def as_expected(self, records: Records, expected: Mapping[str, bytes | None]) -> bool:
        return all(self._value(records, key) == value for key, value in expected.items())

    def _value(self, records: Records, key: str) -> bytes | None:
        """Files are looked for where the record is in one: there may be no place for them yet."""
        if key in records.logged:
            return self.files(query_of(key)).value(records, key)
        return records.inline.get(key)


def query_of(key: str) -> str:
    return key.partition("/")[0]


def checked(content: bytes, path: str) -> bytes:
    """What was packed. Raises LogCorrupt, which names the file."""
    whole = unpack(content)
    if whole is None:
        raise LogCorrupt(
            f"the sink's records {path} are damaged, or of a newer version",
            hint="Restore the file from a backup before the query runs again",
        )
    return whole


def _name(number: int, kind: str) -> str:
    return f"{number:020d}.{kind}"


def _count(name: str) -> int | None:
    """None of files of other kinds."""
    number, _, kind = name.partition(".")
    return int(number) >> _RANDOM_BITS if kind in ("records", "log", "rows") else None


def _is_before(name: str, current: Records) -> bool:
    count = _count(name)
    return count is not None and count <= current.count
