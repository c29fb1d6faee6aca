"""The example of docs/write-a-sink.md keeps what a sink promises, and the checks find mistakes that one may make."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest
from own_sink import OwnSink, OwnStore
from sink_child import NODE, bundle, make_sink
from sink_support import (
    QUERY,
    assert_covered,
    expected,
    opened,
    race,
    run_child,
    stopped_writer,
)

from clonos.errors import LogCorrupt, SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch
from clonos.sinks.store_records import Keys
from clonos.testing.conformance import sinks as sink_checks, stores as store_checks
from clonos.testing.conformance.sinks import COMMIT_CHECKS, SINK_CHECKS, CommitPlace, SinkPlace, check_name
from clonos.testing.conformance.stores import STORE_CHECKS

UPTO = 60
KILLED = -signal.SIGKILL
Values = Mapping[str, bytes | None]


def read_back(path: Path) -> list[Any]:
    """`(id, card, n)` of each row, as a reader of the file finds it."""
    with closing(sqlite3.connect(path)) as db:
        try:
            found = db.execute("SELECT id, row FROM out ORDER BY rowid").fetchall()
        except sqlite3.OperationalError:  # no table yet
            return []
    lines = [(row_id, json.loads(row)) for row_id, row in found]
    assert all(row["clonos_id"] == row_id for row_id, row in lines if "/" in row["clonos_id"])
    return [(row_id, row["card"], row["n"]) for row_id, row in lines]


@pytest.fixture
def place(tmp_path: Path) -> SinkPlace:
    path = tmp_path / "out.db"
    return SinkPlace(make=lambda: OwnSink(path), visible=lambda: read_back(path))


@pytest.mark.parametrize("check", [*SINK_CHECKS, *STORE_CHECKS], ids=check_name)
def test_the_sink(check: Callable[[SinkPlace], None], place: SinkPlace) -> None:
    check(place)


@pytest.mark.parametrize("check", COMMIT_CHECKS, ids=check_name)
def test_its_commit_record(check: Callable[[CommitPlace], None], place: SinkPlace) -> None:
    check(CommitPlace(place.sink))


# ------------------------------------------------------------------ deaths


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    return {"sink": "own", "arguments": {"path": str(tmp_path / "out.db")}, "upto": UPTO}


def shown(spec: dict[str, Any]) -> list[Any]:
    return [
        (row_id.removeprefix(f"{QUERY}/"), card, n)
        for row_id, card, n in read_back(spec["arguments"]["path"])
    ]


@pytest.mark.parametrize(
    ("moment", "at"), [("before", 1), ("before", 3), ("within", 1), ("within", 3), ("after", 0), ("after", 3)]
)
def test_a_writer_dies(tmp_path: Path, spec: dict[str, Any], moment: str, at: int) -> None:
    crash = {"crash": {"point": f"own.{moment}", "at": at}}
    assert run_child(tmp_path, {**spec, "fence": 1, **crash})[0] == KILLED
    visible = shown(spec)
    assert visible == expected(10 * (at if moment == "after" else at - 1))
    assert_covered(make_sink(spec), visible)
    status, said = run_child(tmp_path, {**spec, "fence": 2})
    assert (status, said[0]["at"], said[-1]["at"]) == (0, len(visible), UPTO)
    assert shown(spec) == expected(UPTO)
    assert_covered(make_sink(spec), shown(spec))


def test_two_processes_race(tmp_path: Path, spec: dict[str, Any]) -> None:
    race(tmp_path, spec, 1000)
    assert shown(spec) == expected(1000)


def test_a_stopped_writer_is_waited_for_until_it_is_killed(tmp_path: Path, spec: dict[str, Any]) -> None:
    hang = {"crash": {"point": "own.within", "at": 2}}
    refused = pytest.raises(SinkUnavailable, match="database is locked; tried")
    with stopped_writer(tmp_path, {**spec, **hang}), refused:
        opened(make_sink({**spec, "arguments": {**spec["arguments"], "patience": 0}}), 2)
    status, after = run_child(tmp_path, {**spec, "fence": 3})
    assert (status, after[0]["at"], after[-1]["at"]) == (0, 10, UPTO)
    assert shown(spec) == expected(UPTO)


# --------------------------------------------- what becomes of a single step


class Lossy:
    """A store whose answers are lost: the step takes effect or not, and the connection breaks."""

    def __init__(self, store: OwnStore, losses: list[bool]) -> None:
        self._store, self._losses = store, losses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def step(self, *arguments: Any) -> bool:
        if not self._losses:
            return self._store.step(*arguments)
        if self._losses.pop(0):
            self._store.step(*arguments)
        raise sqlite3.OperationalError("the answer is lost")


class LossySink(OwnSink):
    def __init__(self, path: Path, losses: list[bool], patience: float = 30.0) -> None:
        super().__init__(path, patience)
        self.losses = losses

    def connect(self) -> Any:
        return Lossy(super().connect(), self.losses)


@pytest.mark.parametrize("losses", [[True], [False], [True, True], [False, True, True]])
def test_an_answer_that_is_lost_is_found_out(tmp_path: Path, losses: list[bool]) -> None:
    sink = LossySink(tmp_path / "out.db", [])
    sink.validate(sink_checks.SCHEMA)
    sink.losses += losses
    with closing(opened(sink, 3)) as writer:  # the taking of a fence
        sink.losses += losses
        writer.write(**bundle(1, 10))
        writer.write(**bundle(11, 20))
    sink.losses += losses
    sink.raise_fence(QUERY, Fence(5))
    sink.losses += losses
    sink.record_commit(QUERY, Fence(5), Epoch(1), b"one")
    assert (sink.standing_fence(QUERY), sink.last_commit(QUERY)) == (5, (1, b"one"))
    assert [row_id for row_id, _, _ in read_back(tmp_path / "out.db")] == [
        f"{QUERY}/3-0-{n}" for n in range(1, 21)
    ]
    sink.losses += losses
    assert sink.truncate(QUERY, Fence(5), lambda delta: delta == b"delta up to 20") == 1
    with closing(sink.log_reader(QUERY)) as reader:
        assert list(reader.deltas()) == [b"delta up to 20"]


class Held(OwnStore):
    """Keeps the steps that bring rows, as a network does that delivers them later, and says that they have failed."""

    steps: ClassVar[list[Any]] = []

    def step(self, *step: Any) -> bool:
        if not step[2]:
            return super().step(*step)
        self.steps.append(step)
        raise sqlite3.OperationalError("no answer")


@pytest.mark.parametrize("by", ["the same writer, under the same fence", "a newer writer"])
def test_a_step_that_comes_late_has_no_effect(tmp_path: Path, place: SinkPlace, by: str) -> None:
    class HeldSink(OwnSink):
        def connect(self) -> OwnStore:
            return Held(self)

    sink = HeldSink(tmp_path / "out.db", patience=0)
    sink.validate(sink_checks.SCHEMA)
    Held.steps.clear()
    newer = by == "a newer writer"
    with closing(opened(sink, 3)) as first, closing(place.sink().writer()) as second:
        with pytest.raises(SinkUnavailable):
            first.write(**bundle(1, 5))
        successor = second if newer else first
        position = successor.open(query=QUERY, node=NODE, instance=0, fence=Fence(3 + newer))
        assert position.cursors == {}
        with closing(place.sink().connect()) as store:
            assert store.step(*Held.steps.pop()) is False
        assert place.shown() == []


def test_another_bundle_is_refused_while_one_is_in_doubt(tmp_path: Path) -> None:
    sink = LossySink(tmp_path / "out.db", [], patience=0)
    sink.validate(sink_checks.SCHEMA)
    with closing(opened(sink, 3)) as writer:
        sink.losses.append(True)
        with pytest.raises(SinkUnavailable, match="the answer is lost; tried 1 times"):
            writer.write(**bundle(1, 10))
        with pytest.raises(SinkError, match="repeat that very bundle or open a new writer"):
            writer.write(**bundle(1, 5))
        writer.write(**bundle(1, 10))  # what the hint says
        sink.losses.append(True)
        with pytest.raises(SinkUnavailable):
            writer.write(**bundle(11, 20))
        position = writer.open(query=QUERY, node=NODE, instance=0, fence=Fence(3))
        assert position.cursors == {3: 20}
    assert len(read_back(tmp_path / "out.db")) == 20


def execute(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


def test_a_store_that_has_gone_back_is_told(tmp_path: Path, place: SinkPlace) -> None:
    """An older copy of it was restored under a query that runs on."""
    with closing(opened(place.sink(), 3)) as writer:
        writer.write(**bundle(1, 10))
        execute(tmp_path / "out.db", "DELETE FROM record WHERE key LIKE '%/position/%'")
        with pytest.raises(SinkError, match="gone back to an older copy of itself"):
            writer.write(**bundle(11, 20))


def test_a_fence_that_was_removed_is_not_called_a_takeover(tmp_path: Path, place: SinkPlace) -> None:
    with closing(opened(place.sink(), 3)) as writer:
        place.sink().raise_fence(QUERY, Fence(2))
        writer.write(**bundle(1, 10))
        execute(tmp_path / "out.db", "DELETE FROM record WHERE key LIKE '%/holder/%'")
        with pytest.raises(SinkError, match="the fence of sink node 5 is gone: record query-1/holder/5-0 of"):
            writer.write(**bundle(11, 20))
    with closing(opened(place.sink(), 4)) as writer:  # what the hint says
        writer.write(**bundle(11, 20))


@pytest.mark.parametrize(
    "key", [Keys(QUERY).floor, Keys(QUERY).commit, f"{QUERY}/holder/5-0", f"{QUERY}/position/5-0"]
)
def test_a_damaged_record_is_told_and_kept(tmp_path: Path, place: SinkPlace, key: str) -> None:
    sink = place.sink()
    sink.raise_fence(QUERY, Fence(2))
    sink.record_commit(QUERY, Fence(2), Epoch(1), b"one")
    with closing(opened(sink, 3)) as writer:
        writer.write(**bundle(1, 10))
    execute(
        tmp_path / "out.db",
        "UPDATE record SET value = substr(value, 1, length(value) - 1) WHERE key = ?",
        key,
    )
    with pytest.raises(LogCorrupt, match=f"record {re.escape(key)} is damaged"):
        sink.last_commit(QUERY) if key.endswith("commit") else opened(sink, 4)


def test_a_damaged_entry_of_the_log_is_told_passed_over_and_kept(tmp_path: Path, place: SinkPlace) -> None:
    with closing(opened(place.sink(), 3)) as writer:
        writer.write(**bundle(1, 10))
        writer.write(**bundle(11, 20))
    key = f"{QUERY}/log/5-0/{1:020d}"
    execute(tmp_path / "out.db", "UPDATE record SET value = x'00' WHERE key = ?", key)
    for dropped in (0, 1):
        with closing(place.sink().log_reader(QUERY)) as reader:
            assert list(reader.deltas()) == [b"delta up to 20"][dropped:]
            assert [each.endswith(f"record {key}") for each in reader.corrupt] == [True]
        assert place.sink().truncate(QUERY, Fence(3), lambda _: False) == 1 - dropped


def test_numbers_go_on_after_everything_was_trimmed(place: SinkPlace) -> None:
    given: list[str] = []
    for fence in range(1, 4):
        with closing(opened(place.sink(), fence)) as writer:
            writer.write(**{**bundle(fence, fence), "deltas": [b"same", b"same"]})
        store = place.sink().connect()
        given += [key.rpartition("/")[2] for key, _ in store.scan(f"{QUERY}/log/", f"{QUERY}/log/~", 9)]
        store.close()
        assert place.sink().truncate(QUERY, Fence(fence), lambda _: False) == 2
    assert given == [f"{number:020d}" for number in range(1, 7)]


def test_a_row_that_the_store_refuses_is_told_with_nothing_of_its_bundle_visible(
    tmp_path: Path, place: SinkPlace
) -> None:
    with closing(opened(place.sink(), 3)) as writer:
        writer.write(**bundle(1, 5))
        execute(
            tmp_path / "out.db",
            "INSERT INTO out VALUES (?, ?)",
            f"{QUERY}/3-0-8",
            '{"clonos_id": "", "card": "", "n": 0}',
        )
        with pytest.raises(SinkError, match=r"refuses: IntegrityError: UNIQUE constraint failed: out\.id"):
            writer.write(**bundle(6, 10))
    assert len(read_back(tmp_path / "out.db")) == 6


def test_a_step_that_is_always_refused_is_no_endless_loop(
    place: SinkPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnStore, "step", lambda *_: False)
    with pytest.raises(SinkError, match=r"refused a step 1000 times.*clonos\.testing\.conformance\.stores"):
        opened(place.sink(), 3)


# ---------------------------------------------------- mistakes one may make


def nothing_is_compared(patch: pytest.MonkeyPatch) -> None:
    whole = OwnStore.step
    patch.setattr(OwnStore, "step", lambda self, expected, *rest: whole(self, {}, *rest))


def absence_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    whole = OwnStore.step

    def step(self: OwnStore, expected: Values, *rest: Any) -> bool:
        return whole(self, {key: value for key, value in expected.items() if value is not None}, *rest)

    patch.setattr(OwnStore, "step", step)


def compared_outside_of_the_transaction(patch: pytest.MonkeyPatch) -> None:
    whole, together = OwnStore.step, threading.Barrier(2)

    def step(self: OwnStore, expected: Values, *rest: Any) -> bool:
        if any(self.get(key) != value for key, value in expected.items()):
            return False
        with contextlib.suppress(threading.BrokenBarrierError):  # two have compared before one of them writes
            together.wait(1)
        return whole(self, {}, *rest)

    patch.setattr(OwnStore, "step", step)


def rows_are_written_before_comparing(patch: pytest.MonkeyPatch) -> None:
    whole = OwnStore.step

    def step(self: OwnStore, expected: Values, changes: Values, rows: Any, ids: Any) -> bool:
        whole(self, {}, {}, rows, ids)
        return whole(self, expected, changes, [], [])

    patch.setattr(OwnStore, "step", step)


def none_is_kept_as_empty(patch: pytest.MonkeyPatch) -> None:
    whole = OwnStore.step

    def step(self: OwnStore, expected: Values, changes: Values, *rest: Any) -> bool:
        return whole(self, expected, {key: value or b"" for key, value in changes.items()}, *rest)

    patch.setattr(OwnStore, "step", step)


def a_scan_has_no_order(patch: pytest.MonkeyPatch) -> None:
    whole = OwnStore.scan
    patch.setattr(OwnStore, "scan", lambda self, *between: list(reversed(whole(self, *between))))


def a_scan_has_no_end(patch: pytest.MonkeyPatch) -> None:
    whole = OwnStore.scan
    patch.setattr(OwnStore, "scan", lambda self, after, before, limit: whole(self, after, "~~", limit))


MISTAKES = [
    (nothing_is_compared, store_checks.a_step_that_is_not_as_expected_changes_nothing),
    (nothing_is_compared, sink_checks.a_second_writer_under_the_same_fence_is_refused),
    (absence_is_not_compared, store_checks.a_step_that_is_not_as_expected_changes_nothing),
    (compared_outside_of_the_transaction, store_checks.of_steps_at_once_one_takes_effect),
    (rows_are_written_before_comparing, store_checks.a_step_that_is_not_as_expected_changes_nothing),
    (rows_are_written_before_comparing, sink_checks.a_second_writer_under_the_same_fence_is_refused),
    (none_is_kept_as_empty, store_checks.a_record_is_removed),
    (a_scan_has_no_order, store_checks.a_scan_gives_what_lies_between_in_order),
    (a_scan_has_no_order, sink_checks.rows_determinants_and_cursor_take_effect_together),
    (a_scan_has_no_end, store_checks.a_scan_gives_what_lies_between_in_order),
]


@pytest.mark.parametrize(("mistake", "found_by"), MISTAKES, ids=lambda each: each.__name__)
def test_a_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None],
    found_by: Callable[[SinkPlace], None],
    place: SinkPlace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, SinkError)):
        found_by(place)


def named_checks(page: str) -> Iterator[str]:
    """Of the table of mistakes."""
    table = page.partition("| found by |\n")[2].partition("\n\n")[0]
    for line in table.splitlines()[1:]:
        yield from re.findall(r"`(\w+)`", line.split("|")[-2])


def test_the_page_names_the_check_that_finds_each_mistake(root: Path) -> None:
    page = (root / "docs" / "write-a-sink.md").read_text("utf-8")
    assert {check.__name__ for _, check in MISTAKES} <= set(named_checks(page))
    known = {check.__name__ for check in (*SINK_CHECKS, *STORE_CHECKS, *COMMIT_CHECKS)}
    assert set(named_checks(page)) <= known


def test_the_page_shows_the_example_as_it_is(root: Path) -> None:
    page = (root / "docs" / "write-a-sink.md").read_text("utf-8")
    source = (root / "examples" / "own_sink.py").read_text("utf-8")
    assert f"```python\n{source}```\n" in page
