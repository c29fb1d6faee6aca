"""What is kept of a query beside its sinks' output, as the driver reads, fences and trims it.

Every sink has its own: fences, logs, cursors and a commit record. Sinks in one database or folder share them, so a
driver may read something twice, or say it twice; neither changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from clonos.protocol.fence import Fence
from clonos.protocol.ids import NodeId, Origin
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.recovery.causal.holding import Index
from clonos.protocol.roles.steps import Steps
from clonos.sinks.port import Sink, SinkLogReader


@dataclass(frozen=True, slots=True)
class SinkStore:
    """For `clonos.protocol.roles.commit_records`."""

    node: NodeId
    sink: Sink
    query: str

    def raise_fence(self, fence: Fence) -> Steps:
        self.sink.raise_fence(self.query, fence)
        yield from ()

    def standing_fence(self) -> Fence:
        return self.sink.standing_fence(self.query)

    def keep_commit(self, record: CommitRecord) -> None:
        self.sink.record_commit(self.query, Fence.of(record.generation), record.epoch, record.to_bytes())

    def last_commit(self) -> CommitRecord | None:
        said = self.sink.last_commit(self.query)
        return CommitRecord.from_bytes(said[1], f"sink node {self.node}") if said is not None else None


class SinkStores:
    """Of all sinks of one query."""

    def __init__(self, sinks: Mapping[NodeId, Sink], query: str) -> None:
        self.query = query
        self.by_node = {node: SinkStore(node, sink, query) for node, sink in sinks.items()}

    @contextmanager
    def log_readers(self) -> Iterator[list[SinkLogReader]]:
        """One for each sink."""
        with ExitStack() as opened:
            readers = []
            for store in self.by_node.values():
                reader = store.sink.log_reader(self.query)
                opened.callback(reader.close)
                readers.append(reader)
            yield readers

    def cursors(self) -> dict[Origin, dict[int, int]]:
        """By sink instance, then by channel. Of each sink from its own place: another one may have had it before."""
        with self.log_readers() as readers:
            return {
                Origin(*origin): dict(each)
                for node, reader in zip(self.by_node, readers, strict=True)
                for origin, each in reader.cursors().items()
                if Origin(*origin).node == node
            }

    def truncate(self, fence: Fence, keep: Callable[[bytes], bool]) -> None:
        """Drop the deltas that `keep` does not want. Raises Fenced."""
        for store in self.by_node.values():
            store.sink.truncate(self.query, fence, keep)


def index_of(reader: SinkLogReader) -> Index:
    """What the log of a sink says."""
    index = Index()
    index.take_deltas(reader.deltas())
    for what in reader.corrupt:
        index.damage(what)
    return index
