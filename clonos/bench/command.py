"""The command `clonos bench`: `run` measures cells of the matrix, `report` says what has been measured."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

from clonos.bench.cell import Cell, Failure, Mode, Protection, why_not
from clonos.bench.report import page, table
from clonos.bench.results import Results
from clonos.errors import ConfigurationError
from clonos.nexmark.queries import QUERIES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos bench`."""
    parts = parser.add_subparsers(metavar="what", required=True, dest="what")
    run_parser = parts.add_parser("run", help="measure; what is in the results already is not run again")
    run_parser.add_argument("--query", nargs="+", choices=QUERIES, default=["q12"])
    for name, kind in (("mode", Mode), ("protection", Protection), ("failure", Failure)):
        values = [each.value for each in kind]
        run_parser.add_argument(f"--{name}", nargs="+", choices=values, default=values[:1])
    run_parser.add_argument("--rate", type=int, default=1000, help="events per second (%(default)s)")
    run_parser.add_argument("--seconds", type=int, default=30, help="measured, per run (%(default)s)")
    run_parser.add_argument("--warm-up", type=int, default=15, help="seconds before that (%(default)s)")
    run_parser.add_argument(
        "--skew", type=float, help="one probability of the hot key; default: the standard"
    )
    run_parser.add_argument("--repeats", type=int, default=3)
    report = parts.add_parser("report", help="the results as a table, and as one HTML page")
    for each in (run_parser, report):
        each.add_argument("--out", type=Path, default=Path("out/bench"), metavar="DIR")


def run(arguments: argparse.Namespace) -> int:
    """Run what was asked for."""
    results = Results(arguments.out)
    if arguments.what == "report":
        _report(results, arguments.out)
        return 0
    cells = _cells(arguments)
    done = results.done()
    left = [
        (cell, repeat)
        for repeat in range(arguments.repeats)
        for cell in cells
        if (cell.name, repeat) not in done
    ]
    if left:
        _run_all(left, results)
    _report(results, arguments.out)
    return 0


def _report(results: Results, folder: Path) -> None:
    lines = list(results.lines())
    (folder / "report.html").write_text(page(lines))
    print(table(lines))
    print(f"{results.path}, {folder / 'report.html'}")


def _cells(arguments: argparse.Namespace) -> list[Cell]:
    cells = []
    for query, mode, failure, protection in product(
        arguments.query, arguments.mode, arguments.failure, arguments.protection
    ):
        cell = Cell(
            query=query,
            mode=Mode(mode),
            protection=Protection(protection),
            failure=Failure(failure),
            rate=arguments.rate,
            seconds=arguments.seconds,
            warm_up=arguments.warm_up,
            skew=arguments.skew,
        )
        reason = why_not(cell)
        if reason is None:
            cells.append(cell)
        else:
            print(f"left out: {cell.name}: {reason}", file=sys.stderr)
    if not cells:
        raise ConfigurationError("nothing is left to run", hint="The reasons are above")
    return cells


def _run_all(left: list[tuple[Cell, int]], results: Results) -> None:
    """Repeat by repeat, so that all sides share whatever else happens on the machine."""
    from clonos.bench.run import run_cell
    from clonos.bench.side import session

    spark = session()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as base:
        for number, (cell, repeat) in enumerate(left):
            figures, samples = run_cell(spark, cell, repeat, Path(base, str(number)))
            results.add(cell, repeat, figures, samples)
            each = (time.monotonic() - began) / (number + 1)
            minutes = each * (len(left) - number - 1) / 60
            print(
                f"{number + 1}/{len(left)}, {minutes:.0f} min left: {_line(figures)}  {cell.name}", flush=True
            )
    spark.stop()


def _line(figures: dict[str, Any]) -> str:
    verdict = figures["judgement"]
    wrong = ", ".join(
        f"{verdict[name]} {name}" for name in ("lost", "repeated", "contradicted") if verdict[name]
    )
    latency = " ".join(
        f"{name} {figures[key] or 0:,.0f} ms" for name, key in (("p50", "p50_ms"), ("p99", "p99_ms"))
    )
    return f"{latency}, {wrong or 'exact'}"
