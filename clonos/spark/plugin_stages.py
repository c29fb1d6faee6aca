"""What the Spark plan of a query consists of: the plugin's stages, and the exchanges between them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clonos.spark.plan import EventTime
from clonos.spark.settings import Settings
from clonos.spark.types import quoted

CHANNEL, POSITION, DESTINATION = "_clonos_channel", "_clonos_position", "_clonos_destination"
EVENT_TIME = "_clonos_event_time"
"""Of a source's rows: the columns in front of the user's."""
NAME, NUMBER = "_clonos_channel_name", "_clonos_channel_number"


@dataclass(frozen=True, slots=True)
class TimedReader:
    """A reader of a source that is told how far event time has come: which one, and its destinations."""

    at: int
    first: int
    parallelism: int
    event_time: EventTime

    @property
    def column(self) -> Any:
        """When the source has come to a row: microseconds since 1970."""
        from pyspark.sql import functions as f

        moment = f.unix_micros(f.col(quoted(self.event_time.column)).cast("timestamp"))
        return (moment - f.lit(self.event_time.delay)).alias(f"{EVENT_TIME}_{self.at}")


def numbered(given: Any, table: str) -> Any:
    """With the number of each record's channel, which is asked for where it is met first."""
    from pyspark.sql import DataFrame

    spark = given.sparkSession
    identity = spark._jvm.org.clonos.spark.source.SourceIdentity
    return DataFrame(identity.numbered(given._jdf, NAME, NUMBER, table), spark)


def ticking(spark: Any, like: Any) -> Any:
    """No rows, but every second a reason for a micro-batch, so that timers fire while nothing arrives."""
    from pyspark.sql import functions as f

    ticks = spark.readStream.format("org.clonos.spark.source.TickSource").load()
    return ticks.select(*[f.lit(None).cast(field.dataType).alias(field.name) for field in like.schema.fields])


def packed(identified: Any, readers: int, timed: Sequence[TimedReader], settings: Settings) -> Any:
    """A source's rows as blocks for so many readers, of which some are told how far event time has come."""
    from pyspark.sql import DataFrame

    firsts, counts = [0] * readers, [0] * readers
    for each in timed:
        firsts[each.at], counts[each.at] = each.first, each.parallelism
    told = [each.at for each in timed], firsts, counts
    packing = identified.sparkSession._jvm.org.clonos.spark.PackingStage
    limits = (settings.bundle_rows, settings.bundle_bytes)
    return DataFrame(packing.apply(identified._jdf, readers, *told, *limits), identified.sparkSession)


def exchanged(blocks: Any, partitions: int) -> Any:
    """Each block in the partition that its sender has said."""
    from pyspark.sql import functions as f

    return blocks.repartitionById(partitions, f.col(DESTINATION)).drop(DESTINATION)


def stage(spark: Any, given: Any, spec: dict[str, Any], reports: Any) -> Any:
    """A layer of operators and sinks. `reports` is the accumulator in which they say what they have done."""
    from pyspark.sql import DataFrame

    layer = spark._jvm.org.clonos.spark.CausalStage.apply(given._jdf, json.dumps(spec), reports)
    return DataFrame(layer, spark)
