"""The events of one run: START, RUNNING, and how it ended. Each has all that is known then, so that a consumer which
has missed one lacks nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from clonos.errors import ClonosError, Fenced
from clonos.protocol.ids import Epoch
from clonos.spark.failure import SessionStopped
from clonos.spark.openlineage import facets
from clonos.spark.openlineage.facets import PRODUCER, ParentRun, QueryFacts, Standing
from clonos.spark.openlineage.query_datasets import Datasets, Given
from clonos.spark.openlineage.row_counts import RowCounts

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, RunEvent, RunState


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """`owners`: what kind of one each is, and its name."""

    namespace: str
    name: str
    owners: tuple[tuple[str, str], ...] = ()
    parent: ParentRun | None = None


class RunEvents:
    """Of one run."""

    def __init__(self, job: JobIdentity, facts: QueryFacts, datasets: Datasets, counts: RowCounts) -> None:
        from openlineage.client.uuid import generate_new_uuid

        self._run = str(generate_new_uuid())
        self._identity, self._facts, self._datasets, self._counts = job, facts, datasets, counts

    def start(self, at: float, standing: Standing) -> RunEvent:
        """`at`: in seconds since 1970, as in the others."""
        from openlineage.client.event_v2 import RunState

        return self._event(RunState.START, at, standing)

    def running(self, at: float, standing: Standing) -> RunEvent:
        from openlineage.client.event_v2 import RunState

        return self._event(RunState.RUNNING, at, standing)

    def end(self, at: float, standing: Standing, error: ClonosError | None) -> RunEvent:
        """COMPLETE where it was stopped, or has read all there is; ABORT where it was ended from outside."""
        from openlineage.client.event_v2 import RunState

        state = RunState.COMPLETE if error is None else RunState.FAIL
        if isinstance(error, SessionStopped | Fenced):
            state = RunState.ABORT
        return self._event(state, at, standing, error)

    def _event(
        self, state: RunState, at: float, standing: Standing, error: ClonosError | None = None
    ) -> RunEvent:
        from openlineage.client.event_v2 import Run, RunEvent

        said = facets.run_facets(self._facts, standing, self._identity.parent, error)
        return RunEvent(
            eventTime=f"{datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z",
            producer=PRODUCER,
            run=Run(self._run, said),
            job=self._job(),
            eventType=state,
            inputs=self._inputs(standing.committed),
            outputs=self._outputs(standing.committed),
        )

    def _job(self) -> Job:
        from openlineage.client.event_v2 import Job

        job = self._identity
        return Job(job.namespace, job.name, facets.job_facets(job.owners))

    def _inputs(self, upto: Epoch) -> list[InputDataset]:
        from openlineage.client.event_v2 import InputDataset

        return [
            InputDataset(
                *given.dataset,
                facets=facets.dataset_facets(given.dataset.namespace, given.fields),
                inputFacets=facets.input_facets(self._rows_read(given, upto)),
            )
            for given in self._datasets.inputs
        ]

    def _rows_read(self, given: Given, upto: Epoch) -> int | None:
        return None if given.nodes is None else _total(self._counts.read(node, upto) for node in given.nodes)

    def _outputs(self, upto: Epoch) -> list[OutputDataset]:
        from openlineage.client.event_v2 import OutputDataset

        return [
            OutputDataset(
                *taken.dataset,
                facets=facets.dataset_facets(taken.dataset.namespace, taken.fields)
                | facets.column_lineage(taken.columns, taken.rows),
                outputFacets=facets.output_facets(
                    _total(self._counts.written(sink, upto) for sink in taken.sinks)
                ),
            )
            for taken in self._datasets.outputs
        ]


def _total(counts: Iterable[int | None]) -> int | None:
    """None where one is not known."""
    found = list(counts)
    known = [count for count in found if count is not None]
    return sum(known) if len(known) == len(found) else None
