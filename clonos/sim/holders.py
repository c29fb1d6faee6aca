"""Asking who may know an instance's log, one after another, with time passing in between. Mirrors `standby.holders`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.core.identity import Origin
from clonos.core.recovery import HolderReply
from clonos.errors import RecoveryTimeout, Where
from clonos.sim.kernel import Steps

if TYPE_CHECKING:
    from clonos.sim.replica import Replica
    from clonos.sim.world import World

DEADLINE = 200_000


def ask(world: World, replica: Replica, origin: Origin, *, where: Where) -> Steps:
    """The replies of the driver (the sinks' logs) and of the replica server's directories."""
    replies: list[HolderReply] = []
    until = world.kernel.now + DEADLINE
    host = replica.server.at
    for service in world.services:
        service.asked()
        while service.counts and not service.answers(host):
            if world.kernel.now > until:
                raise RecoveryTimeout(f"no answer about the log of {origin} from {service.name}", where=where)
            yield 5_000
        if not service.counts:
            continue
        yield world.choices.schedule.randint(50, 500)
        yield from replica.pause("has asked for its log")
        replies.append(service.lookup(origin))
    return replies
