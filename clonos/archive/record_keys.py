"""The keys of records as they are archived, whatever became of them: one may have been passed over, or wait, or have
come twice, so that no call of the function was given it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from clonos.protocol.ids import Epoch
from clonos.values.key_codec import pack
from clonos.wire.block import parse_block
from clonos.wire.messages import Bundle
from clonos_standby.cluster.spec import NodeSpec
from clonos_standby.replica.batches import BundleReader
from clonos_standby.replica.instance_config import keys_of

Row = tuple[Any, ...]

_ROWS_AT_ONCE: Final = 4096


class RecordKeys:
    """Of the records of one operator, by one of its programs."""

    def __init__(self, node: NodeSpec) -> None:
        self._reader = BundleReader(node.input, node.zone, right=node.right)
        self._keys_of = keys_of(node, True)

    def has(self, key: Row, rows: list[Row]) -> bool:
        """Whether any of the rows has the key."""
        data = pack(key)
        return any(pack(each) == data for each in set(self._keys_of(rows)))

    def are_in(self, blocks: Sequence[bytes], epoch: Epoch, key: Row) -> bool:
        """Whether any record of the key came in these blocks of an epoch. Raises ProtocolError and InputError where
        they cannot be decoded."""
        bundles = (self._reader.read(each, epoch) for each in bundles_of(blocks))
        return any(self.has(key, bundle.rows) for bundle in bundles)


def bundles_of(blocks: Sequence[bytes]) -> Iterator[Bundle]:
    """In order, so many rows in each at most, if a block has no more."""
    held: list[memoryview] = []
    rows = 0
    for raw in blocks:
        count = parse_block(memoryview(raw)).count
        if held and rows + count > _ROWS_AT_ONCE:
            yield Bundle(1, rows, tuple(held))
            held, rows = [], 0
        held.append(memoryview(raw))
        rows += count
    if held:
        yield Bundle(1, rows, tuple(held))
