"""Messages that Spark reads, without those that came before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, overload

from clonos.errors import ConfigurationError, QueryDefinitionError
from clonos.kafka.repetitions import Repetitions
from clonos.sinks.kafka_ids import ID_HEADER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from clonos.api.streams import CausalStream

_CHANNEL, _POSITION, _OFFSET = "clonos channel", "clonos position", "offset"
_ID: Final = f"CAST(get(filter(headers, each -> each.key = '{ID_HEADER}'), 0).value AS STRING)"
# As clonos.sinks.kafka_ids.channel_and_position; the partition is part of it.
_PATTERN: Final = "^([^/]*/[^/]*/.*)-([0-9]{1,19})$"
_NEEDED: Final = ("topic", "partition", _OFFSET, "headers")
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@overload
def without_repetitions(messages: DataFrame) -> DataFrame: ...
@overload
def without_repetitions(
    messages: CausalStream, *, name: str = ..., parallelism: int | None = ...
) -> CausalStream: ...
def without_repetitions(
    messages: Any, *, name: str = "without_repetitions", parallelism: int | None = None
) -> Any:
    """Messages of a topic that a sink writes at once, each once.

    `messages`: a DataFrame of Spark's Kafka source, streaming or not, or a causal stream of one, with the columns
    `topic`, `partition`, `offset` and `headers` (the source's option `includeHeaders`); other columns may be there, or
    not. A stream in stock Spark is kept by `transformWithState`, in both modes, and so needs Spark's RocksDB state
    store. Messages without the sink's id are kept. `name` and `parallelism` are the operator's in a causal stream.
    Raises QueryDefinitionError, ConfigurationError.
    """
    missing = [name for name in _NEEDED if name not in messages.columns]
    if missing:
        raise QueryDefinitionError(
            f"without_repetitions needs the columns {', '.join(_NEEDED)}; {', '.join(missing)} are missing",
            hint='Read with .option("includeHeaders", "true"), and choose columns afterwards',
        )
    from clonos.api.streams import CausalStream

    if isinstance(messages, CausalStream):
        return _of_causal_stream(messages, name, parallelism)
    from pyspark.sql import functions as F

    channel = F.expr(f"nullif(regexp_extract({_ID}, '{_PATTERN}', 1), '')")
    position = F.expr(f"try_cast(regexp_extract({_ID}, '{_PATTERN}', 2) AS BIGINT)")
    place = F.concat_ws("/", F.col("topic"), F.col("partition"), channel)
    known = channel.isNotNull() & position.isNotNull()
    marked = messages.withColumns({_CHANNEL: F.when(known, place), _POSITION: position})
    kept = _of_stream(marked) if messages.isStreaming else _of_table(marked)
    return kept.drop(_CHANNEL, _POSITION)


def _of_stream(marked: DataFrame) -> DataFrame:
    from pyspark.sql import DataFrame

    spark: Any = marked.sparkSession
    if spark.conf.get(_PROVIDER, "") != _ROCKSDB:
        raise ConfigurationError(
            "without_repetitions on a stream needs Spark's RocksDB state store",
            hint=f"Before the query starts: spark.conf.set({_PROVIDER!r}, {_ROCKSDB!r})",
        )
    operator = getattr(spark._jvm.org.clonos.spark, "kafka")  # noqa: B009
    if not hasattr(operator, "WithoutRepetitions"):
        raise ConfigurationError(
            "this session has not loaded the plugin of Clonos",
            hint="Make it by clonos.configure(SparkSession.builder, kafka=True)",
        )
    kept = operator.WithoutRepetitions.of(marked._jdf, _CHANNEL, _POSITION, _OFFSET)
    return DataFrame(kept, spark)


def _of_table(marked: DataFrame) -> DataFrame:
    from pyspark.sql import Window, functions as F

    before = Window.partitionBy(_CHANNEL).orderBy(_OFFSET).rowsBetween(Window.unboundedPreceding, -1)
    highest = F.max(_POSITION).over(before)
    came = "clonos came"
    flagged = marked.withColumn(
        came, F.col(_CHANNEL).isNotNull() & F.coalesce(highest >= F.col(_POSITION), F.lit(False))
    )
    return flagged.where(~F.col(came)).drop(came)


def _of_causal_stream(messages: CausalStream, name: str, parallelism: int | None) -> CausalStream:
    return messages.groupBy("topic", "partition").process(
        _unless_it_came_before, messages.schema, name=name, parallelism=parallelism
    )


def _unless_it_came_before(key: tuple[str, int], row: Any, ctx: Any) -> tuple[Any, ...]:
    """A function of an operator; its state is what `Repetitions` remembers."""
    for name, content in row.headers or ():
        if name == ID_HEADER and content is not None:
            shows = Repetitions(ctx.state).takes(bytes(content).decode("ascii", "replace"))
            return (row,) if shows else ()
    return (row,)
