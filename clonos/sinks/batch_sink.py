"""Rows for a function of the driver's, `foreachBatch`: kept in the checkpoint until the function has had them.

Each sink instance appends rows to an embedded log, exactly once (`appended_file`). What is there is final: it comes
out the same whatever fails. So the driver (`clonos.spark.batch_delivery`) may cut it into batches as it likes, as long
as it writes down where before it calls the function: a batch that is given again has the same rows.

    <folder>/<node>-<instance>.log      the rows, as JSON objects
    <folder>/_clonos/<query>/...        logs and fences, see `clonos.sinks.sink_wal`
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clonos.async_functions import refuse_async
from clonos.errors import ConfigurationError, QueryDefinitionError
from clonos.protocol.ids import NodeId, Origin
from clonos.sinks.appended_file_sink import AppendedFileSink
from clonos.sinks.json_rows import HIDDEN_ID, JsonRows
from clonos.sinks.log_sink import EntriesOfBundles
from clonos.sinks.wal_files import local_path
from clonos.storage.location import on_this_host

if TYPE_CHECKING:
    pass


class BatchSink(AppendedFileSink):
    """`fn(df, batch_id)` is called on the driver with the rows that have come since the batch before, after an epoch
    has committed. It is called again with the same id and the same rows where it is not known whether it has ended.

    `path`: where rows are kept, a local folder that every machine that may run this sink shares; by default inside the
    checkpoint. `durable`, `patience`: as of `JsonlSink`.
    """

    parallelism: int | None = None

    def __init__(
        self,
        fn: Callable[[Any, int], object],
        *,
        path: str | os.PathLike[str] | None = None,
        patience: float = 30.0,
        durable: bool = True,
    ) -> None:
        super().__init__(id_column=HIDDEN_ID, patience=patience, durable=durable)
        if not callable(fn):
            raise QueryDefinitionError(
                f"foreachBatch takes a function of a DataFrame and a batch's id, not {fn!r}"
            )
        refuse_async(fn, "foreachBatch")
        self.fn: Callable[[Any, int], object] | None = fn
        self._path = None if path is None else local_path(path, "the folder of a batch sink")
        self._identity = uuid.uuid4().hex

    def __getstate__(self) -> dict[str, Any]:
        """The function stays on the driver: it may hold what belongs there, such as the session."""
        return {**self.__dict__, "fn": None}

    def __copy__(self) -> BatchSink:
        """For another query: with the function."""
        made = BatchSink.__new__(BatchSink)
        made.__dict__.update(self.__dict__)
        return made

    def __repr__(self) -> str:
        return "foreachBatch"

    @property
    def target(self) -> Hashable:
        return "batches", self._identity

    def bind(self, checkpoint: str) -> None:
        """Keep rows in the checkpoint, unless a path was given."""
        if self._path is None:
            root = on_this_host(checkpoint)
            if root is None:
                raise QueryDefinitionError(
                    f"foreachBatch cannot keep rows in {checkpoint!r} until the function has had them",
                    hint="Use .to(clonos.sinks.batches(fn, path=...)), a folder that all machines share",
                )
            self._path = os.path.join(root, "clonos", "batches")

    @property
    def folder(self) -> str:
        if self._path is None:
            raise ConfigurationError("a batch sink has no place for its rows yet", hint="Give it path=")
        return self._path

    def entries(self, rows: JsonRows) -> BatchEntries:
        return BatchEntries(rows)

    def files(self, node: NodeId, instances: int) -> list[Path]:
        """The logs of its instances, in order."""
        return [Path(self.folder) / _name(Origin.of(node, instance)) for instance in range(instances)]


class BatchEntries(EntriesOfBundles):
    """See `clonos.sinks.appended_file.Entries`."""

    def file(self, query: str, origin: Origin) -> str:
        return _name(origin)


def _name(origin: Origin) -> str:
    return f"{origin.node}-{origin.instance}.log"
