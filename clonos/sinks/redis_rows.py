"""Rows as entries of a stream, or as hashes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from clonos.errors import QueryDefinitionError, SinkError
from clonos.sinks.port import Row
from clonos.sinks.values import Encode, encode_json, is_binary, json_encoder, to_columns

if TYPE_CHECKING:
    import pyarrow as pa

MOST_COLUMNS: Final = 3000
"""A script of Redis cannot give a command more than 8000 arguments."""
Hash = tuple[str, tuple[list[bytes], list[bytes]]]
"""A key; the fields and values to set, and the fields to remove."""


class RedisRows:
    """Of one schema. A field is text, or bytes for a binary column, and absent where the column is null."""

    def __init__(self, schema: pa.Schema, id_field: str, key: Sequence[str]) -> None:
        unknown = sorted(set(key) - set(schema.names))
        if unknown:
            raise QueryDefinitionError(
                f"the rows have no column {', '.join(map(repr, unknown))}, which is to be their key in Redis",
                hint=f"They have {', '.join(schema.names)}",
            )
        if len(schema.names) > MOST_COLUMNS:
            raise QueryDefinitionError(
                f"a Redis sink takes {MOST_COLUMNS} columns, and the rows have {len(schema.names)}"
            )
        self._names = list(schema.names)
        self._fields = [name.encode() for name in self._names]
        self._id_field = id_field.encode()
        binary = list(map(is_binary, schema.types))
        self._encoders = [
            bytes if raw else _text(kind) for raw, kind in zip(binary, schema.types, strict=True)
        ]
        self._key = [self._names.index(name) for name in key]
        for at in self._key:
            if binary[at]:
                raise QueryDefinitionError(
                    f"column {self._names[at]!r} is binary and cannot be the key of a hash",
                    hint="Cast it to text, for instance by hex()",
                )

    def entries(self, rows: list[Row], ids: list[str]) -> list[list[bytes]]:
        """Fields and values, one after the other, for each row. Raises SinkError, which names the row."""
        return [
            [self._id_field, row_id.encode(), *self._pairs(row)]
            for row_id, row in zip(ids, self._encoded(rows, ids), strict=True)
        ]

    def hashes(self, rows: list[Row], ids: list[str], prefix: str) -> list[Hash]:
        """The last row of each key, as all of them in turn would leave it. Raises SinkError, which names the row."""
        found: dict[str, tuple[list[bytes], list[bytes]]] = {}
        for row_id, row, entry in zip(ids, self._encoded(rows, ids), self.entries(rows, ids), strict=True):
            null = [name for name, value in zip(self._fields, row, strict=True) if value is None]
            found[prefix + self._key_of(row_id, row)] = entry, null
        return list(found.items())

    def _pairs(self, row: Sequence[bytes | None]) -> Iterator[bytes]:
        for name, value in zip(self._fields, row, strict=True):
            if value is not None:
                yield name
                yield value

    def _key_of(self, row_id: str, row: Sequence[bytes | None]) -> str:
        parts = [row[at] for at in self._key]
        texts = [part.decode() for part in parts if part is not None]
        if len(texts) < len(parts):
            null = next(self._names[at] for at in self._key if row[at] is None)
            raise SinkError(
                f"row {row_id} has null in column {null!r}, which is its key in Redis",
                hint="Filter such rows out before the sink",
            )
        return texts[0] if len(texts) == 1 else encode_json(texts)

    def _encoded(self, rows: list[Row], ids: list[str]) -> list[tuple[bytes | None, ...]]:
        return list(zip(*to_columns(rows, ids, self._names, self._encoders), strict=True))


def _text(kind: pa.DataType) -> Encode:
    """Text as it is; whatever JSON writes as a string without its quotes; the rest as JSON."""
    inner = json_encoder(kind)

    def encode(value: Any) -> bytes:
        written = value if inner is None else inner(value)
        return (written if isinstance(written, str) else encode_json(written)).encode()

    return encode
