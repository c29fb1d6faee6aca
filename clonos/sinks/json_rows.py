"""Rows as JSON objects, from which Spark's reader takes them back under the same schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from clonos.errors import SinkError
from clonos.sinks.port import Row
from clonos.sinks.values import encode_json, json_encoder, to_columns

if TYPE_CHECKING:
    import pyarrow as pa


HIDDEN_ID: Final = "_clonos_id"
"""The field of a row's id where no user reads it; no column is called that."""


class JsonRows:
    """Of one schema, with a field for the row's id."""

    def __init__(self, schema: pa.Schema, id_column: str) -> None:
        self._names = [id_column, *schema.names]
        self._encoders = [json_encoder(field.type) for field in schema]

    def encode(self, rows: list[Row], ids: list[str]) -> list[bytes]:
        """Raises SinkError, which names the row that cannot be written."""
        names = self._names
        columns = to_columns(rows, ids, names[1:], self._encoders)
        objects = []
        for values in zip(ids, *columns, strict=True):
            try:
                objects.append(encode_json(dict(zip(names, values, strict=True))).encode())
            except (TypeError, ValueError) as error:
                raise SinkError(f"row {values[0]} cannot be written as JSON: {error}") from None
        return objects
