"""Of which records rows of joins, windows and aggregates are, which name them themselves: each record has a number."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from clonos.api.streams import CausalStream
from clonos.archive.tracing import TracedCall, TracedOperator, Watcher, traced_services
from clonos.errors import Where
from clonos.protocol.archive.input_sets import InputSets, MadeOf
from clonos.storage.keyed_state import KeyedState
from clonos.testing.driver import stream
from clonos.testing.driver.life import RowForms
from clonos.testing.driver.operator_driver import node_of
from clonos_standby.replica.outcomes import Outcomes

ROWS = stream("k string, n long, at timestamp").withWatermark("at", "0 seconds")
BEGIN = dt.datetime(2026, 11, 29, tzinfo=dt.UTC)


class Looks(Watcher):
    keeps_state = keeps_rows = False
    is_on = True

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[Any, MadeOf]] = []

    def ended(self, call: TracedCall) -> None:
        for part in call.made_of:
            self.rows += [(row, part) for row in call.outputs[part.first : part.first + part.count]]


class Desk:
    """One instance, whose records have their numbers as positions."""

    def __init__(self, made: CausalStream, folder: Path, *, through_state: bool = False) -> None:
        self._node, _ = node_of(made)
        self._forms = RowForms(self._node)
        self._through_state = through_state
        self.looks = Looks()
        self.looks.input_sets = InputSets(through_state=through_state)
        self._state = KeyedState(str(folder))
        self._services = traced_services(self.looks, self._state, Outcomes())
        self._operator = TracedOperator(self._node.programs(), self.looks)
        self._operator.open(self._services)

    def begin_at_state(self) -> None:
        """As if the repetition began here."""
        sets = InputSets(through_state=self._through_state)
        sets.begin_at_state((*timer, True) for timer in self._services.event_timers.pending())
        self.looks.rows.clear()
        self.looks.input_sets = self._services.input_sets = sets
        self._operator = TracedOperator(self._operator._operator, self.looks)
        self._operator.open(self._services)

    def take(self, records: list[tuple[Any, ...]], *, of_right: bool = False) -> None:
        rows = self._forms.read(records, of_right=of_right)
        keys = [(row.k,) for row in rows]
        numbers = [row[1] for row in rows]
        self._services.where = lambda at: Where(channel=65, position=numbers[at or 0])
        self._operator.bundle(keys, rows)

    def reach(self, second: int) -> None:
        self._services.watermark = int((BEGIN + dt.timedelta(seconds=second)).timestamp() * 1_000_000)
        while due := self._services.event_timers.pop_due(self._services.watermark):
            self._operator.timers(due, True)

    def end_epoch(self) -> None:
        self._operator.gathered()

    def close(self) -> None:
        self._state.close()


def listed(key: Any, window: Any, rows: list[Any], ctx: Any) -> Iterator[tuple[Any, ...]]:
    """The numbers of its records, and of those of every second one, by a side output."""
    ctx.side_output("every second", (key[0], [row.n for row in rows]))
    yield key[0], [row.n for row in rows]


def added(kept: Any, row: Any, ctx: Any) -> list[int]:
    return [*(kept or ()), row.n]


def joined(one: list[int], other: list[int]) -> list[int]:
    return [*one, *other]


def finished(key: Any, window: Any, kept: list[int], ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield key[0], kept


LISTED = "k string, of array<bigint>"
TUMBLING = ROWS.groupBy("k").window("5 seconds")
SLIDING = ROWS.groupBy("k").window("6 seconds", "2 seconds")
SESSIONS = ROWS.groupBy("k").session_window("3 seconds")
SHAPES: dict[str, CausalStream] = {
    "tumbling": TUMBLING.process(listed, LISTED, name="w", side_outputs={"every second": LISTED}),
    "sliding": SLIDING.process(listed, LISTED, name="w", side_outputs={"every second": LISTED}),
    "sliding, added up": SLIDING.aggregate(added, finished, LISTED, name="w"),
    "sessions": SESSIONS.process(listed, LISTED, name="w", side_outputs={"every second": LISTED}),
    "sessions, added up": SESSIONS.aggregate(added, finished, LISTED, name="w", merge=joined),
}
EVENTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(1, 4), st.booleans()), max_size=25
)


def judged(desk: Desk, begun: int, wanted: Any) -> int:
    """How many rows are of what they say. What came before record `begun` is not known."""
    for row, part in desk.looks.rows:
        of = wanted(row)
        found = {each.position for each in part.inputs}.union(
            *({each.position for each in kept} for kept in part.kept)
        )
        assert found == {number for number in of if number >= begun}, row
        assert part.lacks == (found != of), row
    return len(desk.looks.rows)


@pytest.mark.parametrize("shape", SHAPES)
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=EVENTS, begun=st.integers(0, 12))
def test_a_window_is_of_its_records(
    shape: str, events: list[Any], begun: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    desk = Desk(SHAPES[shape], tmp_path_factory.mktemp("state") / "state")
    held: list[tuple[Any, ...]] = []
    reached = 0
    for number, (key, second, size, moves) in enumerate(events):
        if number == begun and begun:
            desk.take(held)
            held.clear()
            desk.begin_at_state()
        held.append((key, number, BEGIN + dt.timedelta(seconds=max(second, reached))))
        if len(held) >= size:
            desk.take(held)
            held.clear()
        if moves and not held:
            reached = max(reached, second)
            desk.reach(reached)
    desk.take(held)
    desk.reach(100)
    begins = begun if 0 < begun < len(events) else 0
    rows = judged(desk, begins, lambda row: {*row[1]})
    desk.close()
    assert rows or begins or not events


LATER = stream("k string, m long, later timestamp").withWatermark("later", "0 seconds")
JOINS = {how: ROWS.join(LATER, "k", how, within="4 seconds", name="j") for how in ("inner", "left")}


@pytest.mark.parametrize("shape", JOINS)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.booleans(), st.booleans()), max_size=30
    ),
    begun=st.integers(0, 12),
)
def test_a_row_of_a_join_is_of_both_records(
    shape: str, events: list[Any], begun: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also where its partner says the same as others: of equal rows, each has one of its own."""
    desk = Desk(JOINS[shape], tmp_path_factory.mktemp("state") / "state", through_state=begun % 2 == 0)
    reached = 0
    for number, (key, second, of_right, moves) in enumerate(events):
        if number == begun and begun:
            desk.begin_at_state()
        desk.take([(key, number, BEGIN + dt.timedelta(seconds=max(second, reached)))], of_right=of_right)
        if moves:
            reached = max(reached, second)
            desk.reach(reached)
    desk.reach(100)
    judged(
        desk,
        begun if begun < len(events) else 0,
        lambda row: {number for number in (row[1], row[3]) if number is not None},
    )
    desk.close()


def test_a_state_of_a_window_function_is_followed_beside_its_windows(tmp_path: Path) -> None:
    """What it keeps itself may be of all records of its earlier windows, also of one that ended at the same time."""

    def counted(key: Any, window: Any, rows: list[Any], ctx: Any) -> Iterator[tuple[Any, ...]]:
        ctx.state["ended"] = ctx.state.get("ended", 0) + 1
        yield key[0], [row.n for row in rows]

    made = TUMBLING.process(counted, LISTED, name="w")
    for through_state in (False, True):
        desk = Desk(made, tmp_path / f"state {through_state}", through_state=through_state)
        for number, second in enumerate((0, 1, 6, 7, 12)):
            desk.take([("a", number, BEGIN + dt.timedelta(seconds=second))])
            if second < 7:
                desk.reach(second)
        desk.reach(100)
        exact, bounds = [
            [
                {each.position for kept in part.kept if kept.is_bound is is_bound for each in kept}
                for _, part in desk.looks.rows
            ]
            for is_bound in (False, True)
        ]
        assert exact == [{0, 1}, {2, 3}, {4}]
        assert bounds == ([set(), {0, 1}, {0, 1, 2, 3}] if through_state else [set()] * 3)
        desk.close()


def kept_by_frames(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    """All that it has seen of a key, until that are four."""
    import pandas as pd

    (before,) = state.getOption or ([],)
    given = [int(number) for frame in frames for number in frame["n"]]
    if len(before) + len(given) > 3:
        state.remove()
    else:
        state.update(([*before, *given],))
    yield pd.DataFrame({"k": [key[0]], "given": [given], "before": [before]})


class KeptByVariables:
    """The same with a state variable."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "of array<bigint>")

    def handleInputRows(self, key: Any, rows: Any, timer: Any) -> Iterator[Any]:
        before = self.seen.get()[0] if self.seen.exists() else []
        given = [row.n for row in rows]
        if len(before) + len(given) > 3:
            self.seen.clear()
        else:
            self.seen.update(([*before, *given],))
        yield key[0], given, before

    def close(self) -> None:
        pass


SPARKS = "k string, given array<bigint>, before array<bigint>"


@pytest.mark.parametrize("per", ["bundle", "batch"])
@pytest.mark.parametrize("form", ["frames", "variables"])
def test_a_function_of_sparks_is_called_for_a_key(form: str, per: str, tmp_path: Path) -> None:
    """Its rows are exactly of the records that it was given, and at most of those that its state may be of."""
    keyed = stream("k string, n long, at timestamp").groupBy("k")
    if form == "frames":
        made = keyed.applyInPandasWithState(
            kept_by_frames, SPARKS, "of array<bigint>", "update", "NoTimeout", name="f", per=per
        )
    else:
        made = keyed.transformWithState(KeptByVariables(), SPARKS, "update", "None", name="f", per=per)
    desk = Desk(made, tmp_path / "state", through_state=True)
    for bundle in range(6):
        desk.take([("ab"[at % 2], 4 * bundle + at, BEGIN) for at in range(3)])
        if per == "batch" and bundle % 2:
            desk.end_epoch()
    rows = desk.looks.rows
    assert len(rows) == (12 if per == "bundle" else 6)
    for (_, own, before), part in rows:
        kept = [{each.position for each in one} for one in part.kept if not one.is_bound]
        assert {each.position for each in part.inputs}.union(*kept) == {*own}
        assert {each.position for one in part.kept if one.is_bound for each in one} == {*before}
    assert any(before for (_, _, before), _ in rows) or per == "batch"
    desk.close()


def test_a_call_that_leaves_the_state_as_it_was_adds_nothing(tmp_path: Path) -> None:
    """A highest number: of those that are not higher, nothing is kept. A state that is large is not compared."""

    def highest(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        ctx.state.setdefault("text", "x" * (20_000 if key[0] == "b" else 2))
        before = ctx.state.get("highest", -1)
        ctx.state["highest"] = max(before, row.n % 4)
        yield key[0], [before]

    desk = Desk(ROWS.groupBy("k").process(highest, LISTED, name="h"), tmp_path / "state", through_state=True)
    for key in "ab":
        for number in (1, 0, 2, 4, 3):
            desk.take([(key, number, BEGIN)])
    bounds = [{each.position for kept in part.kept for each in kept} for _, part in desk.looks.rows]
    assert bounds[:5] == [set(), {1}, {1}, {1, 2}, {1, 2}]
    assert bounds[5:] == [set(), {1}, {1, 0}, {1, 0, 2}, {1, 0, 2, 4}]
    desk.close()


def test_records_that_are_at_work_together_are_of_one_call(tmp_path: Path) -> None:
    """Of an async function: its rows are of all records of the bundle, and of the states of their keys."""

    async def seen(key: Any, row: Any, ctx: Any) -> Any:
        ctx.state.setdefault("seen", []).append(row.n)
        yield key[0], [row.n]

    made = ROWS.groupBy("k").process(seen, LISTED, name="s")
    desk = Desk(made, tmp_path / "state", through_state=True)
    for records in ([("a", 0), ("b", 1), ("a", 2)], [("a", 3)], [("b", 4), ("c", 5)]):
        desk.take([(key, number, BEGIN) for key, number in records])
    exact = [{each.position for each in part.inputs} for _, part in desk.looks.rows]
    bounds = [{each.position for kept in part.kept for each in kept} for _, part in desk.looks.rows]
    assert exact == [{0, 1, 2}] * 3 + [{3}] + [{4, 5}] * 2
    assert bounds == [set()] * 3 + [{0, 2}] + [{1}] * 2
    desk.close()


def when(second: int) -> dt.datetime:
    return BEGIN + dt.timedelta(seconds=second)


def seen_until_it_times_out(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    import pandas as pd

    if state.hasTimedOut:
        (seen,) = state.get
        state.remove()
        yield pd.DataFrame({"k": [key[0]], "of": [seen]})
        return
    state.update(([int(n) for frame in frames for n in frame["n"]],))
    state.setTimeoutTimestamp(int(when(60).timestamp() * 1000))


@pytest.mark.parametrize("through_state", [False, True])
def test_a_late_record_is_in_no_timer(tmp_path: Path, through_state: bool) -> None:
    """The function is not given it, so that what it sets is of the others alone."""
    made = ROWS.groupBy("k").applyInPandasWithState(
        seen_until_it_times_out,
        "k string, of array<bigint>",
        "of array<bigint>",
        "append",
        "EventTimeTimeout",
        name="seen",
        per="bundle",
    )
    desk = Desk(made, tmp_path / "state", through_state=through_state)
    desk.reach(30)
    desk._services.epoch_watermark = desk._services.watermark
    desk.take([("a", 0, when(1)), ("a", 1, when(40))])
    desk.reach(100)
    ((row, part),) = desk.looks.rows
    assert list(row[1]) == [1]
    assert {record.position for kept in part.kept for record in kept} == {1}
    desk.close()


def ended_so_far(key: Any, window: Any, rows: Any, ctx: Any) -> Iterator[Any]:
    ctx.state["w"] = ctx.state.get("w", 0) + len(rows)
    yield key[0], [row.n for row in rows]


@pytest.mark.parametrize("is_cut", [False, True])
def test_what_a_window_is_given_does_not_change_the_state_of_its_function(
    tmp_path: Path, is_cut: bool
) -> None:
    """Also for the first record behind a state that the repetition begins with."""
    made = ROWS.groupBy("k").window("5 seconds").process(ended_so_far, "k string, of array<bigint>", name="w")
    desk = Desk(made, tmp_path / "state", through_state=True)
    desk.take([("a", 0, when(0))])
    desk.reach(5)
    if is_cut:
        desk.begin_at_state()
    desk.take([("a", 1, when(6))])
    desk.take([("a", 2, when(11))])
    desk.reach(10)
    row, part = desk.looks.rows[-1]
    assert list(row[1]) == [1]
    exact = [record.position for kept in part.kept if not kept.is_bound for record in kept]
    bound = [record.position for kept in part.kept if kept.is_bound for record in kept]
    assert (exact, bound, part.lacks) == ([1], [] if is_cut else [0], is_cut)
    desk.close()


def test_a_join_behind_a_state_keeps_nothing_of_a_function(tmp_path: Path) -> None:
    """What it keeps itself is under the key, and no state of a user's function."""
    desk = Desk(JOINS["inner"], tmp_path / "state", through_state=True)
    desk.take([("a", 0, when(0))])
    desk.begin_at_state()
    desk.take([("a", 1, when(1))], of_right=True)
    ((_, part),) = desk.looks.rows
    assert part.lacks and not any(kept.is_bound for kept in part.kept)
    desk.close()


def first_sets_a_timer(key: Any, row: Any, ctx: Any) -> list[Any]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    if ctx.state["n"] == 1:
        ctx.timer(at=row.at + dt.timedelta(seconds=1), name="beat", event=True)
    return []


def beat(key: Any, timer: Any, ctx: Any) -> Iterator[Any]:
    ctx.state["beats"] = ctx.state.get("beats", 0) + 1
    ctx.timer(at=timer.due_us + 1_000_000, name="beat", event=True)
    yield key[0], ctx.state["beats"]


def test_a_timer_that_is_set_again_is_of_no_more_each_time(tmp_path: Path) -> None:
    made = ROWS.groupBy("k").process(first_sets_a_timer, "k string, n long", name="w", on_timer=beat)
    desk = Desk(made, tmp_path / "state", through_state=True)
    for at in range(50):
        desk.take([("a", at, when(at))])
        desk.reach(at)
    found = [part.kept for _, part in desk.looks.rows]
    assert len(found) == 49 and len(found[-1]) == len(found[2]) <= 3
    assert [record.position for kept in found[-1] if not kept.is_bound for record in kept] == [0]
    assert {record.position for kept in found[-1] if kept.is_bound for record in kept} == set(range(50))
    desk.close()
