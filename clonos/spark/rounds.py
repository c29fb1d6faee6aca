"""The driver's thread that hears which checkpoints are stored, and says what that means: a thin driver of
`protocol.recovery.rollback.progress`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.recovery.rollback.progress import Progress
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos_standby.server.log import about, traced
from clonos_standby.server.seldom import Seldom

LOG = logging.getLogger("clonos")

_EXCHANGE_SECONDS: Final = 0.05

Exchange = Callable[[Generation, Rounds], Mapping[Origin, StoredRound]]
"""Tells the replica servers how far the rounds of a start are; what they say is stored."""


class RoundKeeper:
    """Of one query in one driver."""

    def __init__(
        self,
        new_progress: Callable[[], Progress],
        *,
        exchange: Exchange,
        committed: Callable[[], Epoch],
    ) -> None:
        self._new_progress = new_progress
        self._exchange = exchange
        self._committed = committed
        self._lock = threading.Lock()
        self._current: tuple[Generation, Progress] | None = None
        self._seldom = Seldom()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clonos-rounds", daemon=True)

    def begin(self, generation: Generation) -> None:
        """A start begins, with rounds of its own."""
        with self._lock:
            self._current = generation, self._new_progress()
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_EXCHANGE_SECONDS):
            with self._lock:
                current = self._current
            if current is None:
                continue
            try:
                self._look(*current)
            except Exception as error:  # whatever it is: without this thread nothing is shown any more
                if self._seldom.is_due(("rounds", current[0])):
                    about_it = about("round_late")
                    LOG.warning(
                        "a round of checkpoints is late: %s", error, extra=about_it, exc_info=traced(error)
                    )

    def _look(self, generation: Generation, rounds: Progress) -> None:
        """What may be seen is told at once."""
        said = rounds.look(time.monotonic(), self._committed())
        rounds.told(self._exchange(generation, said))
        after = rounds.look(time.monotonic(), self._committed())
        if after != said:
            self._exchange(generation, after)
