"""Where a source's records get their identity from.

A record is (channel, position): a source partition and a strictly increasing place in it, the same whenever the record
is read again. The embedded log and Kafka carry both, and they are taken there, at the leaf of the plan, whatever the
query leaves out above it; from any other source the user must say which columns do. A channel that is not a number has
a name, which the checkpoint numbers (`clonos.spark.channels`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clonos.errors import QueryDefinitionError
from clonos.json_text import parsed_json
from clonos.protocol.ids import NODE_BITS
from clonos.spark.before_causal import check_before_causal, items
from clonos.spark.error_loggers import make_error_loggers
from clonos.spark.location import source_path
from clonos.spark.plan import SourcePlan
from clonos.spark.types import quoted

# The embedded log's are metadata columns: there whatever was projected away.
_EMBEDDED = ("_clonos_source_partition", "_clonos_source_position")
_KAFKA = {"topic": "_clonos_source_topic", "partition": _EMBEDDED[0], "offset": _EMBEDDED[1]}
_GIVEN = ("_clonos_given_position", "_clonos_given_channel")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_HIGHEST_CHANNEL = (1 << (63 - NODE_BITS)) - 1


def identify(df: Any, channel: Any, position: Any) -> SourcePlan:
    """A source plan, or a refusal that names the source."""
    make_error_loggers()
    from pyspark.sql import functions as f

    if (channel is None) != (position is None):
        raise QueryDefinitionError("channel and position come together: give both or neither")
    if not df.isStreaming:
        raise QueryDefinitionError(
            "the DataFrame is not streaming",
            hint="Read it with spark.readStream; a batch job needs no recovery",
        )
    check_before_causal(df)
    plan = df._jdf.queryExecution().analyzed()
    leaves = list(items(plan.collectLeaves()))
    partitions = _partitions(df.sparkSession, leaves)
    if channel is not None:
        return replace(_given(df, channel, position), partitions=partitions)
    names = {attribute.name() for attribute in items(plan.output())}
    hidden = {attribute.name() for attribute in items(plan.metadataOutput())}
    if names | hidden >= set(_EMBEDDED):
        return SourcePlan(df, df, f.col(_EMBEDDED[1]), f.col(_EMBEDDED[0]), partitions=partitions)
    if [_source_name(leaf) for leaf in leaves] == ["kafka"]:
        return _of_kafka(df, leaves[0])
    raise QueryDefinitionError(
        f"the records of this source have no identity that Clonos knows: {describe(df)}",
        hint="Give causal(df, channel=..., position=...): an integer or text column that names the partition, and one "
        "whose value strictly increases within it and is the same each time a record is read",
    )


def _of_kafka(df: Any, leaf: Any) -> SourcePlan:
    """A channel is a partition of a topic. The partitions of one topic are numbers already."""
    from pyspark.sql import functions as f

    options = {str(entry.getKey()): str(entry.getValue()) for entry in _entries(leaf.extraOptions())}
    check_kafka(options)
    topic, partition, offset = (f.col(name) for name in _KAFKA.values())
    return SourcePlan(
        df,
        carried(df, _KAFKA),
        offset,
        partition if only_topic(options) is not None else None,
        f.concat(topic, f.lit("/"), partition.cast("string")),
    )


def carried_on(plan: SourcePlan, df: Any) -> SourcePlan:
    """The plan, of what Spark's own methods have made of its DataFrame: projections and filters."""
    from pyspark.sql import functions as f

    if "channel" not in plan.described:
        return replace(plan, df=df, identified=df if plan.identified is plan.df else carried(df, _KAFKA))
    where = plan.name if plan.channel is None else plan.channel
    before = plan.identified
    if plan.identified is plan.df:
        before = before.select("*", plan.position.alias(_GIVEN[0]), where.alias(_GIVEN[1]))
    position, channel = map(f.col, _GIVEN)
    made = replace(plan, df=df, identified=done_again(df, plan.df, before, _GIVEN), position=position)
    return replace(made, name=channel) if plan.channel is None else replace(made, channel=channel)


def done_again(df: Any, since: Any, on: Any, beside: Sequence[str]) -> Any:
    """What has been done with a DataFrame `since`, with another one that has these columns in addition."""
    from pyspark.sql import Column

    column_of = df.sparkSession._jvm.org.apache.spark.sql.classic.ExpressionUtils.column
    known = len(list(_down(since)))
    done = list(_down(df))
    for node in reversed(done[: len(done) - known]):
        if node.nodeName() == "Filter":
            on = on.where(Column(column_of(node.condition())))
        else:
            on = on.select(*[Column(column_of(each)) for each in items(node.projectList())], *beside)
    return on


def _down(df: Any) -> Iterator[Any]:
    """The nodes of its plan, from the top."""
    node = df._jdf.queryExecution().analyzed()
    yield node
    while node.children().size():
        node = node.children().apply(0)
        yield node


def carried(df: Any, columns: Mapping[str, str]) -> Any:
    """The DataFrame with columns of its source beside its own, by their names there and here."""
    from pyspark.sql import DataFrame

    spark = df.sparkSession
    return DataFrame(spark._jvm.org.clonos.spark.source.SourceIdentity.carried(df._jdf, dict(columns)), spark)


def only_topic(options: Mapping[str, str]) -> str | None:
    """The topic of a Kafka source that reads a single one, by its name."""
    given = {name.lower(): value for name, value in options.items()}
    if "assign" in given:
        topics = list(parsed_json(given["assign"]))
    else:
        topics = [topic for one in given.get("subscribe", "").split(",") if (topic := one.strip())]
    return str(topics[0]) if len(topics) == 1 else None


def check_kafka(options: Mapping[str, str]) -> None:
    """Raises QueryDefinitionError where a partition is split."""
    given = {name.lower() for name in options}
    for option in ("minPartitions", "maxRecordsPerPartition"):
        if option.lower() in given:
            raise QueryDefinitionError(
                f"the Kafka source's option {option} splits a partition over several tasks, which loses its order",
                hint=f"Leave {option} out; an operator's parallelism= says over how many instances records go",
            )


def describe(df: Any) -> str:
    """The source's line of the plan, for messages."""
    plan = df._jdf.queryExecution().analyzed()
    return ", ".join(str(leaf.simpleString(200)).lstrip("~") for leaf in items(plan.collectLeaves()))


def _given(df: Any, channel: Any, position: Any) -> SourcePlan:
    """By the user's columns, checked; a row without a place stops the query and is never guessed."""
    from pyspark.sql import functions as f

    place, place_type = _place(df, "position", position)
    _check_integer("position", place_type)
    where, where_type = _place(df, "channel", channel)
    at = _or_input_error(df, "position", place.cast("bigint"), place.isNotNull())
    if where_type == "string":
        name = _or_input_error(df, "channel", where, where.isNotNull())
        return SourcePlan(df, df, at, name=name)
    _check_integer("channel", where_type)
    wide = where.cast("bigint")
    fits = (wide >= 0) & (wide <= f.lit(_HIGHEST_CHANNEL))
    return SourcePlan(df, df, at, _or_input_error(df, "channel", wide, fits))


def _place(df: Any, what: str, column: Any) -> tuple[Any, str]:
    """The column and its type."""
    found = _column(df, what, column)
    given = df.select(found.alias(what))
    check_before_causal(given)
    return found, given.schema.fields[0].dataType.simpleString()


def _check_integer(what: str, kind: str) -> None:
    if kind not in _INTEGERS:
        text = " or text" if what == "channel" else ""
        raise QueryDefinitionError(f"the {what} column is {kind}; it must be an integer{text}")


def _or_input_error(df: Any, what: str, column: Any, fits: Any) -> Any:
    from pyspark.sql import functions as f

    text = f.concat(
        f.lit(f"[clonos:InputError] a record has the {what} "),
        f.coalesce(column.cast("string"), f.lit("null")),
        f.lit(f", which names no place: {describe(df)}"),
    )
    return f.when(fits, column).otherwise(f.raise_error(text))


def _column(df: Any, what: str, column: Any) -> Any:
    from pyspark.errors import AnalysisException
    from pyspark.sql import Column, functions as f

    if isinstance(column, str):
        if column.lower() not in [name.lower() for name in df.columns]:
            raise QueryDefinitionError(
                f"there is no column {column!r} for the {what}; there are {', '.join(df.columns)}"
            )
        return f.col(quoted(column))
    if not isinstance(column, Column):
        raise QueryDefinitionError(f"the {what} is a column or its name, not {column!r}")
    try:
        df.select(column)
    except AnalysisException as error:
        raise QueryDefinitionError(f"the {what} column cannot be computed: {error}") from error
    return column


def _partitions(spark: Any, leaves: list[Any]) -> int | None:
    """How many partitions the source has, where that can be known."""
    total = 0
    for leaf in leaves:
        if _source_name(leaf) != "clonos":
            return None
        path = source_path(spark, str(leaf.extraOptions().get("path")), embedded=True)
        try:
            total += int(parsed_json(Path(path, "_meta.json").read_text())["partitions"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
    return total


def _entries(options: Any) -> Iterator[Any]:
    """The entries of a java.util.Map."""
    found = options.entrySet().iterator()
    while found.hasNext():
        yield found.next()


def _source_name(leaf: Any) -> str:
    try:
        return str(leaf.sourceName())
    except Exception:  # a leaf that is no streaming source, such as a table joined to the stream
        return ""
