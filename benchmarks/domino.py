"""The domino effect, and what forced checkpoints do about it: instances that send to each other in cycles.

`python benchmarks/domino.py` prints, for random executions of a small model with the rules that queries run with
(`clonos.sim.models.cyclic_checkpoints`), what uncoordinated and communication-induced checkpoints come to.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.sim.models.cyclic_checkpoints import Outcome, Trace, run

SIDES = (RecoveryKind.UNCOORDINATED, RecoveryKind.COMMUNICATION_INDUCED)
COLUMNS = ("instances", "recovery", "own", "forced", "useless", "undone", "back", "bytes")
LINE = "{:>9}  {:21}  {:>6}  {:>6}  {:>8}  {:>16}  {:>4}  {:>6}"


def line(instances: int, recovery: RecoveryKind, found: Sequence[Outcome]) -> str:
    def total(name: str) -> int:
        return sum(getattr(each, name) for each in found)

    taken, forced = total("taken"), total("forced")
    undone = sorted(100 * each.lost_deliveries / each.deliveries for each in found)
    spread = f"{statistics.median(undone):.0f} % ({undone[0]:.0f}..{undone[-1]:.0f})"
    return LINE.format(
        instances,
        recovery.value,
        taken - forced,
        forced,
        f"{100 * total('useless') / taken:.1f} %",
        spread,
        max(each.intervals_back for each in found),
        f"{total('riding_bytes') / total('deliveries'):.1f}",
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=100)
    arguments.add_argument("--steps", type=int, default=50, help="deliveries, on average, at each instance")
    said = arguments.parse_args()
    print(
        f"{said.seeds} executions of each, {said.steps} steps an instance, every tenth a checkpoint of its own."
    )
    print(
        "undone: of all deliveries those that a failure of everything at the end undoes, median and spread;"
    )
    print("back: the most checkpoints that one instance goes back; bytes: that ride along with a message\n")
    print(LINE.format(*COLUMNS))
    for instances in (2, 4, 8, 16):
        traces = [Trace(seed, instances, said.steps * instances) for seed in range(said.seeds)]
        for recovery in SIDES:
            print(line(instances, recovery, [run(trace, recovery) for trace in traces]), flush=True)


if __name__ == "__main__":
    main()
