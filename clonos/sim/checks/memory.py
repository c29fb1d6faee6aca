"""I9: what is kept in memory stays within what was configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.sim.checks.violation import Violation
from clonos.sim.plan import Plan

if TYPE_CHECKING:
    from clonos.sim.task import Task


class Memory:
    """The conduit spills."""

    def __init__(self, plan: Plan) -> None:
        self._limit = plan.inflight_bytes

    def conduit(self, task: Task) -> None:
        if task.memory > self._limit:
            raise Violation(
                "I9", f"{task.name} keeps {task.memory} bytes in memory, {self._limit} are allowed"
            )
