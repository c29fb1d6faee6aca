"""What a query reads and writes, as datasets: what its events say of them, each time the same."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clonos.operators.column_flow import Flow, Transformation
from clonos.protocol.ids import NodeId
from clonos.spark.compile import SINK, Compiled
from clonos.spark.openlineage.columns import ColumnLineage
from clonos.spark.openlineage.naming import DatasetName
from clonos.spark.openlineage.sink_datasets import columns_in_sink, dataset_of_sink
from clonos.spark.openlineage.source_datasets import Column, Read, read_by
from clonos.spark.plan import SinkPlan, SourcePlan, TablePlan
from clonos_standby.server.log import about

LOG = logging.getLogger("clonos")


@dataclass(frozen=True, slots=True)
class Given:
    """A dataset that is read. `fields` are the StructFields of what is read; `nodes` the sources that read it, where
    they read no other one, so that their rows are its rows; None where something else reads it, too."""

    dataset: DatasetName
    fields: tuple[Any, ...]
    nodes: tuple[NodeId, ...] | None


@dataclass(frozen=True, slots=True)
class Taken:
    """A dataset that is written, by sinks of these names. `columns` say where those come from of which it is known,
    `rows` which columns have a say in which rows there are."""

    dataset: DatasetName
    fields: tuple[Any, ...]
    sinks: tuple[str, ...]
    columns: Mapping[str, Flow[Column]]
    rows: Flow[Column]


@dataclass(frozen=True, slots=True)
class Datasets:
    """Of one query, each once."""

    inputs: tuple[Given, ...] = ()
    outputs: tuple[Taken, ...] = ()


@dataclass(frozen=True, slots=True)
class _Written:
    """By one sink. `columns` are those of the dataset; None: where one comes from is not known."""

    sink: str
    fields: tuple[Any, ...]
    columns: Mapping[str, Flow[Column] | None]
    rows: Flow[Column]


def datasets_of(compiled: Compiled, topics_of: Callable[[str], Iterable[str]]) -> Datasets:
    """`topics_of` says which topics are read at a place of the query's (`kafka_topics.KafkaSource`). The rows of a loop
    that come back are of no dataset."""
    sources = [(number, plan) for number, plan in compiled.source_plans() if plan.back_edge is None]
    reads = {number: _read_by(number, plan, topics_of) for number, plan in sources}
    tables = {node: _table(plan) for node, plan in compiled.tables.items()}
    lineage = ColumnLineage(
        {id(plan): reads[number] for number, plan in sources},
        {id(compiled.operator_plan(node)): read for node, read in tables.items()},
    )
    return Datasets(tuple(_inputs(reads, tables.values())), tuple(_outputs(compiled, lineage)))


def _read_by(number: NodeId, plan: SourcePlan, topics_of: Callable[[str], Iterable[str]]) -> Read:
    try:
        return read_by(plan.df, lambda: topics_of(f"{number}/0"))
    except Exception as error:  # the rest can be said all the same
        LOG.debug("what source-%d reads cannot be said: %s", number, error, extra=about("openlineage"))
        return Read(columns=(None,) * len(plan.df.columns))


def _table(plan: TablePlan) -> Read:
    """As it is read now; nothing is known of one that is in memory, or cannot be read."""
    try:
        table = plan.read()
        return read_by(table) if hasattr(table, "_jdf") else Read()
    except (Exception, SystemExit):  # the user's function: what is wrong with it shows where rows are read
        return Read()


def _inputs(sources: Mapping[NodeId, Read], tables: Iterable[Read]) -> Iterator[Given]:
    by_dataset: dict[DatasetName, list[tuple[NodeId | None, Read]]] = {}
    found: list[tuple[NodeId | None, Read]] = [*sources.items(), *((None, read) for read in tables)]
    for node, read in found:
        alone = node if len(read.datasets) == 1 else None
        for dataset in read.datasets:
            by_dataset.setdefault(dataset, []).append((alone, read))
    for dataset, readers in by_dataset.items():
        nodes = [node for node, _ in readers if node is not None]
        fields = tuple(readers[0][1].schema.fields)
        yield Given(dataset, fields, tuple(nodes) if len(nodes) == len(readers) else None)


def _outputs(compiled: Compiled, lineage: ColumnLineage) -> Iterator[Taken]:
    by_dataset: dict[DatasetName, list[_Written]] = {}
    for plan in compiled.sink_plans:
        dataset = None if plan.is_back_edge else dataset_of_sink(plan.sink)
        if dataset is not None:
            by_dataset.setdefault(dataset, []).append(_written(plan, lineage))
    for dataset, written in by_dataset.items():
        fields = {field.name: field for each in written for field in each.fields}
        flows = {name: [each.columns[name] for each in written if name in each.columns] for name in fields}
        known = {name: _all_of(each) for name, each in flows.items()}
        yield Taken(
            dataset,
            tuple(fields.values()),
            tuple(each.sink for each in written),
            {name: flow for name, flow in known.items() if flow},
            frozenset().union(*(each.rows for each in written)),
        )


def _written(plan: SinkPlan, lineage: ColumnLineage) -> _Written:
    from pyspark.sql.types import StructField

    there = columns_in_sink(plan.sink, plan.input.names)
    found = lineage.of_sink(plan)
    flows = dict(zip(plan.input.names, found.columns, strict=True))
    fields = [StructField(called, plan.input[name].dataType) for name, called in there.items()]
    columns = {called: flows[name] for name, called in there.items()}
    return _Written(plan.name or SINK, tuple(fields), columns, found.rows)


def _all_of(flows: Iterable[Flow[Column] | None]) -> Flow[Column] | None:
    """None where one is not known."""
    found: set[tuple[Column, Transformation]] = set()
    for flow in flows:
        if flow is None:
            return None
        found |= flow
    return frozenset(found)
