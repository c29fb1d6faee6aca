"""I10: a function that depends on something unrecorded is reported as divergent, and no other function is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from clonos.errors import ClonosError, DivergenceError
from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.sim.checks.violation import BeyondPromise, Violation
from clonos.sim.faults import Struck
from clonos.sim.plan import Fault

if TYPE_CHECKING:
    from clonos.sim.world import World

LOSSES = frozenset(
    {Fault.STORE_LOST, Fault.STORE_TAIL, Fault.STORE_PAGE, Fault.HOST_LOST, Fault.POWER_LOSS, Fault.OLD_DISK}
)


class Detection:
    """Divergence is reported where a function is impure, and only there. That it is reported before anything
    contradicts itself is what the other checkers see to.

    One exception: an instance whose store was lost gets its own log back from other holders, and keeps it, before it
    has received again the logs on which that depends. If a second store is lost meanwhile, or the stores of two hosts
    at once, there may be no holder of these logs any more. (A host is lost with all its stores, which is one loss.)
    The part of such a log that no other instance and no sink depends on is done anew (`needed_log`), but not where it
    has had an effect; and with a finite sharing depth a holder may have the log and not the logs on which that
    depends; and an old copy of a disk may bring a log back that it once had with it; and where a page is damaged as
    well, all that is known of a log is repeated, since the page may have said that it is needed. The query then stops,
    which is right, although with a reason that is not.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def failed(self, who: str, error: ClonosError) -> None:
        if not isinstance(error, DivergenceError) or self._world.plan.impure:
            return
        plan, struck = self._world.plan, self._world.faults.struck
        old, page = (
            any(fault.kind is kind for fault in struck) for kind in (Fault.OLD_DISK, Fault.STORE_PAGE)
        )
        may_be = (plan.effects or plan.depth < FULL or old) and _losses(struck, LOSSES) >= 2
        if may_be or (page and _losses(struck, LOSSES - {Fault.STORE_PAGE}) >= 2):
            raise BeyondPromise(f"{who} depends on what was lost with two stores")
        raise Violation("I10", f"{who} reports a divergence of a pure function: {error}")


def _losses(struck: Iterable[Struck], kinds: frozenset[Fault]) -> int:
    """How often something was lost: of one moment each host is one."""
    hosts = Counter((fault.at, fault.where) for fault in struck if fault.kind in kinds)
    return len({(at, nth) for (at, _), count in hosts.items() for nth in range(count)})
