"""The progress of a causal query, as objects of PySpark's. What it tells is the matter of the plugin's `progress`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


class QueryProgress:
    """Of one query, across its restarts. `events` is the plugin's object."""

    def __init__(self, events: Any) -> None:
        self._events = events

    @property
    def run_id(self) -> str:
        """The same for as long as the query runs, whatever is started again."""
        return str(self._events.runId())

    def last(self) -> StreamingQueryProgress | None:
        from pyspark.sql.streaming.listener import StreamingQueryProgress

        last = self._events.last()
        return None if last is None else StreamingQueryProgress.fromJObject(last)

    def recent(self) -> list[StreamingQueryProgress]:
        """The oldest first; as many as Spark keeps."""
        from pyspark.sql.streaming.listener import StreamingQueryProgress

        return [StreamingQueryProgress.fromJObject(each) for each in self._events.recent()]
