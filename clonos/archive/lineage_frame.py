"""Lineage as a DataFrame: which records the rows of a query were made of, found by Spark's tasks out of the archive."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from clonos.archive.derivations import CallWatcher, lacking
from clonos.archive.explain import RowId
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for, epochs_between
from clonos.archive.tracing import TracedCall
from clonos.errors import ConfigurationError
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.ids import Epoch, NodeId, Origin, OutputNumber, RecordId, channel_origin
from clonos.protocol.topology import NodeKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCES: Final = "sources"
_TASKS: Final = "checkpoint string, node int, instance int, since long, upto long, modules array<string>"
_EDGES: Final = (
    "row string, operator string, instance int, epoch long, made_by string, input string, input_operator string, "
    "input_source string, input_position long"
)
_ROW: Final = ("row", "operator", "instance", "epoch", "made_by")
_INPUT: Final = ("input", "input_operator", "input_source", "input_position")
_INPUT_TYPES: Final = (pa.string(), pa.string(), pa.string(), pa.int64())
_NONE: Final = -1
_AT_ONCE: Final = 10_000
"""Lines of a batch that a task gives to Spark."""


def lineage(
    spark: SparkSession,
    checkpoint: str,
    *,
    of: str | None = None,
    to: str | None = None,
    since: Epoch | str | None = None,
    upto: Epoch | str | None = None,
) -> DataFrame:
    """Which records rows were made of, out of a query's archive, as a batch DataFrame. Each instance is repeated by a
    task of its own, when the DataFrame is run.

    Without `to`, a line for each row of the operator `of` (of every operator, if it is left out) and each record that
    the call was given which made it; one without input for a row that a timer made, or the end of an epoch. With `to`
    and `of`, a line for each row of `of` and each row of the operator `to`, or, with `to="sources"`, each record of a
    source, that it was made of over all operators in between. `since` and `upto` bound the epochs of `of`'s rows:
    numbers of epochs, or times (ISO 8601); all that can be repeated unless said.

    Columns: `row`, its id as sinks show it; `operator`, `instance` and `epoch` that made it; `made_by`, record, bundle,
    timer, or end of the epoch; `input`, the record's id; `input_operator`, or `input_source` and `input_position`.

    Raises ConfigurationError where there is no such operator, or no archive, and CheckpointMismatch where there is no
    causal query. A task that finds something lacking raises StateError.
    """
    query = ArchivedQuery(checkpoint)
    if to is None:
        return _edges(spark, query, _spans(query, query.instances(of), since, upto))
    if of is None:
        raise ConfigurationError("with `to`, rows of one operator are followed", hint="Name it: of='total'")
    start, end = query.node(of), None if to == SOURCES else query.node(to)
    if end is not None and not _reaches(query, start, end):
        raise ConfigurationError(f"no row of {to!r} goes into one of {of!r}", hint="Turn them round")
    return _closure(spark, query, _spans(query, query.instances(of), since, upto), end)


def _reaches(query: ArchivedQuery, node: int, end: int) -> bool:
    return any(each == end or _reaches(query, each, end) for each in query.program.node(node).upstream)


@dataclass(frozen=True, slots=True)
class _Span:
    """Epochs of an instance."""

    instance: ArchivedInstance
    since: Epoch
    upto: Epoch


def _spans(
    query: ArchivedQuery,
    instances: list[ArchivedInstance],
    since: Epoch | str | None,
    upto: Epoch | str | None,
) -> list[_Span]:
    if not any(each.segments for each in instances):
        raise ConfigurationError(
            f"{query.checkpoint.location} has no archive",
            hint="Start the query with spark.clonos.archive.keep, as in 30 days",
        )
    found = []
    for instance in instances:
        between = epochs_between(instance, _text(since), _text(upto)) if instance.segments else None
        if between is not None and between[0] <= between[1]:
            found.append(_Span(instance, *between))
    return found


def _text(at: Epoch | str | None) -> str | None:
    return None if at is None else str(at)


def _before(query: ArchivedQuery, node: NodeId, behind: list[_Span]) -> list[_Span]:
    """The epochs of an operator in which what those behind it were given was made: the same ones, and one before, which
    may have left records to them."""
    if not behind:
        return []
    since, upto = min(span.since for span in behind), max(span.upto for span in behind)
    found = []
    for instance in query.instances_of(node):
        epochs = [each for each in instance.epochs if since - 1 <= each <= upto and each >= instance.first]
        if epochs:
            found.append(_Span(instance, min(epochs), max(epochs)))
    return found


def _closure(spark: SparkSession, query: ArchivedQuery, spans: list[_Span], end: NodeId | None) -> DataFrame:
    """Rows of an operator by what they were made of at the end of the way."""
    from pyspark.sql import functions as F

    edges = _edges(spark, query, spans)
    is_end = F.col("input_source").isNotNull()
    if end is not None:
        is_end = F.col("input_operator") == query.program.node(end).name
    parts = [edges.where(is_end)]
    for number in query.program.node(spans[0].instance.origin.node).upstream if spans else ():
        before = NodeId(number)
        is_on_the_way = before != end and (end is None or _reaches(query, before, end))
        if is_on_the_way and query.program.node(before).kind is NodeKind.OPERATOR:
            further = _closure(spark, query, _before(query, before, spans), end)
            further = further.select(
                F.col("row").alias("_row"), *(F.col(each).alias(f"_{each}") for each in _INPUT)
            )
            joined = edges.join(further, F.col("input") == F.col("_row"))
            parts.append(joined.select(*_ROW, *(F.col(f"_{each}").alias(each) for each in _INPUT)))
    return reduce(lambda a, b: a.unionByName(b), parts).distinct()


def _edges(spark: SparkSession, query: ArchivedQuery, spans: list[_Span]) -> DataFrame:
    # Functions are pickled by the names of their modules: what this process can import, a task can.
    modules = [os.path.abspath(entry or ".") for entry in sys.path]
    tasks = [
        (query.checkpoint.location, *span.instance.origin, span.since, span.upto, modules) for span in spans
    ]
    partitions = spark.sparkContext.parallelize(tasks, max(1, len(tasks)))
    return spark.createDataFrame(partitions, _TASKS).mapInArrow(_derive, _EDGES)


# ------------------------------------------------------------------------- a task


def _derive(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in tasks:
        for task in batch.to_pylist():
            sys.path += [each for each in task["modules"] if each not in sys.path and os.path.exists(each)]
            query = ArchivedQuery(task["checkpoint"])
            query.load_programs()
            instance = query.instance(Origin.of(task["node"], task["instance"]))
            assert instance is not None
            yield from _of_instance(query, instance, Epoch(task["since"]), Epoch(task["upto"]))


def _of_instance(
    query: ArchivedQuery, instance: ArchivedInstance, since: Epoch, upto: Epoch
) -> Iterator[pa.RecordBatch]:
    """Epoch by epoch."""
    edges = _Edges(query, instance)
    watcher = CallWatcher(edges.add, since)
    with desk_for(instance, watcher) as desk:
        for found in instance.repeated(upto, desk, since=since, begins=watcher.begins):
            if isinstance(found, Lacking):
                raise lacking(instance, "lineage", found.why)
            yield from edges.taken()


class _Edges:
    """Of one epoch, until it has been repeated: a few numbers of each."""

    def __init__(self, query: ArchivedQuery, instance: ArchivedInstance) -> None:
        self._query = query
        self._instance = instance
        self._epoch: Epoch
        self._forms: list[str] = []
        self._clear()

    def _clear(self) -> None:
        self._numbers, self._form, self._channels, self._positions = (array("q") for _ in range(4))

    def add(self, epoch: Epoch, call: TracedCall) -> None:
        """Of a call: every row with every record."""
        self._epoch = epoch
        if call.form not in self._forms:
            self._forms.append(call.form)
        form = self._forms.index(call.form)
        inputs = [(one.channel, one.position) for one in call.inputs] or [(_NONE, _NONE)]
        for number in range(call.first, call.first + len(call.outputs)):
            for channel, position in inputs:
                self._numbers.append(number)
                self._form.append(form)
                self._channels.append(channel)
                self._positions.append(position)

    def taken(self) -> Iterator[pa.RecordBatch]:
        """What there is, as Spark is given it."""
        for begin in range(0, len(self._numbers), _AT_ONCE):
            yield self._batch(range(begin, min(begin + _AT_ONCE, len(self._numbers))))
        self._clear()

    def _batch(self, places: range) -> pa.RecordBatch:
        origin, count = self._instance.origin, len(places)
        inputs = [self._input(self._channels[at], self._positions[at]) for at in places]
        columns = [
            pa.array([str(RowId(origin, OutputNumber(self._numbers[at]))) for at in places]),
            pa.repeat(self._instance.operator, count),
            pa.repeat(pa.scalar(int(origin.instance), pa.int32()), count),
            pa.repeat(pa.scalar(int(self._epoch), pa.int64()), count),
            pa.array([self._forms[self._form[at]] for at in places]),
            *(
                pa.array(column, kind)
                for column, kind in zip(zip(*inputs, strict=True), _INPUT_TYPES, strict=True)
            ),
        ]
        return pa.RecordBatch.from_arrays(columns, names=[*_ROW, *_INPUT])

    def _input(self, channel: int, position: int) -> tuple[str | None, str | None, str | None, int | None]:
        if channel == _NONE:
            return None, None, None, None
        record = RecordId(channel, position)
        sender = self._query.instance(channel_origin(channel))
        if sender is not None:
            return str(RowId.of(record)), sender.operator, None, None
        return str(RowId.of(record)), None, self._query.source(channel_origin(channel)), position
