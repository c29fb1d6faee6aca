"""The flights as events, the weather service, and the two operators judged by their own ledgers."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from clonos.errors import ConfigurationError
from clonos.testing.ledger import Fault
from clonos.tools.flights import data
from clonos.tools.flights.operators import (
    COMPENSATION_COLUMNS,
    LEGS_COLUMNS,
    FlightsJudge,
    compensation,
    legs,
)
from clonos.tools.flights.weather import Observations, WeatherServer, WeatherService, ask


class FakeClock:
    def __init__(self) -> None:
        self.time = 100.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


class Memory:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.rows: list[tuple[float, int, str]] = []

    def append(self, partition: int, payload: bytes) -> None:
        self.rows.append((self.clock.time, partition, payload.decode()))


def test_every_flight_of_the_year_is_there() -> None:
    flights = data.flights()
    assert len(flights) == 336_776
    assert int(flights["departed"].notna().sum()) == 328_521
    assert int(flights["arrived"].notna().sum()) == 328_063
    late = (flights["arrived"] - flights["departed"]).dt.total_seconds()
    assert late.min() >= 0 and late.max() <= 24 * 3600
    raw = data.table("flights")
    on_ground = (late / 60 - raw["air_time"]).dropna()
    assert 20 < on_ground.median() < 40  # taxi and waiting: the time zones fit


def test_a_day_of_events_is_ordered_and_the_same_every_time() -> None:
    day = data.events("2013-02-08", 1)  # a blizzard: most flights of the afternoon were cancelled
    assert day == data.events("2013-02-08", 1)
    assert [e.at_s for e in day] == sorted(e.at_s for e in day)
    ids = data.expected_ids(day)
    assert len(ids) == len(day)
    kinds = [json.loads(e.payload)["kind"] for e in day]
    assert {k: kinds.count(k) for k in kinds} == {"departure": 458, "arrival": 456, "cancelled": 472}
    payload = json.loads(day[0].payload)
    assert tuple(payload) == tuple(c.split()[0] for c in data.EVENT_SCHEMA.split(", "))
    assert payload["input_id"] == day[0].input_id
    departures = {e.input_id[:-2]: e.at_s for e in day if e.input_id.endswith("D")}
    assert all(e.at_s >= departures[e.input_id[:-2]] for e in day if e.input_id.endswith("A"))


def test_partitions_follow_the_airport() -> None:
    events = [data.FlightEvent("1-D", 0, origin, "") for origin in data.ORIGINS]
    assert [e.partition(3) for e in events] == [0, 1, 2]
    assert [e.partition(2) for e in events] == [0, 1, 0]
    assert [e.partition(1) for e in events] == [0, 0, 0]


def test_replay_keeps_the_pace() -> None:
    events = [data.FlightEvent(str(i), 1_000 + 60 * i, "JFK", f"p{i}") for i in range(5)]
    clock, seen = FakeClock(), []
    log = Memory(clock)
    count = data.replay(log, events, 600, clock, partitions=2, on_append=seen.append)
    assert count == 5 and seen == events
    assert [payload for _, _, payload in log.rows] == ["p0", "p1", "p2", "p3", "p4"]
    assert [round(t - 100, 6) for t, _, _ in log.rows] == [0, 0.1, 0.2, 0.3, 0.4]
    assert {partition for _, partition, _ in log.rows} == {1}


def test_replay_groups_what_falls_together_and_can_be_stopped() -> None:
    events = [data.FlightEvent(str(i), i, "JFK", str(i)) for i in range(100)]
    clock = FakeClock()
    assert data.replay(Memory(clock), events, float("inf"), clock) == 100 and not clock.slept
    stop = threading.Event()
    stop.set()
    assert data.replay(Memory(clock), events, 1, clock, stop=stop) <= 1
    assert data.replay(Memory(clock), [], 1, clock) == 0
    with pytest.raises(ConfigurationError, match="speed-up"):
        data.replay(Memory(clock), events, 0, clock)


def test_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "find_spec", lambda name: None)
    data.table.cache_clear()
    with pytest.raises(ConfigurationError, match="demo"):
        data.table("airlines")


@pytest.fixture(scope="module")
def server() -> Iterator[WeatherServer]:
    with WeatherServer(revise_ms=20) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_the_weather_is_real_and_keeps_changing(server: WeatherServer) -> None:
    first = ask(server.url, "JFK", "2013-01-01T10:00:00Z")
    deadline = time.monotonic() + 5
    while (later := ask(server.url, "JFK", "2013-01-01T10:00:00Z")) == first:
        assert time.monotonic() < deadline
    assert later["version"] > first["version"] and later["hour"] > first["hour"]
    known = Observations().known("JFK", "2013-01-01T10:00:00Z", later["version"])
    assert later == known
    asked = server.asked()["JFK"]
    ask(server.url, "JFK", "2013-01-01T10:00:00Z")
    assert server.asked()["JFK"] == asked + 1
    with urllib.request.urlopen(server.url + "/asked", timeout=120) as reply:
        assert json.load(reply)["JFK"] == asked + 1


def test_a_bad_question_gets_an_error_and_the_connection_lives_on(server: WeatherServer) -> None:
    with pytest.raises(LookupError, match="EWR, JFK, LGA"):
        ask(server.url, "XXX", "2013-01-01T10:00:00Z")
    assert ask(server.url, "EWR", "no such hour")["version"] > 0
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(server.url + "/elsewhere", timeout=120)


def test_the_service_lives_in_its_own_process_and_dies_with_its_owner() -> None:
    with WeatherService(revise_ms=50) as service:
        pid = service.pid
        assert ask(service.url, "LGA", "2013-06-01T12:00:00Z")["hour"] > "2013-06-01"
    service.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(OSError):
        ask(service.url, "LGA", "2013-06-01T12:00:00Z")


def test_a_killed_service_stops_cleanly() -> None:
    service = WeatherService()
    os.kill(service.pid, signal.SIGKILL)
    service.stop()


class Plain:
    """A context with the plain services, and an answer of its own to every call."""

    def __init__(self, state: dict[str, Any], rng: random.Random) -> None:
        self.state = state
        self.random = rng
        self.version = 0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def call(self, function: Any, *arguments: Any) -> Any:
        self.version += 1
        return {
            "version": self.version,
            "temperature_f": 40,
            "wind_mph": 5,
            "visibility_miles": 10,
            "rain_hundredths": 3,
        }


def run_job(events: list[data.FlightEvent], seed: int = 1) -> list[dict[str, Any]]:
    states: dict[tuple[str, str], dict[str, Any]] = {}
    rng = random.Random(seed)
    leg = legs("http://nowhere")
    rows = []
    for event in events:
        row = SimpleNamespace(**json.loads(event.payload))
        ctx = Plain(states.setdefault(("legs", row.tailnum), {}), rng)
        for out in leg((row.tailnum,), row, ctx):
            middle = SimpleNamespace(**dict(zip(LEGS_COLUMNS, out, strict=True)))
            ctx = Plain(states.setdefault(("compensation", middle.carrier), {}), rng)
            for last in compensation((middle.carrier,), middle, ctx):
                rows += [dict(zip(COMPENSATION_COLUMNS, last, strict=True))]
    return rows


@pytest.fixture(scope="module")
def job() -> tuple[list[dict[str, Any]], set[str]]:
    events = data.events("2013-02-08", 1)
    return run_job(events), data.expected_ids(events)


def verdict_of(rows: list[dict[str, Any]], expected: set[str]) -> Any:
    judge = FlightsJudge()
    for row in rows:
        judge.add(row)
    return judge.verdict(expected)


def test_the_job_judges_itself(job: tuple[list[dict[str, Any]], set[str]]) -> None:
    rows, expected = job
    verdict = verdict_of(rows, expected)
    assert verdict.exact, verdict
    assert verdict.outputs == verdict.inputs == len(expected)
    decisions = {row["decision"] for row in rows}
    assert decisions == {"none", "paid", "budget used up", "audit"}
    assert any(row["carried"] > 0 for row in rows)


@pytest.mark.parametrize("field", COMPENSATION_COLUMNS)
def test_no_column_can_be_rewritten_unseen(job: tuple[list[dict[str, Any]], set[str]], field: str) -> None:
    rows, expected = job
    old = rows[100][field]
    forged = {**rows[100], field: old + "x" if isinstance(old, str) else (old or 0) + 1}
    assert not verdict_of([*rows[:100], forged, *rows[101:]], expected).exact


def test_lost_and_repeated_rows_are_seen(job: tuple[list[dict[str, Any]], set[str]]) -> None:
    rows, expected = job
    lost = verdict_of(rows[:50] + rows[51:], expected)
    assert (lost.missing, lost.exact) == (1, False)
    twice = verdict_of([*rows, rows[7]], expected)
    assert (twice.repeated, twice.contradicted, twice.exact) == (1, 0, False)


def test_a_second_run_contradicts_the_first(job: tuple[list[dict[str, Any]], set[str]]) -> None:
    rows, expected = job
    again = run_job(data.events("2013-02-08", 1), seed=2)
    judge = FlightsJudge()
    for row in rows:
        assert judge.add(row) is None
    assert {judge.add(row) for row in again[:20]} == {Fault.CONTRADICTED}
    verdict = judge.verdict(expected)
    assert (verdict.contradicted, verdict.repeated, verdict.exact) == (20, 0, False)
