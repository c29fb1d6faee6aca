"""The driver's thread of rounds: it goes on whatever goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from clonos.protocol.fence import Generation
from clonos.protocol.ids import NO_EPOCH, Origin
from clonos.protocol.recovery.coordinated.round_coordinator import RoundCoordinator
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos.spark.rounds import RoundKeeper


def test_an_error_that_is_not_foreseen_does_not_end_the_thread() -> None:
    failures: list[Exception] = [OSError("no space is left"), RuntimeError("a bug")]
    has_gone_on = threading.Event()

    def exchange(generation: Generation, said: Rounds) -> Mapping[Origin, StoredRound]:
        if failures:
            raise failures.pop(0)
        has_gone_on.set()
        return {}

    keeper = RoundKeeper(
        lambda: RoundCoordinator([Origin.of(2, 0)], interval=1.0),
        exchange=exchange,
        committed=lambda: NO_EPOCH,
    )
    keeper.begin(Generation(1))
    try:
        assert has_gone_on.wait(60)
    finally:
        keeper.stop()
