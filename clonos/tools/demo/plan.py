"""The scenarios: what is struck, and when.

A strike comes when a given share of the inputs has become visible, so it falls into the same part of the job
on a slow and on a fast machine, and a system that is behind is struck at the same record as one that is not.
The seed moves strikes a little and chooses the instances.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

from clonos.tools.demo.job import ROLES, Role

__all__ = ["SCENARIOS", "Kind", "Scenario", "Strike", "scenario"]

Kind = Literal["worker", "task", "sink", "driver"]


@dataclass(frozen=True, slots=True)
class Strike:
    """One strike. `at`: share of the inputs that is visible when it falls. `pick`: chooses among the instances.

    worker: SIGKILL of a Python process of `role`. task: failure of a Spark task; of the sink's, right after
    rows became visible. sink: SIGKILL at the edge of the sink's transaction. driver: SIGKILL of it and all it
    started.
    """

    kind: Kind
    at: float
    role: Role = "compensation"
    pick: int = 0

    def __str__(self) -> str:
        return f"{self.kind} of {self.role}" if self.kind in ("worker", "task") else self.kind


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named series of strikes. `pace`: how much longer than usual the replay takes. `standby`: of each operator's
    instances, on the causal side. `drawn`: so many workers more, of any role, wherever the seed has them.
    """

    name: str
    says: str
    strikes: tuple[Strike, ...] = ()
    pace: float = 1.0
    standby: str = "none"
    drawn: int = 0


SCENARIOS = {
    each.name: each
    for each in (
        Scenario(
            "worker",
            "one Python process of each stage is killed in turn",
            (Strike("worker", 0.25, "sink"), Strike("worker", 0.45), Strike("worker", 0.65, "legs")),
        ),
        Scenario(
            "task", "a Spark task fails right after it made rows visible", (Strike("task", 0.4, "sink"),)
        ),
        Scenario(
            "sink", "the sink's process is killed inside its transaction", (Strike("sink", 0.4, "sink"),)
        ),
        Scenario(
            "driver",
            "the driver is killed; a new one continues from the checkpoint",
            (Strike("driver", 0.4),),
        ),
        Scenario(
            "repeat",
            "processes, a task and the driver die one after another",
            (
                Strike("worker", 0.15),
                Strike("worker", 0.2),
                Strike("task", 0.35),
                Strike("driver", 0.5),
                Strike("worker", 0.6, "legs"),
                Strike("sink", 0.75, "sink"),
            ),
            pace=1.5,
        ),
        Scenario(
            "replica",
            "processes of the operators are killed, each of which has a hot standby",
            (Strike("worker", 0.25), Strike("worker", 0.45, "legs"), Strike("worker", 0.65)),
            standby="hot",
        ),
        Scenario(
            "chaos",
            "a dozen processes of all stages are killed at random; operators have hot standbys",
            pace=1.5,
            standby="hot",
            drawn=12,
        ),
    )
}


def scenario(name: str, seed: int, attempt: int = 1) -> Scenario:
    """The scenario with the strikes as `seed` has them; a further attempt has them elsewhere."""
    plain = SCENARIOS[name]
    rng = random.Random(f"{name}/{seed}" + (f"/{attempt}" if attempt > 1 else ""))
    strikes = [
        replace(strike, at=strike.at + rng.uniform(-0.02, 0.02), pick=rng.randrange(1 << 16))
        for strike in plain.strikes
    ]
    strikes += [
        Strike("worker", rng.uniform(0.1, 0.85), rng.choice(ROLES), rng.randrange(1 << 16))
        for _ in range(plain.drawn)
    ]
    return replace(plain, strikes=tuple(sorted(strikes, key=lambda strike: strike.at)))
