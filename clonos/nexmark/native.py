"""A stage as stock Spark runs it: the same function, behind PySpark's own `transformWithState`.

For queries that Spark's SQL cannot say. The clock is the batch's, state is one JSON value per key, nothing is recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from clonos.nexmark.query import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
"""What a session needs for it."""


class PlainContext:
    """The causal services done the plain way."""

    def __init__(self, handle: Any, now_ms: int, state: dict[str, Any]) -> None:
        self._handle = handle
        self._now_ms = now_ms
        self.state = state

    def now_us(self) -> int:
        return self._now_ms * 1000

    def timer(self, *, at: int, event: bool = False) -> int:
        self._handle.registerTimer(at // 1000)
        return at


class PlainTimer:
    """A timer that is due."""

    def __init__(self, due_ms: int) -> None:
        self.due_us = due_ms * 1000


def by_key(frame: DataFrame, stage: Stage) -> DataFrame:
    """The stage over a stream."""
    mode = "None"
    if stage.watermark is not None:
        column, seconds = stage.watermark
        frame = frame.withWatermark(column, f"{seconds} seconds")
        mode = "EventTime"
    elif stage.on_timer is not None:
        mode = "ProcessingTime"
    return frame.groupBy(*stage.key).transformWithState(_processor(stage), stage.output, "update", mode)


def _processor(stage: Stage) -> Any:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Native(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle
            self._state = handle.getValueState("state", "value string")
            self._row = Row(*stage.columns)

        def handleInputRows(self, key: Any, rows: Iterable[Any], timerValues: Any) -> Iterator[Any]:
            ctx = self._context(timerValues)
            for row in rows:
                yield from self._rows(stage.fn(key, row, ctx))
            self._keep(ctx)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            ctx = self._context(timerValues)
            if stage.on_timer is not None:
                timer = PlainTimer(expiredTimerInfo.getExpiryTimeInMs())
                yield from self._rows(stage.on_timer(key, timer, ctx))
            self._keep(ctx)

        def _context(self, times: Any) -> PlainContext:
            kept = json.loads(self._state.get()[0]) if self._state.exists() else {}
            return PlainContext(self._handle, times.getCurrentProcessingTimeInMs(), kept)

        def _keep(self, ctx: PlainContext) -> None:
            if getattr(ctx, "state", None):
                self._state.update((json.dumps(ctx.state),))
            else:
                self._state.clear()

        def _rows(self, made: Iterable[tuple[Any, ...]] | None) -> Iterator[Any]:
            for values in made or ():
                yield self._row(*values)

        def close(self) -> None:
            pass

    return Native()
