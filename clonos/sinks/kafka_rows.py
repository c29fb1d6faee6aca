"""Rows as messages of a user's topic."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyarrow import types as pt

from clonos.errors import QueryDefinitionError
from clonos.sinks.json_rows import json_objects
from clonos.sinks.kafka_ids import ID_HEADER
from clonos.sinks.kafka_port import Message
from clonos.sinks.port import Row
from clonos.sinks.values import Encode, check_type, encode_json, is_binary, json_encoder, to_columns

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Layout:
    """Which columns go where. `key`: one or several; `value`: one, or None for a JSON object of all that are no
    headers; `headers`: header to column."""

    topic: str
    key: Sequence[str] = ()
    value: str | None = None
    headers: Mapping[str, str] | None = None

    def check(self, schema: pa.Schema) -> None:
        """Raises QueryDefinitionError where the rows do not fit."""
        named = [*self.key, *([self.value] if self.value is not None else []), *(self.headers or {}).values()]
        unknown = sorted({name for name in named if name not in schema.names})
        if unknown:
            raise QueryDefinitionError(
                f"the rows have no column {', '.join(map(repr, unknown))}, which the Kafka sink is told of",
                hint=f"They have {', '.join(schema.names)}",
            )
        if len(set(schema.names)) < len(schema.names):
            raise QueryDefinitionError("the rows of a Kafka sink have two columns of one name")
        if ID_HEADER in (self.headers or {}):
            raise QueryDefinitionError(
                f"the header {ID_HEADER} is the sink's own", hint="Choose another name"
            )
        for field in schema:
            check_type(field.type, field.name)
        if self.value is not None and not _is_text(schema.field(self.value).type):
            raise QueryDefinitionError(
                f"the value of a Kafka message is text or binary, and column {self.value!r} is "
                f"{schema.field(self.value).type}",
                hint="Cast it, or leave value= out: then the value is a JSON object of the columns",
            )


class KafkaRows:
    """Of one schema, of one query."""

    def __init__(self, layout: Layout, schema: pa.Schema) -> None:
        self._layout = layout
        self._names = list(schema.names)
        self._types = [field.type for field in schema]
        self._encoders: list[Encode | None] = [
            None if _is_text(kind) else json_encoder(kind) for kind in self._types
        ]
        headers = set((layout.headers or {}).values())
        self._object = [at for at, name in enumerate(self._names) if name not in headers]
        self._binary = {
            at: encode
            for at, kind in enumerate(self._types)
            if is_binary(kind) and (encode := json_encoder(kind)) is not None
        }

    @property
    def layout(self) -> int:
        """A number that another topic, key, value, header or column changes."""
        layout = self._layout
        said = [layout.topic, list(layout.key), layout.value, sorted((layout.headers or {}).items())]
        columns = [[name, str(kind)] for name, kind in zip(self._names, self._types, strict=True)]
        return zlib.crc32(encode_json([said, columns]).encode())

    def encode(self, id_prefix: str, rows: list[Row], ids: list[str]) -> list[Message]:
        """Raises SinkError, which names the row that cannot be written."""
        columns = to_columns(rows, ids, self._names, self._encoders)
        if not rows:
            return []
        keys, values = self._keys(columns, len(ids)), self._values(columns, ids)
        headers = [
            (name, self._bytes(columns, column)) for name, column in (self._layout.headers or {}).items()
        ]
        topic = self._layout.topic
        return [
            Message(
                topic,
                key,
                value,
                [(ID_HEADER, f"{id_prefix}{row_id}".encode())]
                + [(name, each[at]) for name, each in headers if each[at] is not None],
                row_id,
            )
            for at, (row_id, key, value) in enumerate(zip(ids, keys, values, strict=True))
        ]

    def _keys(self, columns: list[Any], count: int) -> Sequence[bytes | None]:
        names = self._layout.key
        if not names:
            return [None] * count
        if len(names) == 1:
            return self._bytes(columns, names[0])
        parts = [self._plain(columns, self._names.index(name)) for name in names]
        return [encode_json(list(each)).encode() for each in zip(*parts, strict=True)]

    def _values(self, columns: list[Any], ids: list[str]) -> Sequence[bytes | None]:
        if self._layout.value is not None:
            return self._bytes(columns, self._layout.value)
        names = [self._names[at] for at in self._object]
        return json_objects(names, [self._plain(columns, at) for at in self._object], ids)

    def _plain(self, columns: list[Any], at: int) -> Sequence[Any]:
        """A column as JSON takes it."""
        encode = self._binary.get(at)
        return (
            columns[at]
            if encode is None
            else [None if each is None else encode(each) for each in columns[at]]
        )

    def _bytes(self, columns: list[Any], name: str) -> Sequence[bytes | None]:
        """A column as messages take it: text and binary as they are, else as JSON."""
        at = self._names.index(name)
        if is_binary(self._types[at]):
            return [None if each is None else bytes(each) for each in columns[at]]
        text = str if _is_text(self._types[at]) else encode_json
        return [None if each is None else text(each).encode() for each in columns[at]]


def _is_text(kind: pa.DataType) -> bool:
    return is_binary(kind) or bool(pt.is_string(kind) or pt.is_large_string(kind))
