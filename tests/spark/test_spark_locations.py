"""Clonos and Spark use one checkpoint folder, however its location is written and wherever Python is by then."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streams import Place

import clonos
from clonos.errors import CheckpointMismatch, ConfigurationError
from clonos.spark.checkpoint import checkpoint_at
from clonos.spark.facts import described
from clonos.spark.identity import identify
from clonos.spark.location import check_same
from clonos.storage.sealed import sealed, unsealed

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"


def count(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield key[0], ctx.state["n"]


def start(place: Place, location: str, option: str = "checkpointLocation") -> None:
    """The counting query over a location."""
    place.stop()
    stream = place.causal(SCHEMA).groupBy("k").process(count, SCHEMA, name="count")
    writer = stream.writeStream.to(clonos.sinks.jsonl(place.output, durable=False))
    place.query = writer.option(option, location).trigger(processingTime="0 seconds").start()


def relative(spark: Any, path: Path) -> str:
    """As the JVM has to be told of it."""
    return os.path.relpath(path, spark._jvm.System.getProperty("user.dir"))


def goes_on_in(place: Place, folder: Path, location: Callable[[], str], **options: str) -> None:
    """Twice: the first start says nothing, it is the next one that finds no commit."""
    for number in (1, 2, 3):
        place.write([{"k": "a", "n": 0}] * 4)
        start(place, location(), **options)
        assert sorted(row["n"] for row in place.await_rows(4 * number)) == list(range(1, 4 * number + 1))
        assert place.query.wait_for_epoch(number - 1, 60)
    place.stop()
    assert {"clonos", "offsets", "commits"} <= {path.name for path in folder.iterdir()}


def test_what_looks_like_an_escape_is_part_of_the_name(place: Place) -> None:
    location = (place.base / "my checkpoint").as_uri()
    assert location.endswith("my%20checkpoint")
    goes_on_in(place, place.base / "my%20checkpoint", lambda: location)
    assert not (place.base / "my checkpoint").exists()


def test_a_relative_path_is_the_jvms(place: Place, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    location = relative(spark, place.checkpoint)

    def after_moving() -> str:
        there = place.base / f"cwd-{len(list(place.base.iterdir()))}"
        there.mkdir()
        monkeypatch.chdir(there)
        return location

    goes_on_in(place, place.checkpoint, after_moving, option="checkpointlocation")


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("file://localhost{}", "Spark cannot use the location .*Wrong FS"),
        ("file:relative/c", "Spark cannot use the location .*Relative path in absolute URI"),
        ("nosuch://host{}", "Spark cannot use the location .*nosuch"),
        ("", "Spark cannot use the location"),
    ],
)
def test_what_spark_does_not_take_is_refused(place: Place, location: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        start(place, location.format(place.checkpoint))
    assert not place.checkpoint.exists()


def test_what_only_spark_can_open_is_refused(place: Place, spark: Any) -> None:
    """A path that has no scheme is on Hadoop's default file system."""
    spark.conf.set("fs.defaultFS", "viewfs://nn/")
    spark.conf.set("fs.viewfs.mounttable.nn.link./there", place.base.as_uri())
    with pytest.raises(ConfigurationError, match=r"'viewfs://nn/there/checkpoint' cannot be used"):
        start(place, "/there/checkpoint")
    assert not place.checkpoint.exists() and not Path("/there").exists()


def test_what_an_older_version_has_split_is_found(place: Place) -> None:
    plain, escaped = place.base / "my checkpoint", place.base / "my%20checkpoint"
    place.write([{"k": "a", "n": 0}] * 4)
    start(place, str(plain))
    place.await_rows(4)
    assert place.query.wait_for_epoch(0, 60)
    place.stop()
    escaped.mkdir()
    for name in ("metadata", "offsets", "commits", "sources"):
        if (plain / name).exists():
            shutil.move(plain / name, escaped / name)
    assert checkpoint_at(plain.as_uri()).location == f"file://{plain}", "as it is written at a command line"
    with pytest.raises(CheckpointMismatch, match=rf"Move {plain}/clonos to {escaped}/clonos"):
        start(place, plain.as_uri())
    shutil.move(plain / "clonos", escaped / "clonos")
    place.write([{"k": "a", "n": 0}] * 4)
    start(place, plain.as_uri())
    assert sorted(row["n"] for row in place.await_rows(8)) == list(range(1, 9))


def test_a_query_whose_log_is_elsewhere_is_found_out(place: Place) -> None:
    start(place, str(place.checkpoint))
    running = place.query._spark_query
    check_same(running, f"file:{place.checkpoint}")
    with pytest.raises(
        ConfigurationError, match=f"in file:{place.checkpoint}, and the checkpoint is hdfs://nn/c"
    ):
        check_same(running, "hdfs://nn/c")


# Where a source is


def test_the_path_of_a_source_is_the_jvms_and_is_bound_in_full(
    place: Place, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write([], partitions=3)
    there = relative(spark, place.base / "in")
    monkeypatch.chdir(place.base)
    log = spark.readStream.format("clonos").load(there)
    assert os.path.normpath(described(log, None, None)["path"]) == str(place.base / "in")
    assert identify(log, None, None).partitions == 3
    for given in (there, str(place.base / "in"), (place.base / "in").as_uri()):
        files = spark.readStream.schema("a int").json(given)
        assert described(files, None, None)["path"] == str(place.base / "in"), given


def test_a_relative_path_of_an_older_version_is_taken_for_the_same_once(place: Place) -> None:
    place.write([{"k": "a", "n": 0}] * 4)
    start(place, str(place.checkpoint))
    place.await_rows(4)
    place.stop()
    kept = place.checkpoint / "clonos" / "query.json"
    body = unsealed(kept.read_bytes(), str(kept))
    for program in (body["topology"], *(one["program"] for one in body["history"])):
        program["nodes"][0]["source"]["path"] = "in"
    kept.write_bytes(sealed(body))
    place.write([{"k": "a", "n": 0}] * 4)
    start(place, str(place.checkpoint))
    place.await_rows(8)
    place.stop()
    shutil.copytree(place.base / "in", place.base / "elsewhere" / "in")
    stream = place.causal(SCHEMA, log="elsewhere/in").groupBy("k").process(count, SCHEMA, name="count")
    with pytest.raises(CheckpointMismatch, match=r"path of node 1 .* was .*/in' and is .*/elsewhere/in' now"):
        place.start(stream)
