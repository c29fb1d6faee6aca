"""Lineage as a DataFrame: which records the rows of a query were made of, found by Spark's tasks out of the archive."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from clonos.archive.derivations import CallWatcher, derivation, lacking
from clonos.archive.explain import RowId
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for, epochs_between
from clonos.archive.recorded import first_known, recorded
from clonos.archive.spark_tasks import Span, archived_query, asked_of
from clonos.archive.tracing import TracedCall
from clonos.errors import ConfigurationError, StateError
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.lineage import Derivation, leads_to
from clonos.protocol.ids import Epoch, NodeId, OutputNumber, RecordId, epoch_before
from clonos.protocol.topology import NodeKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = logging.getLogger("clonos")
SOURCES: Final = "sources"
_EDGES: Final = (
    "row string, given_as string, operator string, instance int, epoch long, made_by string, input string, "
    "input_operator string, input_source string, input_position long"
)
_ROW: Final = ("row", "given_as", "operator", "instance", "epoch", "made_by")
_INPUT: Final = ("input", "input_operator", "input_source", "input_position")
_TYPES: Final = (
    *(pa.string(), pa.string(), pa.string(), pa.int32(), pa.int64(), pa.string()),
    *(pa.string(), pa.string(), pa.string(), pa.int64()),
)
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
    source, that it was made of over all operators in between; and one without input, where a timer made it, or what it
    is made of. `since` and `upto` bound the epochs: numbers, or times (ISO 8601). Unless said, they are those that all
    operators have which are asked about; a warning says where some have more.

    Columns: `row`, its id; `given_as`, its id as the function gave it, where `select`, `where` or `withColumn` behind
    the operator made another form of it, with an id of its own; `operator`, `instance` and `epoch` that made it;
    `made_by`, record, bundle, timer, or end of the epoch; `input`, the record's id; `input_operator`, or `input_source`
    and `input_position`.

    Raises ConfigurationError where there is no such operator, or no archive, and CheckpointMismatch where there is no
    causal query. A task that finds something lacking raises StateError.
    """
    query = archived_query(spark, checkpoint)
    if to is None:
        nodes = query.operators if of is None else [query.node(of)]
        asked = _Asked.of(query, nodes, since, upto)
        spans = [span for node in nodes for span in asked.spans(node)]
        return asked_of(spark, query, spans, _edges, _EDGES)
    if of is None:
        raise ConfigurationError("with `to`, rows of one operator are followed", hint="Name it: of='total'")
    start, end = query.node(of), None if to == SOURCES else query.node(to)
    if end is not None and not leads_to(query.program, end, start):
        raise ConfigurationError(
            f"no row of {to!r} goes into one of {of!r}",
            hint="`of` is the operator behind, `to` the one in front of it",
        )
    asked = _Asked.of(query, _all_on_the_way(query, start, end), since, upto)
    return _closure(spark, asked, start, end)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which operators are asked about, over which epochs."""

    query: ArchivedQuery
    since: Epoch
    upto: Epoch

    @classmethod
    def of(
        cls, query: ArchivedQuery, nodes: list[NodeId], since: Epoch | str | None, upto: Epoch | str | None
    ) -> _Asked:
        """The epochs that all their instances have, and are asked for. Raises ConfigurationError where an instance does
        not have them; what is left out since nothing was asked for is said."""
        instances = [each for node in nodes for each in query.instances_of(node)]
        query.check_archive(instances)
        for each in instances:
            if not each.segments or each.last_ended is None:
                raise ConfigurationError(
                    f"nothing is archived of {each} that has ended, and something of other instances is",
                    hint="`clonos archive list` shows what there is",
                )
        first = {each.origin: first_known(each) for each in instances}
        begin, end = max(first.values()), min(_last_ended(each) for each in instances)
        found = [
            epochs_between(each, _text(since), _text(upto), first=first[each.origin]) for each in instances
        ]
        if since is not None:
            begin = min(each[0] for each in found if each is not None)
        if upto is not None:
            end = max(each[1] for each in found if each is not None)
        for each in instances:
            if begin <= end and (first[each.origin] > begin or _last_ended(each) < end):
                there = f"{first[each.origin]} to {_last_ended(each)}"
                raise ConfigurationError(
                    f"epochs {begin} to {end} of {each} cannot be repeated: it has {there}",
                    hint="Ask for those with since= and upto=. `clonos archive verify` says what is missing",
                )
        more = (
            each
            for each in instances
            if (since is None and min(each.epochs) < begin) or (upto is None and _last_ended(each) > end)
        )
        if (one := next(more, None)) is not None:
            LOG.warning(
                "lineage is of epochs %d to %d, which all operators have that are asked about; of %s there are epochs "
                "%d to %d. `clonos archive verify` says what is missing of others",
                *(begin, end, one, min(one.epochs), _last_ended(one)),
            )
        return cls(query, begin, end)

    def spans(self, node: NodeId) -> list[Span]:
        instances = self.query.instances_of(node) if self.since <= self.upto else ()
        return [Span(each, self.since, self.upto) for each in instances]


def _text(at: Epoch | str | None) -> str | None:
    return None if at is None else str(at)


def _last_ended(instance: ArchivedInstance) -> Epoch:
    found = instance.last_ended
    assert found is not None
    return found


def _way(query: ArchivedQuery, node: NodeId, end: NodeId | None) -> Iterator[NodeId]:
    """The operators before one whose rows go into its, up to the end."""
    for number in query.program.node(node).upstream:
        before = NodeId(number)
        is_on_it = before != end and (end is None or leads_to(query.program, end, before))
        if is_on_it and query.program.node(before).kind is NodeKind.OPERATOR:
            yield before


def _all_on_the_way(query: ArchivedQuery, node: NodeId, end: NodeId | None) -> list[NodeId]:
    found = {node}
    for before in _way(query, node, end):
        found.update(_all_on_the_way(query, before, end))
    return sorted(found)


def _closure(spark: SparkSession, asked: _Asked, node: NodeId, end: NodeId | None) -> DataFrame:
    """Rows of an operator by what they were made of at the end of the way, or by nothing, where a timer made them, or
    what they are made of. A row of which the way is not all there is an error when the DataFrame is run."""
    from pyspark.sql import functions as F

    query = asked.query
    edges = asked_of(spark, query, asked.spans(node), _edges, _EDGES)
    is_end = F.col("input_source").isNotNull()
    if end is not None:
        is_end = F.col("input_operator") == query.program.node(end).name
    parts = [edges.where(is_end | F.col("input").isNull())]
    for before in _way(query, node, end):
        name = query.program.node(before).name
        further = _closure(spark, asked, before, end)
        named = [F.col("row").alias("_row"), *(F.col(each).alias(f"_{each}") for each in _INPUT)]
        joined = edges.where(F.col("input_operator") == name).join(
            further.select(*named), F.col("input") == F.col("_row"), "left"
        )
        lost = F.concat(
            F.lit("row "),
            F.col("row"),
            F.lit(" is made of row "),
            F.col("input"),
            F.lit(f" of {name!r}, which is of an epoch before since=, or not in the archive"),
        )
        found = F.when(F.col("_row").isNull(), F.raise_error(lost)).otherwise(F.col("_input"))
        ends = [F.col(f"_{each}").alias(each) for each in _INPUT[1:]]
        parts.append(joined.select(*_ROW, found.alias("input"), *ends))
    return reduce(lambda a, b: a.unionByName(b), parts).distinct()


# ------------------------------------------------------------------------- a task


def _edges(query: ArchivedQuery, span: Span) -> Iterator[pa.RecordBatch]:
    """Of one instance, epoch by epoch: what was recorded, and what is found by repeating where nothing was."""
    edges = _Edges(query, span.instance)
    begun: Epoch | None = None  # the first of those that have to be repeated
    before = max((each for each in span.instance.epochs if each < span.since), default=None)
    last = None if before is None else span.instance.emitted(before)
    for epoch in sorted(each for each in span.instance.epochs if span.since <= each <= span.upto):
        known = recorded(span.instance, epoch)
        if known is None:
            begun = epoch if begun is None else begun
        else:
            if begun is not None:
                yield from _repeated(edges, Span(span.instance, begun, epoch_before(epoch)))
                begun = None
            if last is not None and last != known.before:
                why = f"rows were made between epochs {before} and {epoch} that are not in the archive"
                raise _lacking(span, epoch, why)
            for one in known.derivations():
                edges.add(one)
            yield from edges.taken()
        before, last = epoch, span.instance.emitted(epoch) if known is None else known.last
    if begun is not None:
        yield from _repeated(edges, Span(span.instance, begun, span.upto))


def _repeated(edges: _Edges, span: Span) -> Iterator[pa.RecordBatch]:
    """Of epochs that nothing was recorded of."""

    def tells(epoch: Epoch, call: TracedCall) -> None:
        if call.outputs:
            edges.add(derivation(span.instance, epoch, call))

    watcher = CallWatcher(tells, span.since)
    with desk_for(span.instance, watcher) as desk:
        for found in span.instance.repeated(span.upto, desk, since=span.since, begins=watcher.begins):
            if isinstance(found, Lacking):
                raise _lacking(span, watcher.epoch, found.why)
            yield from edges.taken()


def _lacking(span: Span, epoch: Epoch, why: str) -> StateError:
    """What has come to an end at an epoch, and where it can be gone on with."""
    behind = span.instance.first_behind(epoch, span.upto)
    again = "" if behind is None else f". From since={behind} on all is there again"
    return lacking(span.instance, "lineage", why + again)


class _Edges:
    """Of one epoch, until it has been repeated: of each call its rows and its records, of which each goes with each."""

    def __init__(self, query: ArchivedQuery, instance: ArchivedInstance) -> None:
        self._query = query
        self._instance = instance
        self._epoch: Epoch
        self._forms: list[str] = []
        self._clear()

    def _clear(self) -> None:
        # By call: what sort it is, its first row, how many rows and records it has; and of those of all calls.
        self._form, self._first, self._rows, self._records = (array("q") for _ in range(4))
        self._given_as, self._channels, self._positions = (array("q") for _ in range(3))

    def add(self, call: Derivation) -> None:
        self._epoch = call.epoch
        if call.form not in self._forms:
            self._forms.append(call.form)
        self._form.append(self._forms.index(call.form))
        self._first.append(call.first)
        self._rows.append(call.count)
        self._given_as.extend(call.given_as)
        inputs = call.inputs or ((_NONE, _NONE),)
        self._records.append(len(inputs))
        self._channels.extend(channel for channel, _ in inputs)
        self._positions.extend(position for _, position in inputs)

    def taken(self) -> Iterator[pa.RecordBatch]:
        """What there is, as Spark is given it."""
        lines = self._lines()
        while held := list(islice(lines, _AT_ONCE)):
            columns = [
                pa.array(column, kind) for column, kind in zip(zip(*held, strict=True), _TYPES, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, names=[*_ROW, *_INPUT])
        self._clear()

    def _lines(self) -> Iterator[tuple[Any, ...]]:
        origin, operator = self._instance.origin, self._instance.operator
        row_at = record_at = 0
        for form, first, rows, records in zip(
            self._form, self._first, self._rows, self._records, strict=True
        ):
            inputs = [self._input(at) for at in range(record_at, record_at + records)]
            for at in range(rows):
                row = str(RowId(origin, OutputNumber(first + at)))
                own = str(RowId(origin, OutputNumber(first + self._given_as[row_at + at])))
                head = (row, own, operator, origin.instance, self._epoch, self._forms[form])
                for each in inputs:
                    yield *head, *each
            row_at, record_at = row_at + rows, record_at + records

    def _input(self, at: int) -> tuple[str | None, str | None, str | None, int | None]:
        channel, position = self._channels[at], self._positions[at]
        if channel == _NONE:
            return None, None, None, None
        record = RowId.of(RecordId(channel, position))
        sender = self._query.instance(record.origin)
        if sender is not None:
            return str(record), sender.operator, None, None
        return str(record), None, self._query.source(record.origin), position
