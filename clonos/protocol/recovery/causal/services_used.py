"""Which services a function has used, as the steps of its log say.

Draws of random numbers are not among them: they follow from the epoch's seed, which is recorded whether they are drawn
or not. Neither are timers that have been set, which are state.
"""

from __future__ import annotations

from collections.abc import Iterable

from clonos.protocol.recovery.causal.determinant import Step
from clonos.protocol.recovery.dependence import Service


def services_used(steps: Iterable[Step]) -> frozenset[Service]:
    """By the outcomes that the steps hold. A replay that has taken the steps has taken these away."""
    used = set[Service]()
    for step in steps:
        if step.clocks or step.instants:
            used.add(Service.CLOCK)
        if step.calls or step.answers:
            used.add(Service.CALL)
        if step.effects:
            used.add(Service.EFFECT)
    return frozenset(used)
