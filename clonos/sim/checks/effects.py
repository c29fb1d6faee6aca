"""I3, of effects: what an instance does on the outside for a record it does again under the same key and with the same
arguments, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clonos.protocol.ids import NodeId
from clonos.sim.checks.violation import BeyondPromise, Violation

if TYPE_CHECKING:
    from clonos.sim.world import World


@dataclass(frozen=True, slots=True)
class LogsOfHost:
    """The logs that a host has now: they are set aside when it is there again after the query went on without it."""

    at: int
    times_set_aside: int


@dataclass(frozen=True, slots=True)
class _Effect:
    key: str
    draw: int


class Effects:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._done: dict[tuple[NodeId, int], tuple[_Effect, LogsOfHost]] = {}  # by node and record

    def logs(self, at: int) -> LogsOfHost:
        return LogsOfHost(at, self._world.disks[at].times_set_aside)

    def count(self, logs: LogsOfHost) -> bool:
        """Whether recoveries still ask for them. A host that the driver has given up is a lost one: what it did last
        may not have come to the standby (docs/limits.md)."""
        return self._world.counts(logs.at) and self.logs(logs.at) == logs

    def done(self, at: int, node: NodeId, key: str, record: int, draw: int) -> None:
        """Host `at` has acted."""
        effect = _Effect(key, draw)
        known, logs = self._done.setdefault((node, record), (effect, self.logs(at)))
        if known == effect:
            return
        if not self.count(logs):
            raise BeyondPromise(
                f"host {logs.at} was given up with the log of what node {node} did for record {record}"
            )
        raise Violation(
            "I3", f"the effect of node {node} for record {record} took place with {known} and with {effect}"
        )
