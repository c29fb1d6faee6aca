"""A query as the page shows it: looked at every second from its checkpoint, also while it does not run."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from clonos.errors import ClonosError, NotRunning
from clonos.spark.checkpoint import checkpoint_at
from clonos.tools.live_query import find
from clonos.tools.serve.advice import Advice, Level, advice
from clonos.tools.serve.graph import graph
from clonos.tools.serve.rates import Look, Rates
from clonos.tools.status.describe import describe

EVERY_SECONDS: Final = 1.0
_EVENTS: Final = (("death", "recent_deaths"), ("failure", "failures"), ("recovery", "recoveries"))
_EVENTS_KEPT: Final = 500


class ObservedQuery:
    """One checkpoint, watched by a thread of its own from `start` to `stop`."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._rates = Rates()
        self._events: dict[str, dict[str, Any]] = {}
        self._view: dict[str, Any] = {"checkpoint": location, "state": "unknown", "at": time.time()}
        self._looked = threading.Condition()
        self._ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="clonos-observer", daemon=True)

    def start(self) -> None:
        self._watcher.start()

    def stop(self) -> None:
        self._ending.set()
        self._watcher.join()

    def view(self) -> dict[str, Any]:
        """What was seen at the last look. Times are seconds since 1970; what cannot be known is None."""
        with self._looked:
            return self._view

    def look(self) -> dict[str, Any]:
        """Look now."""
        now = time.time()
        view: dict[str, Any] = {"checkpoint": self.location, "at": now, "graph": None, "said": None}
        try:
            _, topology = checkpoint_at(self.location).shape()
            view["graph"] = graph(topology["nodes"])
            view["realtime"] = bool(topology.get("realtime"))
            said = describe(find(self.location))
        except NotRunning as error:
            again = "Start the job again over the same checkpoint: it goes on exactly"
            view |= {"state": "not running", "advice": [_of(error, again)]}
        except ClonosError as error:
            view |= {"state": "unknown", "advice": [_of(error)]}
        else:
            self._note(said, now)
            view |= {
                "state": "running",
                "said": said,
                "advice": [one.to_document() for one in advice(said, self._rates, now)],
            }
        view |= {
            "rates": self._rates.now() if view["said"] else {},
            "course": self._rates.course(),
            "events": sorted(self._events.values(), key=lambda event: float(event["at"])),
        }
        with self._looked:
            self._view = view
        return view

    def _note(self, said: Mapping[str, Any], now: float) -> None:
        totals = {
            f"{operator['node']}/{each['instance']}": each["records"]
            for operator in said["operators"]
            for each in operator["instances"]
            if each["records"] is not None
        }
        server, generation = said["server"], said["generation"]
        before = self._rates.looks[-1] if self._rates.looks else None
        self._rates.add(Look(now, server["pid"], generation, said["committed"], totals))
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
            if self._ending.wait(EVERY_SECONDS):
                return


def _of(error: ClonosError, more: str = "") -> dict[str, str]:
    return Advice(Level.ERROR, error.message, ". ".join(filter(None, (error.hint, more)))).to_document()
