"""The records that a sink keeps beside a Delta table, as files that never change.

    _clonos/<query>/<number>.records     all records of the query as of one step
    _clonos/<query>/<number>.log         the determinants that one step brought

The table's own log says which `.records` file counts: its number is the version of the application transaction
`clonos/<query>`, and is written by the commit that brings the rows. So a file without such a commit, which a dead or
defeated writer has left, means nothing. Folders that begin with `_` are left alone by readers of Delta, and by VACUUM.

A number is a count of steps, and random bits so that two writers which go on from one step choose different names. A
commit moves on only from the number before, so once a number is the table's, no file with as high a count or less can
become it: those may be removed.

A `.records` file is a checksummed JSON object of the form of `clonos.sinks.store_records`: `inline` has keys and values
in base64, `logged` the number, offset and length of what lies in a `.log` file. Entries there have checksums of their
own.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from clonos.errors import LogCorrupt
from clonos.sinks.store_records import pack, unpack
from clonos.storage.durable_files import fsync_directory, make_directory, write_file

_RANDOM_BITS: Final = 23
_IN_A_LOG: Final = "/log/"

Place = tuple[int, int, int]
"""In a `.log` file: its number, the offset and the length."""


@dataclass(frozen=True, slots=True)
class Records:
    """As of one step; `number` is 0 before the first."""

    number: int = 0
    inline: Mapping[str, bytes] = field(default_factory=dict)
    logged: Mapping[str, Place] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return self.number >> _RANDOM_BITS


class RecordFiles:
    """Of one query. Raises FileNotFoundError where a file has been removed, since a newer step counts."""

    def __init__(self, folder: str, *, durable: bool) -> None:
        self._folder, self._durable = folder, durable

    def read(self, number: int) -> Records:
        path = self._path(number, "records")
        with open(path, "rb") as file:
            content = unpack(file.read())
        if content is None:
            raise LogCorrupt(
                f"the sink's records {path} are damaged, or of a newer version",
                hint="Restore the file from a backup before the query runs again",
            )
        said = json.loads(content)
        inline = {key: base64.b64decode(value) for key, value in said["inline"].items()}
        return Records(number, inline, {key: tuple(place) for key, place in said["logged"].items()})

    def value(self, records: Records, key: str) -> bytes | None:
        """Of one record."""
        if key in records.logged:
            return next(value for _, value in self.entries(records, [key]))
        return records.inline.get(key)

    def entries(self, records: Records, keys: list[str]) -> Iterator[tuple[str, bytes]]:
        """Records and their values, in the order of `keys`. Each file is read once where its entries stand together."""
        number, content = -1, b""
        for key in keys:
            if key not in records.logged:
                yield key, records.inline[key]
                continue
            wanted, offset, length = records.logged[key]
            if wanted != number:
                with open(self._path(wanted, "log"), "rb") as file:
                    number, content = wanted, file.read()
            yield key, content[offset : offset + length]

    def write(self, before: Records, changes: Mapping[str, bytes | None]) -> Records:
        """The records after a step. They count once a commit says so; they are durable before."""
        if not os.path.isdir(self._folder):
            make_directory(self._folder) if self._durable else os.makedirs(self._folder, exist_ok=True)
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
            write_file(self._path(number, "log"), bytes(entries), durable=self._durable)
        after = Records(number, inline, logged)
        write_file(self._path(number, "records"), _packed(after), durable=self._durable)
        if self._durable:
            fsync_directory(self._folder)
        return after

    def forget(self, records: Records) -> None:
        """Records that do not count any more, since a newer step does. Its entries may still be those of newer ones."""
        with suppress(FileNotFoundError):
            os.unlink(self._path(records.number, "records"))

    def clean(self, current: Records) -> None:
        """Remove whatever no step can need any more, also of writers that are dead."""
        needed = {
            f"{current.number:020d}.records",
            *(f"{place[0]:020d}.log" for place in current.logged.values()),
        }
        for name in os.listdir(self._folder) if os.path.isdir(self._folder) else ():
            number, _, kind = name.partition(".")
            if (
                kind in ("records", "log")
                and name not in needed
                and int(number) >> _RANDOM_BITS <= current.count
            ):
                os.unlink(os.path.join(self._folder, name))

    def _path(self, number: int, kind: str) -> str:
        return os.path.join(self._folder, f"{number:020d}.{kind}")


def _packed(records: Records) -> bytes:
    inline = {key: base64.b64encode(value).decode() for key, value in records.inline.items()}
    return pack(json.dumps({"inline": inline, "logged": records.logged}, separators=(",", ":")).encode())
