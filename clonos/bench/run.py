"""Runs one cell: feeds, watches, strikes, waits for the rest, judges."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clonos.bench.cell import Cell, Failure
from clonos.bench.metrics import Samples, kept_pace, per_second, recovery
from clonos.bench.side import INSTANCES, Side
from clonos.bench.watch import Watch, appended, samples
from clonos.errors import NotRunning
from clonos.nexmark.feed import EventLogs, Feeder
from clonos.nexmark.pace import Pace
from clonos.nexmark.query import Judgement, Run
from clonos.nexmark.workload import Workload

START_S = 120.0
SETTLE_S = 60.0
QUIET_S = 10.0
_LOOK_S = 0.05


def run_cell(spark: Any, cell: Cell, repeat: int, folder: Path) -> tuple[dict[str, Any], Samples]:
    """The figures of one run, and the samples behind them. `folder` is made, and removed again."""
    folder.mkdir(parents=True)
    try:
        return _run(spark, cell, repeat, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(spark: Any, cell: Cell, repeat: int, folder: Path) -> tuple[dict[str, Any], Samples]:
    workload = Workload(seed=repeat, kinds=cell.what.kinds, hot=cell.hot, pace=Pace.constant(cell.rate))
    partitions = max(1, INSTANCES // len(cell.what.inputs))
    watch = Watch(folder / "output.db", cell.what)
    with EventLogs(workload, folder, partitions) as logs:
        feeder = Feeder(logs, workload)
        side = Side(spark, cell, folder)
        try:
            watch.start()
            feeder.start()
            begin, strike = _measure(cell, side, watch)
            feeder.done.set()
            feeder.join()
            fed = Run(workload, feeder.written, partitions, INSTANCES)
            judgement = _settle(cell, fed, side, watch)
            account = side.account(strike or begin)
        finally:
            feeder.done.set()
            feeder.join()
            restarts = side.stop()
            watch.done.set()
            watch.join()
    times, size = appended(fed, folder)
    found = samples(watch, times)
    figures = _figures(cell, fed, found, begin, strike, judgement)
    return figures | account | {"input_bytes": size, "restarts": restarts}, found


def _measure(cell: Cell, side: Side, watch: Watch) -> tuple[float, float | None]:
    """Lets it run; when the measuring began, and when the failure struck."""
    _until(lambda: bool(watch.rows), side, START_S, "output")
    begin = time.time() + cell.warm_up
    _wait(begin, side)
    strike = None
    if cell.failure is Failure.REPLICA:
        _wait(begin + cell.seconds / 2, side)
        strike = time.time()
        side.kill_one()
    _wait(begin + cell.seconds, side)
    return begin, strike


def _settle(cell: Cell, fed: Run, side: Side, watch: Watch) -> Judgement:
    """The verdict when the output is exact, or when nothing has come for a while."""
    end = time.time() + SETTLE_S
    while True:
        rows = len(watch.rows)
        judgement = cell.what.judge(fed, watch.dicts()[:rows])
        quiet = bool(watch.seen) and time.time() - watch.seen[-1] > QUIET_S
        if judgement.exact or (quiet and len(watch.rows) == rows) or time.time() > end:
            return judgement
        side.keep()
        time.sleep(1.0)


def _wait(moment: float, side: Side) -> None:
    while (left := moment - time.time()) > 0:
        side.keep()
        time.sleep(min(left, _LOOK_S))


def _until(done: Any, side: Side, patience: float, what: str) -> None:
    end = time.time() + patience
    while not done():
        if time.time() > end:
            raise NotRunning(f"no {what} within {patience:g} s")
        side.keep()
        time.sleep(_LOOK_S)


def _figures(
    cell: Cell, fed: Run, found: Samples, begin: float, strike: float | None, judgement: Judgement
) -> dict[str, Any]:
    measured = found.between(begin, begin + cell.seconds)
    return {
        "began": begin,
        "strike": strike,
        "events": fed.count,
        "rows": judgement.outputs,
        "p50_ms": measured.quantile(0.5),
        "p99_ms": measured.quantile(0.99),
        "kept_pace": kept_pace(found, begin, strike or begin + cell.seconds),
        "seconds": [asdict(second) for second in per_second(found, begin, begin + cell.seconds)],
        "recovery": None if strike is None else asdict(recovery(found, begin, strike)),
        "judgement": asdict(judgement),
        "exact": judgement.exact,
    }
