"""One row with its schema, and schemas, as bytes: what dead letters and recorded calls keep of them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from clonos.protocol.side_output import OutputName


def row_stream(batch: pa.RecordBatch) -> bytes:
    """A record batch as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def row_table(stream: bytes) -> pa.Table:
    """What was written by `row_stream`."""
    return pa.ipc.open_stream(stream).read_all()


def schema_of(message: bytes) -> pa.Schema:
    """Of an Arrow schema message."""
    return pa.ipc.read_schema(pa.py_buffer(message))


def schemas_of(messages: Mapping[str, bytes]) -> dict[OutputName, pa.Schema]:
    """Of side outputs, by name."""
    return {OutputName(name): schema_of(message) for name, message in messages.items()}
