"""Runs one cell: feeds, watches, strikes, waits for the rest, judges."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clonos.errors import NotRunning
from clonos.tools.bench.cell import Cell
from clonos.tools.bench.metrics import Samples, kept_pace, longest_silence, per_second, recovery, sustained
from clonos.tools.bench.side import INSTANCES, Side, held_back
from clonos.tools.bench.strike import strike
from clonos.tools.bench.watch import Watch, appended, samples
from clonos.tools.nexmark.feed import EventLogs, Feeder
from clonos.tools.nexmark.pace import Pace
from clonos.tools.nexmark.query import Judgement, Run
from clonos.tools.nexmark.workload import Workload

PRELUDE_S = 10.0
START_S = 120.0
SETTLE_S = 180.0
QUIET_S = 6.0
CAUSAL_S = 60.0
"""Without output, before rows of a causal query count as lost. None should be, and on a busy machine it may be slow."""

RESTART_S = 30.0
"""For a query that was started again to show something."""

AFTER_S = 30.0
"""How many seconds after the measuring are kept, too: a recovery may take so long."""

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
    judgement = None
    with EventLogs(workload, folder, partitions) as logs:
        feeder = Feeder(logs, workload, written=cell.rate)
        side = Side(spark, cell, folder)
        try:
            watch.start()
            _prelude(cell, logs, watch)
            feeder.start()
            begin, strikes = _measure(cell, side, watch)
            feeder.done.set()
            feeder.join()
            fed = Run(workload, feeder.written, partitions, INSTANCES, native=side.native)
            if not cell.probe:
                judgement = _settle(cell, fed, side, watch)
            account = side.account(strikes[0] if strikes else begin)
        finally:
            feeder.done.set()
            if feeder.is_alive():
                feeder.join()
            restarts = side.stop()
            watch.done.set()
            watch.join()
    times, size = appended(fed, folder)
    found = samples(watch, times)
    figures = _figures(cell, found, begin, strikes)
    if cell.probe:
        in_time = sum(begin <= moment < begin + cell.seconds for moment in times.values())
        share = in_time / (cell.rate * cell.seconds)
        figures |= {"fed": share, "sustained": sustained(found, begin, begin + cell.seconds, share)}
    figures |= {"done_again": None if cell.probe else side.done_again(fed)}
    figures |= {"events": fed.count, "rows": len(watch.rows), "input_bytes": size, "restarts": restarts}
    if judgement is not None:
        figures |= {"judgement": asdict(judgement), "exact": judgement.exact}
    return {"judgement": None, **figures, **account}, found


def _prelude(cell: Cell, logs: EventLogs, watch: Watch) -> None:
    """A second's events, until something comes of them: the feed does not begin with what gathered while the side was
    starting. Of some queries nothing comes before event time has gone on."""
    logs.write(0, cell.rate)
    end = time.time() + PRELUDE_S
    while not watch.rows and time.time() < end:
        time.sleep(_LOOK_S)


def _measure(cell: Cell, side: Side, watch: Watch) -> tuple[float, list[float]]:
    """Lets it run; when the measuring began, and when failures struck."""
    _until(lambda: bool(watch.rows), side, START_S, "output")
    begin = time.time() + cell.warm_up
    _wait(begin, side)
    strikes = []
    for number, moment in enumerate(cell.moments):
        _wait(begin + moment, side)
        struck = strike(side, cell, number)
        if struck is not None:
            strikes.append(struck)
    _wait(begin + cell.seconds, side)
    return begin, strikes


def _settle(cell: Cell, fed: Run, side: Side, watch: Watch) -> Judgement:
    """The verdict when the output is exact, or when nothing more is to be expected."""
    end = time.time() + SETTLE_S
    while True:
        rows = len(watch.rows)
        judgement = cell.what.judge(fed, watch.dicts()[:rows])
        judgement.lost -= min(judgement.lost, held_back(cell))
        patience = CAUSAL_S if not side.native else max(QUIET_S, 2 * longest_silence(watch.seen))
        quiet = time.time() - max(watch.seen[-1], side.started + RESTART_S) > patience
        over = quiet and len(watch.rows) == rows and not side.works
        if judgement.exact or over or time.time() > end:
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


def _figures(cell: Cell, found: Samples, begin: float, strikes: list[float]) -> dict[str, Any]:
    end = begin + cell.seconds
    measured = found.between(begin, end)
    shown = max(end, min(end + AFTER_S, found.at[-1] + 1)) if len(found.at) else end
    return {
        "began": begin,
        "strikes": strikes,
        "p50_ms": measured.quantile(0.5),
        "p99_ms": measured.quantile(0.99),
        "kept_pace": kept_pace(found, begin, strikes[0] if strikes else end),
        "seconds": [asdict(second) for second in per_second(found, begin, shown)],
        "recovery": asdict(recovery(found, begin, strikes)) if strikes else None,
    }
