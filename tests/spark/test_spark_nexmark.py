"""The NexMark queries on Spark: causal ones while their replicas are killed, and the native ones beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from modes import MODES
from streams import Place

from clonos.tools.nexmark.feed import EventLogs
from clonos.tools.nexmark.native import STATE_STORE
from clonos.tools.nexmark.pace import Pace
from clonos.tools.nexmark.queries import QUERIES
from clonos.tools.nexmark.query import Judgement, Query, Run, Source, causal
from clonos.tools.nexmark.workload import Workload

pytestmark = pytest.mark.spark

EVENTS = 3_000  # a minute
FIRST = 2_500  # after which the first sessions have ended


def run_of(query: Query) -> Run:
    """Two source partitions in all: in Real-Time Mode every task needs a slot of its own."""
    workload = Workload(seed=4, kinds=query.kinds, pace=Pace.constant(EVENTS // 60))
    return Run(workload, EVENTS, partitions=2 // len(query.inputs))


def exact_under_kills(place: Place, query: Query, mode: str) -> None:
    run = run_of(query)
    with EventLogs(run.workload, place.base, run.partitions) as logs:
        logs.write(0, FIRST)
        place.start(causal(query, Source(place.spark, str(place.base)), run.parallelism), mode)
        place.until(lambda: bool(place.rows()), "rows")
        for replica in islice((r for r in place.query.replicas() if not r["standby"]), 0, None, 2):
            place.kill(replica["node"], replica["instance"])
        logs.write(FIRST, EVENTS - FIRST)
    judgement = Judgement()

    def judged() -> bool:
        nonlocal judgement
        rows = [{name: row[name] for name in query.columns} for row in place.rows()]
        judgement = query.judge(run, rows)
        assert not judgement.repeated, judgement.problems
        return judgement.exact and len(rows) > 0

    try:
        place.until(judged, "exact output")
    except AssertionError as error:
        raise AssertionError(f"{error}: {judgement}") from error
    assert place.query.restarts == []


@pytest.mark.parametrize("name", ["q4", "q12"])
def test_two_queries_are_exact_in_real_time(place: Place, name: str) -> None:
    exact_under_kills(place, QUERIES[name], "realtime")


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_every_query_is_exact(place: Place, query: Query, mode: str) -> None:
    exact_under_kills(place, query, mode)


@pytest.mark.soak
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_the_native_job_computes_the_same(
    place: Place, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch after another, undisturbed; where windows end with the watermark, what is there must be right."""
    assert query.native is not None
    monkeypatch.setattr(place.spark.sparkContext, "pythonExec", sys.executable)
    for name, value in STATE_STORE.items():
        place.spark.conf.set(name, value)
    place.spark.conf.set("spark.sql.shuffle.partitions", "2")
    place.spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    run = run_of(query)
    found: list[dict[str, Any]] = []
    with EventLogs(run.workload, place.base, run.partitions) as logs:
        logs.write(0, EVENTS)
    frame = query.native.build(Source(place.spark, str(place.base)))
    started = (
        frame.writeStream.foreachBatch(
            lambda batch, _: found.extend(map(json.loads, batch.toJSON().collect()))
        )
        .outputMode(query.native.output_mode)
        .option("checkpointLocation", str(place.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    started.awaitTermination(240)
    assert started.exception() is None
    assert found and tuple(found[0]) == query.columns
    judgement = query.judge(run, found)
    by_watermark = query.name in ("q5", "q7", "q11")
    assert judgement.repeated == 0 and judgement.contradicted == 0, judgement.problems
    assert by_watermark or judgement.exact, judgement.problems


@pytest.mark.soak
def test_a_bench_of_both_sides(tmp_path: Path) -> None:
    """In a process of its own: it has its own Spark session."""
    command = [sys.executable, "-m", "clonos.cli", "bench", "run", "--query", "q12", "--mode", "realtime"]
    command += ["--protection", "none", "clonos", "--failure", "replica", "--rate", "100"]
    command += ["--seconds", "16", "--warm-up", "5", "--repeats", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    native, causal_side = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert native["judgement"]["contradicted"] > 0 and native["restarts"]
    assert causal_side["exact"] and causal_side["restarts"] == []
    assert causal_side["recovery"]["silent_s"] > 0 and (tmp_path / "report.html").stat().st_size > 2000
