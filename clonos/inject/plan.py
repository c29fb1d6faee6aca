"""What is done to whom, and when: one strike as it was asked for, or many drawn from a seed.

A drawn plan depends on the seed, the query's shape and what may be done, and on nothing that happens while it runs: the
same seed makes the same choices again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from clonos.errors import ConfigurationError
from clonos.live_query import LiveNode


class Kind(Enum):
    """The value is the option's name."""

    KILL = "kill"
    STOP = "stop"
    SLOW = "slow"
    CORRUPT_LOG = "corrupt-log"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class Action:
    """One kind of failure. `seconds` is how long it lasts, `factor` how much slower."""

    kind: Kind
    seconds: float = 0.0
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Target:
    """An instance of an operator or sink."""

    node: LiveNode
    instance: int

    def __str__(self) -> str:
        return f"{self.node.name}/{self.instance}"


@dataclass(frozen=True, slots=True)
class Strike:
    """`at` is in seconds since the beginning; no target is the replica server."""

    at: float
    action: Action
    target: Target | None


def targets(nodes: Sequence[LiveNode], operator: str | None, instance: int | None) -> tuple[Target, ...]:
    """The instances that a name and a number mean; all where they are not given. Raises ConfigurationError."""
    named = [node for node in nodes if operator is None or node.name == operator]
    if not named:
        raise ConfigurationError(
            f"the query has no operator {operator!r}",
            hint="It has " + ", ".join(repr(node.name) for node in nodes),
        )
    found = tuple(
        Target(node, number)
        for node in named
        for number in range(node.parallelism)
        if instance is None or number == instance
    )
    if not found:
        most = max(node.parallelism for node in named) - 1
        raise ConfigurationError(f"there is no instance {instance}; they are numbered from 0 to {most}")
    return found


def can_suffer(action: Action, target: Target) -> bool:
    """A sink keeps its log with its output, not on this host's disk."""
    return action.kind is not Kind.CORRUPT_LOG or target.node.kind == "operator"


def draw(
    actions: Sequence[Action], among: Sequence[Target], *, seed: int, every: float, seconds: float
) -> list[Strike]:
    """Strikes one after the other, `every` so many seconds. Raises ConfigurationError where nothing can be struck."""
    possible = [
        (action, [target for target in among if can_suffer(action, target)])
        for action in actions
        if action.kind is not Kind.SERVER
    ]
    for action, suffering in possible:
        if not suffering:
            raise ConfigurationError(f"none of the chosen instances can suffer {action.kind.value}")
    choices: list[tuple[Action, Sequence[Target | None]]] = [(action, chosen) for action, chosen in possible]
    choices += [(action, (None,)) for action in actions if action.kind is Kind.SERVER]
    dice = random.Random(seed)
    strikes = []
    for number in range(int(seconds / every + 1e-9)):
        action, chosen = dice.choice(choices)
        strikes.append(Strike(every * (number + 1), action, dice.choice(chosen)))
    return strikes
