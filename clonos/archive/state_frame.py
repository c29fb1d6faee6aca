"""Keyed state of the past as a DataFrame, found by Spark's tasks out of the archive."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from clonos.archive.asked_epochs import epoch_at
from clonos.archive.explain import RowId
from clonos.archive.given_key import KeyForm
from clonos.archive.reading import ArchivedQuery
from clonos.archive.shown_value import as_json
from clonos.archive.spark_tasks import Span, archived_query, asked_of
from clonos.archive.states import KeyState, row_named, states_around, states_of
from clonos.operators.rows import zone_of
from clonos.protocol.ids import Epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STATES: Final = "operator string, instance int, epoch long, key string, state string"
_SCHEMA: Final = pa.schema(
    [
        ("operator", pa.string()),
        ("instance", pa.int32()),
        ("epoch", pa.int64()),
        ("key", pa.string()),
        ("state", pa.string()),
    ]
)
_AT_ONCE: Final = 1_000
"""Lines of a batch that a task gives to Spark."""


def state_at(
    spark: SparkSession, checkpoint: str, operator: str, at: Epoch | str, *, before: bool = False
) -> DataFrame:
    """The keyed state of an operator as it was at the end of an epoch, or of the last one that had ended at a time (ISO
    8601; UTC unless it says where), out of a query's archive, as a batch DataFrame: a line for each key. Each instance
    is repeated by a task of its own, when the DataFrame is run.

    At the id of a row of the operator: as the call that made the row has left it, or, with `before`, as that call found
    it. Such a moment is one of the instance that made the row, so there are lines of that one's keys alone.

    Columns: `operator`, `instance`, `epoch`; `key`, a JSON list of its columns; `state`, as JSON (`from_json` makes
    columns of it; what JSON does not have is there as Python writes it).

    Raises ConfigurationError where there is no such operator, no such epoch, or no archive, and where the row is of
    another operator; StateError where the row is not in the archive; CheckpointMismatch where there is no causal query.
    A task that finds something lacking raises StateError.
    """
    query = archived_query(spark, checkpoint)
    instances = query.instances(operator)
    query.check_archive(instances)
    row = row_named(query, operator, str(at), before=before)
    if row is not None:
        instance, epoch = query.place_of(row.origin, row.number)
        answer = partial(_states_around, row=row, before=before)
        return asked_of(spark, query, [Span(instance, epoch, epoch)], answer, _STATES)
    epochs = [(each, epoch_at(each, str(at))) for each in instances if each.segments]
    return asked_of(spark, query, [Span(each, epoch, epoch) for each, epoch in epochs], _states, _STATES)


def _states(query: ArchivedQuery, span: Span) -> Iterator[pa.RecordBatch]:
    yield from _lines(query, span, states_of(span.instance, span.upto))


def _states_around(query: ArchivedQuery, span: Span, row: RowId, before: bool) -> Iterator[pa.RecordBatch]:
    yield from _lines(query, span, states_around(query, row, before=before))


def _lines(query: ArchivedQuery, span: Span, states: Iterable[KeyState]) -> Iterator[pa.RecordBatch]:
    head = {"operator": span.instance.operator, "instance": span.instance.origin.instance, "epoch": span.upto}
    form = KeyForm.of(query, span.instance.operator)
    zone = zone_of(form.zone)
    rows: list[dict[str, Any]] = []
    for key, state in states:
        key_text, state_text = json.dumps(form.shown(key)), json.dumps(as_json(state, zone))
        rows.append({**head, "key": key_text, "state": state_text})
        if len(rows) == _AT_ONCE:
            yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)
