"""Rows into an object store, exactly once: an object per bundle, JSON Lines or Parquet, which never changes.

    <url>/part-<query>-<count>.parquet          the rows of one step
    <url>/_clonos/<query>/head                  all records as of the last step, and which rows belong to it
    <url>/_clonos/<query>/<number>.rows         the rows of a step, before they are visible
    <url>/_clonos/<query>/<number>.log          determinants, see `clonos.sinks.kept_records`

A step is one conditional put of the head: it is refused where the head is not the one that the step went on from. What
the head refers to is there before. After it the rows are published, by a copy to the name that readers see, and the
staged ones are removed. The next step, whichever process takes it, publishes first what the head says, in place of a
writer that has died in between; where the staged rows are gone it knows that they are published. So readers see the
rows of committed steps, in their order; a writer that was replaced can publish nothing else; and of the parts that the
readers' owner has moved away, none comes back but one whose writer died between the copy and the removal.

The head's etag tells apart whatever was there: each head has a number with random bits in it.
"""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from clonos.errors import LogCorrupt, SinkUnavailable
from clonos.json_text import parsed_json
from clonos.sinks.kept_records import RecordFiles, Records, RecordStore, checked, query_of
from clonos.sinks.object_layout import Layout
from clonos.sinks.object_place import ObjectPlace, open_place
from clonos.sinks.object_rows import Format, check_columns, encode
from clonos.sinks.object_url import canonical, checked_url
from clonos.sinks.port import Row
from clonos.sinks.store import StoreSink
from clonos.sinks.store_records import pack
from clonos.sinks.wal_files import file_name

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore import UpdateVersion

_TRIES: Final = 100
_VERSION: Final = 1


class ObjectSink(StoreSink):
    """A place in an object store: `s3://bucket/path`, or one of Google's or Azure's.

    `options`: arguments of `obstore.store.S3Store` (or `GCSStore`, `AzureStore`), as `endpoint`, `access_key_id`,
    `secret_access_key`, `region`; what is not given is looked for in the environment of each process.
    `id_column`: where each row's id goes. `patience`: for how many seconds a store that is away is waited for.
    """

    parallelism = 1  # a query has one head, which takes one step after the other

    def __init__(
        self,
        url: str,
        form: Format,
        *,
        options: Mapping[str, Any] | None = None,
        id_column: str = "clonos_id",
        patience: float = 30.0,
    ) -> None:
        super().__init__(patience=patience)
        self._url, self._form, self._id_column = checked_url(url), form, id_column
        self._options = dict(options or {})

    def __repr__(self) -> str:
        return f"ObjectSink({self._url!r}, {self._form!r})"

    @property
    def target(self) -> Hashable:
        return "objects", *canonical(self._url)

    @property
    def url(self) -> str:
        return self._url

    @property
    def id_column(self) -> str:
        return self._id_column

    def validate(self, schema: pa.Schema) -> None:
        super().validate(schema)
        check_columns(schema, self._form)
        open_place(self._url, self._options)

    def connect(self) -> ObjectStore:
        return ObjectStore(ObjectPlace(self._url, self._options), self)

    def encoded(self, rows: list[Row], ids: list[str]) -> bytes:
        """The content of an object."""
        return encode(rows, ids, self.schema, self._id_column, self._form)

    def layout(self) -> Layout | None:
        """None where no schema is known: fences can be raised all the same."""
        return None if self._schema is None else Layout.of(self._schema, self._id_column, self._form)

    @property
    def form(self) -> Format:
        return self._form


@dataclass(frozen=True, slots=True)
class Head:
    """Of one query: what counts, the name that the step's rows have for readers, where it brought any, and what all its
    objects have in common."""

    records: Records
    part: str = ""
    layout: Layout | None = None
    version: UpdateVersion | None = None

    def pack(self) -> bytes:
        said = {
            "version": _VERSION,
            "number": self.records.number,
            "part": self.part,
            "layout": self.layout and self.layout.pack(),
            "records": self.records.pack().decode(),
        }
        return pack(zlib.compress(json.dumps(said).encode(), 1))

    @classmethod
    def unpack(cls, content: bytes, version: UpdateVersion, place: str) -> Head:
        said = parsed_json(zlib.decompress(checked(content, place)))
        if said["version"] != _VERSION:
            raise LogCorrupt(
                f"the sink's records {place} have version {said['version']}, and this one of Clonos reads {_VERSION}",
                hint="Run the query with the version of Clonos that has written them, or a newer one",
            )
        records = Records.unpack(said["number"], said["records"].encode())
        return cls(records, said["part"], Layout.unpack(said["layout"]), version)


class ObjectFolder:
    """See `clonos.sinks.kept_records.Folder`."""

    def __init__(self, place: ObjectPlace, query: str) -> None:
        self._place, self.path = place, f"_clonos/{file_name(query)}"

    def __str__(self) -> str:
        return f"{self._place.url}/{self.path}"

    def read(self, names: list[str]) -> Iterator[bytes]:
        return self._place.read([f"{self.path}/{name}" for name in names])

    def write(self, name: str, content: bytes) -> None:
        self._place.put(f"{self.path}/{name}", content)

    def remove(self, names: list[str]) -> None:
        self._place.remove([f"{self.path}/{name}" for name in names])

    def names(self) -> list[str]:
        return [path.rpartition("/")[2] for path in self._place.names(self.path)]


class ObjectStore(RecordStore):
    """See `clonos.sinks.store.Store`. All records of a query are in one head, so each step is one put of it."""

    def __init__(self, place: ObjectPlace, sink: ObjectSink) -> None:
        super().__init__(place.url)
        self._objects, self._sink = place, sink
        self._heads: dict[str, Head] = {}
        self._published: dict[str, int] = {}

    def current(self, query: str) -> Records:
        return self._read_head(query).records

    def files(self, query: str) -> RecordFiles:
        return RecordFiles(ObjectFolder(self._objects, query))

    def step(
        self,
        expected: Mapping[str, bytes | None],
        changes: Mapping[str, bytes | None],
        rows: list[Row],
        ids: list[str],
    ) -> bool:
        (query,) = {query_of(key) for key in (*expected, *changes)}
        content = self._sink.encoded(rows, ids) if rows else b""
        head = self._heads.get(query) or self._read_head(query)
        for _ in range(_TRIES):
            self._joined(head)
            self._publish(query, head)
            if head.version is None:
                self._objects.check_conditions(f"{self._folder(query)}/probe-{secrets.token_hex(8)}")
            if self.as_expected(head.records, expected):
                after = self._prepared(query, head, changes, content)
                if self._committed(query, head, after):
                    self._publish(query, self._heads[query])
                    if None in changes.values() or f"{query}/commit" in changes:
                        self.files(query).clean(after.records)
                    return True
            found = self._read_head(query)
            if found.records.number == head.records.number:
                return False
            head = found
        raise SinkUnavailable(
            f"{self._place} took no step in {_TRIES} attempts: others' came each time before"
        )

    def close(self) -> None:
        """Nothing is held."""

    def _prepared(self, query: str, head: Head, changes: Mapping[str, bytes | None], content: bytes) -> Head:
        """What the step refers to is there when this returns."""
        after = self.files(query).prepare(head.records, changes)
        layout = self._joined(head)
        if not content:
            return Head(after, "", layout)
        self._objects.put(self._staged(query, after), content)
        return Head(after, f"part-{file_name(query)}-{after.count:020d}.{self._sink.form}", layout)

    def _joined(self, head: Head) -> Layout | None:
        """Raises SinkError where the sink's rows cannot stand beside what is there."""
        mine = self._sink.layout()
        return head.layout.joined(mine, self._place) if head.layout and mine else mine or head.layout

    def _committed(self, query: str, before: Head, after: Head) -> bool:
        """Whether the head has become this one."""
        content = after.pack()
        version = self._objects.replace(self._head_name(query), content, before.version)
        if version is None:
            found = self._objects.get(self._head_name(query))  # it may be this very one: the answer was lost
            if found is None or found[0] != content:
                return False
            version = found[1]
        self._heads[query] = replace(after, version=version)
        return True

    def _publish(self, query: str, head: Head) -> None:
        """Let readers see the rows of the last step, if they do not see them yet."""
        if not head.part or self._published.get(query) == head.records.number:
            return
        staged = self._staged(query, head.records)
        with suppress(FileNotFoundError):  # another process has published and removed them
            self._objects.copy(staged, head.part)
            self._objects.remove([staged])
        self._published[query] = head.records.number

    def _read_head(self, query: str) -> Head:
        name, known = self._head_name(query), self._heads.get(query)
        while True:
            found = self._objects.get(name)
            head = Head.unpack(*found, f"{self._place}/{name}") if found else Head(Records())
            if found is None and known is not None and known.version is not None:
                raise self._is_gone(query)
            later = "" if known is not None else self._part_behind(query, head.records.count)
            if not later:
                break
            if self._objects.get(name) == found:  # otherwise a step was taken meanwhile
                raise self._is_older(query, later) if found else self._is_gone(query)
        self._heads[query] = head
        return head

    def _part_behind(self, query: str, count: int) -> str:
        """A part of a later step than that one, whose head has been there then; empty where there is none."""
        prefix = f"part-{file_name(query)}-"
        part = self._objects.first_behind(f"{prefix}{count:020d}~")
        number = part.removeprefix(prefix).partition(".")[0]
        return part if part.startswith(prefix) and number.isdigit() else ""

    def _is_gone(self, query: str) -> LogCorrupt:
        return LogCorrupt(
            f"the object {self._place}/{self._head_name(query)} is gone, but the query {query} has written rows there",
            hint="Restore it, or start the query with a new checkpoint and another path",
        )

    def _is_older(self, query: str, part: str) -> LogCorrupt:
        return LogCorrupt(
            f"the object {self._place}/{self._head_name(query)} is an older copy of itself: {part} was written later",
            hint="Restore the last one, or start the query with a new checkpoint and another path",
        )

    def _head_name(self, query: str) -> str:
        return f"{self._folder(query)}/head"

    def _folder(self, query: str) -> str:
        return f"_clonos/{file_name(query)}"

    def _staged(self, query: str, records: Records) -> str:
        return f"{self._folder(query)}/{records.number:020d}.rows"
