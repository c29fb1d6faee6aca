"""One seed, from beginning to verdict.

Safety is checked at every step while faults strike. Then they stop, and everything must drain within a bound: an epoch
that does not end, a replica that is not replaced, a recovery that waits for nothing are found that way.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass

from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.sim.checks.violation import BeyondPromise, Violation
from clonos.sim.faults import Struck
from clonos.sim.plan import Fault, Plan
from clonos.sim.world import World

CALM_AFTER = 60_000
"""Events after which no fault strikes any more."""
DRAINED_WITHIN = 300_000
"""Events after which everything must be over."""
TIMED_OUT_WITHIN = 900_000
"""The same where a directory can never be read again: every instance waits for it, some times, in every start."""

PERMITTED: dict[str, frozenset[Fault]] = {
    "SnapshotCorrupt": frozenset({Fault.SNAPSHOT_PAGE, Fault.SNAPSHOTS_GONE, Fault.CHECKPOINT_OLDER}),
    "CheckpointMismatch": frozenset({Fault.CHECKPOINT_OLDER, Fault.SNAPSHOTS_GONE}),
    "RecoveryTimeout": frozenset({Fault.DIRECTORY_LOST}),
    "LogConflict": frozenset({Fault.OLD_DISK}),
}
GAPS = frozenset({Fault.STORE_LOST, Fault.STORE_TAIL, Fault.HOST_LOST, Fault.POWER_LOSS, Fault.OLD_DISK})
WORSE_GAPS = frozenset({Fault.STORE_PAGE, Fault.SINK_LOG_PAGE, Fault.TORN_TAIL})


@dataclass(frozen=True)
class Report:
    """How a run went. `violation` is None where it went right."""

    plan: Plan
    outcome: str
    events: int
    struck: tuple[Struck, ...]
    violation: Violation | None
    trace: str

    @property
    def right(self) -> bool:
        return self.violation is None

    def __str__(self) -> str:
        head = f"seed {self.plan.seed}: {self.outcome}, {len(self.struck)} faults, {self.events} events"
        return head if self.violation is None else f"{head}\n  {self.violation}"


def run(plan: Plan, *, tracing: bool = False) -> Report:
    """Run a plan. What a checker finds is in the report; anything else that is raised is a bug of the simulator."""
    world = World(plan, tracing=tracing)
    violation: Violation | None = None
    try:
        with _without_collection():
            play(world)
    except Violation as found:
        violation = found
        world.trace("checker", f"!!! {found}")
    except BeyondPromise as beyond:
        world.outcome = "beyond"
        world.trace("checker", str(beyond))
    outcome = world.outcome or "unfinished"
    return Report(plan, outcome, world.kernel.events, tuple(world.faults.struck), violation, str(world.trace))


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """A run is short, and looking for cycles of garbage meanwhile takes a sixth of its time, of a storm's a third."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def play(world: World) -> None:
    world.kernel.watch = lambda: _watch(world)
    world.start()
    while world.outcome is None:
        if not world.kernel.step():
            raise Violation("liveness", "nothing happens any more, and not everything is out")
    world.checks.at_the_end()
    if not is_permitted(world):
        raise Violation("outcome", f"the query stopped with {world.outcome}: {world.reason}")


def _watch(world: World) -> None:
    if world.kernel.events == CALM_AFTER:
        world.faults.over = True
    if world.kernel.events in (DRAINED_WITHIN, TIMED_OUT_WITHIN):
        lost = any(struck.kind is Fault.DIRECTORY_LOST for struck in world.faults.struck)
        within = TIMED_OUT_WITHIN if lost else DRAINED_WITHIN
        if world.kernel.events >= within:
            raise Violation(
                "liveness", f"{within - CALM_AFTER} events after the last fault not everything is out"
            )


def is_permitted(world: World) -> bool:
    """Whether the faults that struck are a reason to end like this."""
    outcome, plan = world.outcome, world.plan
    kinds = {struck.kind for struck in world.faults.struck}
    if outcome == "exact":
        return True
    if outcome == "DivergenceError":
        return plan.impure
    if outcome == "InputError":
        return plan.recreated
    if outcome == "GapError":
        if plan.per_epoch and Fault.CHECKPOINT_OLDER in kinds:
            return True  # the epoch came out shorter, and an instance cannot keep what it has gathered
        return bool(kinds & WORSE_GAPS) or _may_have_lost_logs(world, kinds)
    if outcome == "RecoveryTimeout" and not world.recoveries.all_repeat and _may_have_lost_logs(world, kinds):
        return True
    return outcome in PERMITTED and bool(kinds & PERMITTED[outcome])


def _may_have_lost_logs(world: World, kinds: set[Fault]) -> bool:
    """Whether logs may be gone: with a finite sharing depth not all instances downstream are sent them, and a store is
    gone, or its host does not count any more."""
    return world.plan.depth < FULL and (world.goes_without_a_host or bool(kinds & GAPS))
