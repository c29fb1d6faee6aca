"""Follows one output table from the outside and notes when each row became visible, and what was wrong with
it then.

*Outage* of a strike: the time from the strike until everything that was under way at that moment (appended to
the source, not yet visible) has become visible. It is measured at the output, so it contains detection,
restart, recovery and whatever had piled up.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clonos.testing.ledger import Fault, Verdict
from clonos.tools.demo.job import TABLE
from clonos.tools.flights.operators import FlightsJudge

__all__ = ["Sighting", "TableWatch", "outage_ms"]


@dataclass(frozen=True, slots=True)
class Sighting:
    """A row as it became visible. `at`: seconds since 1970."""

    at: float
    input_id: str
    fault: Fault | None


@dataclass
class TableWatch:
    """The output table of one system."""

    database: str
    sightings: list[Sighting] = field(default_factory=list)
    first_seen: dict[str, float] = field(default_factory=dict)
    wrong: int = 0
    last_change: float = field(default_factory=time.time)
    _judge: FlightsJudge = field(default_factory=FlightsJudge)
    _last_row: int = 0
    _connection: sqlite3.Connection | None = None

    def look(self) -> int:
        """Read what is new; how many rows."""
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10)
                self._connection.row_factory = sqlite3.Row
            rows = self._connection.execute(
                f"SELECT rowid AS row_number, * FROM {TABLE} WHERE rowid > ? ORDER BY rowid",
                (self._last_row,),
            ).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error) or "unable to open" in str(error) or "locked" in str(error):
                return 0
            raise
        now = time.time()
        for row in rows:
            self._last_row = row["row_number"]
            self._see(row, now)
        if rows:
            self.last_change = now
        return len(rows)

    def _see(self, row: Any, now: float) -> None:
        fault = self._judge.add(row)
        self.sightings.append(Sighting(now, row["input_id"], fault))
        self.first_seen.setdefault(row["input_id"], now)
        if fault is not None:
            self.wrong += 1

    def verdict(self, expected_ids: set[str]) -> Verdict:
        """The oracle's verdict on everything seen."""
        return self._judge.verdict(expected_ids)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_BEHIND_S = 0.1


def outage_ms(strikes: list[float], appended: Mapping[str, float], first_seen: Mapping[str, float]) -> int:
    """The longest outage of any strike; times in seconds since 1970. What never became visible does not
    count.
    """
    longest = 0.0
    for strike in strikes:
        for input_id, moment in appended.items():
            seen = first_seen.get(input_id)
            if seen is not None and moment <= strike + _BEHIND_S and seen > strike:
                longest = max(longest, seen - max(moment, strike))
    return round(longest * 1000)
