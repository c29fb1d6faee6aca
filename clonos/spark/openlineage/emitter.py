"""Sends the events of a run, in a thread of its own: a consumer that is away, slow or refuses them holds nothing up.

What is said of the query is found out in that thread, too. There is no queue: while an event is under way none is made,
and the next one says what has come meanwhile. How the run ended is noted as soon as that is known, whatever event is
under way then: the process may end before the consumer takes it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from clonos.errors import ClonosError, StorageUnavailable
from clonos.spark.openlineage.facets import Standing
from clonos.spark.openlineage.row_counts import RowCounts
from clonos.spark.openlineage.run_events import RunEvents
from clonos.spark.openlineage.untold_runs import UntoldRuns
from clonos_standby.server.log import about

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

LOG = logging.getLogger("clonos")
_THREAD: Final = "clonos-openlineage"
_LOOK_SECONDS: Final = 1.0
EVERY_SECONDS: Final = 60.0
"""Between two events while the query runs; the first epoch that commits is told at once."""
_FLUSH_SECONDS: Final = 5.0
"""How long the end of the query waits for its last event; with a consumer that did not take the one before, less."""
_AWAY_SECONDS: Final = 1.0
_ATTEMPTS: Final = "urllib3.connectionpool"
"""The logger on which the client's HTTP library says each attempt."""


class Emitter:
    """Of one run, from `launched` to `ended`. `describe` makes its events, `counts` are looked at while it runs, and
    `standing` says how far it is; `untold` are the runs that have no end yet."""

    def __init__(
        self,
        client: OpenLineageClient,
        describe: Callable[[], RunEvents],
        counts: RowCounts,
        standing: Callable[[], Standing],
        untold: UntoldRuns,
    ) -> None:
        self._client, self._describe, self._counts, self._standing = client, describe, counts, standing
        self._untold = untold
        self._began: tuple[float, Standing] | None = None  # when, and how it stood
        self._over: tuple[float, ClonosError | None] | None = None  # when, and why
        self._events: RunEvents | None = None
        self._is_told = False  # how it ended
        self._noting = threading.Lock()  # what was noted last is what was known last
        self._ending = threading.Event()
        self._is_taken = True  # the consumer has taken the last event
        self._thread = threading.Thread(target=self._run, name=_THREAD, daemon=True)

    def launched(self) -> None:
        """Spark's query runs, for the first time or again."""
        if self._thread.ident is None:
            self._began = time.time(), self._standing()
            self._thread.start()

    def ended(self, error: ClonosError | None) -> None:
        """The query is over. Its last event is sent if the consumer takes it soon."""
        if self._thread.ident is None:
            self._client.close(0)
            return
        self._over = time.time(), error
        self._note()
        self._ending.set()
        self._thread.join(_FLUSH_SECONDS if self._is_taken else _AWAY_SECONDS)

    def _run(self) -> None:
        logger, quiet = logging.getLogger(_ATTEMPTS), _NotOfThread(threading.get_ident())
        logger.addFilter(quiet)
        try:
            events = self._describe()
            with self._untold.tells_itself(events.run):
                self._tell(events)
        except Exception as error:  # nothing of this may hurt the query
            self._warn("events of OpenLineage cannot be made of this query", error)
        finally:
            logger.removeFilter(quiet)
            self._client.close(0)

    def _tell(self, events: RunEvents) -> None:
        assert self._began is not None
        at, told = self._began
        self._events = events
        self._note()
        with _kept():
            self._tell_of_others(events)
        self._send(events.start(at, told))
        due = 0.0
        while not self._ending.wait(_LOOK_SECONDS):
            now = self._standing()
            if now == told:
                continue
            self._look()
            if time.monotonic() >= due:
                self._send(events.running(time.time(), now))
                told, due = now, time.monotonic() + EVERY_SECONDS
        self._look()
        assert self._over is not None
        at, error = self._over
        if self._send(events.end(at, self._standing(), error)):
            with self._noting, _kept():
                self._is_told = True
                self._untold.told(events.run)

    def _note(self) -> None:
        """How the run ended, as far as that is known by now. By the thread that ends the query, too."""
        with self._noting, _kept():
            if self._events is None or self._is_told:
                return  # the consumer has not heard of it, or knows how it ended
            is_over, error = (False, None) if self._over is None else (True, self._over[1])
            self._untold.note(self._events.untold(error, is_over=is_over))

    def _tell_of_others(self, events: RunEvents) -> None:
        """How runs of earlier drivers, or of this one, ended, which have not said so."""
        for untold in self._untold.others():
            if not self._send(events.end_of(untold, time.time())):
                return
            self._untold.told(untold.run)

    def _look(self) -> None:
        try:
            self._counts.look()
        except Exception as error:  # the session may be gone
            LOG.debug("rows cannot be counted now: %s", error, extra=about("openlineage"))

    def _send(self, event: RunEvent) -> bool:
        """Whether the consumer has taken it."""
        try:
            self._client.emit(event)
        except Exception as error:  # whatever its transport raises
            if self._is_taken:
                self._is_taken = False
                self._warn("a consumer of OpenLineage's events does not take them; the query goes on", error)
        else:
            self._is_taken = True
        return self._is_taken

    def _warn(self, what: str, error: Exception) -> None:
        LOG.warning("%s: %s", what, error, extra=about("openlineage"))


@contextmanager
def _kept() -> Iterator[None]:
    """Around what is kept of runs that have no end: where it cannot be, nothing else is held up."""
    try:
        yield
    except StorageUnavailable as error:
        LOG.debug("runs without an end cannot be kept now: %s", error, extra=about("openlineage"))


class _NotOfThread(logging.Filter):
    """Passes what other threads say."""

    def __init__(self, thread: int) -> None:
        super().__init__()
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread
