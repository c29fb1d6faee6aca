"""The vocabulary of a query: nodes, instances, channels; epochs, offsets of logs, numbers of output rows.

A *node* is a source, operator or sink of the query (1..63). An *instance* is one of a node's parallel partitions. A
*channel* is the FIFO edge from one upstream instance (or source partition) to an instance; (channel, position)
identifies a record across every re-execution. A channel is one 64-bit integer so that a column of them stays
vectorised; the node sits in the low bits so that the varint of a channel of a small query takes one or two bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, NewType, cast

NODE_BITS = 6
NODE_MAX = (1 << NODE_BITS) - 1
LOCAL_MAX = (1 << (62 - NODE_BITS)) - 1

Epoch = NewType("Epoch", int)
"""One Spark batch, by the id that Spark gives it: the first one of a checkpoint is 0, and each next one is one more."""
FIRST_EPOCH: Final = Epoch(0)
NO_EPOCH: Final = Epoch(-1)
"""The one before the first: where no epoch has begun, or none has committed."""

LogOffset = NewType("LogOffset", int)
"""A place in an instance's causal log: how many bytes of the log come before it, since the checkpoint began. A place
that is not known is None."""
LOG_BEGIN: Final = LogOffset(0)
"""Before the first byte of a log; also the end of a log of which nothing is known."""

OutputNumber = NewType("OutputNumber", int)
"""A row that an instance has put out, counted over all its rows since the checkpoint began; the first one is 1. It is
also the position of the row on the channel that leaves the instance."""
NO_OUTPUT: Final = OutputNumber(0)
"""The one before the first: where no row was put out."""


NodeId = NewType("NodeId", int)
"""A source, operator or sink of the query, by the number that the plan gives it, 1..63."""
InstanceId = NewType("InstanceId", int)
"""One of a node's parallel instances, or a partition of a source, counted from 0."""


class Origin(NamedTuple):
    """An instance of a node, as the owner of a causal log."""

    node: NodeId
    instance: InstanceId

    @classmethod
    def of(cls, node: int, instance: int) -> Origin:
        """From numbers that were read or counted. It names no type, which would cost a call for each."""
        return tuple.__new__(cls, (node, instance))

    @property
    def channel(self) -> int:
        return channel_id(self.node, self.instance)

    def __str__(self) -> str:
        return f"{self.node}/{self.instance}"


class RecordId(NamedTuple):
    """A record, across every re-execution: its channel, and its position in that."""

    channel: int
    position: int


def epoch_after(epoch: Epoch) -> Epoch:
    """The epoch that Spark runs after this one."""
    return Epoch(epoch + 1)


def epoch_before(epoch: Epoch) -> Epoch:
    """The epoch that Spark ran before this one; `NO_EPOCH` where this is the first."""
    return Epoch(epoch - 1)


def log_after(offset: LogOffset, data: bytes | bytearray | memoryview) -> LogOffset:
    """The offset behind bytes of a log that begin at `offset`."""
    return LogOffset(offset + len(data))


def output_after(number: OutputNumber, rows: int) -> OutputNumber:
    """The number of the last one of `rows` that follow row `number`."""
    return OutputNumber(number + rows)


def outputs_after(number: OutputNumber, rows: int) -> Iterable[OutputNumber]:
    """The numbers of `rows` that follow row `number`. It is a range, so that no row costs a call."""
    return cast("Iterable[OutputNumber]", range(number + 1, number + 1 + rows))


def channel_id(node: int, local: int) -> int:
    """The channel that leaves instance (or source partition) `local` of `node`."""
    if not 0 < node <= NODE_MAX:
        raise ValueError(f"node {node} is outside 1..{NODE_MAX}")
    if not 0 <= local <= LOCAL_MAX:
        raise ValueError(f"instance or source partition {local} is outside 0..{LOCAL_MAX}")
    return (local << NODE_BITS) | node


def channel_origin(channel: int) -> Origin:
    """The instance or source partition that a channel leaves."""
    return Origin.of(channel & NODE_MAX, channel >> NODE_BITS)
