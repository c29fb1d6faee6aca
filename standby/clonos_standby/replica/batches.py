"""Bundles and outputs as Arrow record batches, with the hidden columns of the wire."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from clonos.errors import InputError, ProtocolError, Where
from clonos.operators.rows import RowDecoder, RowEncoder
from clonos.protocol.engine.instance import Bundle, Emit, Row
from clonos.protocol.ids import Origin
from clonos.values.digest import digest_of
from clonos.wire.framing import MAX_LENGTH
from clonos_standby.cluster.spec import INPUT_HIDDEN, OUTPUT_HIDDEN

_COLUMNS_FROM = 64  # below, lists are faster than arrays
_STAMPS = pa.struct(list(OUTPUT_HIDDEN))


class BundleReader:
    """Record batches of BUNDLE frames to core bundles."""

    def __init__(self, user: pa.Schema, zone: str, *, instants: bool = False) -> None:
        self._schema = pa.schema([*INPUT_HIDDEN, *user])
        self._decoder = RowDecoder(user, zone, instants=instants)
        self.row_class = self._decoder.row_class

    def read(self, raw: memoryview) -> Bundle:
        try:
            batch = pa.ipc.read_record_batch(pa.py_buffer(raw), self._schema)
        except pa.ArrowException as error:
            raise InputError(f"a bundle does not fit the declared input schema: {error}") from error
        deltas = batch.column(2)
        carried: list[bytes] = []
        if deltas.null_count < len(deltas):
            carried = deltas.drop_null().to_pylist()
        rows = self._decoder.rows(self._decoder.columns(batch, len(INPUT_HIDDEN)), batch.num_rows)
        if batch.num_rows < _COLUMNS_FROM:
            return Bundle(batch.column(0).to_pylist(), batch.column(1).to_pylist(), rows, carried)
        return Bundle(batch.column(0).to_numpy(), batch.column(1).to_numpy(), rows, carried)


class EncodedRows:
    """Output rows as Arrow arrays of the user's columns, and their digest."""

    def __init__(self, rows: list[Row], encoder: RowEncoder | None) -> None:
        self._rows = rows
        self._encoder = encoder

    @cached_property
    def arrays(self) -> list[pa.Array]:
        return [] if self._encoder is None else self._encoder.arrays(self._rows)

    @cached_property
    def digest(self) -> int:
        """The digest of the rows that are sent; it is only computed where it is recorded or compared."""
        return digest_of(self.arrays)


EMPTY = EncodedRows([], None)


class OutputWriter:
    """Emitted rows to the record batches of OUTPUT frames."""

    def __init__(self, user: pa.Schema, zone: str, name: str, origin: Origin) -> None:
        self._schema = pa.schema([*OUTPUT_HIDDEN, *user])
        self._encoder = RowEncoder(user, zone, name)
        self._channel = origin.channel
        self._where = Where(name, origin.instance)

    def encode(self, rows: list[Row], *, lazily: bool = False) -> EncodedRows:
        """Rows that do not fit the schema are refused now, or, `lazily`, when their arrays are needed."""
        if not rows:
            return EMPTY
        encoded = EncodedRows(rows, self._encoder)
        if not lazily:
            _ = encoded.arrays
        return encoded

    def batch(self, emit: Emit) -> pa.Buffer:
        """The encapsulated message of an Emit that has rows."""
        count = emit.count
        payload: Any = emit.payload
        if emit.deltas and sum(map(len, emit.deltas.values())) > MAX_LENGTH:
            raise ProtocolError(
                f"the determinants of {count} output rows are larger than a frame may be ({MAX_LENGTH} bytes)",
                where=self._where,
                hint="Lower spark.clonos.bundle.rows, or let ctx.call return less: what it returned is in them",
            )
        if count < _COLUMNS_FROM:
            carried, channel = emit.deltas.get, self._channel
            stamps = [(channel, emit.first + i, to, carried(i)) for i, to in enumerate(emit.destinations)]
            hidden = pa.array(stamps, _STAMPS).flatten()
        else:
            hidden = [
                pa.array(np.full(count, self._channel, np.int64)),
                pa.array(np.arange(emit.first, emit.first + count, dtype=np.int64)),
                pa.array(np.array(emit.destinations, np.int32)),
                _sparse(count, emit.deltas),
            ]
        return pa.RecordBatch.from_arrays(hidden + payload.arrays, schema=self._schema).serialize()


def _sparse(count: int, values: dict[int, bytes]) -> pa.Array:
    if not values:
        return pa.nulls(count, pa.binary())
    column: list[bytes | None] = [None] * count
    for index, value in values.items():
        column[index] = value
    return pa.array(column, pa.binary())
