"""Events as the records of a log: one JSON object each, made for a whole batch at once.

All text of the workload is letters, digits and a few signs that JSON takes as they are, so no value needs escaping.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clonos.tools.nexmark.events import CHANNEL_COLUMNS, SCHEMAS
from clonos.tools.nexmark.workload import Kind


def ddl(kind: Kind, *, channels: bool = False) -> str:
    """The columns of the records, as Spark's `from_json` takes them."""
    columns = SCHEMAS[kind] | (CHANNEL_COLUMNS if channels and kind is Kind.BID else {})
    return ", ".join(f"{name} {type_}" for name, type_ in columns.items())


def payloads(batch: pa.RecordBatch) -> pa.BinaryArray:
    """A JSON object for each row."""
    parts: list[Any] = []
    before = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        quote = '"' if pa.types.is_string(column.type) else ""
        parts += [f'{before}"{name}":{quote}', column if quote else pc.cast(column, pa.string())]
        before = f"{quote},"
    joined = pc.binary_join_element_wise(*parts, before[:-1] + "}", "")
    return joined.cast(pa.binary())
