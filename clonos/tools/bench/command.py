"""The command `clonos bench`: `run` and `search` measure, `report` says what has been measured."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

from clonos.errors import ClonosError, ConfigurationError
from clonos.tools.bench.cell import Cell, Failure, Mode, Pattern, Protection, why_not
from clonos.tools.bench.plan import WITHIN, Estimate, Plan
from clonos.tools.bench.presets import PRESETS
from clonos.tools.bench.readme import written_into
from clonos.tools.bench.report import page, table
from clonos.tools.bench.results import Results
from clonos.tools.nexmark.queries import QUERIES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos bench`."""
    parts = parser.add_subparsers(metavar="what", required=True, dest="what")
    run_parser = parts.add_parser("run", help="measure; what is in the results already is not run again")
    run_parser.add_argument(
        "--preset", choices=PRESETS, help="everything once, briefly; or what the report is made of"
    )
    search = parts.add_parser("search", help="search for the highest rate that is sustained")
    for each in (run_parser, search):
        each.add_argument("--query", nargs="+", choices=QUERIES, default=["q12"])
        _choices(each, "mode", Mode)
        _choices(each, "protection", Protection)
        each.add_argument("--skew", type=float, help="one probability of the hot key; default: the standard")
    for name, kind in (("failure", Failure), ("pattern", Pattern)):
        _choices(run_parser, name, kind)
    run_parser.add_argument("--rate", type=int, default=1000, help="events per second (%(default)s)")
    run_parser.add_argument("--seconds", type=int, default=30, help="measured, per run (%(default)s)")
    run_parser.add_argument("--warm-up", type=int, default=15, help="seconds before that (%(default)s)")
    run_parser.add_argument("--repeats", type=int, default=3)
    search.add_argument(
        "--rate", type=int, default=1000, help="events per second to begin with (%(default)s)"
    )
    search.add_argument("--within", type=_ratio, default=WITHIN, help="how close, as a ratio (%(default)s)")
    search.add_argument("--seconds", type=int, default=20, help="measured, per probe (%(default)s)")
    search.add_argument("--warm-up", type=int, default=10, help="seconds before that (%(default)s)")
    search.add_argument("--repeats", type=int, default=1)
    report = parts.add_parser("report", help="the results as a table, and as one HTML page")
    report.add_argument(
        "--readme",
        type=Path,
        metavar="FILE",
        help="write the figures that matter into it, between its markers",
    )
    for each in (run_parser, search, report):
        each.add_argument("--out", type=Path, default=Path("out/bench"), metavar="DIR")


def _choices(parser: argparse.ArgumentParser, name: str, kind: Any) -> None:
    values = [each.value for each in kind]
    parser.add_argument(f"--{name}", nargs="+", choices=values, default=values[:1])


def _ratio(text: str) -> float:
    value = float(text)
    if not 1.01 <= value <= 10:
        raise argparse.ArgumentTypeError(f"{text} is not a ratio between 1.01 and 10")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Run what was asked for; 1 if a run could not be."""
    results = Results(arguments.out)
    failed = 0
    if arguments.what != "report":
        plan = _plan(arguments)
        if plan.left(results.known()):
            failed = _run_all(plan, results)
    _report(results, arguments.out)
    if arguments.what == "report" and arguments.readme is not None:
        written_into(arguments.readme, list(results.lines()))
    return 1 if failed else 0


def _report(results: Results, folder: Path) -> None:
    lines = list(results.lines())
    (folder / "report.html").write_text(page(lines))
    print(table(lines))
    print(f"{results.path}, {folder / 'report.html'}")


def _plan(arguments: argparse.Namespace) -> Plan:
    if arguments.what == "search":
        cells = _cells(arguments, ["none"], ["single"], probe=True)
        return Plan(searches=cells, repeats=arguments.repeats, within=arguments.within)
    if arguments.preset is not None:
        return PRESETS[arguments.preset]
    return Plan(_cells(arguments, arguments.failure, arguments.pattern), repeats=arguments.repeats)


def _cells(
    arguments: argparse.Namespace, failures: list[str], patterns: list[str], probe: bool = False
) -> tuple[Cell, ...]:
    cells: dict[str, Cell] = {}
    for query, mode, failure, pattern, protection in product(
        arguments.query, arguments.mode, failures, patterns, arguments.protection
    ):
        cell = Cell(
            query=query,
            mode=Mode(mode),
            protection=Protection(protection),
            failure=Failure(failure),
            pattern=Pattern.SINGLE if failure == "none" else Pattern(pattern),
            rate=arguments.rate,
            seconds=arguments.seconds,
            warm_up=arguments.warm_up,
            skew=arguments.skew,
            probe=probe,
        )
        reason = why_not(cell)
        if reason is None:
            cells[cell.name] = cell
        else:
            print(f"left out: {cell.name}: {reason}", file=sys.stderr)
    if not cells:
        raise ConfigurationError("nothing is left to run", hint="The reasons are above")
    return tuple(cells.values())


def _run_all(plan: Plan, results: Results) -> int:
    """Everything that is left; how many runs failed. One that fails does not keep the others from being run."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from clonos.tools.bench.run import run_cell
    from clonos.tools.bench.side import session

    spark = session()
    known, estimate, failed = results.known(), Estimate(), 0
    left = plan.left(known)
    print(f"{len(left)} runs, about {estimate.left_s(left) / 60:.0f} min if nothing else runs", flush=True)
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as base, ExitStack() as stack:
        stack.callback(spark.stop)
        for number, (cell, repeat) in enumerate(plan.jobs(known), 1):
            try:
                line = results.add(cell, repeat, *run_cell(spark, cell, repeat, Path(base, str(number))))
            except (ClonosError, Py4JError, PySparkException, OSError) as error:
                line = results.fail(cell, repeat, error)
                failed += 1
            known[cell.name, repeat] = line
            estimate.ran(cell)
            left = plan.left(known)
            when = f"{number} done, {len(left)} left, {estimate.left_s(left) / 60:.1f} min"
            print(f"{when}: {cell.name}: {_said(line)}", flush=True)
    return failed


def _said(line: dict[str, Any]) -> str:
    if "error" in line:
        return str(line["error"]).partition("\n")[0]
    latency = f"p50 {line['p50_ms'] or 0:,.0f} ms p99 {line['p99_ms'] or 0:,.0f} ms"
    if line["judgement"] is None:
        return f"{latency}, {'sustained' if line['sustained'] else 'not sustained'}"
    verdict = line["judgement"]
    wrong = [f"{verdict[name]} {name}" for name in ("lost", "repeated", "contradicted") if verdict[name]]
    return f"{latency}, {', '.join(wrong) or 'exact'}"
