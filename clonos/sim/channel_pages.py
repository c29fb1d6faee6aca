"""How a driver of a run numbers source channels: the core's rules, over the checkpoint's pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from clonos.protocol.channel_numbering import Numbering, Page
from clonos.protocol.fence import Generation
from clonos.protocol.ids import NodeId
from clonos.protocol.source_channels import ChannelNumbers, Numbered
from clonos.sim.kernel import Steps

if TYPE_CHECKING:
    from clonos.sim.driver import Driver
    from clonos.sim.world import World


class Pages:
    """For `clonos.protocol.channel_numbering`."""

    def __init__(self, world: World, driver: Driver) -> None:
        self._checkpoint = world.checkpoint
        self._driver = driver

    def pages(self) -> list[Page]:
        return list(self._checkpoint.channels)

    def read(self, page: Page) -> list[Numbered]:
        return self._checkpoint.channels[page]

    def write(self, page: Page, entries: Collection[Numbered]) -> None:
        self._checkpoint.channels[page] = list(entries)

    def forget(self, page: Page) -> None:
        self._checkpoint.channels.pop(page, None)

    def check_leads(self) -> None:
        self._driver.leaders.check()


class Channels:
    """One driver's numbering."""

    def __init__(self, world: World, driver: Driver) -> None:
        self._world = world
        self._numbering = Numbering(Pages(world, driver))
        self._driver = driver

    @property
    def numbers(self) -> ChannelNumbers:
        return self._numbering.numbers

    def begin(self, start: Generation, *, heard_of: Generation) -> Steps:
        if not self._world.plan.topics:
            return
        for _ in self._numbering.begin(start, heard_of=heard_of):
            if self._world.drivers_meet:
                yield self._world.meetings.randint(50, 500)
                yield from self._driver.until_reachable()

    def give(self, asked: Iterable[tuple[NodeId, str]]) -> Steps:
        for _ in self._numbering.give(asked):
            yield self._world.choices.schedule.randint(10, 500)
