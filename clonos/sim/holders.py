"""Asking who may know an instance's log, one after another, with time passing in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.errors import StorageUnavailable, Where
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.causal.asking import Asking
from clonos.sim.kernel import Steps

if TYPE_CHECKING:
    from clonos.sim.replica import Replica
    from clonos.sim.world import Service, World

DEADLINE = 200_000
PAUSE = 5_000


def ask(world: World, replica: Replica, origin: Origin, *, where: Where) -> Steps:
    """The replies of the driver (the sinks' logs) and of the replica servers' directories."""
    asking = Asking(origin, now=world.kernel.now, deadline=DEADLINE, where=where)
    world.begins_to_ask()
    asked: set[str] = set()
    while True:
        try:
            services = {service.name: service for service in world.holders}
        except StorageUnavailable as error:
            asking.refused("the list of holders", error.message)
        else:
            missing = asking.missing(list(services))
            if not missing:
                return asking.replies
            for name in missing:
                if name not in asked:
                    services[name].asked()
                    asked.add(name)
                yield from _ask_one(world, replica, origin, services[name], asking)
            if not asking.missing(list(services)):
                continue
        asking.left(world.kernel.now)
        yield PAUSE


def _ask_one(world: World, replica: Replica, origin: Origin, service: Service, asking: Asking) -> Steps:
    refusal = service.refuses(replica.server.at)
    if refusal is not None:
        return asking.refused(service.name, refusal)
    yield world.choices.schedule.randint(50, 500)
    yield from replica.pause("has asked for its log")
    try:
        reply = service.lookup(origin)
    except StorageUnavailable as error:
        return asking.refused(service.name, error.message)
    return asking.answered(service.name, reply)
