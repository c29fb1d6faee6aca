"""Bundles and outputs as blocks: of packed rows where they are few, else of Arrow record batches."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from clonos.errors import InputError, ProtocolError, Where
from clonos.operators.packed_rows import RowPacker, RowUnpacker, joined
from clonos.operators.rows import Row as NamedRow, RowDecoder, RowEncoder
from clonos.protocol.engine.instance import Bundle, Emit, Row
from clonos.protocol.frontier import Column, numbers_of
from clonos.protocol.ids import Epoch, Origin, channel_origin
from clonos.protocol.ingestion import UNKNOWN, Ingested
from clonos.protocol.recovery.marker import Marker, Round
from clonos.protocol.side_output import MAIN, OutputName, SideRow, output_of, output_said
from clonos.values.digest import digest_of
from clonos.wire.block import Block, Encoding, marker_block, pack_block, parse_block, watermark_block
from clonos.wire.framing import MAX_LENGTH, Buffer
from clonos.wire.messages import Bundle as BundleFrame, OutputBlock
from clonos_standby.cluster.spec import RightInput

_Value = TypeVar("_Value")
_COLUMNS_FROM = 64  # below, lists are faster than arrays


class BundleReader:
    """BUNDLE frames to core bundles."""

    def __init__(
        self, user: pa.Schema, zone: str, *, instants: bool = False, right: RightInput | None = None
    ) -> None:
        """`right` is the second input of an operator that has one."""
        self._left = _Decoder(user, zone, instants=instants)
        self._right = _Decoder(right.schema, zone, is_right=True) if right is not None else None
        self._right_nodes = right.upstream if right is not None else frozenset()

    def row_class(self, channel: int) -> type[NamedRow]:
        """Of the records of a channel."""
        return self._decoder(channel).row_class

    def _decoder(self, channel: int) -> _Decoder:
        if self._right is not None and channel_origin(channel).node in self._right_nodes:
            return self._right
        return self._left

    def read(self, frame: BundleFrame, epoch: Epoch) -> Bundle:
        """The records of a bundle. Raises ProtocolError where it is not what it says it is, InputError where its rows
        do not fit the schema."""
        blocks = [parse_block(raw) for raw in frame.blocks]
        count = sum(block.count for block in blocks)
        if count != frame.rows:
            raise ProtocolError(f"bundle {frame.seq} says it has {frame.rows} rows and has {count}")
        for block in blocks:
            if block.epoch != epoch:
                raise ProtocolError(f"a block of epoch {block.epoch} in bundle {frame.seq} of epoch {epoch}")
        watermarks = {block.sender: block.watermark for block in blocks if block.watermark is not None}
        markers = _markers(blocks)
        blocks = [block for block in blocks if block.count]
        if not blocks:
            return Bundle([], [], [], watermarks=watermarks, markers=markers)
        rows = self._rows(blocks)
        deltas = [bytes(block.ride_along) for block in blocks if block.ride_along]
        channels, positions = _columns(blocks, count)
        ingested = [Ingested(block.sender, block.count, block.ingested) for block in blocks]
        return Bundle(channels, positions, rows, deltas, watermarks, ingested, markers)

    def _rows(self, blocks: list[Block]) -> list[tuple[Any, ...]]:
        if self._right is None:
            return self._left.rows(blocks)
        found: list[tuple[Any, ...]] = []
        for decoder, group in groupby(blocks, lambda block: self._decoder(block.sender)):
            found += decoder.rows(list(group))
        return found


def _markers(blocks: list[Block]) -> list[Marker]:
    """Each behind the records of the blocks before it."""
    found: list[Marker] = []
    behind = 0
    for block in blocks:
        behind += block.count
        if block.round:
            found.append(Marker(block.sender, block.round, behind))
    return found


class _Decoder:
    """Blocks of one input to rows."""

    def __init__(
        self, schema: pa.Schema, zone: str, *, instants: bool = False, is_right: bool = False
    ) -> None:
        self._arrow = RowDecoder(schema, zone, instants=instants, is_right=is_right)
        self.row_class = self._arrow.row_class
        self._packed = RowUnpacker(schema, zone, self.row_class, instants=instants)

    def rows(self, blocks: list[Block]) -> list[tuple[Any, ...]]:
        """In order. Raises InputError, ProtocolError."""
        encodings = {block.encoding for block in blocks}
        if len(encodings) == 1:
            return self._of(encodings.pop(), blocks)
        found: list[tuple[Any, ...]] = []
        for encoding, group in groupby(blocks, lambda block: block.encoding):
            found += self._of(encoding, list(group))
        return found

    def _of(self, encoding: Encoding, blocks: list[Block]) -> list[tuple[Any, ...]]:
        if encoding is Encoding.PACKED:
            return [row for block in blocks for row in self._unpacked(block)]
        columns = self._arrow.columns(_batch(blocks, self._arrow.schema))
        return self._arrow.rows(columns, sum(block.count for block in blocks))

    def _unpacked(self, block: Block) -> list[tuple[Any, ...]]:
        rows = self._packed.rows(memoryview(block.rows))
        if len(rows) != block.count:
            raise _miscounted(block, len(rows))
        return rows


def _miscounted(block: Block, found: int) -> ProtocolError:
    return ProtocolError(f"a block says it has {block.count} rows and has {found}")


def _batch(blocks: list[Block], schema: pa.Schema) -> pa.RecordBatch:
    try:
        batches = [pa.ipc.read_record_batch(pa.py_buffer(block.rows), schema) for block in blocks]
    except (pa.ArrowException, OSError) as error:  # OSError is how Arrow says that a message is cut off
        raise InputError(f"a block does not fit the declared input schema: {error}") from error
    for block, batch in zip(blocks, batches, strict=True):
        if batch.num_rows != block.count and batch.num_columns:
            raise _miscounted(block, batch.num_rows)
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _columns(blocks: list[Block], count: int) -> tuple[Column, Column]:
    """Channel and number of each record."""
    if count < _COLUMNS_FROM:
        channels = [block.sender for block in blocks for _ in range(block.count)]
        return channels, [number for block in blocks for number in block.numbers]
    if len(blocks) == 1:
        return np.full(count, blocks[0].sender, np.int64), np.asarray(blocks[0].numbers, np.int64)
    senders = np.array([block.sender for block in blocks], np.int64)
    counts = [block.count for block in blocks]
    return np.repeat(senders, counts), np.concatenate([np.asarray(b.numbers, np.int64) for b in blocks])


def _indices_by(values: Iterable[_Value]) -> dict[_Value, list[int]]:
    """By value, where it stands."""
    found: dict[_Value, list[int]] = {}
    for index, value in enumerate(values):
        found.setdefault(value, []).append(index)
    return found


class EncodedRows:
    """Output rows as they are sent, and their digest."""

    def __init__(self, rows: list[Row], encoder: _Encoder | None) -> None:
        self._rows = rows
        self._encoder = encoder

    @cached_property
    def packed(self) -> list[bytes] | None:
        """Each row; None where they are sent as Arrow arrays."""
        if self._encoder is None or not self._encoder.packer.is_for(len(self._rows)):
            return None
        packed = self._encoder.packer.pack(self._rows)
        return self._encoder.packer.pack_arrays(self.arrays) if packed is None else packed

    @cached_property
    def arrays(self) -> list[pa.Array]:
        """Of the user's columns."""
        return [] if self._encoder is None else self._encoder.arrow.arrays(self._rows)

    def check(self) -> None:
        """Raises InputError where the rows do not fit the schema."""
        if self.packed is None:
            _ = self.arrays

    @property
    def size(self) -> int:
        """In bytes, as they are sent to one reader."""
        packed = self.packed
        return sum(array.nbytes for array in self.arrays) if packed is None else sum(map(len, packed))

    @cached_property
    def digest(self) -> int:
        """The digest of the rows that are sent; it is only computed where it is recorded or compared."""
        packed = self.packed
        return self.older_digest if packed is None else zlib.crc32(b"".join(packed))

    @cached_property
    def older_digest(self) -> int:
        """As versions recorded it that sent few rows as arrays, too."""
        return digest_of(self.arrays)

    def part(self) -> _Part:
        """To be sent."""
        if self.packed is not None:
            return _PackedPart(self.packed)
        assert self._encoder is not None
        return _ArrowPart(pa.RecordBatch.from_arrays(self.arrays, schema=self._encoder.arrow.schema))


EMPTY = EncodedRows([], None)


class SplitRows:
    """Output rows of which some are of side outputs: those of each output, and where they stand among all.

    Rows of the main output alone are `EncodedRows`: their digest does not tell whether side outputs are declared."""

    def __init__(self, rows: list[Row], encoders: Mapping[OutputName, _Encoder]) -> None:
        self.indices = _indices_by(map(output_of, rows))
        self.parts = {
            output: EncodedRows([rows[index] for index in indices], encoders[output])
            for output, indices in self.indices.items()
        }

    @cached_property
    def digest(self) -> int:
        """As `EncodedRows.digest`; which rows are of which output is told by their destinations, too."""
        return self._together({output: part.digest for output, part in self.parts.items()})

    @cached_property
    def older_digest(self) -> int:
        """As `EncodedRows.older_digest`."""
        return self._together({output: part.older_digest for output, part in self.parts.items()})

    def _together(self, digests: Mapping[OutputName, int]) -> int:
        together = 0
        for output, digest in sorted(digests.items()):
            where = np.array(self.indices[output], "<u4").tobytes()
            together = zlib.crc32(output.encode() + where + digest.to_bytes(8, "little"), together)
        return together


class _Encoder:
    """Of one output."""

    def __init__(self, schema: pa.Schema, zone: str, operator: str) -> None:
        self.arrow = RowEncoder(schema, zone, operator)
        self.packer = RowPacker(schema, zone)


class _Part(Protocol):
    """Rows in the form in which they are sent."""

    encoding: ClassVar[Encoding]

    def serialized(self) -> Buffer: ...
    def cut(self, begin: int, end: int) -> _Part: ...
    def at(self, order: Column) -> _Part:
        """These rows, in this order."""


class _ArrowPart:
    encoding: ClassVar[Encoding] = Encoding.ARROW

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def serialized(self) -> Buffer:
        return memoryview(self._batch.serialize())

    def cut(self, begin: int, end: int) -> _Part:
        return _ArrowPart(self._batch.slice(begin, end - begin)) if self._batch.num_columns else self

    def at(self, order: Column) -> _Part:
        return _ArrowPart(self._batch.take(pa.array(order))) if self._batch.num_columns else self


class _PackedPart:
    encoding: ClassVar[Encoding] = Encoding.PACKED

    def __init__(self, rows: list[bytes]) -> None:
        self._rows = rows

    def serialized(self) -> Buffer:
        return joined(self._rows)

    def cut(self, begin: int, end: int) -> _Part:
        return _PackedPart(self._rows[begin:end])

    def at(self, order: Column) -> _Part:
        return _PackedPart([self._rows[index] for index in numbers_of(order)])


class BlockLimits(NamedTuple):
    """What a block holds at most, as a bundle does; one row may be larger."""

    rows: int
    bytes: int


_DEFAULT_LIMITS = BlockLimits(4096, 1 << 20)
_MOST_BYTES: Final = MAX_LENGTH // 8 * 7
"""Of the rows in a frame. The rest is for the determinants beside them."""


class OutputWriter:
    """Emitted rows to the blocks of OUTPUT frames."""

    def __init__(
        self,
        outputs: Mapping[OutputName, pa.Schema],
        zone: str,
        name: str,
        origin: Origin,
        limits: BlockLimits = _DEFAULT_LIMITS,
        read: Sequence[OutputName] = (),
    ) -> None:
        """`outputs` are the main output and the side outputs, `read` which of them each reader reads: the main one
        where nothing is said."""
        self._encoders = {
            output: _Encoder(schema, zone, output_said(name, output)) for output, schema in outputs.items()
        }
        self._read = read
        self._channel = origin.channel
        self._where = Where(name, origin.instance)
        self._limits = limits

    def encode(self, rows: list[Row], *, lazily: bool = False) -> EncodedRows | SplitRows:
        """Rows that do not fit the schema are refused now, or, `lazily`, when they are sent or compared."""
        if not rows:
            return EMPTY
        if len(self._encoders) > 1 and any(isinstance(row, SideRow) for row in rows):
            split = SplitRows(rows, self._encoders)
            if not lazily:
                self._check(len(rows), split.parts)
            return split
        encoded = EncodedRows(rows, self._encoders[MAIN])
        if not lazily:
            self._check(len(rows), {MAIN: encoded})
        return encoded

    def _check(self, count: int, parts: Mapping[OutputName, EncodedRows]) -> None:
        """Raises InputError where rows do not fit the schema, ProtocolError where they do not fit a frame: now, since a
        step that is recorded has to be sent by every process that repeats it."""
        size = 0
        for output, part in parts.items():
            part.check()
            size += part.size * max(1, self._read.count(output))
        if size > _MOST_BYTES:
            raise ProtocolError(
                f"{count} output rows of one bundle are {size} bytes, and a frame takes {_MOST_BYTES}",
                where=self._where,
                hint="Lower spark.clonos.bundle.rows: a bundle is what the function is given at once",
            )

    def blocks(self, emit: Emit, epoch: Epoch, ingested: int = UNKNOWN) -> list[OutputBlock]:
        """The blocks of an Emit, by destination, each in the order of output numbers. Destinations that are only
        told of event time get one without rows. `ingested`: when the oldest row that they may be made of entered the
        query."""
        if emit.deltas and sum(map(len, emit.deltas.values())) > MAX_LENGTH:
            raise ProtocolError(
                f"the determinants of {emit.count} output rows are larger than a frame may be ({MAX_LENGTH} bytes)",
                where=self._where,
                hint="Lower spark.clonos.bundle.rows, or let ctx.call return less: what it returned is in them",
            )
        made: list[OutputBlock] = []
        told = dict(emit.watermarks)
        for destination, numbers, rows in self._by_destination(emit) if emit.count else ():
            delta = emit.deltas.get(destination, b"")
            watermark = told.pop(destination, None)
            left = len(numbers)
            for part, message in self._within_limits(numbers, rows):
                left -= len(part)
                behind = watermark if left == 0 else None  # all rows are before it
                block = Block(epoch, self._channel, part, delta, message, behind, rows.encoding, ingested)
                made.append(OutputBlock(destination, pack_block(block)))
                delta = b""
        for destination, watermark in told.items():
            block = watermark_block(epoch, self._channel, watermark)
            made.append(OutputBlock(destination, pack_block(block)))
        return made

    def markers(self, epoch: Epoch, round: Round, destinations: int) -> list[OutputBlock]:
        """For each of so many destinations."""
        marker = pack_block(marker_block(epoch, self._channel, round))
        return [OutputBlock(destination, marker) for destination in range(destinations)]

    def _by_destination(self, emit: Emit) -> Iterator[tuple[int, Column, _Part]]:
        """The rows of each destination with their output numbers."""
        payload: Any = emit.payload
        read = self._read or [MAIN] * len(emit.destinations)
        parts: dict[OutputName, _Part] = {}
        for column, output in zip(emit.destinations, read, strict=True):
            if isinstance(payload, SplitRows):
                indices = payload.indices.get(output)
                if indices is None:
                    continue
                encoded = payload.parts[output]
                numbers: Column = emit.first + np.array(indices, np.int64)
                column = [column[index] for index in indices]
            elif output != MAIN:
                continue
            else:
                encoded, numbers = payload, range(emit.first, emit.first + emit.count)
            if output not in parts:
                parts[output] = encoded.part()
            yield from _of_a_reader(parts[output], column, numbers)

    def _within_limits(self, numbers: Column, part: _Part) -> Iterator[tuple[Column, Buffer]]:
        count = len(numbers)
        if count <= self._limits.rows:
            message = part.serialized()
            if count == 1 or memoryview(message).nbytes <= self._limits.bytes:
                yield numbers, message
                return
        half = count // 2
        yield from self._within_limits(numbers[:half], part.cut(0, half))
        yield from self._within_limits(numbers[half:], part.cut(half, count))


def _of_a_reader(
    part: _Part, destinations: list[int], numbers: Column
) -> Iterator[tuple[int, Column, _Part]]:
    distinct = dict.fromkeys(destinations)
    few = len(destinations) < _COLUMNS_FROM
    if len(distinct) == 1:
        yield destinations[0], numbers if few else np.asarray(numbers, np.int64), part
        return
    if few:
        for destination, indices in sorted(_indices_by(destinations).items()):
            yield destination, [int(numbers[index]) for index in indices], part.at(indices)
        return
    numbers, column = np.asarray(numbers, np.int64), np.array(destinations, np.int64)
    order = np.argsort(column, kind="stable")
    ordered = part.at(order)
    ends = np.flatnonzero(np.diff(column[order], append=-1)) + 1
    begin = 0
    for end in ends.tolist():
        rows = order[begin:end]
        yield destinations[rows[0]], numbers[rows], ordered.cut(begin, end)
        begin = end
