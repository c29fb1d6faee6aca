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
from clonos.spark.openlineage.untold_runs import ABORT, UntoldRun

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

        self.run = str(generate_new_uuid())
        self._identity, self._facts, self._datasets, self._counts = job, facts, datasets, counts

    def start(self, at: float, standing: Standing) -> RunEvent:
        """`at`: in seconds since 1970, as in the others."""
        from openlineage.client.event_v2 import RunState

        return self._event(RunState.START, at, standing)

    def running(self, at: float, standing: Standing) -> RunEvent:
        from openlineage.client.event_v2 import RunState

        return self._event(RunState.RUNNING, at, standing)

    def end(self, at: float, standing: Standing, error: ClonosError | None) -> RunEvent:
        return self._event(_how_it_ended(error), at, standing, error)

    def untold(self, error: ClonosError | None = None, *, is_over: bool = False) -> UntoldRun:
        """This run, until the consumer knows how it ended."""
        state = _how_it_ended(error).value if is_over else ABORT
        return UntoldRun(self.run, self._identity.namespace, self._identity.name, state)

    def end_of(self, untold: UntoldRun, at: float) -> RunEvent:
        """Of a run before this one."""
        from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

        return RunEvent(
            eventTime=_text(at),
            producer=PRODUCER,
            run=Run(untold.run),
            job=Job(untold.namespace, untold.name),
            eventType=RunState(untold.state),
        )

    def _event(
        self, state: RunState, at: float, standing: Standing, error: ClonosError | None = None
    ) -> RunEvent:
        from openlineage.client.event_v2 import Run, RunEvent

        said = facets.run_facets(self._facts, standing, self._identity.parent, error)
        return RunEvent(
            eventTime=_text(at),
            producer=PRODUCER,
            run=Run(self.run, said),
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


def _how_it_ended(error: ClonosError | None) -> RunState:
    """COMPLETE where it was stopped, or has read all there is; ABORT where it was ended from outside."""
    from openlineage.client.event_v2 import RunState

    if isinstance(error, SessionStopped | Fenced):
        return RunState.ABORT
    return RunState.COMPLETE if error is None else RunState.FAIL


def _text(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _total(counts: Iterable[int | None]) -> int | None:
    """None where one is not known."""
    found = list(counts)
    known = [count for count in found if count is not None]
    return sum(known) if len(known) == len(found) else None
