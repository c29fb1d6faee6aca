"""Where a source's records get their identity from.

A record is (channel, position): a source partition and a strictly increasing place in it, the same whenever the record
is read again. The embedded log and Kafka carry both; from any other source the user must say which columns do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clonos.core.identity import NODE_BITS
from clonos.errors import QueryDefinitionError
from clonos.spark.before_causal import check_before_causal, items
from clonos.spark.plan import SourcePlan

# The embedded log's are metadata columns: there whatever was projected away.
_EMBEDDED = ("_clonos_source_partition", "_clonos_source_position")
_KAFKA = ("partition", "offset")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_HIGHEST_CHANNEL = (1 << (63 - NODE_BITS)) - 1


def identify(df: Any, channel: Any, position: Any) -> SourcePlan:
    """A source plan, or a refusal that names the source."""
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
    partitions = _partitions(leaves)
    if channel is not None:
        return SourcePlan(df, *_given(df, channel, position), partitions)
    names = {attribute.name() for attribute in items(plan.output())}
    hidden = {attribute.name() for attribute in items(plan.metadataOutput())}
    if names | hidden >= set(_EMBEDDED):
        return SourcePlan(df, f.col(_EMBEDDED[0]), f.col(_EMBEDDED[1]), partitions)
    kafka = [leaf for leaf in leaves if _source_name(leaf) == "kafka"]
    if names.issuperset(_KAFKA) and kafka:
        check_kafka(
            {str(entry.getKey()): str(entry.getValue()) for entry in _entries(kafka[0].extraOptions())}
        )
        return SourcePlan(df, f.col(_KAFKA[0]), f.col(_KAFKA[1]), partitions)
    raise QueryDefinitionError(
        f"the records of this source have no identity that Clonos knows: {describe(df)}",
        hint="Give causal(df, channel=..., position=...): an integer column that names the partition, and one whose "
        "value strictly increases within it and is the same each time a record is read",
    )


def check_kafka(options: Mapping[str, str]) -> None:
    """Raises QueryDefinitionError where partition and offset do not identify a record, or a partition is split."""
    given = {name.lower(): value for name, value in options.items()}
    several = (
        "," in given.get("subscribe", "").strip(" ,")
        or "subscribepattern" in given
        or ("assign" in given and len(json.loads(given["assign"])) > 1)
    )
    if several:
        how = next(name for name in ("subscribe", "subscribepattern", "assign") if name in given)
        raise QueryDefinitionError(
            f"the Kafka source reads several topics ({how}={given[how]!r}), whose partitions have the same numbers",
            hint="Read each topic by itself and unite the causal streams: causal(a).union(causal(b))",
        )
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


def _given(df: Any, channel: Any, position: Any) -> tuple[Any, Any]:
    """The user's columns, checked; a row without a place stops the query and is never guessed."""
    from pyspark.sql import functions as f

    columns = []
    for what, column in (("channel", channel), ("position", position)):
        found = _column(df, what, column)
        given = df.select(found.alias(what))
        check_before_causal(given)
        kind = given.schema.fields[0].dataType.simpleString()
        if kind not in _INTEGERS:
            raise QueryDefinitionError(f"the {what} column is {kind}; it must be an integer")
        wide = found.cast("bigint")
        fits = (wide >= 0) & (wide <= _HIGHEST_CHANNEL) if what == "channel" else wide.isNotNull()
        text = f.concat(
            f.lit(f"[clonos:InputError] a record has the {what} "),
            f.coalesce(wide.cast("string"), f.lit("null")),
            f.lit(f", which names no place: {describe(df)}"),
        )
        columns.append(f.when(fits, wide).otherwise(f.raise_error(text).cast("bigint")))
    return columns[0], columns[1]


def _column(df: Any, what: str, column: Any) -> Any:
    from pyspark.errors import AnalysisException
    from pyspark.sql import Column, functions as f

    if isinstance(column, str):
        if column.lower() not in [name.lower() for name in df.columns]:
            raise QueryDefinitionError(
                f"there is no column {column!r} for the {what}; there are {', '.join(df.columns)}"
            )
        return f.col("`" + column.replace("`", "``") + "`")
    if not isinstance(column, Column):
        raise QueryDefinitionError(f"the {what} is a column or its name, not {column!r}")
    try:
        df.select(column)
    except AnalysisException as error:
        raise QueryDefinitionError(f"the {what} column cannot be computed: {error}") from error
    return column


def _partitions(leaves: list[Any]) -> int | None:
    """How many partitions the source has, where that can be known."""
    total = 0
    for leaf in leaves:
        if _source_name(leaf) != "clonos":
            return None
        path = str(leaf.extraOptions().get("path")).removeprefix("file://").removeprefix("file:")
        try:
            total += int(json.loads(Path(path, "_meta.json").read_text())["partitions"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
    return total


def _entries(options: Any) -> Iterator[Any]:
    """Of a java.util.Map."""
    found = options.entrySet().iterator()
    while found.hasNext():
        yield found.next()


def _source_name(leaf: Any) -> str:
    try:
        return str(leaf.sourceName())
    except Exception:  # a leaf that is no streaming source, such as a table joined to the stream
        return ""
