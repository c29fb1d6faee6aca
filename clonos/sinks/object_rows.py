"""Rows as the content of one object."""

from __future__ import annotations

import io
from typing import Literal

import pyarrow as pa
from pyarrow import parquet

from clonos.errors import QueryDefinitionError, SinkError
from clonos.sinks.arrow_rows import to_arrow
from clonos.sinks.json_rows import JsonRows
from clonos.sinks.port import Row

Format = Literal["jsonl", "parquet"]


def check_columns(schema: pa.Schema, form: Format) -> None:
    """Raises QueryDefinitionError where a column has no type in files of that form."""
    for field in schema:
        if pa.types.is_null(field.type):
            raise QueryDefinitionError(f"column {field.name!r} has no type", hint="Cast it before the sink")
        if form == "parquet":
            try:
                parquet.write_table(pa.schema([field]).empty_table(), io.BytesIO())
            except pa.ArrowException as error:
                raise QueryDefinitionError(
                    f"column {field.name!r}: Parquet has no type for {field.type}: {error}",
                    hint="Cast it before the sink",
                ) from None


def encode(rows: list[Row], ids: list[str], schema: pa.Schema, id_column: str, form: Format) -> bytes:
    """Raises SinkError, which names the row that cannot be written."""
    if form == "jsonl":
        return b"\n".join([*JsonRows(schema, id_column).encode(rows, ids), b""])
    table = to_arrow(rows, ids, pa.schema([pa.field(id_column, pa.string()), *schema]))
    content = io.BytesIO()
    try:
        parquet.write_table(table, content)
    except pa.ArrowException as error:
        raise SinkError(f"rows {ids[0]} to {ids[-1]} cannot be written as Parquet: {error}") from None
    return content.getvalue()
