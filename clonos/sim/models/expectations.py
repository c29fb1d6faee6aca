"""Where each simple recovery suffices, and where it does not: what `clonos simulate` shows of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from clonos.sim.models.execution import Function, Identity, World
from clonos.sim.models.search import Broken, shortest_break

WORLDS: Final = (
    World(Function.MAP, 1, 2),
    World(Function.COUNT, 1, 2),
    World(Function.DRAW, 1, 2),
    World(Function.MAP, 2, 1),
    World(Function.COUNT, 2, 1),
    World(Function.DRAW, 2, 1),
)
_DETERMINISTIC_ORDER: Final = frozenset(WORLDS[:2])
HOLDS: Final = {
    Identity.LINEAGE: _DETERMINISTIC_ORDER | {WORLDS[3]},
    Identity.COUNTER: _DETERMINISTIC_ORDER,
    Identity.CHANNEL_COUNTER: _DETERMINISTIC_ORDER | {WORLDS[3]},
    Identity.RECORDED: frozenset(WORLDS),
}
"""Where what is taken again comes in the same order, and the function is deterministic, all of them do. Lineage needs
no order where the function does not depend on it; numbers need that each receiver's rows come of one channel."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a search has found."""

    world: World
    broken: Broken | None
    is_expected: bool


def show(identity: Identity) -> list[Shown]:
    """Of one simple recovery, in every world."""
    found = []
    for world in WORLDS:
        broken = shortest_break(world, identity, crashes=2)
        found.append(Shown(world, broken, (broken is None) == (world in HOLDS[identity])))
    return found
