"""The command `clonos simulate`: one run or many, as text, smaller, or as a picture."""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tqdm import tqdm

from clonos.errors import ConfigurationError
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.sim.dimensions import widened
from clonos.sim.models.diagram import drawn
from clonos.sim.models.execution import Identity
from clonos.sim.models.expectations import show
from clonos.sim.plan import Plan, draw_plan, draw_storm
from clonos.sim.process_pool import process_pool
from clonos.sim.rollback_plan import (
    mixed,
    mixed_with_causal,
    mixed_with_induced,
    mixed_with_rounds,
    rolled_back,
)
from clonos.sim.run import Report, run as run_plan
from clonos.sim.shrink import shrink

BATCH = 200
STDOUT = Path("-")
_MIXES: Final[Mapping[str, Callable[[Plan], Plan]]] = {
    mix.__name__: mix for mix in (mixed, mixed_with_causal, mixed_with_induced, mixed_with_rounds)
}
_MODELS = frozenset(identity.value for identity in Identity)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--seed", type=int, default=0, help="the seed of the (first) run")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run")
    parser.add_argument("--faults", type=int, help="run further seeds until so many faults have struck")
    parser.add_argument("--storm", action="store_true", help="many more faults in each run")
    parser.add_argument(
        "--recovery",
        choices=[kind.value for kind in RecoveryKind] + [*_MIXES] + [identity.value for identity in Identity],
        default=RecoveryKind.CAUSAL.value,
        help="which recovery the runs have; all but causal and batch ones are in real time. mixed: some operators "
        "have eager checkpoints, others uncoordinated ones, and some do their epochs again; mixed_with_causal: others "
        "causal logging; mixed_with_induced: others communication-induced checkpoints; mixed_with_rounds: others "
        "coordinated ones, aligned or not. lineage, counters and "
        "channel_counters are small models of simpler ones: of these every execution is looked at, and --draw shows "
        "which breaks them. recorded is what causal logging adds to the last of them",
    )
    parser.add_argument("--processes", type=int, default=1, help="how many seeds to run at the same time")
    parser.add_argument("--trace", action="store_true", help="print what happened, when and where")
    parser.add_argument("--plan", action="store_true", help="print what the (first) run is made of")
    parser.add_argument(
        "--shrink", action="store_true", help="look for a smaller run that goes wrong in the same way"
    )
    parser.add_argument(
        "--draw",
        metavar="FILE",
        nargs="?",
        const=STDOUT,
        type=Path,
        help="draw the (first) run as an SVG picture; of a small model, the executions as text, here or into the file",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run, print, and say by the exit code whether everything was right."""
    if arguments.recovery in _MODELS:
        return run_model(Identity(arguments.recovery), arguments.draw)
    if arguments.draw == STDOUT:
        raise ConfigurationError("a run is drawn into a file", hint="Say which: --draw FILE")
    if arguments.seeds < 1:
        raise ConfigurationError("--seeds must be at least 1", hint="Give the number of seeds to run")
    first = drawn_by(arguments)(arguments.seed)
    if arguments.plan:
        print(first)
    if arguments.seeds == 1 and arguments.faults is None:
        totals = Totals([run_plan(first, tracing=arguments.trace)])
        print(*totals.one(), sep="\n")
    else:
        totals = Totals(run_seeds(arguments))
        totals.show(arguments.seeds if arguments.faults is None else None)
        print(totals)
    drawn = first
    if arguments.shrink and totals.wrong:
        drawn = show_shrunk(totals.wrong[0])
    if arguments.draw is not None:
        from clonos.sim.draw import draw

        arguments.draw.write_text(draw(drawn), "utf-8")
    return 1 if totals.wrong else 0


def run_model(identity: Identity, draw: Path | None) -> int:
    """Where a simple recovery holds, and what breaks it; 1 if that is not what is documented."""
    shown = show(identity)
    pictures = []
    for each in shown:
        broken = each.broken
        found = "holds in every execution" if broken is None else f"breaks in {len(broken.steps)} steps"
        print(
            f"{identity.value}, {each.world.name}: {found}{'' if each.is_expected else ' -- NOT AS DOCUMENTED'}"
        )
        if broken is not None:
            pictures.append(f"{identity.value}, {each.world.name}\n\n{drawn(broken)}\n")
    if draw == STDOUT:
        print("", *pictures, sep="\n")
    elif draw is not None:
        draw.write_text("\n".join(pictures), "utf-8")
    return 0 if all(each.is_expected for each in shown) else 1


def drawn_by(arguments: argparse.Namespace) -> Callable[[int], Plan]:
    """How a seed becomes a plan."""
    drawn = wide_storm if arguments.storm else wide_plan
    if arguments.recovery in _MIXES:
        return partial(_mixed, drawn, _MIXES[arguments.recovery])
    recovery = RecoveryKind(arguments.recovery)
    return drawn if recovery.repeats else partial(_rolled_back, drawn, recovery)


def _rolled_back(drawn: Callable[[int], Plan], recovery: RecoveryKind, seed: int) -> Plan:
    return rolled_back(drawn(seed), recovery)


def _mixed(drawn: Callable[[int], Plan], mix: Callable[[Plan], Plan], seed: int) -> Plan:
    return mix(drawn(seed))


def wide_plan(seed: int) -> Plan:
    """The run of a seed in all dimensions."""
    return widened(draw_plan(seed))


def wide_storm(seed: int) -> Plan:
    """The same with many more faults."""
    return widened(draw_storm(seed))


def run_drawn(drawn: Callable[[int], Plan], seed: int) -> Report:
    """One of many, without a trace."""
    return run_plan(drawn(seed))


def run_seed(seed: int) -> Report:
    """That of a seed in all dimensions."""
    return run_drawn(wide_plan, seed)


def run_storm(seed: int) -> Report:
    """The same with many more faults."""
    return run_drawn(wide_storm, seed)


def run_rolled_back(recovery: RecoveryKind, seed: int) -> Report:
    """That of a seed in all dimensions, with a recovery that repeats nothing."""
    return run_drawn(partial(_rolled_back, wide_plan, recovery), seed)


def run_mixed(seed: int) -> Report:
    """The same with eager checkpoints of some operators, and uncoordinated ones of others."""
    return run_drawn(partial(_mixed, wide_plan, mixed), seed)


def run_mixed_with_causal(seed: int) -> Report:
    """The same with eager checkpoints of some operators, and causal logging of others."""
    return run_drawn(partial(_mixed, wide_plan, mixed_with_causal), seed)


def run_mixed_with_induced(seed: int) -> Report:
    """The same with eager checkpoints of some operators, and communication-induced ones of others."""
    return run_drawn(partial(_mixed, wide_plan, mixed_with_induced), seed)


def run_mixed_with_rounds(seed: int) -> Report:
    """The same with eager checkpoints of some operators, and coordinated ones of others."""
    return run_drawn(partial(_mixed, wide_plan, mixed_with_rounds), seed)


def run_seeds(arguments: argparse.Namespace) -> Iterator[Report]:
    """Every seed asked for, in order; in batches, so that the end may depend on what was seen."""
    if arguments.trace:
        for seed in range(arguments.seed, arguments.seed + arguments.seeds):
            report = run_plan(drawn_by(arguments)(seed), tracing=True)
            print(report.trace)
            yield report
        return
    struck, one = 0, partial(run_drawn, drawn_by(arguments))
    with process_pool(arguments.processes) as pool:
        for begin in itertools.count(arguments.seed, BATCH):
            if arguments.faults is None:
                batch = range(begin, min(begin + BATCH, arguments.seed + arguments.seeds))
            else:
                batch = range(begin, begin + BATCH) if struck < arguments.faults else range(0)
            if not batch:
                return
            for report in pool.map(one, batch, chunksize=10):
                struck += len(report.struck)
                yield report


def show_shrunk(report: Report) -> Plan:
    """Make a failing run smaller, and print the smaller one."""
    small = shrink(report.plan)
    print(f"\nsmaller: {small}\n  {small.plan}", *small.struck, sep="\n  ")
    return small.plan


class Totals:
    """Many runs in a few lines."""

    def __init__(self, reports: Iterable[Report]) -> None:
        self._reports = iter(reports)
        self.wrong: list[Report] = []
        self.runs = self.events = 0
        self.outcomes: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()

    def _take(self) -> Iterator[Report]:
        for report in self._reports:
            self.runs += 1
            self.events += report.events
            self.outcomes[report.outcome] += 1
            self.kinds.update(struck.kind.value for struck in report.struck)
            if not report.right:
                self.wrong.append(report)
            yield report

    def one(self) -> Iterator[str]:
        """For a single run: all there is to say."""
        for report in self._take():
            if report.trace:
                yield report.trace
            yield str(report)

    def show(self, expected: int | None) -> None:
        """Take all; print what is wrong as it is found, and on a terminal how many of the `expected` are done."""
        for report in tqdm(self._take(), total=expected, unit=" runs", disable=None):
            if not report.right:
                tqdm.write(str(report))

    def __str__(self) -> str:
        lines = [
            f"{self.runs:,} runs, {self.events:,} events, {self.kinds.total():,} faults: "
            + (f"{len(self.wrong):,} wrong" if self.wrong else "nothing wrong"),
            "ended: " + ", ".join(f"{name} {count:,}" for name, count in self.outcomes.most_common()),
        ]
        lines += [f"{count:10,}  {kind}" for kind, count in self.kinds.most_common()]
        return "\n".join(lines)
