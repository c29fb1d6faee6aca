"""Facets of the events: what is said of datasets, jobs and runs, as the client's own classes where OpenLineage has one.

No facet has a value of a row: of an error it is said what kind it is and where it came up, since its text may have
some.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from clonos._version import __version__
from clonos.errors import ClonosError
from clonos.operators.column_flow import Flow
from clonos.protocol.ids import NO_EPOCH, Epoch
from clonos.spark.openlineage.source_datasets import Column

if TYPE_CHECKING:
    from openlineage.client.facet_v2 import (
        DatasetFacet,
        InputDatasetFacet,
        JobFacet,
        OutputDatasetFacet,
        RunFacet,
    )
    from openlineage.client.generated.column_lineage_dataset import InputField

PRODUCER: Final = f"urn:clonos:clonos-spark:{__version__}"
OF_QUERY: Final = "clonos_query"
"""The run facet of our own. What it has is in docs/openlineage.md; a name stays what it is."""

_PLACE: Final = re.compile(r"\(operator '([^']+)'(?:, instance \d+)?(?:, epoch \d+)?")
_INTEGRATION: Final = "CLONOS"
"""Consumers take what says SPARK for an event of OpenLineage's Spark integration, whose jobs all have a parent."""


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """What stays the same while a query runs."""

    query: str  # its id, which its checkpoint has
    checkpoint: str
    mode: str
    recovery: str
    spark: str  # version
    operators: tuple[str, ...] = ()  # and sinks, by name


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a run is: the last epoch that has committed, and how often Spark's query has been started."""

    committed: Epoch
    starts: int


@dataclass(frozen=True, slots=True)
class ParentRun:
    """The run that has begun this one, and the first in that line, if it is another one: (run, namespace, job)."""

    run: str
    namespace: str
    job: str
    root: tuple[str, str, str] | None = None


# ------------------------------------------------------------------------ jobs


def job_facets(owners: Iterable[tuple[str, str]]) -> dict[str, JobFacet]:
    """`owners`: what kind of one each is, and its name."""
    from openlineage.client.facet_v2 import job_type_job, ownership_job

    kind = job_type_job.JobTypeJobFacet("STREAMING", _INTEGRATION, "QUERY", producer=PRODUCER)
    found: dict[str, JobFacet] = {"jobType": kind}
    named = [ownership_job.Owner(name, kind) for kind, name in owners]
    if named:
        found["ownership"] = ownership_job.OwnershipJobFacet(named, producer=PRODUCER)
    return found


# ------------------------------------------------------------------------ runs


def run_facets(
    facts: QueryFacts, standing: Standing, parent: ParentRun | None, error: ClonosError | None
) -> dict[str, RunFacet]:
    from openlineage.client.facet_v2 import error_message_run, processing_engine_run

    engine = processing_engine_run.ProcessingEngineRunFacet(
        facts.spark, "spark", __version__, producer=PRODUCER
    )
    found: dict[str, RunFacet] = {"processing_engine": engine, OF_QUERY: _query_facet(facts, standing)}
    if parent is not None:
        found["parent"] = _parent_facet(parent)
    if error is not None:
        found["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            told(error, facts.operators), "PYTHON", producer=PRODUCER
        )
    return found


def told(error: ClonosError, operators: Collection[str]) -> str:
    """What kind of error it is, and where it came up: at one of these operators."""
    kind = type(error)
    what = " ".join((kind.__doc__ or "").split()).partition(". ")[0].rstrip(".")
    where = _place(str(error), operators)
    return f"{kind.__name__}: {what}{f' ({where})' if where else ''}. The driver's log has its text"


def _place(text: str, operators: Collection[str]) -> str:
    """Operator, instance and epoch out of an error's text, which is all that comes through Spark."""
    for found in _PLACE.finditer(text):
        if found[1] in operators:
            return found[0][1:]
    return ""


def _query_facet(facts: QueryFacts, standing: Standing) -> RunFacet:
    committed = None if standing.committed == NO_EPOCH else int(standing.committed)
    facet: RunFacet = _query_facet_class()(
        query=facts.query,
        checkpoint=facts.checkpoint,
        mode=facts.mode,
        recovery=facts.recovery,
        committedEpoch=committed,
        starts=standing.starts,
        producer=PRODUCER,
    )
    return facet


@cache
def _query_facet_class() -> Any:
    """It inherits from a class of the client's, which may not be installed."""
    import attr
    from openlineage.client.facet_v2 import RunFacet

    @attr.define(kw_only=True)
    class ClonosQueryRunFacet(RunFacet):
        query: str
        checkpoint: str
        mode: str
        recovery: str
        committedEpoch: int | None
        starts: int

    return ClonosQueryRunFacet


def _parent_facet(parent: ParentRun) -> RunFacet:
    from openlineage.client.facet_v2 import parent_run

    root = None
    if parent.root is not None:
        run, namespace, job = parent.root
        root = parent_run.Root(parent_run.RootRun(run), parent_run.RootJob(namespace, job))
    return parent_run.ParentRunFacet(
        parent_run.Run(parent.run), parent_run.Job(parent.namespace, parent.job), root, producer=PRODUCER
    )


# -------------------------------------------------------------------- datasets


def dataset_facets(namespace: str, fields: Iterable[Any]) -> dict[str, DatasetFacet]:
    """`fields` are StructFields."""
    from openlineage.client.facet_v2 import datasource_dataset, schema_dataset

    return {
        "schema": schema_dataset.SchemaDatasetFacet(_fields(fields), producer=PRODUCER),
        "dataSource": datasource_dataset.DatasourceDatasetFacet(namespace, namespace, producer=PRODUCER),
    }


def _fields(fields: Iterable[Any]) -> list[Any]:
    from openlineage.client.facet_v2 import schema_dataset
    from pyspark.sql.types import StructType

    return [
        schema_dataset.SchemaDatasetFacetFields(
            field.name,
            "struct" if isinstance(field.dataType, StructType) else field.dataType.simpleString(),
            fields=_fields(field.dataType.fields) if isinstance(field.dataType, StructType) else [],
        )
        for field in fields
    ]


def column_lineage(flows: Mapping[str, Flow[Column]], rows: Flow[Column]) -> dict[str, DatasetFacet]:
    """Where columns come from, and what has a say in which rows there are. Nothing where nothing is known."""
    from openlineage.client.facet_v2 import column_lineage_dataset as lineage

    if not flows and not rows:
        return {}
    fields = {name: lineage.Fields(_input_fields(flow)) for name, flow in flows.items()}
    facet = lineage.ColumnLineageDatasetFacet(fields, _input_fields(rows), producer=PRODUCER)
    return {"columnLineage": facet}


def _input_fields(flow: Flow[Column]) -> list[InputField]:
    """In an order that is the same each time."""
    from openlineage.client.facet_v2 import column_lineage_dataset as lineage

    by_column: dict[Column, list[tuple[str, str]]] = {}
    for column, transformation in flow:
        by_column.setdefault(column, []).append(transformation.value)
    return [
        lineage.InputField(
            *column.dataset, column.name, [lineage.Transformation(*kind) for kind in sorted(kinds)]
        )
        for column, kinds in sorted(by_column.items())
    ]


def input_facets(rows: int | None) -> dict[str, InputDatasetFacet]:
    """Of so many rows that were read in the run; nothing where it is not known."""
    from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

    if rows is None:
        return {}
    return {"inputStatistics": statistics.InputStatisticsInputDatasetFacet(rows, producer=PRODUCER)}


def output_facets(rows: int | None) -> dict[str, OutputDatasetFacet]:
    """Of so many rows that became visible in the run; nothing where it is not known."""
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    if rows is None:
        return {}
    return {"outputStatistics": statistics.OutputStatisticsOutputDatasetFacet(rows, producer=PRODUCER)}
