"""What the query's handle lists of its restarts."""

from __future__ import annotations

import threading
from typing import Any

from clonos.api.query import CausalQuery, Ending, SessionPorts
from clonos.api.query_progress import QueryProgress
from clonos.errors import ClonosError, ReplicaLost
from clonos.protocol.line.positions import Positions
from clonos.spark.settings import read_settings


class Coordinator:
    """Of a query that commits nothing."""

    query = "q"
    rows_come_back_late = False
    _has_ended = False
    begins_at = Positions()

    def committed(self) -> int:
        return 0

    def named(self, error: ClonosError) -> ClonosError:
        return error

    def cause_of_failure(self) -> None: ...

    def await_shown(self, *, tries_on: bool) -> bool:
        return True

    def wait_no_longer_than(self, seconds: float) -> None: ...

    def stop(self) -> None:
        self._has_ended = True

    def status(self) -> dict[str, Any]:
        if self._has_ended:
            raise ReplicaLost("the server does not answer")
        return {"replicas": [{"pid": 7}], "recoveries": [{"kind": "promoted"}], "spares": [8]}


class SparkQuery:
    """Ends with `error`, or runs until it is stopped."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self._stopped = threading.Event()

    def awaitTermination(self) -> None:
        if self._error is not None:
            raise self._error
        self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()


def test_a_restart_that_fails_leaves_the_reason_of_the_one_before_it_in_the_list() -> None:
    runs = threading.Event()
    launches: list[Any] = [SparkQuery(ReplicaLost("the first")), ReplicaLost("the start"), SparkQuery(None)]

    def launch() -> Any:
        next_one = launches.pop(0)
        if isinstance(next_one, Exception):
            raise next_one
        if not launches:
            runs.set()
        return next_one

    ended: list[Any] = []
    closed: list[bool] = []
    last = launches[-1]
    settings = read_settings({"spark.clonos.restart.backoff": "1ms"})
    ports = SessionPorts(
        launch,
        lambda: False,
        lambda: None,
        lambda: False,
        lambda: closed.append(True),
        lambda *over: ended.append(over),
        QueryProgress(None),
        lambda keep: keep,
    )
    query = CausalQuery(Coordinator(), ports, settings, Ending())  # type: ignore[arg-type]
    assert runs.wait(60)
    query.stop()
    assert query.restarts == ["ReplicaLost: the first", "ReplicaLost: the start"]
    assert ended == [(last, None)] and closed == [True]
    said = query.causal_status()
    assert said["recoveries"] == [{"kind": "promoted"}] and not said["replicas"] and not said["spares"]
    assert query.replicas() == []
