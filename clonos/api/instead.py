"""What a causal stream does not have of a DataFrame's attributes, and what to do instead."""

from __future__ import annotations

from typing import Final

from clonos.errors import QueryDefinitionError
from clonos.spark.before_causal import INSTEAD

_LOOK: Final = (
    'Look at its rows as they come: writeStream.format("console"), .format("memory").queryName(name), or '
    "foreachBatch(fn), whose DataFrame has all of Spark's methods"
)
_WRITE: Final = (
    "Use writeStream.to(sink), .toTable(name), or foreachBatch(fn) with what the DataFrame of a batch has"
)
_KEEP: Final = (
    "Leave it out: what an operator gives is made once, however many read it, and kept in the checkpoint "
    "as long as it is needed"
)
_NULLS: Final = 'Use withColumn("n", coalesce("n", lit(0))), or where("n is not null")'
_NAMES: Final = (
    'Columns of a stream are stream["name"]; withColumnRenamed("old", "new") tells those of two streams apart'
)
_CHOOSE: Final = "Use filter(fn, name=...), with ctx.random for chance and ctx.state for counting"
_STATE: Final = "Keep what has been there in ctx.state: groupBy(...).process(fn, output, name=...)"
_PLACE: Final = "Leave it out: parallelism= of an operator says over how many instances rows go"
_ROWS: Final = "Use flat_map(fn, output, name=...), which makes any number of rows of one"
_GROUPS: Final = (
    "Group by columns, groupBy(...).agg(...); for several groupings make a row for each before, with "
    "flat_map(fn, output, name=...)"
)
_SOURCE: Final = "Do it with the source DataFrame before causal(), or in a function: map, flat_map or filter"
_JOIN: Final = "Use join(table, key), or join(other, key, within=...) of two streams"
_GROUP: Final = 'Group first: groupBy("key")'
_QUERY: Final = "Ask the query that writeStream...start() returns: explain(), lastProgress"

_HINTS: Final[dict[str, str]] = {
    _LOOK: "show collect count take head first tail toPandas toArrow toLocalIterator toJSON foreach foreachPartition "
    "isEmpty describe summary stat corr cov crosstab freqItems approxQuantile pandas_api plot rdd exists "
    "scalar asTable",
    _WRITE: "write writeTo mergeInto createTempView createOrReplaceTempView createGlobalTempView "
    "createOrReplaceGlobalTempView registerTempTable",
    _KEEP: "cache persist unpersist checkpoint localCheckpoint storageLevel",
    _NULLS: "fillna dropna na replace",
    _NAMES: "alias colRegex metadataColumn withMetadata",
    _CHOOSE: "randomSplit sampleBy offset",
    _STATE: "drop_duplicates exceptAll intersectAll zip zipWithIndex",
    _PLACE: "hint sortWithinPartitions repartitionById",
    _ROWS: "melt unpivot transpose",
    _GROUPS: "cube rollup groupingSets",
    _SOURCE: "to inputFiles isLocal sameSemantics semanticHash sparkSession sql_ctx",
    _JOIN: "lateralJoin nearestByJoin",
    _GROUP: "process window session_window applyInPandasWithState transformWithState transformWithStateInPandas "
    "applyInPandas applyInArrow pivot sum avg mean min max",
    _QUERY: "explain observe executionInfo",
}
_BY_NAME: Final = {name: hint for hint, names in _HINTS.items() for name in names.split()}


class NotHere(QueryDefinitionError, AttributeError):
    """It is refused with a hint, and `hasattr` says that it is not there."""


def refused_at_once(name: str) -> NotHere | None:
    """What would change, drop or multiply rows, also where a column has the name."""
    if name not in INSTEAD:
        return None
    return NotHere(
        f"{name} is Spark's own and cannot follow causal(): a row that Spark drops or makes would lose the "
        "determinants it depends on",
        hint=INSTEAD[name],
    )


def refused(name: str) -> AttributeError:
    """What no column is called."""
    if name in _BY_NAME:
        return NotHere(f"a causal stream has no {name!r}", hint=_BY_NAME[name])
    return AttributeError(f"a causal stream has no {name!r}")
