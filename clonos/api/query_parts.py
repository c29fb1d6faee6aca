"""What runs on the driver for a query, beside Spark's own: tables that are read, functions that are given batches."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from clonos.errors import ClonosError
from clonos.spark.batch_delivery import BatchDelivery, BatchFiles
from clonos.spark.compile import Compiled
from clonos.spark.coordinator import Coordinator
from clonos.spark.rows_from_json import rows_from_json
from clonos.spark.table_keeper import TableKeeper


class QueryParts:
    """Started when this driver leads the query, closed while it still does. `failed` hears of what ends the query."""

    def __init__(
        self,
        spark: Any,
        compiled: Compiled,
        coordinator: Coordinator,
        location: str,
        failed: Callable[[ClonosError], None],
    ) -> None:
        self._tables = TableKeeper(compiled.tables, location, coordinator.committed, coordinator.check_leads)
        self._deliveries = []
        for node, plan in compiled.batch_sinks():
            sink = plan.sink
            frame = partial(_frame, spark, plan.input)
            frame([])  # what could not be read back is refused now
            state = os.path.join(sink.folder, f"{node}.batch")
            files = BatchFiles(sink.files(node, plan.instances), state, coordinator.check_leads)
            self._deliveries.append(BatchDelivery(files, sink.fn, frame, failed))
        coordinator.on_shown = self._tell_commit

    def start(self) -> None:
        self._tables.start()
        for delivery in self._deliveries:
            delivery.start()

    def drain(self) -> None:
        for delivery in self._deliveries:
            delivery.drain()

    def is_here(self) -> bool:
        """Whether the caller is in a thread that calls a function of foreachBatch."""
        return any(delivery.is_here() for delivery in self._deliveries)

    def close(self) -> None:
        self._tables.stop()
        for delivery in self._deliveries:
            delivery.stop()

    def _tell_commit(self) -> None:
        for delivery in self._deliveries:
            delivery.tell_commit()


def _frame(spark: Any, schema: Any, rows: list[bytes]) -> Any:
    """Rows of a batch, which are JSON objects, as a DataFrame."""
    return rows_from_json(spark.createDataFrame([(row.decode(),) for row in rows], "value string"), schema)
