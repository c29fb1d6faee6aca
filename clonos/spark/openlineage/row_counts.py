"""How many rows each source of a query has given in this run, and each sink has got, of what Spark's progress tells."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from clonos.protocol.ids import Epoch, NodeId, epoch_after

_ROWS: Final = ".numOutputRows"


class RowCounts:
    """`recent` gives the progress of the last batches, the oldest first, as objects of Spark's; `committed` is the last
    epoch before this run; `sources` are the nodes of the sources, in the order in which progress tells of them. Counts
    that are not whole are none: where a batch was not heard of (yet), or its rows are not known."""

    def __init__(
        self, recent: Callable[[], Sequence[Any]], committed: Epoch, sources: Sequence[NodeId]
    ) -> None:
        self._recent, self._seen, self._nodes = recent, committed, sources
        self._are_whole = True
        self._read: dict[NodeId, int | None] = {}
        self._written: dict[str, int | None] = {}

    def look(self) -> None:
        """At what has come since the last look."""
        new: list[tuple[Epoch, Any]] = []
        for batch in reversed(self._recent()):
            epoch = Epoch(int(batch.batchId()))
            if epoch <= self._seen:
                break
            new.append((epoch, batch))
        for epoch, batch in reversed(new):
            if epoch == self._seen:  # told again, while nothing comes
                continue
            self._are_whole &= epoch == epoch_after(self._seen)
            self._add(json.loads(batch.json()))
            self._seen = epoch

    def _add(self, progress: dict[str, Any]) -> None:
        sources = progress["sources"]
        self._are_whole &= len(sources) == len(self._nodes)
        for node, source in zip(self._nodes, sources):
            self._read[node] = _sum(self._read.get(node, 0), int(source["numInputRows"]))
        for name, rows in (progress["sink"].get("metrics") or {}).items():
            sink = name.removesuffix(_ROWS)
            self._written[sink] = _sum(self._written.get(sink, 0), int(rows))

    def read(self, node: NodeId, upto: Epoch) -> int | None:
        """When this epoch was the last that had committed, as in `written`."""
        return self._read.get(node, 0) if self._know(upto) else None

    def written(self, sink: str, upto: Epoch) -> int | None:
        return self._written.get(sink, 0) if self._know(upto) else None

    def _know(self, upto: Epoch) -> bool:
        return self._are_whole and self._seen >= upto


def _sum(known: int | None, rows: int) -> int | None:
    """Spark says -1 where it does not know."""
    return None if known is None or rows < 0 else known + rows
