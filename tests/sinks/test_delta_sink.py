"""The Delta sink: writers that die, stop or race, commits of others beside it, and what is refused."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import arrow_values
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, TableFeatures
from deltalake.schema import PrimitiveType
from sink_child import SCHEMA, bundle, make_sink
from sink_support import (
    QUERY,
    assert_covered,
    expected,
    opened,
    race,
    run_child,
    stopped_writer,
)

from clonos import sinks
from clonos.errors import LogCorrupt, QueryDefinitionError, SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch
from clonos.sinks.delta_table import LocalTable

UPTO = 60
KILLED = -signal.SIGKILL
POINTS = ["step", "rows", "records", "commit", "committed", "after"]
"""In the order in which a step passes them."""


class Place:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "table"
        self.spec: dict[str, Any] = {"sink": "delta", "arguments": {"path": str(self.path)}, "upto": UPTO}

    def sink(self, **arguments: Any) -> Any:
        return make_sink({"sink": "delta", "arguments": {**self.spec["arguments"], **arguments}})

    def table(self) -> DeltaTable:
        return DeltaTable(self.path)

    def rows(self) -> list[tuple[Any, ...]]:
        """By output number: Delta does not say in which order files are read."""
        found = self.table().to_pyarrow_table().to_pylist()
        assert all(row["clonos_id"].startswith(f"{QUERY}/") for row in found)
        rows = [(row["clonos_id"].removeprefix(f"{QUERY}/"), row["card"], row["n"]) for row in found]
        return sorted(rows, key=lambda row: int(row[0].rpartition("-")[2]))

    def kept(self) -> list[str]:
        return sorted(os.listdir(self.path / "_clonos" / QUERY))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# ------------------------------------------------------------------ deaths


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("moment", POINTS)
def test_a_writer_dies(tmp_path: Path, place: Place, moment: str, at: int) -> None:
    crash = {"crash": {"point": f"delta.{moment}", "at": at}}
    assert run_child(tmp_path, {**place.spec, "fence": 1, **crash})[0] == KILLED
    visible = place.rows()
    assert visible == expected(10 * (at if moment in ("committed", "after") else at - 1))
    assert_covered(place.sink(), visible)
    status, said = run_child(tmp_path, {**place.spec, "fence": 2})
    assert (status, said[0]["at"], said[-1]["at"]) == (0, len(visible), UPTO)
    assert place.rows() == expected(UPTO)
    assert_covered(place.sink(), place.rows())


@pytest.mark.parametrize("moment", ["step", "records", "commit", "committed", "after"])
def test_a_writer_dies_while_it_begins(tmp_path: Path, place: Place, moment: str) -> None:
    crash = {"crash": {"point": f"delta.{moment}", "at": 0}}
    assert run_child(tmp_path, {**place.spec, "fence": 1, **crash})[0] == KILLED
    status, said = run_child(tmp_path, {**place.spec, "fence": 2})
    assert (status, said[0]["at"], said[-1]["at"]) == (0, 0, UPTO)
    assert place.rows() == expected(UPTO)


def test_two_processes_race(tmp_path: Path, place: Place) -> None:
    race(tmp_path, place.spec, 400)
    assert place.rows() == expected(400)


@pytest.mark.parametrize(("moment", "done"), [("commit", 10), ("committed", 20)])
def test_a_stopped_writer_cannot_keep_its_successor_out(
    tmp_path: Path, place: Place, moment: str, done: int
) -> None:
    """It hangs with everything written but the commit. What it has written is removed meanwhile."""
    hang = {"crash": {"point": f"delta.{moment}", "at": 2}}
    spec = {**place.spec, "upto": 40}
    with stopped_writer(tmp_path, {**spec, **hang}) as (zombie, said):
        status, after = run_child(tmp_path, {**spec, "fence": 2})
        assert (status, after[0]["at"], after[-1]["at"]) == (0, done, 40)
        place.sink().truncate(QUERY, Fence(2), lambda delta: delta != b"delta up to 40")
        os.kill(zombie.pid, signal.SIGCONT)
        assert list(said)[-1]["error"] == "Fenced"
    assert place.rows() == expected(40)


# ------------------------------------------------------------- a single step


@pytest.mark.parametrize("effect", ["no effect", "an effect"])
def test_a_commit_whose_outcome_is_not_known_is_found_out(
    place: Place, monkeypatch: pytest.MonkeyPatch, effect: str
) -> None:
    commit, failing = LocalTable.commit, [False]

    def unsure(table: LocalTable, *arguments: Any) -> str | None:
        if not failing[0]:
            return commit(table, *arguments)
        failing[0] = False
        if effect == "an effect":
            commit(table, *arguments)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(LocalTable, "commit", unsure)
    sink = place.sink()
    failing[0] = True
    with closing(opened(sink, 1)) as writer:
        for first in (1, 11):
            failing[0] = True
            writer.write(**bundle(first, first + 9))
    failing[0] = True
    sink.record_commit(QUERY, Fence(1), Epoch(1), b"one")
    failing[0] = True
    assert sink.truncate(QUERY, Fence(1), lambda delta: delta == b"delta up to 20") == 1
    assert sink.last_commit(QUERY) == (1, b"one")
    assert place.rows() == expected(20)
    assert_covered(sink, place.rows())


def test_a_commit_of_others_comes_in_between(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction, a new column, and rows of another query: each right before a commit of ours."""
    commit = LocalTable.commit
    others: list[Callable[[], Any]] = [
        lambda: place.table().optimize.compact(),
        lambda: place.table().alter.add_columns(Schema.from_arrow(pa.schema([("more", pa.int64())])).fields),
        lambda: write_other(place),
    ]

    def after_others(table: LocalTable, *arguments: Any) -> str | None:
        if others and arguments[2]:
            others.pop(0)()
        return commit(table, *arguments)

    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
        writer.write(**bundle(11, 20))
        monkeypatch.setattr(LocalTable, "commit", after_others)
        for first in (21, 31, 41):
            writer.write(**bundle(first, first + 9))
    assert others == []
    found = place.table().to_pyarrow_table().to_pylist()
    assert len([row for row in found if row["clonos_id"].startswith("other/")]) == 2
    assert len({row["clonos_id"] for row in found}) == len(found) == 52


def write_other(place: Place) -> None:
    with closing(opened(place.sink(), 1, query="other")) as writer:
        writer.write(**bundle(1, 2))


def test_what_is_needed_outlives_checkpoints_compaction_and_vacuum(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        for first in range(1, 40, 10):
            writer.write(**bundle(first, first + 9))
            place.table().create_checkpoint()
    place.table().optimize.compact()
    place.table().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert_covered(place.sink(), place.rows())
    with closing(opened(place.sink(), 2)) as writer:
        writer.write(**bundle(41, 50))
    assert place.rows() == expected(50)


def test_rows_that_a_restore_takes_away_are_not_missed(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
        before = place.table().version()
        writer.write(**bundle(11, 20))
        place.table().restore(before)
        writer.write(**bundle(21, 30))
    assert place.rows() == expected(30)[:10] + expected(30)[20:]


def test_records_are_removed_with_the_next_step(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        for first in range(1, 100, 10):
            writer.write(**bundle(first, first + 9))
    assert sorted(name.partition(".")[2] for name in place.kept()) == ["log"] * 10 + ["records"]


def test_files_that_no_step_needs_are_removed_when_the_log_is_trimmed(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        for first in range(1, 100, 10):
            writer.write(**bundle(first, first + 9))
    for name in ("00000000000000000001.records", "00000000000000000001.log"):
        (place.path / "_clonos" / QUERY / name).touch()  # of a writer that died before its commit
    assert len(place.kept()) >= 12
    assert place.sink().truncate(QUERY, Fence(1), lambda delta: delta == b"delta up to 100") == 9
    assert [name.partition(".")[2] for name in place.kept()] == ["log", "records"]
    assert_covered(place.sink(), place.rows())


def test_what_is_committed_is_synced(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.add(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), place.path))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
    there = {
        os.path.relpath(path, place.path)
        for path in place.path.rglob("*")
        if path.is_file() and "tmp" not in path.name
    }
    assert there <= synced
    assert {"..", ".", "_delta_log", "_clonos", f"_clonos/{QUERY}"} <= synced


# ------------------------------------------------------------------- damage


def test_a_table_that_was_removed_or_made_anew_is_told(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
        aside = place.path.rename(place.path.with_name("aside"))
        for _ in range(2):
            with pytest.raises(SinkError, match="was removed or made anew"):
                writer.write(**bundle(11, 20))
            place.sink().raise_fence("other", Fence(1))  # makes it anew
        place.path.rename(place.path.with_name("anew"))
        aside.rename(place.path)  # as the hint says
        writer.write(**bundle(11, 20))
    assert place.rows() == expected(20)


def test_a_log_that_is_cleaned_up_while_a_writer_is_idle_is_gone_on_with(place: Place) -> None:
    """Delta removes what lies before a checkpoint, and is older than the table's retention."""
    create(place.path, configuration={"delta.logRetentionDuration": "interval 1 days"})
    with closing(opened(place.sink(), 1)) as idle:
        idle.write(**bundle(1, 10))
        read_to = place.path / "_delta_log" / f"{place.table().version():020d}.json"
        for fence in range(1, 4):
            place.sink().raise_fence("other", Fence(fence))
        place.table().create_checkpoint()
        for each in (place.path / "_delta_log").glob("*.json"):
            os.utime(each, (0, 0))
        place.table().cleanup_metadata()
        assert not read_to.exists()
        idle.write(**bundle(11, 20))
    assert place.rows() == expected(20)
    assert_covered(place.sink(), place.rows())


def test_a_file_of_the_sink_that_was_removed_or_damaged_is_told(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
    path = place.path / "_clonos" / QUERY / place.kept()[-1]
    whole = path.read_bytes()
    path.unlink()
    with pytest.raises(SinkError, match=rf"the file {path} is gone.*leave it alone"):
        opened(place.sink(), 2)
    path.write_bytes(whole[:-1])
    with pytest.raises(LogCorrupt, match=f"the sink's records {path} are damaged"):
        opened(place.sink(), 2)
    path.write_bytes(whole)
    opened(place.sink(), 2).close()


def test_a_commit_that_is_never_taken_is_given_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(place.sink(), 1).close()
    monkeypatch.setattr(LocalTable, "commit", lambda *_: "some reason")
    with pytest.raises(SinkUnavailable, match="took no commit in 100 attempts: some reason"):
        opened(place.sink(patience=0), 2)


# ----------------------------------------------------------------- refusals


def create(path: Path, *columns: tuple[str, Any], **options: Any) -> DeltaTable:
    schema = pa.schema([("clonos_id", pa.string()), *(columns or SCHEMA)])
    return DeltaTable.create(path, Schema.from_arrow(schema), **options)


CARDS = Schema.from_arrow(pa.schema([("clonos_id", pa.string()), ("card", pa.string())])).fields
GENERATED = {"delta.generationExpression": "length(card)"}
INVARIANT = {"delta.invariants": '{"expression": {"expression": "n > 3"}}'}


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda path: create(path, partition_by=["card"]), "partitioned by card"),
        (lambda path: create(path, ("card", pa.string())), r"no column 'n'.*alter\.add_columns"),
        (
            lambda path: create(path, ("card", pa.string()), ("n", pa.int32())),
            "'n' is int32 there, and int64",
        ),
        (
            lambda path: create(path, ("card", pa.string()), pa.field("n", pa.int64(), nullable=False)),
            "'n' is int64, never null there",
        ),
        (
            lambda path: create(path, *SCHEMA, pa.field("x", pa.int64(), nullable=False)),
            "'x' may not be null there",
        ),
        (
            lambda path: create(path).alter.add_constraint({"few": "n < 5"}),
            "what this sink does not have: constraints",
        ),
        (
            lambda path: DeltaTable.create(
                path, Schema([*CARDS, Field("n", PrimitiveType("long"), metadata=INVARIANT)])
            ),
            "what this sink does not have: invariants",
        ),
        (
            lambda path: DeltaTable.create(
                path, Schema([*CARDS, Field("n", PrimitiveType("long"), metadata=GENERATED)])
            ),
            "what this sink does not have: generated columns",
        ),
        (
            lambda path: create(path, configuration={"delta.columnMapping.mode": "name"}),
            "what this sink does not have: column mapping",
        ),
        (
            lambda path: create(path).alter.add_feature(TableFeatures.RowTracking, True),
            "what this sink does not have: rowTracking",
        ),
        (
            lambda path: create(
                path, configuration={"delta.setTransactionRetentionDuration": "interval 1 days"}
            ),
            "forget how far the query has come",
        ),
    ],
)
def test_a_table_that_does_not_take_the_rows_is_refused(place: Place, made: Any, says: str) -> None:
    made(place.path)
    with (
        closing(place.sink().writer()) as writer,
        pytest.raises(SinkError, match=f"does not take the rows: .*{says}"),
    ):
        writer.open(query=QUERY, node=5, instance=0, fence=Fence(1))
        writer.write(**bundle(1, 10))
    assert place.table().file_uris() == []


@pytest.mark.parametrize(
    "setting", ["delta.appendOnly", "delta.enableChangeDataFeed", "delta.enableDeletionVectors"]
)
def test_a_table_with_settings_that_an_append_keeps_is_taken(place: Place, setting: str) -> None:
    create(place.path, configuration={setting: "true"})
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
    assert pa.table(place.table().get_add_actions()).column("num_records").to_pylist() == [10]


def test_a_table_that_is_there_is_taken_with_further_columns(place: Place) -> None:
    create(place.path, ("x", pa.int64()), ("n", pa.int64()), ("card", pa.string()))
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
    assert place.rows() == expected(10)


@pytest.mark.parametrize(
    ("arguments", "schema", "says"),
    [
        ({"path": "s3://bucket/table"}, SCHEMA, r"the path of a Delta sink must be a local path"),
        ({"id_column": "n"}, SCHEMA, "id column"),
        ({}, pa.schema([("d", pa.duration("us"))]), r"column 'd': Delta has no type for duration.*Cast it"),
        ({}, pa.schema([("a b", pa.int64())]), r"column 'a b': Delta takes no name with a space.*Rename it"),
        ({}, pa.schema([("x", pa.null())]), r"column 'x' has no type.*Cast it"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_query_is_defined(
    tmp_path: Path, arguments: dict[str, Any], schema: pa.Schema, says: str
) -> None:
    with pytest.raises(QueryDefinitionError, match=says):
        sinks.delta(**{"path": tmp_path / "table", **arguments}).validate(schema)


def test_a_row_that_does_not_fit_is_named_and_nothing_of_its_bundle_is_visible(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        wrong = {**bundle(1, 2), "rows": [("a", 1), ("b", "two")]}
        with pytest.raises(SinkError, match="row query-1/3-0-2: column 'n' cannot hold its value"):
            writer.write(**wrong)
        writer.write(**bundle(1, 10))
    assert place.rows() == expected(10)


# ------------------------------------------------------------------- values

VALUES = [
    (pa.int64(), 2**63 - 1),
    *arrow_values.VALUES[:-1],
    (pa.map_(pa.string(), pa.int64()), {"a": 1}),
    arrow_values.VALUES[-1],
]


def test_values_come_back_as_they_were(place: Place) -> None:
    schema = pa.schema([(f"c{at}", kind) for at, (kind, _) in enumerate(VALUES)])
    sink = sinks.delta(place.path)
    sink.validate(schema)
    full = tuple(value for _, value in VALUES)
    as_tuple = (*full[:-1], (b"\1", [1]))  # a struct may come so
    with closing(opened(sink, 1)) as writer:
        writer.write([full, as_tuple, (None,) * len(full)], ["3-0-1", "3-0-2", "3-0-3"], {3: 3}, [])
    found = sorted(place.table().to_pyarrow_table().to_pylist(), key=lambda row: row["clonos_id"])
    read = [tuple(row[f"c{at}"] for at in range(len(VALUES))) for row in found]
    as_pairs = (*full[:-2], [("a", 1)], full[-1])
    assert read == [as_pairs, as_pairs, (None,) * len(full)]


def test_the_library_refuses_a_second_commit_of_one_number(place: Place) -> None:
    """What this sink rests on: of two commits with the same application that go on from one version, one is taken."""
    create(place.path)
    tables = [LocalTable(str(place.path), durable=False) for _ in range(3)]
    for table in tables:
        table.refresh()
    assert tables[0].commit("clonos/a", 1, []) is None
    assert "Concurrent transaction" in str(tables[1].commit("clonos/a", 2, []))
    assert tables[2].commit("clonos/b", 1, []) is None
    tables[1].refresh()
    assert (tables[1].number("clonos/a"), tables[1].number("clonos/b")) == (1, 1)
    log = sorted((place.path / "_delta_log").glob("*.json"))
    assert [
        json.loads(line)["txn"]["version"] for line in log[1].read_text().splitlines() if "txn" in line
    ] == [1]


@pytest.mark.parametrize("made_by", ["the sink", "the user"])
def test_columns_that_are_never_null(place: Place, made_by: str) -> None:
    """The sink makes a table that takes nulls, so that a later query may; the user's own is taken as it is."""
    items = pa.list_(pa.field("element", pa.int64(), nullable=False))
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("l", items)])
    if made_by == "the user":
        DeltaTable.create(place.path, Schema.from_arrow(pa.schema([("clonos_id", pa.string()), *schema])))
    sink = sinks.delta(place.path)
    sink.validate(schema)
    with closing(opened(sink, 1)) as writer:
        writer.write([(1, [2]), (3, None)], ["3-0-1", "3-0-2"], {3: 2}, [])
        with pytest.raises(
            SinkError, match="row query-1/3-0-3: column 'n' cannot hold its value: it is null"
        ):
            writer.write([(None, [2])], ["3-0-3"], {3: 3}, [])
    assert sorted((row["n"], row["l"]) for row in place.table().to_pyarrow_table().to_pylist()) == [
        (1, [2]),
        (3, None),
    ]
    assert [field.nullable for field in place.table().schema().fields] == [True, made_by == "the sink", True]
