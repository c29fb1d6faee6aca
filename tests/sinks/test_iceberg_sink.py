"""The Iceberg sink: writers that die, stop or race, commits of others beside it, catalogs, and what is refused."""

from __future__ import annotations

import datetime as dt
import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arrow_values import VALUES
from iceberg_place import TABLE, read_table, sqlite_catalog
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from s3_server import S3Server
from sink_child import SCHEMA, bundle, make_sink
from sink_support import QUERY, assert_covered, expected, opened, race, run_child, stopped_writer

from clonos import sinks
from clonos.errors import LogCorrupt, QueryDefinitionError, SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.sinks.iceberg_table import IcebergTable

UPTO = 40
STRUCT = pa.struct([("x", pa.int64())])
LIST_OF_STRUCTS = pa.list_(STRUCT)
KILLED = -signal.SIGKILL
POINTS = ["step", "records", "commit", "committed", "after"]
"""In the order in which a step passes them."""


class Place:
    def __init__(self, catalog: dict[str, str]) -> None:
        self.catalog = catalog
        arguments = {"table": TABLE, "catalog": catalog, "patience": 60}
        self.spec: dict[str, Any] = {"sink": "iceberg", "arguments": arguments, "upto": UPTO}

    def sink(self, **arguments: Any) -> Any:
        return make_sink({**self.spec, "arguments": {**self.spec["arguments"], **arguments}})

    def table(self) -> Table:
        return load_catalog("default", **self.catalog).load_table(TABLE)

    def rows(self) -> list[tuple[Any, ...]]:
        """By output number: Iceberg does not say in which order files are read."""
        found = read_table(self.catalog)
        assert all(row["clonos_id"].startswith(f"{QUERY}/") for row in found)
        rows = [(row["clonos_id"].removeprefix(f"{QUERY}/"), row["card"], row["n"]) for row in found]
        return sorted(rows, key=lambda row: int(row[0].rpartition("-")[2]))

    def folder(self) -> Path:
        return Path(self.table().location().removeprefix("file://")) / "_clonos" / QUERY


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(sqlite_catalog(tmp_path))


# ------------------------------------------------------------------ deaths


@pytest.mark.parametrize("moment", POINTS)
def test_a_writer_dies(tmp_path: Path, place: Place, moment: str) -> None:
    crash = {"crash": {"point": f"iceberg.{moment}", "at": 2}}
    assert run_child(tmp_path, {**place.spec, "fence": 1, **crash})[0] == KILLED
    visible = place.rows()
    assert visible == expected(20 if moment in ("committed", "after") else 10)
    assert_covered(place.sink(), visible)
    status, said = run_child(tmp_path, {**place.spec, "fence": 2})
    assert (status, said[0]["at"], said[-1]["at"]) == (0, len(visible), UPTO)
    assert place.rows() == expected(UPTO)
    assert_covered(place.sink(), place.rows())


def test_a_writer_dies_while_it_begins(tmp_path: Path, place: Place) -> None:
    crash = {"crash": {"point": "iceberg.commit", "at": 0}}
    assert run_child(tmp_path, {**place.spec, "fence": 1, **crash})[0] == KILLED
    status, said = run_child(tmp_path, {**place.spec, "fence": 2})
    assert (status, said[0]["at"], said[-1]["at"]) == (0, 0, UPTO)
    assert place.rows() == expected(UPTO)


def test_two_processes_race(tmp_path: Path, place: Place) -> None:
    race(tmp_path, place.spec, 60)
    assert place.rows() == expected(60)


def test_a_stopped_writer_cannot_keep_its_successor_out(tmp_path: Path, place: Place) -> None:
    """It hangs with everything written but the commit. What it has written is removed meanwhile."""
    hang = {"crash": {"point": "iceberg.commit", "at": 2}}
    with stopped_writer(tmp_path, {**place.spec, **hang}) as (zombie, said):
        status, after = run_child(tmp_path, {**place.spec, "fence": 2})
        assert (status, after[0]["at"], after[-1]["at"]) == (0, 10, UPTO)
        place.sink().truncate(QUERY, Fence(2), lambda delta: delta != b"delta up to 40")
        os.kill(zombie.pid, signal.SIGCONT)
        assert list(said)[-1]["error"] == "Fenced"
    assert place.rows() == expected(UPTO)


# ------------------------------------------------------------- a single step


@pytest.mark.parametrize("effect", ["no effect", "an effect"])
@pytest.mark.parametrize(
    "answer", [CommitStateUnknownException("no answer"), CommitFailedException("sent again")]
)
def test_a_commit_whose_outcome_is_not_known_is_found_out(
    place: Place, monkeypatch: pytest.MonkeyPatch, effect: str, answer: Exception
) -> None:
    """Also one that is said to have failed, where a request was sent again after its answer was lost."""
    commit, failing = Table._do_commit, [False]

    def unsure(table: Table, *arguments: Any) -> None:
        if failing[0] and effect == "no effect":
            failing[0] = False
            raise answer
        commit(table, *arguments)
        if failing[0]:
            failing[0] = False
            raise answer

    monkeypatch.setattr(Table, "_do_commit", unsure)
    sink = place.sink()
    failing[0] = True
    with closing(opened(sink, 1)) as writer:
        for first in (1, 11):
            failing[0] = True
            writer.write(**bundle(first, first + 9))
    assert place.rows() == expected(20)
    assert_covered(sink, place.rows())


def test_a_commit_of_others_comes_in_between(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new column, a property, and rows of another query: each right before a commit of ours."""
    commit = IcebergTable.commit
    others: list[Callable[[], Any]] = [
        lambda: place.table().transaction().set_properties({"a": "b"}).commit_transaction(),
        lambda: add_column(place),
        lambda: write_other(place),
    ]

    def after_others(table: IcebergTable, *arguments: Any) -> str | None:
        if others and arguments[2] is not None:
            others.pop(0)()
        return commit(table, *arguments)

    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
        monkeypatch.setattr(IcebergTable, "commit", after_others)
        for first in (11, 21, 31):
            writer.write(**bundle(first, first + 9))
    assert others == []
    found = read_table(place.catalog)
    assert len([row for row in found if row["clonos_id"].startswith("other/")]) == 2
    assert len({row["clonos_id"] for row in found}) == len(found) == 42
    assert place.table().properties["a"] == "b"


def add_column(place: Place) -> None:
    from pyiceberg.types import LongType

    with place.table().update_schema() as update:
        update.add_column("more", LongType())


def write_other(place: Place) -> None:
    with closing(opened(place.sink(), 1, query="other")) as writer:
        writer.write(**bundle(1, 2))


def test_what_is_needed_outlives_snapshots_that_expire(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        for first in range(1, 40, 10):
            writer.write(**bundle(first, first + 9))
    table = place.table()
    table.maintenance.expire_snapshots().older_than(dt.datetime.now() + dt.timedelta(days=1)).commit()
    assert len(place.table().snapshots()) == 1
    assert_covered(place.sink(), place.rows())
    with closing(opened(place.sink(), 2)) as writer:
        writer.write(**bundle(41, 50))
    assert place.rows() == expected(50)


def test_rows_that_a_rollback_takes_away_are_not_missed(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
        before = place.table().current_snapshot()
        writer.write(**bundle(11, 20))
        assert before is not None
        place.table().manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
        writer.write(**bundle(21, 30))
    assert place.rows() == expected(30)[:10] + expected(30)[20:]


def test_files_that_no_step_needs_are_removed_when_the_log_is_trimmed(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        for first in range(1, 40, 10):
            writer.write(**bundle(first, first + 9))
    (place.folder() / "00000000000000000001.log").touch()  # of a writer that died before its commit
    assert place.sink().truncate(QUERY, Fence(1), lambda delta: delta == b"delta up to 40") == 3
    assert sorted(path.suffix for path in place.folder().iterdir()) == [".log", ".records"]
    assert_covered(place.sink(), place.rows())


# ----------------------------------------------------------- other catalogs


@pytest.mark.postgres
@pytest.mark.s3
def test_a_catalog_in_postgres_with_tables_in_an_object_store(server: Any, s3: S3Server) -> None:
    bucket, options = s3.fresh_bucket(), s3.options()
    place = Place(
        {
            "type": "sql",
            "uri": server.fresh_database().replace("postgresql://", "postgresql+psycopg://"),
            "warehouse": f"s3://{bucket}/warehouse",
            "s3.endpoint": options["endpoint"],
            "s3.access-key-id": options["access_key_id"],
            "s3.secret-access-key": options["secret_access_key"],
            "s3.region": options["region"],
        }
    )
    for fence, first in ((1, 1), (2, 11)):
        with closing(opened(place.sink(), fence)) as writer:
            writer.write(**bundle(first, first + 9))
    assert place.sink().truncate(QUERY, Fence(2), lambda delta: delta == b"delta up to 20") == 1
    assert place.rows() == expected(20)
    assert_covered(place.sink(), place.rows())
    s3.pause()
    try:
        with pytest.raises(SinkUnavailable):
            opened(place.sink(patience=0, catalog={**place.catalog, "s3.request-timeout": "1"}), 3)
    finally:
        s3.resume()


# ------------------------------------------------------- damage and refusals


def test_a_table_that_was_removed_or_made_anew_is_told(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
        load_catalog("default", **place.catalog).drop_table(TABLE)
        for _ in range(2):
            with pytest.raises(SinkError, match=r"the table shop\.decisions was removed or made anew"):
                writer.write(**bundle(11, 20))
            place.sink().raise_fence("other", Fence(1))  # makes it anew


def test_a_property_that_is_gone_is_told(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
        name = f"clonos.{QUERY}"
        number = place.table().properties[name]
        place.table().transaction().remove_properties(name).commit_transaction()
        with pytest.raises(LogCorrupt, match=f"its property is gone.*{name}"):
            writer.write(**bundle(11, 20))
    with pytest.raises(
        LogCorrupt, match=f"{place.folder()}: its property is gone.*Restore the table with.*{name}"
    ):
        opened(place.sink(), 2)
    place.table().transaction().set_properties({name: number}).commit_transaction()  # as the hint says
    with closing(opened(place.sink(), 2)) as writer:
        writer.write(**bundle(11, 20))
    assert place.rows() == expected(20)


@pytest.mark.parametrize("properties", ["none", "the old ones"])
def test_a_table_that_was_made_anew_between_two_starts_is_told(place: Place, properties: str) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
    old, catalog = place.table(), load_catalog("default", **place.catalog)
    catalog.drop_table(TABLE)
    kept = old.properties if properties == "the old ones" else {}
    catalog.create_table(TABLE, old.schema(), location=old.location(), properties=kept)
    with pytest.raises(LogCorrupt, match=r"made anew.*a new checkpoint and a new table"):
        opened(place.sink(), 2)
    opened(place.sink(), 2, query="other").close()


def test_partitions(place: Place) -> None:
    """By the values of a column; others need a package that is not there."""
    with closing(opened(place.sink(), 1)) as writer:
        place.table().update_spec().add_identity("card").commit()
        writer.write(**bundle(1, 10))
    assert place.rows() == expected(10)
    place.table().update_spec().add_field("n", BucketTransform(4)).commit()
    with pytest.raises(SinkError, match=r"partitioned by bucket\[4\] of n, which.*by columns as they are"):
        opened(place.sink(), 2)


def test_a_file_of_the_sink_that_was_removed_or_damaged_is_told(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
    (path,) = place.folder().glob("*.records")
    whole = path.read_bytes()
    path.unlink()
    with pytest.raises(SinkError, match=rf"{path} is gone.*leave it alone"):
        opened(place.sink(), 2)
    path.write_bytes(whole[:-1])
    with pytest.raises(LogCorrupt, match=rf"{path} are damaged"):
        opened(place.sink(), 2)
    path.write_bytes(whole)
    opened(place.sink(), 2).close()


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([("card", pa.string())], r"it has no column 'n'.*add_column"),
        (
            [("card", pa.string()), ("n", pa.string())],
            r"column 'n' is (large_)?string there, and int64 in the rows",
        ),
        (
            [*zip(SCHEMA.names, SCHEMA.types), pa.field("x", pa.int64(), nullable=False)],
            "column 'x' may not be null there",
        ),
        (
            [("card", pa.string()), pa.field("n", pa.int64(), nullable=False)],
            "column 'n' is int64, never null there, and int64 in the rows",
        ),
    ],
)
def test_a_table_that_does_not_take_the_rows_is_refused(place: Place, columns: list[Any], says: str) -> None:
    catalog = load_catalog("default", **place.catalog)
    catalog.create_namespace("shop")
    catalog.create_table(TABLE, pa.schema([("clonos_id", pa.string()), *columns]))
    with (
        closing(opened(place.sink(), 1)) as writer,
        pytest.raises(SinkError, match=r"the table shop.decisions does not take the rows: (.|\n)*" + says),
    ):
        writer.write(**bundle(1, 10))
    assert read_table(place.catalog) == []


@pytest.mark.parametrize(
    ("arguments", "schema", "says"),
    [
        ({"table": "decisions"}, SCHEMA, r"'decisions' is no table of a catalog.*namespace\.table"),
        ({"id_column": "n"}, SCHEMA, "id column"),
        ({}, pa.schema([("d", pa.duration("us"))]), r"column 'd': Iceberg has no type for duration.*Cast it"),
        ({}, pa.schema([("x", pa.null())]), "column 'x'.*Cast it"),
        ({}, pa.schema([("l", LIST_OF_STRUCTS)]), "column 'l': .*a null list.*as an empty one.*to_json"),
        (
            {},
            pa.schema([("m", pa.map_(pa.string(), STRUCT))]),
            "column 'm': .*a null map.*as an empty one.*to_json",
        ),
        (
            {},
            pa.schema([("s", pa.struct([("deep", pa.map_(pa.string(), LIST_OF_STRUCTS))]))]),
            r"column 's\.deep\[\]': .*a null list",
        ),
        ({}, pa.schema([("s", pa.struct([]))]), "column 's': .*no struct without fields"),
        ({}, pa.schema([("x.y", pa.int64()), ("x", pa.struct([("y", pa.int64())]))]), r"x\.y.*Rename one"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_query_is_defined(
    arguments: dict[str, Any], schema: pa.Schema, says: str
) -> None:
    with pytest.raises(QueryDefinitionError, match=says):
        sinks.iceberg(**{"table": TABLE, "catalog": {}, **arguments}).validate(schema)


def test_errors_show_no_password() -> None:
    sink = sinks.iceberg(TABLE, {"uri": "postgresql://me:secret@host:1/db", "s3.secret-access-key": "secret"})
    assert "secret" not in f"{sink!r} {sink.target}"


# ------------------------------------------------------------------- values


def test_values_come_back_as_they_were(place: Place) -> None:
    schema = pa.schema([(f"c{at}", kind) for at, (kind, _) in enumerate(VALUES)])
    sink = sinks.iceberg(TABLE, place.catalog)
    sink.validate(schema)
    full = tuple(value for _, value in VALUES)
    with closing(opened(sink, 1)) as writer:
        writer.write([full, (None,) * len(full)], ["3-0-1", "3-0-2"], {3: 2}, [])
    found = sorted(read_table(place.catalog), key=lambda row: row["clonos_id"])
    assert [tuple(row[name] for name in schema.names) for row in found] == [full, (None,) * len(full)]


def test_nulls_in_nested_columns_stay_null(place: Place) -> None:
    """Of the nested columns that are taken."""
    ints = pa.list_(pa.int64())
    kinds = [ints, pa.list_(ints), pa.map_(pa.string(), ints), pa.struct([("s", STRUCT), ("l", ints)])]
    schema = pa.schema([(f"c{at}", kind) for at, kind in enumerate(kinds)])
    sink = sinks.iceberg(TABLE, place.catalog)
    sink.validate(schema)
    rows = [
        ([None], [None, [1]], [("a", None)], {"s": None, "l": None}),
        (None, None, None, None),
        ([], [], [], {"s": {"x": None}, "l": []}),
    ]
    with closing(opened(sink, 1)) as writer:
        writer.write(rows, ["3-0-1", "3-0-2", "3-0-3"], {3: 3}, [])
    found = sorted(read_table(place.catalog), key=lambda row: row["clonos_id"])
    assert [tuple(row[name] for name in schema.names) for row in found] == rows


@pytest.mark.parametrize("made_by", ["the sink", "the user"])
def test_columns_that_are_never_null(place: Place, made_by: str) -> None:
    """The sink makes a table that takes nulls, so that a later query may; the user's own is taken as it is."""
    items = pa.list_(pa.field("element", pa.int64(), nullable=False))
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("l", items)])
    catalog = load_catalog("default", **place.catalog)
    if made_by == "the user":
        catalog.create_namespace("shop")
        catalog.create_table(TABLE, pa.schema([("clonos_id", pa.string()), *schema]))
    sink = sinks.iceberg(TABLE, place.catalog)
    sink.validate(schema)
    with closing(opened(sink, 1)) as writer:
        writer.write([(1, [2]), (3, None)], ["3-0-1", "3-0-2"], {3: 2}, [])
        with pytest.raises(
            SinkError, match="row query-1/3-0-3: column 'n' cannot hold its value: it is null"
        ):
            writer.write([(None, [2])], ["3-0-3"], {3: 3}, [])
    assert sorted((row["n"], row["l"]) for row in read_table(place.catalog)) == [(1, [2]), (3, None)]
    required = [field.required for field in place.table().schema().fields]
    assert required == [False, made_by == "the user", False]
