"""The OpenLineage events of a query that is to be started, as the session's settings ask for them.

Namespace, parent run and owners are read where OpenLineage's own Spark integration reads them, and schedulers put them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from clonos.errors import ClonosError
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.compile import Compiled
from clonos.spark.coordinator import Coordinator
from clonos.spark.dataflow import streaming_sources
from clonos.spark.openlineage.consumer import Consumer, client_for
from clonos.spark.openlineage.emitter import Emitter
from clonos.spark.openlineage.facets import ParentRun, QueryFacts, Standing
from clonos.spark.openlineage.query_datasets import datasets_of
from clonos.spark.openlineage.row_counts import RowCounts
from clonos.spark.openlineage.run_events import JobIdentity, RunEvents
from clonos.spark.openlineage.untold_runs import UntoldRuns

_PREFIX: Final = "spark.openlineage."
_OWNERS: Final = "job.owners."
_NAMESPACE: Final = "default"


class QueryLineage:
    """Of one query. Where `begin` is not called, no events are sent."""

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        self._starts = 0

    def begin(
        self,
        spark: Any,
        compiled: Compiled,
        coordinator: Coordinator,
        consumer: Consumer,
        recent: Callable[[], Sequence[Any]],
        name: str | None,
    ) -> None:
        """The driver leads the query. `recent` is the progress of its last batches, `name` what the user calls it.
        Raises ConfigurationError where events cannot be sent."""
        client = client_for(consumer)
        job = job_identity(_settings(spark), name or coordinator.query)
        facts = QueryFacts(
            coordinator.query,
            coordinator.location,
            "realtime" if coordinator.is_realtime else "microbatch",
            compiled.recoveries.default.value,
            str(spark.version),
            tuple(node.name for node in compiled.topology().nodes),
        )
        before = coordinator.committed()
        counts = RowCounts(recent, before, streaming_sources(compiled))

        def describe() -> RunEvents:
            found = datasets_of(compiled, lambda place: _topics(coordinator.location, place))
            return RunEvents(job, facts, found, counts)

        def standing() -> Standing:
            return Standing(max(before, coordinator.forgotten), self._starts)

        self._emitter = Emitter(client, describe, counts, standing, UntoldRuns(coordinator.location))

    def launched(self) -> None:
        """Spark's query has been started."""
        self._starts += 1
        if self._emitter is not None:
            self._emitter.launched()

    def ended(self, error: ClonosError | None) -> None:
        """The query is over, by this error if any."""
        if self._emitter is not None:
            self._emitter.ended(error)


def job_identity(settings: Mapping[str, str], name: str) -> JobIdentity:
    """`settings` are those of OpenLineage's Spark integration, without their prefix."""
    namespace = settings.get("namespace") or os.environ.get("OPENLINEAGE_NAMESPACE") or _NAMESPACE
    owners = [
        (key.removeprefix(_OWNERS), owner)
        for key, owner in sorted(settings.items())
        if key.startswith(_OWNERS)
    ]
    return JobIdentity(namespace, name, tuple(owners), _parent(settings))


def _parent(settings: Mapping[str, str]) -> ParentRun | None:
    """None where it is not named in full."""
    run, root = _run_named(settings, "parent"), _run_named(settings, "rootParent")
    return None if run is None else ParentRun(*run, root)


def _run_named(settings: Mapping[str, str], which: str) -> tuple[str, str, str] | None:
    """Its id, and the namespace and name of its job."""
    run, namespace, job = (settings.get(which + part, "") for part in ("RunId", "JobNamespace", "JobName"))
    return (run, namespace, job) if run and namespace and job else None


def _settings(spark: Any) -> dict[str, str]:
    given = {**dict(spark.sparkContext.getConf().getAll()), **dict(spark.conf.getAll)}
    return {key.removeprefix(_PREFIX): value for key, value in given.items() if key.startswith(_PREFIX)}


def _topics(location: str, place: str) -> Iterable[str]:
    """Those that stood for a pattern when the query started."""
    return sorted(Checkpoint(location).topics().get(place, {}))
