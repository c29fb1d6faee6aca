"""The program that a run's driver is started with, and how it changes: other versions of functions, forth and back, and
changes that no checkpoint takes.

Mirrors `clonos.spark.upgrade`; the rules are `clonos.protocol.versions.upgrade`'s. A version has its own way of
keeping state and says so in its output: what is repeated by another one, migrated twice or not at all shows. The user
of a program that is refused does what the hint says.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from clonos.protocol.ids import Epoch, Origin, epoch_before
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.topology import Node, NodeKind, Topology
from clonos.protocol.versions.upgrade import (
    History,
    LastCommit,
    OpenEpoch,
    Remains,
    is_another,
    lacks_migrate,
    open_epoch,
    take_over,
)
from clonos.sim.operator import MIGRATES

if TYPE_CHECKING:
    from clonos.sim.world import World

ZONE, ANOTHER = "UTC", "Europe/Berlin"
OFFSETS = {ZONE: dt.UTC, ANOTHER: dt.timezone(dt.timedelta(hours=1))}


class Deployment:
    """What is started next, and what has run so far."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.choices.stream("programs")
        self._last = 1
        topology = world.plan.dataflow.topology
        self.program = replace(topology, zone=ZONE, realtime=world.plan.realtime)
        self.program = replace(
            self.program, nodes=tuple(_of_version(node, node.version) for node in topology.nodes)
        )
        self.history = History.of(self.program)
        self._ran: frozenset[str] = frozenset()

    # ---------------------------------------------------------------- the user

    def change(self) -> None:
        """The user starts something else from now on."""
        kind = self._rng.random()
        if kind < 0.1:
            self.program = replace(self.program, zone=ANOTHER)
        elif kind < 0.15:  # the user takes it that everything has been brought up to date
            self.program = self._with_operators(lambda node: replace(node, migrates=frozenset()))
        elif kind < 0.2:
            self.program = self._with_operators(lambda node: replace(node, key=("another",)))
        else:
            self._last += 1
            back = self._rng.random() < 0.3
            version = str(self._rng.randint(1, self._last)) if back else str(self._last)
            known = self._versions() if self._rng.random() < 0.5 else frozenset()
            brought = self._rng.random() < 0.7  # with what they bring up to date
            self.program = self._with_operators(lambda node: _of_version(node, version, known, brought))

    def _with_operators(self, change: Callable[[Node], Node]) -> Topology:
        """A change of some of the operators, at least one."""
        operators = [node for node in self.program.nodes if node.kind is NodeKind.OPERATOR]
        sure = self._rng.choice(operators).number

        def changed(node: Node) -> Node:
            strikes = node.kind is NodeKind.OPERATOR and (node.number == sure or self._rng.random() < 0.5)
            return change(node) if strikes else node

        return replace(self.program, nodes=tuple(changed(node) for node in self.program.nodes))

    def _versions(self) -> frozenset[str]:
        """Whatever ever ran: an older copy of the checkpoint does not know all of it, but the user does."""
        bound = {node.version for one in self.history.bindings for node in one.program.nodes}
        return self._ran | bound

    def as_the_hint_says(self) -> None:
        """Back to the last program, with the functions of all that ran before; sometimes with the new ones beside."""
        known = self._versions()
        last = self.history.bindings[-1].program
        wanted = {node.number: node.version for node in self.program.nodes}
        keep = self._rng.random() < 0.5
        self.program = replace(
            last,
            nodes=tuple(
                _of_version(node, wanted[node.number] if keep else node.version, known) for node in last.nodes
            ),
        )

    def is_told_what_to_do(self, message: str) -> bool:
        """An instance has met an epoch that the program cannot repeat, or state that it cannot bring up to date. The
        user does what the hint says."""
        if "recorded under version" not in message and "with its migrate" not in message:
            return False
        self.as_the_hint_says()
        return True

    # -------------------------------------------------------------- the driver

    @property
    def zone(self) -> dt.tzinfo:
        """In which keys without one are meant."""
        return OFFSETS[self.program.zone or ZONE]

    @property
    def is_another(self) -> bool:
        return is_another(self.history, self.program)

    def take_over(self, number: Epoch) -> None:
        """The program is started while epoch `number` is open, and nothing of an older start is under way. Raises
        CheckpointMismatch; also where the function would find state that is not its own, which the user knows before it
        has run."""
        upgrade = take_over(self.history, self.program, self._look(number))
        self._check_migrates(upgrade.history)
        if upgrade.drops:
            self._world.trace("driver", f"drops what is recorded of epoch {number}")
            for store in self._world.stores():
                store.lose()
        self.history = upgrade.history
        self._ran = self._versions()
        for change in upgrade.later:
            self._world.trace("driver", f"from epoch {upgrade.since} on {change}")

    def _check_migrates(self, history: History) -> None:
        for node in self.program.nodes:
            migrates = (
                node.kind is not NodeKind.OPERATOR or history.schedule(node.number).migrates[node.version]
            )
            if not migrates:
                raise lacks_migrate(node.name, node.version, "nothing else can read it")

    def _look(self, number: Epoch) -> OpenEpoch:
        world, kept = self._world, self._world.checkpoint
        if not self.is_another:
            return OpenEpoch(number, begun=False, seen=epoch_before(number))
        origins = world.plan.dataflow.instances(NodeKind.OPERATOR)
        ends = {
            origin: LastCommit(found.instance.log_offset, found.instance.emitted)
            for origin in origins
            if (found := kept.ended(origin, epoch_before(number))) is not None
        }
        whole = not (world.plan.executors and world.plan.standbys)
        own: list[tuple[Origin, Segment]] = []
        deltas: list[bytes] = []
        for store in world.stores():
            whole = whole and not store.damaged_before and all(not batch.damaged for batch in store.batches)
            for batch in store.readable():
                own += [(store.owner, piece) for piece in batch.own]
                deltas += batch.deltas
        cursors: dict[int, int] = {}
        for place in world.sinks.values():
            whole = whole and not any(one.damaged for one in place.log)
            deltas += [one.raw for one in place.log if not one.damaged]
            for channel, upto in place.cursors.items():
                cursors[channel] = max(upto, cursors.get(channel, 0))
        shown = {origin.channel: cursors.get(origin.channel, 0) for origin in origins}
        remains = Remains(ends, own, deltas, shown, whole)
        bound = self.history.at(number)
        return open_epoch(number, remains, realtime=bound.realtime, planned=number in kept.offsets)


def _of_version(node: Node, version: str, known: frozenset[str] = frozenset(), brought: bool = True) -> Node:
    """With the functions of the versions that are known, and with what those bring up to date or not."""
    if node.kind is not NodeKind.OPERATOR:
        return node
    previous = known - {version}
    return replace(
        node,
        version=version,
        migrates=MIGRATES,
        previous=previous,
        previous_migrates=frozenset((each, "") for each in previous if brought),
    )
