"""A checkpoint continues the query that wrote it, and no other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from modes import MODES, mostly
from streams import Place

from clonos.errors import CheckpointMismatch
from clonos.spark.checkpoint import Checkpoint

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"


def count(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield key[0], ctx.state["n"]


def counting(
    place: Place, *, name: str = "count", output: str = SCHEMA, key: str = "k", **options: Any
) -> Any:
    return place.causal(SCHEMA).groupBy(key).process(count, output, name=name, **options)


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_new_query_goes_on_where_the_old_one_stopped(place: Place, mode: str) -> None:
    place.write([{"k": "a", "n": 0}] * 5)
    first = place.start(counting(place), mode)
    place.await_rows(5)
    query = first.causal_status()["query"]
    place.stop()
    place.write([{"k": "a", "n": 0}] * 5)
    place.start(counting(place), mode)
    assert sorted(row["n"] for row in place.await_rows(10)) == list(range(1, 11))
    assert place.query.causal_status()["query"] == query


def test_a_query_changes_its_mode_and_goes_on(place: Place) -> None:
    for number, mode in enumerate([*MODES, *MODES], 1):
        place.write([{"k": "a", "n": 0}] * 5)
        place.start(counting(place), mode)
        assert sorted(row["n"] for row in place.await_rows(5 * number)) == list(range(1, 5 * number + 1))
        place.stop()


def test_another_query_is_refused_by_the_node_that_differs(place: Place) -> None:
    place.write([{"k": "a", "n": 0}])
    place.start(counting(place))
    place.await_rows(1)
    place.stop()
    others: list[tuple[Callable[[], Any], str]] = [
        (lambda: counting(place, name="tally"), r"name of node 2 \('tally'\) was 'count'"),
        (lambda: counting(place, parallelism=3), r"parallelism of node 2 \('count'\) was 2 and is 3 now"),
        (lambda: counting(place, output="k string, m long"), r"the output of node 2 \('count'\) lacks 'n'"),
        (lambda: counting(place, key="n"), r"key of node 2 \('count'\) was"),
        (
            lambda: counting(place).filter(bool, name="more", pure=True),
            "set of nodes of the query changes: operator 'more' is new",
        ),
        (lambda: place.causal(SCHEMA), "the set of nodes of the query changes: operator 'count' is gone"),
    ]
    for other, says in others:
        with pytest.raises(CheckpointMismatch, match=says):
            place.start(other())
    place.start(counting(place))
    place.write([{"k": "a", "n": 0}])
    assert [row["n"] for row in place.await_rows(2)] == [1, 2]


def test_a_checkpoint_of_plain_spark_is_refused(place: Place) -> None:
    query = (
        place.read(SCHEMA)
        .writeStream.format("noop")
        .option("checkpointLocation", str(place.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    with pytest.raises(CheckpointMismatch, match="checkpoint of a query that Clonos did not write"):
        place.start(counting(place))


def test_a_damaged_or_foreign_description_is_refused(place: Place) -> None:
    topology = place.writer(counting(place))
    place.query = topology.start()
    place.stop()
    path = place.checkpoint / "clonos" / "query.json"
    whole = path.read_text()
    for text, says in (
        (whole[:-20], "is damaged: it is cut off"),
        (whole.replace('"count"', '"other"'), "fails its checksum"),
        (json.dumps({**json.loads(whole), "version": 2}), "has format version 2; this library reads 1"),
        ("", "query.json is empty"),
    ):
        path.write_text(text)
        with pytest.raises(CheckpointMismatch, match=says):
            place.start(counting(place))
    path.write_text(whole)
    (place.checkpoint / "clonos" / "generation").write_text("")
    with pytest.raises(CheckpointMismatch, match="generation is empty"):
        place.start(counting(place))


def test_what_a_killed_first_start_left_is_swept(tmp_path: Any) -> None:
    """Spark refuses a checkpoint without offsets whose folders are not empty."""
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / ".0.5f1a.tmp").write_text("half")
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.sweep()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    (tmp_path / "offsets" / "0").write_text("v1")
    (tmp_path / "commits" / ".0.5f1a.tmp").write_text("half")
    checkpoint.sweep()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["0"]
    (tmp_path / "commits" / "0").write_text("v1")
    (tmp_path / "commits" / ".1.5f1a.tmp").write_text("half")
    checkpoint.sweep()
    assert (tmp_path / "commits" / ".1.5f1a.tmp").exists()


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_the_half_of_the_first_commit_costs_no_restart(place: Place, mode: str) -> None:
    place.write([{"k": "a", "n": 0}] * 5)
    place.start(counting(place), mode)
    place.await_rows(5)
    assert place.query.wait_for_epoch(0, 60)
    place.stop()
    offsets = (place.checkpoint / "offsets" / "0").read_bytes()
    place.checkpoint, place.output = place.base / "other", place.base / "elsewhere"
    place.start(counting(place), mode)
    place.stop()
    for folder, name, content in (("offsets", "0", offsets), ("commits", ".0.5f1a.tmp", b"half")):
        shutil.rmtree(place.checkpoint / folder, ignore_errors=True)
        (place.checkpoint / folder).mkdir()
        (place.checkpoint / folder / name).write_bytes(content)
    place.start(counting(place), mode)
    assert sorted(row["n"] for row in place.await_rows(5)) == [1, 2, 3, 4, 5]
    assert place.query.restarts == []


def test_the_checkpoint_may_be_given_as_a_uri(place: Place) -> None:
    place.write([{"k": "a", "n": 0}])
    writer = place.writer(counting(place)).option("checkpointLocation", f"file://{place.checkpoint}")
    place.query = writer.start()
    place.await_rows(1)
    assert (place.checkpoint / "clonos" / "query.json").exists()
