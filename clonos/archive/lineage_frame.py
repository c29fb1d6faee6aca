"""Lineage as a DataFrame: which records the rows of a query were made of, found by Spark's tasks out of the archive."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from clonos.archive.derivations import CallWatcher, lacking
from clonos.archive.explain import RowId
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.spark_tasks import Span, asked_of, spans
from clonos.archive.tracing import TracedCall
from clonos.errors import ConfigurationError
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.ids import FIRST_EPOCH, Epoch, NodeId, OutputNumber, RecordId, channel_origin
from clonos.protocol.topology import NodeKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCES: Final = "sources"
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
        return asked_of(spark, query, spans(query, query.instances(of), since, upto), _edges, _EDGES)
    if of is None:
        raise ConfigurationError("with `to`, rows of one operator are followed", hint="Name it: of='total'")
    start, end = query.node(of), None if to == SOURCES else query.node(to)
    if end is not None and not _reaches(query, start, end):
        raise ConfigurationError(f"no row of {to!r} goes into one of {of!r}", hint="Turn them round")
    begin = _first(query, start, end) if since is None else since
    return _closure(spark, query, start, spans(query, query.instances(of), begin, upto), end)


def _reaches(query: ArchivedQuery, node: int, end: int) -> bool:
    return any(each == end or _reaches(query, each, end) for each in query.program.node(node).upstream)


def _way(query: ArchivedQuery, node: NodeId, end: NodeId | None) -> Iterator[NodeId]:
    """The operators before one whose rows go into its, up to the end."""
    for number in query.program.node(node).upstream:
        before = NodeId(number)
        is_on_it = before != end and (end is None or _reaches(query, before, end))
        if is_on_it and query.program.node(before).kind is NodeKind.OPERATOR:
            yield before


def _first(query: ArchivedQuery, node: NodeId, end: NodeId | None) -> Epoch:
    """The first epoch that all instances on the way can repeat."""
    own = [each.first for each in query.instances_of(node) if each.segments]
    return max(
        [*own, *(_first(query, before, end) for before in _way(query, node, end))], default=FIRST_EPOCH
    )


def _before(query: ArchivedQuery, node: NodeId, behind: list[Span]) -> list[Span]:
    """The epochs of an operator in which what those behind it were given was made: the same ones, and one before, which
    may have left records to them. Raises ConfigurationError where the archive does not have them."""
    since, upto = min(span.since for span in behind), max(span.upto for span in behind)
    found = []
    for instance in query.instances_of(node):
        epochs = [each for each in instance.epochs if since - 1 <= each <= upto and each >= instance.first]
        if not epochs or min(epochs) > since or max(epochs) < upto:
            raise ConfigurationError(
                f"rows of epochs {since} to {upto} are made of rows of {instance}, of which the archive has "
                f"{f'epochs {min(epochs)} to {max(epochs)}' if epochs else 'none of these'}",
                hint="Ask for epochs with since= and upto= of which it has all. `clonos archive list` shows which",
            )
        found.append(Span(instance, min(epochs), max(epochs)))
    return found


def _closure(
    spark: SparkSession, query: ArchivedQuery, node: NodeId, asked: list[Span], end: NodeId | None
) -> DataFrame:
    """Rows of an operator by what they were made of at the end of the way."""
    from pyspark.sql import functions as F

    edges = asked_of(spark, query, asked, _edges, _EDGES)
    is_end = F.col("input_source").isNotNull()
    if end is not None:
        is_end = F.col("input_operator") == query.program.node(end).name
    parts = [edges.where(is_end)]
    for before in _way(query, node, end) if asked else ():
        further = _closure(spark, query, before, _before(query, before, asked), end)
        named = [F.col("row").alias("_row"), *(F.col(each).alias(f"_{each}") for each in _INPUT)]
        joined = edges.join(further.select(*named), F.col("input") == F.col("_row"))
        parts.append(joined.select(*_ROW, *(F.col(f"_{each}").alias(each) for each in _INPUT)))
    return reduce(lambda a, b: a.unionByName(b), parts).distinct()


# ------------------------------------------------------------------------- a task


def _edges(query: ArchivedQuery, span: Span) -> Iterator[pa.RecordBatch]:
    """Of one instance, epoch by epoch."""
    edges = _Edges(query, span.instance)
    watcher = CallWatcher(edges.add, span.since)
    with desk_for(span.instance, watcher) as desk:
        for found in span.instance.repeated(span.upto, desk, since=span.since, begins=watcher.begins):
            if isinstance(found, Lacking):
                raise lacking(span.instance, "lineage", found.why)
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
