"""A real-time epoch that is run again goes on from snapshots inside it, and is exact."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, assert_exact, await_, await_end, running

from clonos.faults import Fault, Point, Strike, script
from clonos.source.writer import LogWriter

pytestmark = pytest.mark.spark

INSTANCES = ("2/0", "2/1", "3/0", "3/1")
NOW = "now"


@dataclass
class Steady(Run):
    """The input comes bit by bit from the beginning on."""

    def prepare(self) -> None:
        with LogWriter(self.source, 2) as writer:
            self.append(writer, 20)

    def feed(self, stop: threading.Event) -> None:
        with LogWriter(self.source, 2) as writer:
            while self.appended < self.count and not stop.wait(0.02):
                self.append(writer, min(self.appended + 10, self.count))

    def snapshots(self, instance: str, epoch: int) -> int:
        """How many an instance has begun inside an epoch; the older ones are not all there any more."""
        folder = self.checkpoint / "clonos" / "state" / instance / "manifests"
        taken = [int(path.name.split("-")[2]) for path in folder.glob(f"{epoch:020d}-*-mid.manifest")]
        return max(taken) - min(taken) + 1 if taken else 0

    def recoveries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.data / "recoveries.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("operator", ["second", pytest.param("first", marks=pytest.mark.soak)])
def test_a_failed_query_goes_on_inside_the_epoch(spark: Any, tmp_path: Path, operator: str) -> None:
    failure = Fault(point=Point.INPUT, strike=Strike.TASK, operator=operator, asked=NOW)
    setup = Steady(
        tmp_path,
        mode="realtime",
        count=2_000,
        trigger={"realTime": "6 seconds"},
        faults=script(failure),
        settings={"snapshot.interval": "100ms", "snapshot.work": "10ms"},
    )
    with running(spark, setup) as query:
        epoch = max(setup.epochs("commits"), default=-1) + 1
        await_(query, setup, lambda: all(setup.snapshots(one, epoch) >= 4 for one in INSTANCES))
        setup.allow(NOW)
        await_end(query, setup)
    assert_exact(setup)
    assert len(query.restarts) == 1, query.restarts
    again = [one for one in setup.recoveries() if one["fresh"]]
    assert {one["epoch"] for one in again} == {epoch}
    assert [one["resumed"] for one in again if one["resumed"]], f"nobody resumed inside the epoch: {again}"
