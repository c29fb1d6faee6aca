"""I5: on every channel, an instance consumes what was sent to it, in order, each record once.

The exchange knows which position was sent to an instance before which; a state consumes record after record along that
chain, across snapshots and incarnations. Records that were passed over are left out of the chain.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from clonos.protocol.ids import Origin, channel_origin
from clonos.sim.checks.violation import Violation
from clonos.sim.records import Tag

if TYPE_CHECKING:
    from clonos.sim.world import World


class Fifo:
    """Positions consumed are part of a state, so the state's owner keeps them; those shown by a sink are kept here."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._shown: dict[Origin, dict[int, int]] = defaultdict(dict)

    def consumed(self, origin: Origin, reached: dict[int, int], tag: Tag) -> None:
        before = self._world.poison.before(origin, tag, reached.get(tag.channel, -1))
        self._follows(f"{origin} consumed", reached, tag, before)

    def shows(self, origin: Origin, tag: Tag) -> None:
        self._follows(f"sink {origin} showed", self._shown[origin], tag, tag.before)

    def _follows(self, who: str, reached: dict[int, int], tag: Tag, before: int) -> None:
        last = reached.get(tag.channel, -1)
        if last != before:
            writer = channel_origin(tag.channel)
            what = "again" if tag.position <= last else "too early"
            raise Violation(
                "I5",
                f"{who} record {tag.position} of {writer} {what}: it follows {before}, the last one was {last}",
            )
        reached[tag.channel] = tag.position
