"""Batches that replicas send: the largest numbers, and what is larger than a frame."""

from __future__ import annotations

import pyarrow as pa
import pytest

from clonos.errors import ProtocolError
from clonos.operators.types import arrow_schema
from clonos.protocol.counters import LAST_LONG
from clonos.protocol.engine.instance import Emit
from clonos.protocol.ids import LOCAL_MAX, NODE_MAX, Origin
from clonos_standby.cluster.spec import OUTPUT_HIDDEN
from clonos_standby.replica.batches import OutputWriter

SCHEMA = arrow_schema("n bigint")
LAST = Origin(NODE_MAX, LOCAL_MAX)


class Long(bytes):
    """As long as no test has memory for."""

    def __len__(self) -> int:
        return 1 << 33


def batch(count: int, deltas: dict[int, bytes]) -> pa.Buffer:
    """Rows up to the last number that there is."""
    writer = OutputWriter(SCHEMA, "UTC", "op", LAST)
    payload = writer.encode([(number,) for number in range(count)])
    first = LAST_LONG - count + 1
    return writer.batch(Emit(first, count, payload, [0] * count, deltas, 0, b"", LAST_LONG))


@pytest.mark.parametrize("count", [1, 2, 100])
def test_the_last_numbers_of_the_last_channel_are_sent_as_they_are(count: int) -> None:
    schema = pa.schema([*OUTPUT_HIDDEN, *SCHEMA])
    read = pa.ipc.read_record_batch(batch(count, {0: b"delta"}), schema)
    assert read.column(0).to_pylist() == [LAST.channel] * count
    assert read.column(1).to_pylist() == list(range(LAST_LONG - count + 1, LAST_LONG + 1))


@pytest.mark.parametrize("count", [1, 100])
def test_determinants_that_no_frame_holds_are_refused(count: int) -> None:
    with pytest.raises(
        ProtocolError, match=r"larger than a frame.*operator 'op'.*spark\.clonos\.bundle\.rows"
    ):
        batch(count, {0: Long()})
