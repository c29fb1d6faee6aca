"""The two user functions of the main job, nondeterministic in every way a real one is.

`legs`, per aircraft: carries the delay with which the aircraft came in over to its next leg, asks the weather
service about the airport (`ctx.call`), reads the clock (`ctx.now`) and draws (`ctx.random`). Its input comes
from several partitions, so the order in which it sees an aircraft's events is the order of arrival.

`compensation`, per carrier: decides whose passengers are compensated. Flights that come first, while the budget
lasts, are paid, so the decision depends on the order of arrival; and one event in fifty is drawn for an audit.

Every input event gives exactly one row of each. Both keep the ledger of `clonos.testing.ledger`: the row of
`compensation` carries the entry of `legs` too, and everything that was decided is part of what the hashes
cover, so that the one output table judges the whole job.

Both are plain functions of `(key, row, ctx)`. The native comparison runs the very same ones with a context
whose services are the plain clock, the plain random numbers and the plain call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from clonos.testing.ledger import Entry, Fault, Judge, Verdict, extend, micros
from clonos.tools.flights.weather import ask

__all__ = [
    "COMPENSATION_COLUMNS",
    "COMPENSATION_SCHEMA",
    "LEGS_COLUMNS",
    "LEGS_SCHEMA",
    "FlightsJudge",
    "compensation",
    "compensation_from_90_minutes",
    "legs",
]

LEGS_SCHEMA = (
    "input_id string, kind string, carrier string, tailnum string, seats int, delay int, carried int, "
    "weather string, weather_version bigint, "
    "leg_n bigint, leg_draw bigint, leg_at bigint, leg_prev string, leg_hash string"
)
COMPENSATION_SCHEMA = (
    "carrier string, n bigint, input_id string, draw bigint, at bigint, prev_hash string, hash string, "
    "decision string, amount bigint, used bigint, kind string, tailnum string, delay int, carried int, "
    "weather string, weather_version bigint, "
    "leg_n bigint, leg_draw bigint, leg_at bigint, leg_prev string, leg_hash string"
)


def _columns(schema: str) -> tuple[str, ...]:
    return tuple(column.split()[0] for column in schema.split(","))


LEGS_COLUMNS = _columns(LEGS_SCHEMA)
COMPENSATION_COLUMNS = _columns(COMPENSATION_SCHEMA)

LATE_MINUTES = 60
FARE_DOLLARS = 2  # per seat and hour of delay
BUDGET_DOLLARS_PER_EVENT = 25
AUDIT_ONE_IN = 50
_SEATS_UNKNOWN = 100


def legs(weather_url: str) -> Callable[[Any, Any, Any], Iterator[tuple[Any, ...]]]:
    """The first operator, grouped by `tailnum`; output `LEGS_SCHEMA`."""

    def flight_leg(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        state = ctx.state
        carried = int(state.get("late", 0))
        if row.kind == "arrival":
            state["late"] = max(0, row.delay or 0)
        elif row.kind == "departure":
            carried = min(carried, max(0, row.delay or 0))
            state["late"] = carried
        else:
            state["late"] = 0  # a cancelled leg is where the delay ends
        answer = ctx.call(ask, weather_url, row.origin, row.hour)
        weather, version = _describe(answer), int(answer["version"])
        entry = extend(
            state,
            row.tailnum,
            row.input_id,
            ctx.random.getrandbits(63),
            micros(ctx.now()),
            _leg_detail(row.kind, row.delay, carried, weather, version),
        )
        yield (
            *(row.input_id, row.kind, row.carrier, row.tailnum, row.seats, row.delay, carried),
            *(weather, version),
            *(entry.n, entry.draw, entry.at, entry.prev_hash, entry.hash),
        )

    return flight_leg


def compensation(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """The second operator, grouped by `carrier`; input `LEGS_SCHEMA`, output `COMPENSATION_SCHEMA`."""
    return _decided(row, ctx, LATE_MINUTES)


def compensation_from_90_minutes(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """Another rule, to see what it would have decided: passengers are paid from an hour and a half on."""
    return _decided(row, ctx, 90)


def _decided(row: Any, ctx: Any, late_minutes: int) -> Iterator[tuple[Any, ...]]:
    state = ctx.state
    used = int(state.get("used", 0))
    budget = BUDGET_DOLLARS_PER_EVENT * (int(state.get("n", 0)) + 1)
    claim = _claim(row, late_minutes)
    draw = ctx.random.getrandbits(63)
    amount = 0
    if draw % AUDIT_ONE_IN == 0:
        decision = "audit"
    elif claim == 0:
        decision = "none"
    elif used + claim <= budget:
        decision, amount = "paid", claim
    else:
        decision = "budget used up"
    used += amount
    state["used"] = used
    entry = extend(
        state,
        row.carrier,
        row.input_id,
        draw,
        micros(ctx.now()),
        _decision_detail(decision, amount, used, row.leg_hash),
    )
    yield (
        *(entry.key, entry.n, entry.input_id, entry.draw, entry.at, entry.prev_hash, entry.hash),
        *(decision, amount, used, row.kind, row.tailnum, row.delay, row.carried),
        *(row.weather, row.weather_version),
        *(row.leg_n, row.leg_draw, row.leg_at, row.leg_prev, row.leg_hash),
    )


def _describe(answer: dict[str, Any]) -> str:
    return (
        f"{answer['temperature_f']} F, wind {answer['wind_mph']} mph, "
        f"visibility {answer['visibility_miles']} mi, "
        f"rain {answer['rain_hundredths'] / 100:.2f} in"
    )


def _claim(row: Any, late_minutes: int) -> int:
    """What the passengers of this event may ask for, in dollars, before budget and audit."""
    seats = row.seats or _SEATS_UNKNOWN
    if row.kind == "cancelled":
        return int(seats * FARE_DOLLARS * 3)
    own = (row.delay or 0) - row.carried // 2  # half of what the previous leg brought is forgiven
    if row.kind == "departure" or own < late_minutes:
        return 0
    return int(seats * FARE_DOLLARS * own // 60)


def _leg_detail(kind: str, delay: int | None, carried: int, weather: str, version: int) -> str:
    return f"{kind}|{delay}|{carried}|{weather}|{version}"


def _decision_detail(decision: str, amount: int, used: int, leg_hash: str) -> str:
    return f"{decision}|{amount}|{used}|{leg_hash}"


class FlightsJudge:
    """Judges rows of `COMPENSATION_SCHEMA` (mappings), in the order in which they became visible: both
    ledgers.

    A row contradicts if it does so in either ledger; it is a repetition if it is one in both. A broken chain
    counts once for each ledger that it breaks.
    """

    def __init__(self) -> None:
        self._carriers = Judge()
        self._aircraft = Judge()
        self._faults = {Fault.REPEATED: 0, Fault.CONTRADICTED: 0}

    def add(self, row: Any) -> Fault | None:
        """Take one row; what is wrong with it against the rows before it."""
        found = {self._carriers.add(_carrier_entry(row)), self._aircraft.add(_aircraft_entry(row))}
        if found == {None}:
            return None
        fault = Fault.REPEATED if found == {Fault.REPEATED} else Fault.CONTRADICTED
        self._faults[fault] += 1
        return fault

    def verdict(self, expected_ids: set[str]) -> Verdict:
        """The verdict on the whole job."""
        first, second = self._aircraft.verdict(expected_ids), self._carriers.verdict(expected_ids)
        return Verdict(
            inputs=second.inputs,
            outputs=second.outputs,
            missing=second.missing,
            repeated=self._faults[Fault.REPEATED],
            contradicted=self._faults[Fault.CONTRADICTED],
            broken_chain=first.broken_chain + second.broken_chain,
            exact=first.exact and second.exact,
            first_problems=(second.first_problems + first.first_problems)[:10],
            unknown=second.unknown,
        )


def _carrier_entry(row: Any) -> Entry:
    return Entry(
        row["carrier"],
        row["n"],
        row["input_id"],
        row["draw"],
        row["at"],
        row["prev_hash"],
        row["hash"],
        _decision_detail(row["decision"], row["amount"], row["used"], row["leg_hash"]),
    )


def _aircraft_entry(row: Any) -> Entry:
    detail = _leg_detail(row["kind"], row["delay"], row["carried"], row["weather"], row["weather_version"])
    return Entry(
        row["tailnum"],
        row["leg_n"],
        row["input_id"],
        row["leg_draw"],
        row["leg_at"],
        row["leg_prev"],
        row["leg_hash"],
        detail,
    )
