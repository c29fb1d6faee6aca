"""A sink's instance in the driver, which shows what it holds where no process serves it
(`protocol.roles.query_coordinator.show_committed`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from clonos.errors import ClonosError
from clonos.protocol.ids import Epoch
from clonos.protocol.recovery.rollback.rounds import StoredRound
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.holding_sink_session import HoldingSinkSession
from clonos.sim.holding_sink_host import HoldingSinkHost
from clonos.sim.kernel import Process, Steps

if TYPE_CHECKING:
    from clonos.sim.driver import Driver
    from clonos.sim.replica import Replica
    from clonos.sim.world import World


class SinkAtDriver(Process):
    """In a thread of the driver, on its host: to the sink it is one more process of the instance."""

    def __init__(self, world: World, driver: Driver, request: AttachRequest, committed: Epoch) -> None:
        number = world.next_number("sink at a driver")
        super().__init__(world.kernel, f"sink {request.origin} at {driver.name}.{number}")
        self.world = world
        self.origin = request.origin
        self.fence = request.fence
        self.server = self  # to the network
        self.at = driver.host
        self.is_over = False
        self.error: ClonosError | None = None
        self._request, self._committed = request, committed
        driver.mourners.append(self.kill)

    def launch(self) -> None:
        self.begin(self._run())

    def _run(self) -> Steps:
        session = HoldingSinkHost(self.world, cast("Replica", self)).session
        assert isinstance(session, HoldingSinkSession)
        try:
            yield from session.show_committed(self._request, self._committed)
        except ClonosError as error:
            self.error = error
        self.is_over = True

    def pause(self, label: str) -> Steps:
        yield self.world.choices.schedule.randint(0, 40)

    def send(self, frame: Any) -> None:
        """There is no conduit."""

    def round_stored(self, stored: StoredRound) -> None:
        """It takes no checkpoint."""
