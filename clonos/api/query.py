"""The handle of a running causal query: Spark's methods, and restarts.

After a failure that does not end the query (`clonos.protocol.roles.restart_policy`) the handle builds the Spark query
anew over the same checkpoint and starts it. Everything else ends it, with the error translated to one of ours; so does
the end of the Spark session under it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clonos.api.query_error import as_sparks_own
from clonos.api.query_progress import QueryProgress
from clonos.errors import ClonosError, Fenced, QueryDefinitionError, ReplicaLost, StateError
from clonos.protocol.recovery.on_gap import OnGap
from clonos.protocol.roles.restart_policy import Failure, QueryFailed, Restart, RestartPolicy
from clonos.spark.coordinator import Coordinator
from clonos.spark.failure import SessionStopped, translate
from clonos.spark.settings import Settings
from clonos.wire.server_status import PlacedReplica, QueryStatus, without_processes
from clonos_standby.server.log import about

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

LOG = logging.getLogger("clonos")

CHANGE_SECONDS = 60.0
_STOP_SECONDS = 10.0
"""How long a query that is stopped waits for rows of the last epoch to be visible."""


class Ending:
    """What ends the query from outside of Spark's own: another driver has taken it over, or the function of a
    foreachBatch has failed. Told by the thread that notices, heard by the query, once there is one."""

    def __init__(self) -> None:
        self.error: ClonosError | None = None
        self._hear: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def tell(self, error: ClonosError) -> None:
        with self._lock:
            self.error = error
            hear = self._hear
        if hear is not None:
            hear()

    def listen(self, hear: Callable[[], None]) -> None:
        with self._lock:
            self._hear = hear
            told = self.error is not None
        if told:
            hear()


@dataclass(frozen=True, slots=True)
class SessionPorts:
    """What a causal query asks of its Spark session."""

    launch: Callable[[], Any]
    """Starts a query of Spark's for it, and gives it."""
    is_stopped: Callable[[], bool]
    drain: Callable[[], None]
    """Gives the functions of foreachBatch all rows that are there. Raises what they raise."""
    is_here: Callable[[], bool]
    """Whether the caller is such a function, in a thread of its own."""
    close: Callable[[], None]
    """Ends what reads and writes for the query on the driver, while this still leads it."""
    ended: Callable[[Any, ClonosError | None], None]
    """The causal query is over, with this last one of Spark's, by this error if any."""
    progress: QueryProgress
    with_local_properties: Callable[[Callable[[], None]], Callable[[], None]]
    """Makes a function run in another thread with what is set for this one: the scheduler's pool, tags of jobs."""
    reads_all: bool = False
    """Whether the query ends when all that is there has been read."""


class CausalQuery:
    """A started query. Thread-safe."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For `isinstance(query, StreamingQuery)`."""
        from pyspark.sql.streaming.query import StreamingQuery

        return StreamingQuery

    def __init__(
        self,
        coordinator: Coordinator,
        session: SessionPorts,
        settings: Settings,
        ending: Ending,
    ) -> None:
        self._ending = ending
        self._coordinator = coordinator
        self._session = session
        self._settings = settings
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._changed = threading.Condition()
        self._error: ClonosError | None = None
        self.restarts: list[str] = []
        self._policy = RestartPolicy(
            limit=settings.restart_limit,
            backoff=settings.restart_backoff,
            repeats_output=settings.on_gap is OnGap.AT_LEAST_ONCE,
        )
        self._status_at_end: QueryStatus | None = None
        self._looked_at = coordinator.committed()  # when Spark's query was started last that came to its end
        self._spark_query = session.launch()
        keep = session.with_local_properties(self._keep)
        self._keeper = threading.Thread(target=keep, name="clonos-query", daemon=True)
        self._keeper.start()
        ending.listen(self._stop_spark)

    def _stop_spark(self) -> None:
        """Nothing of this one goes on."""
        with self._lock, contextlib.suppress(Exception):  # it has ended by itself, or its session has
            self._spark_query.stop()

    # -------------------------------------------------------------- keeping

    def _keep(self) -> None:
        try:
            while self._has_ended_by_itself():
                self._show_rest()
                if self._stopping.is_set():
                    break
                self._session.drain()
                if not self._goes_round():
                    break
        except Exception as error:
            self._error = translate(error)
        finally:
            if self._error is not None:
                self._error = as_sparks_own(self._error)
            self._session.close()
            with contextlib.suppress(Exception):  # the servers may have died, and the end has to come
                self._status_at_end = without_processes(self._coordinator.status())
            self._coordinator.stop()
            with contextlib.suppress(Exception):  # the session may be gone
                self._session.ended(self._spark_query, self._error)
            self._ended.set()
            with self._changed:
                self._changed.notify_all()

    def _has_ended_by_itself(self) -> bool:
        """Whether Spark's query has come to its end, or was stopped; it is started again after failures."""
        failure = self._wait_for_end()
        while failure is not None and not self._stopping.is_set():
            if self._session.is_stopped():
                self._error = SessionStopped(
                    "the Spark session has ended under the query: it was stopped, or its JVM has died",
                    hint="A new session continues the query from its checkpoint",
                )
                return False
            error = failure.error
            began = self._coordinator.begins_at
            again = self._policy.failed(failure, self._coordinator.committed(), began)
            if again is None or error is self._ending.error:
                self._error = self._coordinator.named(error)
                return False
            try:
                if again.gives_up_history:
                    self._warn(
                        "history_given_up", f"output since the last committed epoch may repeat: {error}"
                    )
                    self._coordinator.give_up_history()
                if not self._restart(error, again):
                    return False
            except Exception as refused:  # it could not even be started: that is one more failure
                failure = Failure(translate(refused))
            else:
                failure = self._wait_for_end()
        return failure is None

    def _goes_round(self) -> bool:
        """Whether the query has been started again, as rows of a loop may have come back since Spark looked: where a
        sink holds rows, that is behind the commit of their epoch."""
        if not (self._session.reads_all and self._coordinator.rows_come_back_late):
            return False
        before, self._looked_at = self._looked_at, self._coordinator.committed()
        return self._looked_at != before and self._launch()

    def _show_rest(self) -> None:
        """What sinks hold of the last epoch."""
        try:
            is_shown = self._await_shown(tries_on=self._stopping.is_set())
        except ClonosError:
            if not self._stopping.is_set():
                raise
            is_shown = False
        if not is_shown:
            self._warn("rows_held", "rows of the last epoch are not visible yet: the next start shows them")

    def _await_shown(self, *, tries_on: bool) -> bool:
        """Raises where nothing waits for that any more, and the user has not asked to stop."""
        is_shown = self._coordinator.await_shown(tries_on=tries_on)
        if not is_shown and not self._stopping.is_set():
            raise self._ending.error or Fenced("another driver has taken over the query")
        return is_shown

    def _wait_for_end(self) -> Failure | None:
        try:
            self._spark_query.awaitTermination()
        except Exception as error:
            if self._ending.error is None:
                return self._cause_of(translate(error))
        return Failure(self._ending.error) if self._ending.error is not None else None

    def _cause_of(self, error: ClonosError) -> Failure:
        """What Spark has told is its own, or a neighbour's echo of the real one; or it leaves out whose it is."""
        cause = self._coordinator.cause_of_failure()
        if cause is None:
            return Failure(error)
        if isinstance(error, QueryFailed):
            return cause
        return Failure(error, cause.origin if type(error) is type(cause.error) else None)

    def _warn(self, event: str, text: str) -> None:
        where = about(event, query=self._coordinator.query, epoch=self._coordinator.committed() + 1)
        LOG.warning("%s", text, extra=where)

    def _restart(self, error: ClonosError, again: Restart) -> bool:
        self._warn(
            "query_restarts",
            f"restarting the query in {again.pause:.1f} s (failure {again.failures}): {_first_line(error)}",
        )
        return not self._stopping.wait(again.pause) and self._launch([_first_line(error)])

    def _launch(self, why: Sequence[str] = ()) -> bool:
        """One more query of Spark's, unless this one is to stop; `why`, if it is for a failure."""
        with self._lock:
            if self._stopping.is_set():
                return False
            if self._ending.error is not None:  # told since the query of Spark's ended
                raise self._ending.error
            self.restarts += why  # first: a launch that fails has a reason of its own
            self._spark_query = self._session.launch()
        with self._changed:
            self._changed.notify_all()
        return True

    # ------------------------------------------------------- Spark's methods

    @property
    def id(self) -> str:
        return str(self._spark_query.id)

    @property
    def runId(self) -> str:
        """Of the whole life of this handle: a restart of its own does not change it."""
        return self._session.progress.run_id

    @property
    def name(self) -> str | None:
        name: str | None = self._spark_query.name
        return name

    @property
    def isActive(self) -> bool:
        return not self._ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self._spark_query.status
        return status

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        return self._session.progress.last()

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:
        return self._session.progress.recent()

    def exception(self) -> ClonosError | None:
        """Why the query ended, or None. It is a `StreamingQueryException` of PySpark's, too."""
        return self._error

    def explain(self, extended: bool = False) -> None:
        self._spark_query.explain(extended)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait for the end; raises its error. With a timeout in seconds: whether it has ended."""
        ended = self._ended.wait(timeout)
        if ended and self._error is not None:
            raise self._error
        return ended if timeout is not None else None

    def processAllAvailable(self) -> None:
        """Wait until everything that the source has now is processed, across restarts."""
        while not self._ended.is_set():
            current, committed = self._spark_query, self._coordinator.committed()
            try:
                current.processAllAvailable()
            except Exception:
                self._await_change(current)
                continue
            if current is self._spark_query:
                self._drain()
                if self._coordinator.rows_come_back_late and self._coordinator.committed() != committed:
                    continue
                return
        if self._error is not None:
            raise self._error

    def _drain(self) -> None:
        """What a function of foreachBatch raises ends the query, as where it is called behind a commit."""
        try:
            self._await_shown(tries_on=True)
            self._session.drain()
        except QueryDefinitionError:
            raise  # the caller is the function itself
        except Exception as error:
            failure = translate(error)
            self._ending.tell(failure)
            self._ended.wait()
            raise self._error or failure from None

    def _await_change(self, current: Any) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended.is_set() or self._spark_query is not current, timeout=CHANGE_SECONDS
            )

    def stop(self) -> None:
        """Stop; no process, socket or thread of the query is left when this returns, but that of a table's read that is
        under way, of which nothing comes any more. Called by a function of foreachBatch, it does not wait."""
        self._stopping.set()
        self._coordinator.wait_no_longer_than(_STOP_SECONDS)
        with self._lock:
            try:
                self._spark_query.stop()
            except Exception:
                if not self._session.is_stopped():
                    raise
        if threading.current_thread() is not self._keeper and not self._session.is_here():
            self._keeper.join()

    # ------------------------------------------------------------------ ours

    def replicas(self) -> list[PlacedReplica]:
        """The replica processes: node, instance, pid, epoch."""
        return self.causal_status()["replicas"]

    def causal_status(self) -> QueryStatus:
        """Replicas, spares, recent deaths, the last committed epoch. Of a query that has ended, what was known at its
        end, without processes, of which there are none any more.

        Raises ReplicaLost where the query's server does not answer.
        """
        if self._status_at_end is None:
            try:
                return self._coordinator.status()
            except ReplicaLost:
                if self._status_at_end is None:
                    raise
        return self._status_at_end

    def explain_row(self, row: str, *, inputs: int = 10, depth: int = 64, calls: int = 100) -> dict[str, Any]:
        """Why a row says what it says, out of the query's archive (`spark.clonos.archive.keep`), as
        `clonos explain --json` has it: the call that made it, and what that was made of, back to the sources.

        `row` is its id as its sink shows it (`clonos_id`). Of each call at most so many `inputs` are explained
        themselves, operators up to `depth` away, and so many `calls` in all, each once. What cannot be had is said as
        `lacking`: of the epoch that is running, too, which has to end first. The functions are run again in a process
        of its own; values that JSON does not have are text.

        Raises ConfigurationError where this is no row's id, and StateError where there is no answer.
        """
        from clonos.archive.asking import ask
        from clonos.archive.explain import RowId

        RowId.parse(row, self._coordinator.query)
        limits = [f"--inputs={inputs}", f"--depth={depth}", f"--calls={calls}"]
        asked = ["explain", *limits, "--json", "--", self._coordinator.location, row]
        answer = ask(asked, key_file=self._settings.archive_key_file)
        try:
            said: dict[str, Any] = json.loads(answer.text)
        except ValueError:
            raise StateError(f"row {row} cannot be explained: {answer.complaint}") from None
        return said

    def wait_for_epoch(self, epoch: int, timeout: float) -> bool:
        """Wait until Spark has committed an epoch; whether it has."""
        until = time.monotonic() + timeout
        while self._coordinator.committed() < epoch:
            if self._ended.wait(0.05) or time.monotonic() > until:
                return self._coordinator.committed() >= epoch
        return True


def _first_line(error: ClonosError) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
