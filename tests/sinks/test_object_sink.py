"""Sinks in an object store: writers that die, stop or race, a store that is away, and what is refused."""

from __future__ import annotations

import io
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arrow_values import VALUES
from lossy_proxy import LossyProxy
from objects_place import ObjectsPlace
from pyarrow import dataset, fs, parquet
from s3_server import READER, S3Server, s3_server
from sink_child import SCHEMA, bundle
from sink_support import (
    QUERY,
    assert_covered,
    expected,
    kill_at_any_moment,
    opened,
    race,
    run_child,
    stopped_writer,
)

from clonos import sinks
from clonos.errors import ConfigurationError, LogCorrupt, QueryDefinitionError, SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch

pytestmark = pytest.mark.s3
UPTO = 60
KILLED = -signal.SIGKILL
POINTS = ["step", "prepared", "commit", "committed", "copied", "after"]
"""In the order in which a step passes them."""
COMMITTED = ("committed", "copied", "after")


@pytest.fixture
def place(s3: S3Server) -> ObjectsPlace:
    return ObjectsPlace(s3, "parquet")


# ------------------------------------------------------------------ deaths


@pytest.mark.parametrize(
    ("moment", "form"), [*((each, "parquet") for each in POINTS), ("committed", "jsonl")]
)
def test_a_writer_dies(tmp_path: Path, s3: S3Server, moment: str, form: str) -> None:
    """What is visible is committed; what is committed and not visible yet, the next writer makes visible first."""
    place = ObjectsPlace(s3, form)
    crash = {"crash": {"point": f"objects.{moment}", "at": 3}}
    assert run_child(tmp_path, {**place.spec, "upto": UPTO, "fence": 1, **crash})[0] == KILLED
    committed = 30 if moment in COMMITTED else 20
    assert place.rows() == expected(20 if moment == "committed" else committed)
    assert_covered(place.sink(), expected(committed))
    status, said = run_child(tmp_path, {**place.spec, "upto": UPTO, "fence": 2})
    assert (status, said[0]["at"], said[-1]["at"]) == (0, committed, UPTO)
    assert place.rows() == expected(UPTO)
    assert_covered(place.sink(), place.rows())


@pytest.mark.parametrize("moment", ["prepared", "committed"])
def test_a_writer_dies_while_it_begins(tmp_path: Path, place: ObjectsPlace, moment: str) -> None:
    crash = {"crash": {"point": f"objects.{moment}", "at": 0}}
    assert run_child(tmp_path, {**place.spec, "upto": 20, "fence": 1, **crash})[0] == KILLED
    status, said = run_child(tmp_path, {**place.spec, "upto": 20, "fence": 2})
    assert (status, said[0]["at"], said[-1]["at"]) == (0, 0, 20)
    assert place.rows() == expected(20)


def test_writers_killed_at_any_moment(tmp_path: Path, place: ObjectsPlace) -> None:
    least = kill_at_any_moment(tmp_path, {**place.spec, "upto": 10_000})
    with closing(place.sink().writer()) as writer:
        at = writer.open(query=QUERY, node=5, instance=0, fence=Fence(99)).cursors[3]
    assert at >= least
    assert place.rows() == expected(at)
    assert_covered(place.sink(), place.rows())


def test_two_processes_race(tmp_path: Path, place: ObjectsPlace) -> None:
    race(tmp_path, place.spec, 300)
    assert place.rows() == expected(300)


@pytest.mark.parametrize(("moment", "done"), [("commit", 10), ("committed", 20)])
def test_a_stopped_writer_shows_nothing_of_its_own(
    tmp_path: Path, place: ObjectsPlace, moment: str, done: int
) -> None:
    """It hangs before its rows are committed, or visible, and goes on when a successor has taken over and the log has
    been trimmed. A part that was compacted meanwhile does not come back."""
    hang = {"crash": {"point": f"objects.{moment}", "at": 2}}
    spec = {**place.spec, "upto": 40}
    with stopped_writer(tmp_path, {**spec, **hang}) as (zombie, said):
        status, after = run_child(tmp_path, {**spec, "fence": 2})
        assert (status, after[0]["at"], after[-1]["at"]) == (0, done, 40)
        place.sink().truncate(QUERY, Fence(2), lambda delta: delta != b"delta up to 40")
        assert place.rows() == expected(40)
        compacted = place.parts()[1]
        place.store.copy(compacted, "compacted.parquet")
        place.store.delete(compacted)
        os.kill(zombie.pid, signal.SIGCONT)
        assert list(said)[-1]["error"] == "Fenced"
    assert sorted(place.rows(), key=lambda row: row[2]) == expected(40)


# --------------------------------------------------- a store that is not there


@pytest.mark.parametrize(
    ("request_of", "what"),
    [
        ("/head ", "request"),
        ("/head ", "answer"),
        (".rows ", "answer"),
        ("/part-", "request"),
        ("/part-", "answer"),
    ],
)
def test_requests_and_answers_are_lost(s3: S3Server, request_of: str, what: str) -> None:
    """Those of a put, sent again by the client of the store until they arrive, or by the sink where it gives up."""
    with LossyProxy(s3.port, request_of.encode()) as proxy:
        place = ObjectsPlace(s3, "jsonl", f"http://127.0.0.1:{proxy.port}")
        with closing(opened(place.sink(), 1)) as writer:
            writer.write(**bundle(1, 10))
            proxy.lose(*[what] * 4)
            writer.write(**bundle(11, 20))
            assert proxy.due == 0
            writer.write(**bundle(21, 30))
        assert place.rows() == expected(30)
        assert_covered(place.sink(), place.rows())


def test_a_server_that_is_killed_is_waited_for(tmp_path: Path) -> None:
    with s3_server() as server:
        place = ObjectsPlace(server, "parquet")
        spec = {**place.spec, "upto": 200, "fence": 1}
        with stopped_writer(tmp_path, {**spec, "crash": {"point": "objects.prepared", "at": 2}}) as (
            writer,
            said,
        ):
            server.kill()
            os.kill(writer.pid, signal.SIGCONT)
            server.start()
            assert list(said)[-1] == {"event": "written", "at": 200}
        assert place.rows() == expected(200)
        server.kill()
        with pytest.raises(
            SinkUnavailable, match=r"s3://.*: reading _clonos/query-1/head fails: .*tried 2 times"
        ):
            opened(place.sink(patience=0.01), 2)


# ---------------------------------------------------------- what readers see


def test_a_reader_of_the_folder_sees_the_rows_and_nothing_else(place: ObjectsPlace) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
        writer.write(rows=[], ids=[], cursors={3: 12}, deltas=[b"no rows"])
        writer.write(**bundle(13, 20))
    assert [path.rpartition("-")[0] for path in place.parts()] == [f"part-{QUERY}"] * 2
    options = place.options
    storage = fs.S3FileSystem(
        access_key=options["access_key_id"],
        secret_key=options["secret_access_key"],
        endpoint_override=options["endpoint"],
        region=options["region"],
    )
    found = dataset.dataset(f"{place.bucket}/some/path", filesystem=storage, format="parquet").to_table()
    assert found.schema.names == ["clonos_id", *SCHEMA.names]
    assert sorted(found.column("clonos_id").to_pylist()) == sorted(row["clonos_id"] for row in place.read())
    assert found.num_rows == 18


def test_names_of_parts_rise_in_the_order_of_steps_over_all_writers(place: ObjectsPlace) -> None:
    for fence, first in ((1, 1), (2, 11), (3, 21)):
        with closing(opened(place.sink(), fence)) as writer:
            writer.write(**bundle(first, first + 9))
    assert place.rows() == expected(30)


def test_what_no_step_needs_is_removed_when_the_log_is_trimmed(place: ObjectsPlace) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        for first in range(1, 50, 10):
            writer.write(**bundle(first, first + 9))
    place.store.put(f"_clonos/{QUERY}/00000000000000000001.rows", b"of a writer that died before its commit")
    assert len(place.kept()) == 7
    assert place.sink().truncate(QUERY, Fence(1), lambda delta: delta == b"delta up to 50") == 4
    assert [name.rpartition(".")[2] for name in place.kept()] == ["log", "head"]
    assert_covered(place.sink(), place.rows())


def test_nothing_staged_stays_where_there_are_no_determinants(place: ObjectsPlace) -> None:
    """A query without operators: its log is never trimmed."""
    sink = place.sink()
    with closing(opened(sink, 1)) as writer:
        for epoch in (1, 2, 3):
            place.store.put(f"_clonos/{QUERY}/{epoch:020d}.rows", b"of a writer that died before its commit")
            writer.write(**{**bundle(epoch, epoch), "deltas": []})
            sink.record_commit(QUERY, Fence(1), Epoch(epoch), b"record")
            assert place.kept() == ["head"]


@pytest.mark.parametrize("steps", ["writer", "driver"])
def test_parts_that_were_compacted_do_not_come_back(place: ObjectsPlace, steps: str) -> None:
    """The last one neither: a new process does not know what its predecessor has published."""
    with closing(opened(place.sink(), 1)) as writer:
        for first in (1, 11):
            writer.write(**bundle(first, first + 9))
    found = place.read()
    table = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(found), table)
    place.store.put("compacted.parquet", table.getvalue())
    place.store.delete([path for path in place.parts() if path.startswith("part-")])
    if steps == "driver":
        place.sink().raise_fence(QUERY, Fence(2))
    else:
        opened(place.sink(), 2).close()
    assert place.read() == found


@pytest.mark.parametrize(
    ("form", "arguments", "columns", "says"),
    [
        ("jsonl", {}, [("card", pa.string())], "the format of what .* is parquet, and now jsonl"),
        (
            "parquet",
            {"id_column": "rid"},
            [("card", pa.string())],
            "the id column .* is clonos_id, and now rid",
        ),
        ("parquet", {}, [("n", pa.string())], "column 'n' .* is int64, and now string"),
    ],
)
def test_what_does_not_go_with_what_is_there_is_refused_at_the_start(
    place: ObjectsPlace, form: str, arguments: dict[str, Any], columns: list[Any], says: str
) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
    sink = getattr(sinks, form)(place.url, options=place.options, **arguments)
    sink.validate(pa.schema(columns))
    for start in (lambda: opened(sink, 2), lambda: sink.raise_fence(QUERY, Fence(2))):
        with pytest.raises(SinkError, match=f"{place.url}: {says}.*Leave it as it was"):
            start()
    with closing(opened(place.sink(), 2)) as writer:  # as the hint says
        writer.write(**bundle(11, 20))
    assert place.rows() == expected(20)


def test_columns_may_be_added_and_left_out(place: ObjectsPlace) -> None:
    """And come back with the type they had."""
    added = pa.schema([*SCHEMA, ("more", pa.int64())])
    for fence, schema, row in (
        (1, SCHEMA, ("a", 1)),
        (2, added, ("b", 2, 3)),
        (3, pa.schema([pa.field("n", pa.int64(), nullable=False)]), (3,)),
    ):
        sink = sinks.parquet(**place.arguments())
        sink.validate(schema)
        with closing(opened(sink, fence)) as writer:
            writer.write([row], [f"3-0-{fence}"], {3: fence}, [])
    assert [(row.get("card"), row["n"], row.get("more")) for row in place.read()] == [
        ("a", 1, None),
        ("b", 2, 3),
        (None, 3, None),
    ]
    sink = sinks.parquet(**place.arguments())
    sink.validate(pa.schema([("more", pa.string())]))
    with pytest.raises(SinkError, match=r"column 'more' .* is int64, and now string"):
        opened(sink, 4)


@pytest.mark.parametrize("other", ["s3a://b/a%20b", "s3://b/a b/", "S3://b/a%20%62", "s3://b/x/../a b"])
def test_each_way_of_writing_a_place_is_one_target(other: str) -> None:
    assert sinks.jsonl(other, options={"region": "r"}).target == sinks.parquet("s3://b/a b").target
    assert (
        sinks.parquet("s3://b/a").target
        != sinks.parquet("s3://b/a b").target
        != sinks.parquet("s3://c/a b").target
    )


# ------------------------------------------------------------------- damage


def test_a_head_that_is_gone_or_damaged_is_told(place: ObjectsPlace) -> None:
    name = f"_clonos/{QUERY}/head"
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
        whole = bytes(place.store.get(name).bytes())
        place.store.delete(name)
        with pytest.raises(
            LogCorrupt, match=rf"{place.url}/{name} is gone.*a new checkpoint and another path"
        ):
            writer.write(**bundle(11, 20))
    with pytest.raises(LogCorrupt, match="is gone, but the query"):
        opened(place.sink(), 2)
    place.store.put(name, whole[:-1])
    with pytest.raises(LogCorrupt, match=rf"{place.url}/{name} are damaged"):
        opened(place.sink(), 2)
    place.store.put(name, whole)  # as the hint says
    with closing(opened(place.sink(), 2)) as writer:
        writer.write(**bundle(11, 20))
    assert place.rows() == expected(20)


def test_determinants_that_are_gone_are_told(place: ObjectsPlace) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
    log = next(each for each in place.kept() if each.endswith(".log"))
    whole = bytes(place.store.get(f"_clonos/{QUERY}/{log}").bytes())
    place.store.delete(f"_clonos/{QUERY}/{log}")
    with pytest.raises(SinkError, match=rf"{log} is gone.*leave it alone"):
        list(place.sink().log_reader(QUERY).deltas())
    place.store.put(f"_clonos/{QUERY}/{log}", whole)
    assert_covered(place.sink(), place.rows())


def test_an_older_head_that_was_put_back_is_told(place: ObjectsPlace) -> None:
    name = f"_clonos/{QUERY}/head"
    heads = []
    with closing(opened(place.sink(), 1)) as writer:
        for first in (1, 11):
            writer.write(**bundle(first, first + 9))
            heads.append(bytes(place.store.get(name).bytes()))
    last = place.parts()[-1]
    place.store.put(name, heads[0])
    with pytest.raises(LogCorrupt, match=rf"{name} is an older copy of itself: {last} was written later"):
        opened(place.sink(), 2)
    assert place.rows() == expected(20)
    place.store.put(name, heads[1])  # as the hint says
    with closing(opened(place.sink(), 2)) as writer:
        writer.write(**bundle(21, 30))
    assert place.rows() == expected(30)


# ----------------------------------------------------------------- refusals


@pytest.mark.parametrize("header", ["if-none-match", "if-match"])
def test_a_store_that_passes_over_conditions_is_refused(s3: S3Server, header: str) -> None:
    with LossyProxy(s3.port, b"PUT", hidden=header.encode()) as proxy:
        unsigned = {
            "endpoint": f"http://127.0.0.1:{proxy.port}",
            "region": "us-east-1",
            "skip_signature": True,
            "client_options": {"allow_http": True},
        }
        place = f"{s3.open_bucket()}/{header}"
        sink = sinks.parquet(f"s3://{place}", options=unsigned)
        sink.validate(SCHEMA)
        with pytest.raises(
            SinkError, match=f"no conditional writes: it passes over (?i:{header}).*Use a store"
        ):
            opened(sink, 1)
        assert s3.store(s3.open_bucket(), header).list().collect() == []
    sink = sinks.parquet(f"s3://{place}", options={**unsigned, "endpoint": s3.endpoint})
    sink.validate(SCHEMA)
    opened(sink, 1).close()


def test_a_bucket_that_is_not_there_is_told(s3: S3Server) -> None:
    sink = sinks.parquet("s3://nosuchbucket/rows", options=s3.options())
    with pytest.raises(
        SinkError, match=r"s3://nosuchbucket/rows: .*the bucket is not there.*Create the bucket"
    ):
        sink.raise_fence(QUERY, Fence(1))


def test_rights_that_are_missing_are_told(place: ObjectsPlace) -> None:
    for keys, doing in (
        (READER, "writing _clonos/query-1/probe-.*"),
        (type(READER)("nobody", "wrong"), "reading _clonos/query-1/head"),
    ):
        with pytest.raises(SinkError, match=rf"{doing} is not allowed.*s3:PutObject"):
            place.sink(options=place.server.options(keys)).raise_fence(QUERY, Fence(1))


def test_a_row_that_does_not_fit_is_named_and_nothing_of_its_bundle_is_visible(place: ObjectsPlace) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        wrong = {**bundle(1, 2), "rows": [("a", 1), ("b", "two")]}
        with pytest.raises(SinkError, match="row query-1/3-0-2: column 'n' cannot hold its value"):
            writer.write(**wrong)
        writer.write(**bundle(1, 10))
    assert place.rows() == expected(10)


@pytest.mark.parametrize(
    ("make", "schema", "says"),
    [
        (lambda: sinks.parquet("/data/rows"), SCHEMA, r"is no place in an object store.*s3://bucket/path"),
        (lambda: sinks.parquet("s3:///rows"), SCHEMA, "does not name a bucket"),
        (lambda: sinks.parquet("s3://key:secret@bucket/rows"), SCHEMA, r"options=\{\.\.\.\}"),
        (
            lambda: sinks.parquet("s3://b/rows", options={"key": "a"}),
            SCHEMA,
            r"cannot be opened: .*obstore\.store",
        ),
        (lambda: sinks.parquet("s3://b/rows", id_column="n"), SCHEMA, "id column"),
        (
            lambda: sinks.parquet("s3://b/r"),
            pa.schema([("x", pa.null())]),
            r"column 'x' has no type.*Cast it",
        ),
        (
            lambda: sinks.parquet("s3://b/r"),
            pa.schema([("x", pa.month_day_nano_interval())]),
            "column 'x'",
        ),
        (lambda: sinks.jsonl("s3://b/r"), pa.schema([("x", pa.null())]), "column 'x'"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_query_is_defined(
    make: Any, schema: pa.Schema, says: str
) -> None:
    with pytest.raises(QueryDefinitionError, match=says):
        make().validate(schema)


def test_options_belong_to_object_stores(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a folder, which has no options"):
        sinks.jsonl(tmp_path, options={"region": "us-east-1"})


def test_errors_show_no_keys(place: ObjectsPlace) -> None:
    sink = place.sink(patience=0, options={**place.options, "endpoint": "http://127.0.0.1:9"})
    with pytest.raises(SinkUnavailable) as error:
        sink.raise_fence(QUERY, Fence(1))
    assert "secret" not in f"{error.value} {sink!r} {sink.target}"


# ------------------------------------------------------------------- values


def test_values_come_back_as_they_were(place: ObjectsPlace) -> None:
    schema = pa.schema([(f"c{at}", kind) for at, (kind, _) in enumerate(VALUES)])
    sink = sinks.parquet(**place.arguments())
    sink.validate(schema)
    full = tuple(value for _, value in VALUES)
    with closing(opened(sink, 1)) as writer:
        writer.write([full, (None,) * len(full)], ["3-0-1", "3-0-2"], {3: 2}, [])
    found = [tuple(row[name] for name in schema.names) for row in place.read()]
    assert found == [full, (None,) * len(full)]
