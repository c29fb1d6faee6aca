"""Every execution up to a bound, the shortest first: is there one that no run without a failure could have shown?"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from clonos.sim.models.execution import (
    Identity,
    Row,
    State,
    Step,
    World,
    is_over,
    next_steps,
    perform,
)

Visible = tuple[tuple[Row, ...], ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """The steps of the shortest execution that breaks the recovery, and what was seen in the end."""

    world: World
    identity: Identity
    steps: tuple[Step, ...]
    visible: Visible

    @property
    def why(self) -> str:
        """What is wrong with what was seen."""
        shown = Counter(row.record for rows in self.visible for row in rows)
        sources = range(self.world.sources)
        records = [f"{'abc'[source]}{at + 1}" for source in sources for at in range(self.world.records)]
        lost = [record for record in records if not shown[record]]
        twice = [record for record in records if shown[record] > 1]
        said = [f"{record} is lost" for record in lost] + [f"{record} is seen twice" for record in twice]
        return ", and ".join(said) or "no run without a failure shows these rows together"


def outcomes(world: World) -> frozenset[Visible]:
    """What runs without a failure show. They are the same whatever rows are known by."""
    found, left = set(), [State.first(world)]
    while left:
        state = left.pop()
        if is_over(world, state):
            found.add(state.visible())
        steps = next_steps(world, state, crashes=0)
        left.extend(perform(world, Identity.LINEAGE, state, step)[0] for step in steps)
    return frozenset(found)


def shortest_break(world: World, identity: Identity, *, crashes: int = 1) -> Broken | None:
    """None where every execution with so many crashes shows what one without any could have shown."""
    right = outcomes(world)
    first = State.first(world)
    came: dict[State, tuple[State, Step] | None] = {first: None}
    left = deque([first])
    while left:
        state = left.popleft()
        if is_over(world, state) and state.visible() not in right:
            return Broken(world, identity, _path(came, state), state.visible())
        for step in next_steps(world, state, crashes=crashes):
            after, _ = perform(world, identity, state, step)
            if after not in came:
                came[after] = (state, step)
                left.append(after)
    return None


def _path(came: dict[State, tuple[State, Step] | None], state: State) -> tuple[Step, ...]:
    steps: list[Step] = []
    while (before := came[state]) is not None:
        state, step = before
        steps.append(step)
    return tuple(reversed(steps))
