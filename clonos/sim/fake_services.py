"""What a runtime gives a user function besides the protocol: timers, outcomes, a service that cannot be repeated."""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Callable, Mapping
from typing import Any

from clonos.protocol.recovery.causal.determinant import Outcome


class Timers:
    """Timers of one family, ordered by (due, key, name)."""

    def __init__(self, entries: list[tuple[int, bytes, str]] | None = None) -> None:
        self.entries = list(entries or ())

    def set(self, due: int, key: bytes, name: str = "") -> None:
        entry = (due, key, name)
        if entry not in self.entries:
            insort(self.entries, entry)

    def cancel(self, due: int, key: bytes, name: str = "") -> None:
        if (due, key, name) in self.entries:
            self.entries.remove((due, key, name))

    def next_due(self) -> int | None:
        return self.entries[0][0] if self.entries else None

    def pop_due(self, upto: int) -> list[tuple[int, bytes, str]]:
        due = [entry for entry in self.entries if entry[0] <= upto]
        self.entries = self.entries[len(due) :]
        return due


class Refused(Exception):
    """A service of the outside says no."""


class Outcomes:
    """Outcomes as JSON. `measure` says how long each took, where that is recorded: no two alike."""

    def __init__(self, measure: Callable[[], int | None] = lambda: None) -> None:
        self._measure = measure

    def capture(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        took: int | None = None,
    ) -> Outcome:
        try:
            return Outcome(name, True, json.dumps(fn(*args, **kwargs)).encode(), self._measure())
        except Refused as error:
            return Outcome(name, False, json.dumps(str(error)).encode(), self._measure())

    def reveal(self, outcome: Outcome) -> Any:
        value = json.loads(outcome.payload)
        if outcome.ok:
            return value
        raise Refused(value)
