"""What the rest of Clonos knows of a sink.

A sink makes an output row visible only together with the determinants that row depends on and with the new
*cursor*: per channel, the last output number that is out. All three take effect atomically or not at all. That one
rule is what lets output leave before the epoch commits: whatever the outside world has seen can be repeated exactly
(the determinants are kept beside it) and is never repeated to the outside (the cursor says so).

Every writer holds a *fence*, which no other writer has taken (`clonos.protocol.roles.sink_fence`). Once a higher one
stands, nothing written under the older one takes effect, not even a transaction that was already under way. A
recovery therefore raises the fences first (`Sink.raise_fence`, or the `open` of each new writer) and reads the logs
afterwards: read earlier, a log may lack what a zombie still made visible.

Life of a writer: `open` once, `write` any number of times, `close`. After `SinkUnavailable` it is unknown whether the
bundle took effect. The caller either calls `write` again with the very same bundle, which then finds out, or opens a
new writer and goes by the cursors it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, InstanceId, NodeId, Origin

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[Any, ...]
Cursors = dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPosition:
    """Where one sink instance stands: per channel, the last output number that is visible."""

    cursors: Cursors = field(default_factory=dict)


@runtime_checkable
class SinkWriter(Protocol):
    """One sink instance's way out. Used by one thread at a time."""

    def open(self, *, query: str, node: NodeId, instance: InstanceId, fence: Fence) -> SinkPosition:
        """Take the fence and say what is visible. Raises Fenced, SinkUnavailable, SinkError."""
        ...

    def write(self, rows: list[Row], ids: list[str], cursors: Cursors, deltas: list[bytes]) -> None:
        """Make rows, determinants and cursors take effect together. Raises Fenced, SinkUnavailable, SinkError."""
        ...

    def close(self) -> None:
        """Let go of connections and files. Never raises, may be called twice."""
        ...


@runtime_checkable
class CountingWriter(Protocol):
    """A writer that also counts, for the metrics of the query (docs/operations.md)."""

    def counted(self) -> Mapping[str, float]:
        """Since it was made: `sink_retries`, attempts that were made again; of Kafka's more."""
        ...


@runtime_checkable
class SinkLogReader(Protocol):
    """The determinants and cursors that a sink keeps for one query, over all its sink nodes and instances."""

    @property
    def corrupt(self) -> list[str]:
        """Entries that were skipped because their checksum or structure is wrong: where they are."""
        ...

    def deltas(self) -> Iterator[bytes]:
        """Every kept delta; per sink instance in the order written."""
        ...

    def cursors(self) -> dict[Origin, Cursors]:
        """By (node, instance) of the sink instance, then by channel."""
        ...

    def reached(self) -> dict[Origin, Cursors]:
        """The same, up to where rows may be visible: beyond the cursor where a writer has died in the middle of a
        bundle, and rows are not visible in one step with it."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Sink(Protocol):
    """Describes a sink. Made on the driver, pickled to where its writers run; holds no connection."""

    @property
    def parallelism(self) -> int | None:
        """The number of instances that suits this sink, or None if any number does."""
        ...

    @property
    def instants(self) -> bool:
        """Whether its writers take TIMESTAMPs as aware datetimes; if not, naive in the session's zone, as functions."""
        ...

    @property
    def target(self) -> Hashable:
        """Where rows become visible. Sinks of a query with the same target do not show the same stream."""
        ...

    def bind(self, checkpoint: str) -> None:
        """Tell the sink where the query's checkpoint is. Only sinks that keep files there care."""
        ...

    def validate(self, schema: pa.Schema) -> None:
        """Refuse, by QueryDefinitionError, rows that this sink cannot hold; remember the schema for `writer`."""
        ...

    def writer(self) -> SinkWriter: ...

    def raise_fence(self, query: str, fence: Fence) -> None:
        """From now on refuse every writer of this query whose fence is lower, whatever its node and instance."""
        ...

    def standing_fence(self, query: str) -> Fence:
        """The highest fence that was raised for the query; 0 where none was. Raises SinkUnavailable, SinkError."""
        ...

    def log_reader(self, query: str) -> SinkLogReader: ...

    def record_commit(self, query: str, fence: Fence, epoch: Epoch, record: bytes) -> None:
        """Keep what the driver of `fence` says of the epoch that has committed, in place of what was kept for an
        earlier one; see `clonos.protocol.line.kept_commit`. All sink nodes of the query share it. When this returns
        it is as durable as the sink's rows. Raises Fenced, SinkUnavailable, SinkError."""
        ...

    def last_commit(self, query: str) -> tuple[Epoch, bytes] | None:
        """The epoch and the record that are kept, or None where nothing is. Raises LogCorrupt where it is damaged."""
        ...

    def truncate(self, query: str, fence: Fence, keep: Callable[[bytes], bool]) -> int:
        """Drop the deltas that `keep` does not want; how many were dropped. It may drop fewer than it could.

        `fence` is the driver's. Raises Fenced where a higher floor stands, in the middle of it, too.
        """
        ...
