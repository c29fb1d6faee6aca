"""A real-time epoch that is run again goes on from snapshots inside it, and is exact."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, assert_exact, await_, await_end, await_told, running

from clonos.sources.log_writer import LogWriter
from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = pytest.mark.spark

INSTANCES = ("2/0", "2/1", "3/0", "3/1")
NOW = "now"
EPOCH_SECONDS = 10
SNAPSHOTS = 4


@dataclass
class Steady(Run):
    """The input comes bit by bit from the beginning on, until the end is awaited."""

    count: int = 20

    def prepare(self) -> None:
        with LogWriter(self.source, 2) as writer:
            self.append(writer, self.count)

    def feed(self, stop: threading.Event) -> None:
        with LogWriter(self.source, 2) as writer:
            while not self.enough.is_set() and not stop.wait(0.02):
                self.count += 10
                self.append(writer, self.count)
        self.fed.set()

    def snapshots(self, instance: str, epoch: int) -> int:
        """How many an instance has begun inside an epoch; the older ones are not all there any more."""
        folder = self.checkpoint / "clonos" / "state" / instance / "manifests"
        taken = [int(path.name.split("-")[2]) for path in folder.glob(f"{epoch:020d}-*-mid.manifest")]
        return max(taken) - min(taken) + 1 if taken else 0

    def await_snapshots(self, query: Any) -> int:
        """An epoch in whose first half every instance has begun enough snapshots, so that it can be struck."""
        epoch, since = -1, 0.0

        def enough() -> bool:
            nonlocal epoch, since
            if (now := max(self.epochs("commits"), default=-1) + 1) != epoch:
                epoch, since = now, time.monotonic()
            return time.monotonic() - since < EPOCH_SECONDS / 2 and all(
                self.snapshots(one, epoch) >= SNAPSHOTS for one in INSTANCES
            )

        await_(query, self, enough)
        return epoch

    def recoveries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.data / "recoveries.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("operator", ["second", pytest.param("first", marks=pytest.mark.soak)])
def test_a_failed_query_goes_on_inside_the_epoch(spark: Any, tmp_path: Path, operator: str) -> None:
    failure = Fault(point=Point.INPUT, strike=Strike.TASK, operator=operator, asked=NOW)
    setup = Steady(
        tmp_path,
        mode="realtime",
        trigger={"realTime": f"{EPOCH_SECONDS} seconds"},
        faults=script(failure),
        settings={"snapshot.interval": "100ms", "snapshot.work": "10ms"},
    )
    with running(spark, setup) as query:
        epoch = setup.await_snapshots(query)
        setup.allow(NOW)
        await_end(query, setup)
        told = await_told(query, setup)
    assert_exact(setup)
    assert all(one.numInputRows == one.sink.numOutputRows for one in told), told
    assert len(query.restarts) == 1, query.restarts
    again = [one for one in setup.recoveries() if one["fresh"]]
    assert {one["epoch"] for one in again} == {epoch}
    assert [one["resumed"] for one in again if one["resumed"]], (
        f"no instance resumed inside the epoch: {again}"
    )
