"""What is kept of a query beside its sinks' output, as the driver reads, fences and trims it.

Every sink has its own: fences, logs, cursors and a commit record. Sinks in one database or folder share them, so a
driver may read something twice, or say it twice; neither changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, NodeId, Origin
from clonos.protocol.recovery.causal.holding import Index
from clonos.protocol.roles.steps import Steps
from clonos.sinks.port import Sink, SinkLogReader


@dataclass(frozen=True, slots=True)
class SinkStore:
    """For `clonos.protocol.roles.commit_records`."""

    sink: Sink
    query: str

    def raise_fence(self, fence: Fence) -> Steps:
        self.sink.raise_fence(self.query, fence)
        yield from ()

    def standing_fence(self) -> Fence:
        return self.sink.standing_fence(self.query)

    def record_commit(self, fence: Fence, epoch: Epoch, record: bytes) -> None:
        self.sink.record_commit(self.query, fence, epoch, record)

    def last_commit(self) -> tuple[Epoch, bytes] | None:
        return self.sink.last_commit(self.query)


class SinkStores:
    """Of all sinks of one query."""

    def __init__(self, sinks: Mapping[NodeId, Sink], query: str) -> None:
        self.query = query
        self.by_node = {node: SinkStore(sink, query) for node, sink in sinks.items()}

    @contextmanager
    def log_readers(self) -> Iterator[dict[NodeId, SinkLogReader]]:
        """Of each sink."""
        with ExitStack() as opened:
            readers: dict[NodeId, SinkLogReader] = {}
            for node, store in self.by_node.items():
                readers[node] = store.sink.log_reader(self.query)
                opened.callback(readers[node].close)
            yield readers

    def cursors(self) -> dict[Origin, dict[int, int]]:
        """By sink instance, then by channel."""
        with self.log_readers() as readers:
            return cursors_of(readers)

    def reached(self) -> int:
        """The highest number of a row that may be visible; 0 where there is none."""
        with self.log_readers() as readers:
            found = [reader.reached() for reader in readers.values()]
        return max(
            (last for each in found for cursors in each.values() for last in cursors.values()), default=0
        )

    def truncate(self, fence: Fence, keep: Callable[[bytes], bool]) -> None:
        """Drop the deltas that `keep` does not want. Raises Fenced."""
        for store in self.by_node.values():
            store.sink.truncate(self.query, fence, keep)


def cursors_of(readers: Mapping[NodeId, SinkLogReader]) -> dict[Origin, dict[int, int]]:
    """By sink instance, then by channel. Of each sink from its own place: another one may have had it before."""
    return {
        Origin(*origin): dict(each)
        for node, reader in readers.items()
        for origin, each in reader.cursors().items()
        if Origin(*origin).node == node
    }


def index_of(reader: SinkLogReader) -> Index:
    """What the log of a sink says."""
    index = Index()
    index.take_deltas(reader.deltas())
    for what in reader.corrupt:
        index.damage(what)
    return index
