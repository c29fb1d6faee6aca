"""Rows as JSON objects, from which Spark's reader takes them back under the same schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

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
        columns = to_columns(rows, ids, self._names[1:], self._encoders)
        return json_objects(self._names, [ids, *columns], ids)


def json_objects(names: Sequence[str], columns: Sequence[Sequence[Any]], ids: Sequence[str]) -> list[bytes]:
    """Of columns that are encoded as JSON takes them. Raises SinkError, which names the row that it does not take."""
    objects = []
    for row_id, *values in zip(ids, *columns, strict=True):
        try:
            objects.append(encode_json(dict(zip(names, values, strict=True))).encode())
        except (TypeError, ValueError) as error:
            raise SinkError(f"row {row_id} cannot be written as JSON: {error}") from None
    return objects
