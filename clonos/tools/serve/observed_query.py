"""A query as the page shows it: looked at from its checkpoint, also while it does not run.

Every second while it is read, and now and then otherwise: a look at a checkpoint in an object store is some ten
requests, and they are paid for.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from clonos.errors import ClonosError, NotRunning
from clonos.spark.checkpoint import Checkpoint, checkpoint_at
from clonos.tools.live_query import find_in
from clonos.tools.serve.advice import Advice, Level, advice
from clonos.tools.serve.graph import graph
from clonos.tools.serve.lease_watch import LeaseWatch
from clonos.tools.serve.rates import Look, Rates
from clonos.tools.status.describe import describe, last_of
from clonos_standby.server.histogram import Histogram

EVERY_SECONDS: Final = 1.0
UNREAD_SECONDS: Final = 15.0
"""Between two looks that no page asks for: often enough for the course of rates, and for events that are not kept."""
_READ_FOR: Final = 10.0
"""A page asks every second. One that has not for so long is closed, or lies behind other tabs."""
_FRESH_SECONDS: Final = 5.0
"""How long a reader who comes after a pause waits for a new look."""
_EVENTS: Final = (("death", "recent_deaths"), ("failure", "failures"), ("recovery", "recoveries"))
_KEPT: Final = (("death", "deaths.jsonl"), ("recovery", "recoveries.jsonl"))
_EVENTS_KEPT: Final = 500


class ObservedQuery:
    """One checkpoint, watched by a thread of its own from `start` to `stop`."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._rates = Rates()
        self._leases = LeaseWatch(location)
        self._events: dict[str, dict[str, Any]] = {}
        self._view: dict[str, Any] = {"checkpoint": location, "state": "not looked yet", "at": time.time()}
        self._asked = float("-inf")
        self._looked = 0
        self._changed = threading.Condition()
        self._ending = False
        self._watcher = threading.Thread(target=self._watch, name="clonos-observer", daemon=True)

    def start(self) -> None:
        self._watcher.start()

    def stop(self) -> None:
        """A look that waits for storage is not waited for: it changes nothing."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._watcher.join(EVERY_SECONDS)

    def view(self) -> dict[str, Any]:
        """What was seen at the last look; after a pause a new look is waited for. Times are seconds since 1970; what
        cannot be known is None."""
        with self._changed:
            paused, looked = not self._read(), self._looked
            self._asked = time.monotonic()
            if paused and self._watcher.is_alive():
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._looked > looked or self._ending, _FRESH_SECONDS)
        return self._view

    def last(self) -> dict[str, Any]:
        """The same, without a new look: for a list of many."""
        return self._view

    def _read(self) -> bool:
        return time.monotonic() - self._asked < _READ_FOR

    def look(self) -> dict[str, Any]:
        """Look now."""
        now = time.time()
        view: dict[str, Any] = {"checkpoint": self.location, "at": now, "graph": None, "said": None}
        try:
            self._look(view, now)
        except ClonosError as error:
            view |= {"state": "unknown", "advice": [_of(error)]}
        except Exception as error:  # the page goes on, whatever a look meets
            view |= {"state": "unknown", "advice": [_of(ClonosError(f"it cannot be looked at: {error!r}"))]}
        view |= {
            "rates": self._rates.now() if view["said"] else {},
            "course": self._rates.course(),
            "latency": self._rates.latency() if view["said"] else {},
            "events": sorted(self._events.values(), key=lambda event: float(event["at"])),
        }
        self._view = view  # another one: readers keep theirs
        return view

    def _look(self, view: dict[str, Any], now: float) -> None:
        checkpoint = checkpoint_at(self.location)
        query, topology = checkpoint.shape()
        view["graph"] = graph(topology["nodes"])
        view["realtime"] = bool(topology.get("realtime"))
        try:
            said = describe(find_in(checkpoint, self.location, query, topology))
        except NotRunning as error:
            leader = self._leases.leader()
            if leader is not None:
                there = "Ask there for more: clonos status, or clonos serve"
                view |= {
                    "state": "runs elsewhere",
                    "advice": [Advice(Level.NOTE, f"it is led by {leader}", there).to_document()],
                }
                return
            names = {node["number"]: node["name"] for node in topology["nodes"]}
            view |= {"state": "not running", "advice": [_of(error, self._next(checkpoint, names))]}
        else:
            self._note(said, now)
            view |= {
                "state": "running",
                "said": said,
                "advice": [one.to_document() for one in advice(said, self._rates, now)],
            }

    def _next(self, checkpoint: Checkpoint, names: Mapping[int, str]) -> str:
        """What to do about a query that does not run here. What its files tell of it is noted."""
        place = checkpoint.place()
        if place is None:
            return "Start the job"
        host, data = place
        if host != platform.node():
            return "If it does not run there, look why it ended, and start the job again over the same checkpoint"
        for kind, name in _KEPT:
            for event in last_of(Path(data), name):
                self._keep(kind, {"operator": names.get(event.get("node") or 0), **event})
        return (
            f"Look why it ended: the driver's log and {data}/server.err say that. A record that fails will fail "
            "again. Else start the job again over the same checkpoint: it goes on exactly"
        )

    def _note(self, said: Mapping[str, Any], now: float) -> None:
        totals = {
            f"{operator['node']}/{each['instance']}": each["records"]
            for operator in said["operators"]
            for each in operator["instances"]
            if each["records"] is not None
        }
        server, generation = said["server"], said["generation"]
        before = self._rates.looks[-1] if self._rates.looks else None
        self._rates.add(Look(now, server["pid"], generation, said["committed"], totals, _latencies(said)))
        for kind, name in _EVENTS:
            for event in said[name]:
                self._keep(kind, event)
        if before is not None and before.generation != generation:
            self._keep(
                "start", {"at": now, "who": "query", "message": f"the Spark query began start {generation}"}
            )
        elif before is not None and before.server != server["pid"]:
            again = f"another replica server runs, process {server['pid']}; process {before.server} has ended"
            self._keep("start", {"at": server["started"], "who": "replica server", "message": again})

    def _keep(self, kind: str, event: Mapping[str, Any]) -> None:
        name = f"{kind} {event['at']} {event.get('node')} {event.get('instance')}"
        self._events[name] = {"kind_of_event": kind, **event}
        if len(self._events) > _EVENTS_KEPT:
            del self._events[next(iter(self._events))]

    def _watch(self) -> None:
        while True:
            self.look()
            with self._changed:
                self._looked += 1
                self._changed.notify_all()
                if self._read():
                    self._changed.wait_for(lambda: self._ending, EVERY_SECONDS)
                else:
                    self._changed.wait_for(lambda: self._ending or self._read(), UNREAD_SECONDS)
                if self._ending:
                    return


def _latencies(said: Mapping[str, Any]) -> dict[str, Histogram]:
    return {
        f"{operator['node']}/{each['instance']}": Histogram(
            latency["seconds"], latency["rows"], latency["sum"]
        )
        for operator in said["operators"]
        for each in operator["instances"]
        if (latency := each["latency"]) is not None
    }


def _of(error: ClonosError, more: str = "") -> dict[str, str]:
    return Advice(Level.ERROR, error.message, ". ".join(filter(None, (error.hint, more)))).to_document()
