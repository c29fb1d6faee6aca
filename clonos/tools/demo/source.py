"""The input of both sides: the embedded source, and its payload as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clonos.tools.flights.data import EVENT_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_events", "read_log"]


def read_log(spark: SparkSession, log: str) -> DataFrame:
    """The log as the embedded source gives it."""
    return spark.readStream.format("clonos").option("path", log).load()


def read_events(spark: SparkSession, log: str, *kept: str) -> DataFrame:
    """The events as columns, with the source's own columns named in `kept` before them."""
    from pyspark.sql import functions as f

    event: Any = f.from_json(f.col("value").cast("string"), EVENT_SCHEMA)
    return read_log(spark, log).select(*kept, event.alias("event")).select(*kept, "event.*")
