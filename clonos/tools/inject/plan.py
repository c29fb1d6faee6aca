"""What is done to whom, and when: one strike as it was asked for, or many drawn from a seed.

A drawn plan depends on the seed, the query's shape and what may be done, and on nothing that happens while it runs: the
same seed makes the same choices again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clonos.errors import ConfigurationError
from clonos.tools.live_query import LiveNode, LiveServer
from clonos.wire.strikes import FaultCommand, Kind, Role


@dataclass(frozen=True, slots=True)
class Action:
    """What may be done. `seconds` is how long it lasts, `factor` how much slower."""

    kind: Kind
    seconds: float = 0.0
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Target:
    """An instance of an operator or sink: its primary, or its standby."""

    node: LiveNode
    instance: int
    standby: bool = False

    def __str__(self) -> str:
        return f"{self.node.name}/{self.instance}" + (" (standby)" if self.standby else "")


@dataclass(frozen=True, slots=True)
class Server:
    """A replica server by its number, and the service that runs it if it is on another host."""

    number: int
    place: str | None = None

    def __str__(self) -> str:
        if self.place:
            return f"replica server on {self.place}"
        return f"replica server {self.number}" if self.number else "replica server"


@dataclass(frozen=True, slots=True)
class Strike:
    """`at` is in seconds since the beginning."""

    at: float
    action: Action
    target: Target | Server

    @property
    def command(self) -> FaultCommand:
        """What is asked of the host where it is. Raises ConfigurationError where it makes no sense."""
        action, target = self.action, self.target
        command = FaultCommand(
            kind=action.kind, role=Role.SERVER, seconds=action.seconds, factor=action.factor
        )
        if isinstance(target, Server):
            if action.kind is Kind.PARTITION and target.place is None:
                raise ConfigurationError(f"{target} is on the driver's host: it cannot be cut off from it")
        else:
            if action.kind is Kind.CORRUPT_LOG and target.node.kind != "operator":
                raise ConfigurationError(f"{target} is a sink: its log is kept with its output")
            role = Role.STANDBY if target.standby else Role.PRIMARY
            command = replace(command, role=role, node=target.node.number, instance=target.instance)
        command.check()
        return command


def targets(
    nodes: Sequence[LiveNode], operator: str | None, instance: int | None, standby: bool = False
) -> tuple[Target, ...]:
    """The instances that a name and a number mean; all where they are not given. Raises ConfigurationError."""
    named = [node for node in nodes if operator is None or node.name == operator]
    if not named:
        raise ConfigurationError(
            f"the query has no operator {operator!r}",
            hint="It has " + ", ".join(repr(node.name) for node in nodes),
        )
    found = tuple(
        Target(node, number, standby)
        for node in named
        for number in range(node.parallelism)
        if instance is None or number == instance
    )
    if not found:
        most = max(node.parallelism for node in named) - 1
        raise ConfigurationError(f"there is no instance {instance}; they are numbered from 0 to {most}")
    return found


def servers(found: Sequence[LiveServer], named: str) -> tuple[Server, ...]:
    """The servers that a number or an address means; all where it is empty. Raises ConfigurationError."""
    every = tuple(Server(number, one.place) for number, one in enumerate(found))
    chosen = tuple(one for one in every if named in ("", str(one.number), one.place))
    if not chosen:
        raise ConfigurationError(
            f"the query has no server {named!r}",
            hint="It has " + ", ".join(one.place or str(one.number) for one in every),
        )
    return chosen


def can_suffer(action: Action, target: Target | Server) -> bool:
    """Whether it makes sense: a sink keeps its log with its output, a server on the driver's host is never cut off."""
    try:
        return bool(Strike(0.0, action, target).command)
    except ConfigurationError:
        return False


def draw(
    actions: Sequence[Action], among: Sequence[Target | Server], *, seed: int, every: float, seconds: float
) -> list[Strike]:
    """Strikes one after the other, `every` so many seconds. Raises ConfigurationError if no target can suffer one."""
    choices = []
    for action in actions:
        suffering = [target for target in among if can_suffer(action, target)]
        if not suffering:
            raise ConfigurationError(f"none of those that were chosen can suffer {action.kind.value}")
        choices.append((action, suffering))
    dice = random.Random(seed)
    strikes = []
    for number in range(int(seconds / every + 1e-9)):
        action, chosen = dice.choice(choices)
        strikes.append(Strike(every * (number + 1), action, dice.choice(chosen)))
    return strikes
