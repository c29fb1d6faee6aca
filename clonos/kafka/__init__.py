"""Readers of topics that a Kafka sink writes at once (`clonos.sinks.kafka(..., mode="at_once")`).

Rows of such a topic are there as soon as the brokers have them, and may come again after a failure, with the same
id and content. `Reader` is a consumer of confluent-kafka that passes over what came before; `without_repetitions` does
that to a stream that stock Spark reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clonos.extras import needs

if TYPE_CHECKING:
    from clonos.kafka.reader import Reader
    from clonos.kafka.spark_stream import without_repetitions

__all__ = ["Reader", "without_repetitions"]


def __getattr__(name: str) -> Any:
    if name == "Reader":
        needs("confluent_kafka", "clonos.kafka.Reader")
        from clonos.kafka.reader import Reader

        return Reader
    if name == "without_repetitions":
        from clonos.kafka.spark_stream import without_repetitions

        return without_repetitions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
