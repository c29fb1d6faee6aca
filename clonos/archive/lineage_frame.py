"""Lineage as a DataFrame: which records the rows of a query were made of, found by Spark's tasks out of the archive."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from clonos.archive.arrivals import lacking
from clonos.archive.asked_epochs import epochs_between
from clonos.archive.derivations import CallWatcher
from clonos.archive.explain import RowId
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.recorded import first_known, recorded_whole
from clonos.archive.spark_tasks import Span, archived_query, asked_of
from clonos.errors import ConfigurationError, DivergenceError, StateError
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.input_sets import InputSets
from clonos.protocol.archive.lineage import Derivation, leads_to, on_the_way
from clonos.protocol.ids import Epoch, NodeId, OutputNumber, RecordId, epoch_after, epoch_before

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = logging.getLogger("clonos")
SOURCES: Final = "sources"
_EDGES: Final = (
    "row string, given_as string, operator string, instance int, epoch long, made_by string, input string, "
    "input_operator string, input_source string, input_position long, exact boolean, kept_before long"
)
_ROW: Final = ("row", "given_as", "operator", "instance", "epoch", "made_by")
_INPUT: Final = ("input", "input_operator", "input_source", "input_position")
_HOW: Final = ("exact", "kept_before")
_COLUMNS: Final = (*_ROW, *_INPUT, *_HOW)
_TYPES: Final = (
    *(pa.string(), pa.string(), pa.string(), pa.int32(), pa.int64(), pa.string()),
    *(pa.string(), pa.string(), pa.string(), pa.int64(), pa.bool_(), pa.int64()),
)
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
    through_state: bool = False,
) -> DataFrame:
    """Which records rows were made of, out of a query's archive, as a batch DataFrame. Each instance is repeated by a
    task of its own, when the DataFrame is run.

    Without `to`, a line for each row of the operator `of` (of every operator, if it is left out) and each record that
    it is made of: that the call was given which made it, and that the operator had kept until then, in a window, a join
    or an aggregate; one without input for a row that is of no record. With `to` and `of`, a line for each row of `of`
    and each row of the operator `to`, or, with `to="sources"`, each record of a source, that it was made of over all
    operators in between; and one without input, where it, or what it is made of, is of no record. With `through_state`
    there is a line, too, for each record that a row may be of since a user's function may have kept something of it in
    its state: that is an upper bound. `since` and `upto` bound the epochs: numbers, or times (ISO 8601). Unless said,
    they are those that all operators have which are asked about; a warning says where some have more. With `to`, a row
    of an operator on the way that was made before them is not followed: `kept_before` says so.

    Columns: `row`, its id; `given_as`, its id as the function gave it, where `select`, `where` or `withColumn` behind
    the operator made another form of it, with an id of its own; `operator`, `instance` and `epoch` that made it;
    `made_by`, record, bundle, timer, or end of the epoch; `input`, the record's id; `input_operator`, or `input_source`
    and `input_position`; `exact`, whether it is known that the row is of this record; `kept_before`, in a line without
    input, an epoch before which something was kept, or made, of which the row is also made, and it is not known what
    that is of: the archive does not have it, or it is before `since`.

    Raises ConfigurationError where there is no such operator, or no archive, and CheckpointMismatch where there is no
    causal query. A task that finds something lacking raises StateError.
    """
    query = archived_query(spark, checkpoint)
    if to is None:
        nodes = query.operators if of is None else [query.node(of)]
        asked = _Asked.of(query, nodes, since, upto, through_state)
        spans = [span for node in nodes for span in asked.spans(node)]
        return _asked_for_edges(spark, query, spans, through_state)
    if of is None:
        raise ConfigurationError("with `to`, rows of one operator are followed", hint="Name it: of='total'")
    start, end = query.node(of), None if to == SOURCES else query.node(to)
    if end is not None and not leads_to(query.program, end, start):
        raise ConfigurationError(
            f"no row of {to!r} goes into one of {of!r}",
            hint="`of` is the operator behind, `to` the one in front of it",
        )
    way = on_the_way(query.program, start, end)
    asked = _Asked.of(query, way, since, upto, through_state)
    return _closure(spark, asked, way, end, through_state)


def _asked_for_edges(
    spark: SparkSession, query: ArchivedQuery, spans: list[Span], through_state: bool
) -> DataFrame:
    return asked_of(spark, query, spans, partial(_edges, through_state=through_state), _EDGES)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which operators are asked about, over which epochs."""

    query: ArchivedQuery
    since: Epoch
    upto: Epoch

    @classmethod
    def of(
        cls,
        query: ArchivedQuery,
        nodes: list[NodeId],
        since: Epoch | str | None,
        upto: Epoch | str | None,
        through_state: bool,
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
        first = {each.origin: each.first if through_state else first_known(each) for each in instances}
        begin, end = max(first.values()), min(_last_ended(each) for each in instances)
        found = [
            epochs_between(each, _text(since), _text(upto), first=min(each.epochs)) for each in instances
        ]
        if since is not None:
            is_number = str(since).isdigit()
            begin = Epoch(int(since)) if is_number else min(each[0] for each in found if each is not None)
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


def _closure(
    spark: SparkSession, asked: _Asked, way: list[NodeId], end: NodeId | None, through_state: bool
) -> DataFrame:
    """Rows of an operator, the first on the way, by what they were made of at the end of it, or by nothing, where a
    timer made them, or what they are made of.

    Each operator's edges are joined once, when those of all behind it have been: to the rows of it that were reached by
    then, by whatever ways. A row and a record count once, and for certain where it is so by any of the ways. What is of
    a row of which there are no edges was made before the epochs that are asked about: the line says that instead.
    """
    from pyspark.sql import functions as F

    names = {node: asked.query.program.node(node).name for node in way}
    ends = F.col("input_source").isNotNull() if end is None else F.col("input_operator") == _name(asked, end)
    found: DataFrame | None = None
    for at, node in enumerate(way):
        edges = _asked_for_edges(spark, asked.query, asked.spans(node), through_state)
        found = edges if found is None else _farther(found, edges, names[node], asked.since)
        still = F.col("input_operator").isin([names[each] for each in way[at + 1 :]])
        reached = found.where(F.col("input").isNull() | ends | still)
        found = reached.groupBy(*_ROW, *_INPUT, "kept_before").agg(F.max("exact").alias("exact"))
    assert found is not None, "an operator is on the way to itself"
    return found.select(*_COLUMNS)


def _name(asked: _Asked, node: NodeId) -> str:
    return asked.query.program.node(node).name


def _farther(found: DataFrame, edges: DataFrame, name: str, since: Epoch) -> DataFrame:
    """Instead of each row of an operator, by its edges, what that is made of."""
    from pyspark.sql import functions as F

    own = edges.select(
        F.col("row").alias("_row"), *(F.col(each).alias(f"_{each}") for each in (*_INPUT, *_HOW))
    )
    joined = found.join(own, F.col("input") == F.col("_row"), "left")
    is_of_it = F.col("input_operator") == name
    is_lost = is_of_it & F.col("_row").isNull()
    of = [F.when(is_of_it, F.col(f"_{each}")).otherwise(F.col(each)).alias(each) for each in _INPUT]
    exact = F.col("exact") & F.coalesce(F.col("_exact"), F.lit(True))
    before = (
        F.when(is_lost, F.lit(since)).when(is_of_it, F.col("_kept_before")).otherwise(F.col("kept_before"))
    )
    return joined.select(*_ROW, *of, exact.alias("exact"), before.alias("kept_before"))


# ------------------------------------------------------------------------- a task


def _edges(query: ArchivedQuery, span: Span, *, through_state: bool) -> Iterator[pa.RecordBatch]:
    """Of one instance, epoch by epoch: what was recorded, and what is found by repeating where that is not all."""
    instance, edges = span.instance, _Edges(query, span.instance)
    begun: Epoch | None = None  # the first of those that have to be repeated
    before: Epoch | None = None
    last: OutputNumber | None = None  # that was made up to the end of that one
    for epoch in sorted(each for each in instance.epochs if span.since <= each <= span.upto):
        known = None if through_state else recorded_whole(instance, epoch)
        if known is None:
            begun = epoch if begun is None else begun
        else:
            if begun is not None:
                yield from _repeated(query, Span(instance, begun, epoch_before(epoch)), through_state)
                begun = None
            if last is not None and last != known.before:
                why = f"rows were made between epochs {before} and {epoch} that are not in the archive"
                raise _lacking(span, why, epoch)
            edges.add(known.derivations())
            yield from edges.taken()
        before, last = epoch, instance.emitted(epoch) if known is None else known.last
    if begun is not None:
        yield from _repeated(query, Span(instance, begun, span.upto), through_state)


def _repeated(query: ArchivedQuery, span: Span, through_state: bool) -> Iterator[pa.RecordBatch]:
    """Of one instance, epoch by epoch. Where rows are of what was kept before the repetition began, it begins farther
    back, as far as the archive goes."""
    farther = [each for each in span.instance.starts_before(span.since) if each < span.since]
    starts = [span.since, *farther]
    rest, at, is_last = span, 0, len(starts) == 1
    while rest.since <= rest.upto:
        try:
            for epoch, edges in _edges_from(query, rest, starts[at], through_state):
                if edges.lacks and not is_last:
                    at, is_last = at + 1, at + 2 == len(starts)
                    break
                yield from edges.taken()
                rest = replace(rest, since=epoch_after(epoch))
            else:
                return
        except _CannotBegin as error:
            if at == 0:
                raise error.why from None
            at, is_last = at - 1, True


class _CannotBegin(Exception):
    """Not so far back."""

    def __init__(self, why: StateError) -> None:
        super().__init__()
        self.why = why


def _edges_from(
    query: ArchivedQuery, span: Span, start: Epoch, through_state: bool
) -> Iterator[tuple[Epoch, _Edges]]:
    """Of the epochs of the span, in a repetition that begins before an epoch which may be an earlier one. Raises
    _CannotBegin where it does not come to the span."""
    edges = _Edges(query, span.instance)
    watcher = CallWatcher(
        span.instance, lambda _, made: edges.add(made), span.since, InputSets(through_state=through_state)
    )
    with desk_for(span.instance, watcher) as desk:
        has_come, failed = False, start
        try:
            for found in span.instance.repeated(span.upto, desk, since=start, begins=watcher.begins):
                if isinstance(found, Lacking):
                    why = _lacking(span, found.why, span.instance.first_behind(failed, span.upto))
                    raise why if has_come else _CannotBegin(why)
                failed = max(failed, epoch_after(found.epoch))
                if found.epoch >= span.since:
                    has_come = True
                    yield found.epoch, edges
        except DivergenceError as error:
            if has_come or start == span.since:
                raise
            raise _CannotBegin(StateError(str(error))) from error


def _lacking(span: Span, why: str, behind: Epoch | None) -> StateError:
    """What has come to an end, and with which epoch it can be gone on with."""
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
        self._kept: dict[int, Derivation] = {}  # of the calls whose rows are of what state had kept
        self.lacks = False  # which records these are is not known of some

    def add(self, made: Iterable[Derivation]) -> None:
        for one in made:
            if one.form not in self._forms:
                self._forms.append(one.form)
            self._epoch = one.epoch
            if one.kept or one.kept_before is not None:
                self._kept[len(self._first)] = one
            self._form.append(self._forms.index(one.form))
            self._first.append(one.first)
            self._rows.append(one.count)
            self._given_as.extend(one.given_as)
            self._records.append(len(one.inputs))
            self._channels.extend(record.channel for record in one.inputs)
            self._positions.extend(record.position for record in one.inputs)
            self.lacks = self.lacks or one.kept_before is not None

    def taken(self) -> Iterator[pa.RecordBatch]:
        """What there is, as Spark is given it."""
        lines = self._lines()
        while held := list(islice(lines, _AT_ONCE)):
            columns = [
                pa.array(column, kind) for column, kind in zip(zip(*held, strict=True), _TYPES, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, names=[*_COLUMNS])
        self._clear()

    def _lines(self) -> Iterator[tuple[Any, ...]]:
        origin, operator = self._instance.origin, self._instance.operator
        row_at = record_at = 0
        for number, (form, first, rows, records) in enumerate(
            zip(self._form, self._first, self._rows, self._records, strict=True)
        ):
            inputs = [*self._inputs(number, record_at, record_at + records)]
            for at in range(rows):
                row = str(RowId(origin, OutputNumber(first + at)))
                own = str(RowId(origin, OutputNumber(first + self._given_as[row_at + at])))
                head = (row, own, operator, origin.instance, self._epoch, self._forms[form])
                for each in inputs:
                    yield *head, *each
            row_at, record_at = row_at + rows, record_at + records

    def _inputs(self, call: int, begin: int, end: int) -> Iterator[tuple[Any, ...]]:
        """What a line has of each record that the rows of a call are of; one line without a record, if there is none,
        or where more was kept of which it is not known."""
        kept = self._kept.get(call)
        if kept is None:
            for at in range(begin, end):
                yield *self._input(RecordId(self._channels[at], self._positions[at])), True, None
        else:
            for record in kept.exactly_of():
                yield *self._input(record), True, None
            for record in kept.at_most_of():
                yield *self._input(record), False, None
        before = None if kept is None else kept.kept_before
        if before is not None or (begin == end and (kept is None or not any(map(len, kept.kept)))):
            yield None, None, None, None, True, before

    def _input(self, record: RecordId) -> tuple[str | None, str | None, str | None, int | None]:
        row = RowId.of(record)
        sender = self._query.instance(row.origin)
        if sender is not None:
            return str(row), sender.operator, None, None
        return str(row), None, self._query.source(row.origin), record.position
