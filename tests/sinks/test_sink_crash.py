"""Writers that die by SIGKILL at scripted points, and their successors: every output visible exactly once.

Goal: whatever step of a bundle a writer dies in, what is visible then has its determinants beside it, and after the
next writer has gone on, the output is 1..N without gap or repeat. Method: a real process is killed at each step; a
second one with a higher fence goes on from the cursors it finds.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sink_child import make_sink
from sink_support import (
    QUERY,
    SQL,
    assert_covered,
    expected,
    file_rows,
    fresh_database,
    kill_at_any_moment,
    race,
    run_child,
    stopped_writer,
    table_rows,
)

UPTO = 60
KILLED = -signal.SIGKILL


@pytest.fixture
def sql_spec(url: str) -> dict[str, Any]:
    return {"sink": "sql", "arguments": {"url": url, "table": "out", "patience": 20}, "upto": UPTO}


def of_files(kind: str, tmp_path: Path) -> dict[str, Any]:
    """Small segments, so that some bundles begin a new one."""
    arguments = {"path": str(tmp_path / "rows"), "patience": 20, "segment_bytes": 900}
    return {"sink": kind, "arguments": arguments, "upto": UPTO}


@pytest.fixture(params=["jsonl", "log"])
def file_spec(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return of_files(request.param, tmp_path)


def crash_then_go_on(folder: Path, spec: dict[str, Any], point: str, at: int) -> None:
    status, _ = run_child(folder, {**spec, "fence": 1, "crash": {"point": point, "at": at}})
    assert status == KILLED, "the crash point was never passed"
    status, said = run_child(folder, {**spec, "fence": 2})
    assert (status, said[-1]) == (0, {"event": "written", "at": UPTO})


@pytest.mark.parametrize(
    ("moment", "at"), [("before", 1), ("before", 3), ("within", 1), ("within", 3), ("after", 0), ("after", 3)]
)
def test_sql_writer_dies(tmp_path: Path, sql_spec: dict[str, Any], moment: str, at: int) -> None:
    url = sql_spec["arguments"]["url"]
    sink = make_sink(sql_spec)
    status, _ = run_child(
        tmp_path, {**sql_spec, "fence": 1, "crash": {"point": f"transaction.{moment}", "at": at}}
    )
    assert status == KILLED
    visible = table_rows(url)
    assert visible == expected(10 * (at if moment == "after" else at - 1))
    assert_covered(sink, visible)
    status, said = run_child(tmp_path, {**sql_spec, "fence": 2})
    assert (status, said[0]["at"], said[-1]["at"]) == (0, len(visible), UPTO)
    assert table_rows(url) == expected(UPTO)
    assert_covered(sink, table_rows(url))


@pytest.mark.parametrize(
    ("point", "at"),
    [
        *(
            (f"{file}.{moment}", at)
            for file in ("log", "rows")
            for moment in ("before", "half", "after")
            for at in (1, 4)
        ),
        *((f"segment.{moment}", at) for moment in ("before", "after") for at in (0, 1, 2)),
    ],
)
def test_file_writer_dies(tmp_path: Path, file_spec: dict[str, Any], point: str, at: int) -> None:
    folder = Path(file_spec["arguments"]["path"])
    crash_then_go_on(tmp_path, file_spec, point, at)
    assert file_rows(folder) == expected(UPTO)
    assert_covered(make_sink(file_spec), file_rows(folder))


@pytest.mark.parametrize("kind", ["sql", "jsonl", "log"])
def test_writers_killed_at_any_moment(tmp_path: Path, kind: str) -> None:
    """Writers in a row, each killed from outside while it writes on."""
    spec = {**of_files(kind, tmp_path), "upto": 10_000}
    if kind == "sql":
        spec = {
            "sink": "sql",
            "arguments": {"url": f"sqlite:///{tmp_path}/s.db", "table": "out"},
            "upto": 10_000,
        }
    least = kill_at_any_moment(tmp_path, spec)
    sink = make_sink(spec)
    with closing(sink.writer()) as writer:
        at = writer.open(query=QUERY, node=5, instance=0, fence=99).cursors[3]
    assert at >= least
    rows = table_rows(spec["arguments"]["url"]) if kind == "sql" else file_rows(tmp_path / "rows")
    assert rows == expected(at)
    assert_covered(sink, rows)


@pytest.mark.parametrize("kind", ["jsonl", *SQL])
def test_two_processes_race(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    spec = of_files(kind, tmp_path)
    if kind != "jsonl":
        url = fresh_database(kind, request, tmp_path)
        spec = {"sink": "sql", "arguments": {"url": url, "table": "out"}}
    race(tmp_path, spec, 2000)
    rows = table_rows(spec["arguments"]["url"]) if kind != "jsonl" else file_rows(tmp_path / "rows")
    assert rows == expected(2000)


@pytest.mark.parametrize("kind", SQL[1:])
def test_a_stopped_writer_cannot_keep_its_successor_out(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """A process hangs in the middle of its transaction, holding the fence's row; the server ends the transaction."""
    url = fresh_database(kind, request, tmp_path)
    arguments = {"url": url, "table": "out", "patience": 1}
    spec = {"sink": "sql", "arguments": arguments, "upto": 40}
    hang = {"crash": {"point": "transaction.within", "at": 2}}
    with stopped_writer(tmp_path, {**spec, **hang}) as (zombie, said):
        successor = {**spec, "arguments": {**arguments, "patience": 30}, "fence": 2}
        status, after = run_child(tmp_path, successor)
        assert (status, after[0]["at"], after[-1]["at"]) == (0, 10, 40)
        os.kill(zombie.pid, signal.SIGCONT)
        assert [each.get("error") for each in said] == ["Fenced"]
    assert table_rows(url) == expected(40)


def read_store(path: Path) -> list[tuple[Any, ...]]:
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("mode", ["idempotent", "checkable"])
@pytest.mark.parametrize(("die_within", "point"), [(25, None), (None, "log.half"), (None, "log.after")])
def test_callable_writer_dies(tmp_path: Path, mode: str, die_within: int | None, point: str | None) -> None:
    store = tmp_path / "store"
    arguments = {"store": str(store), "mode": mode, "path": str(tmp_path / "log"), "id_prefix": ""}
    spec: dict[str, Any] = {"sink": "call", "arguments": arguments, "upto": UPTO}
    first = {**spec, "fence": 1, "arguments": {**arguments, "die_within": die_within}}
    if point:
        first["crash"] = {"point": point, "at": 3}
    status, _ = run_child(tmp_path, first)
    assert status == KILLED
    assert_covered_by_intent(spec, read_store(store))
    status, said = run_child(tmp_path, {**spec, "fence": 2})
    assert (status, said[-1]) == (0, {"event": "written", "at": UPTO})
    rows = read_store(store)
    if mode == "idempotent":
        assert len(set(rows)) == len({each[0] for each in rows}), "one id with two contents"
        rows = list(dict.fromkeys(rows))
    assert rows == expected(UPTO)


def assert_covered_by_intent(spec: dict[str, Any], rows: list[tuple[Any, ...]]) -> None:
    with closing(make_sink(spec).log_reader(QUERY)) as reader:
        last = max(int(each.rsplit(b" ")[-1]) for each in reader.deltas())
    assert last >= len(rows)
