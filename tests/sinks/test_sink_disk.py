"""A disk that fills up and is given room again: the sink waits or tells, and goes on exactly."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from sink_child import CHANNEL, SCHEMA, bundle
from sink_support import QUERY, assert_covered, expected, file_rows, table_rows

from clonos import sinks
from clonos.errors import SinkUnavailable
from clonos.sinks.patience import Patience

UPTO = 60_000
STEP = 500


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def enlarge(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64M", str(folder)], check=True)


@pytest.fixture(params=["sqlite", "jsonl", "delta"])
def sink(request: pytest.FixtureRequest, disk: Path) -> Any:
    if request.param == "sqlite":
        made: Any = sinks.sql(f"sqlite:///{disk}/sink.db", "out", patience=0)
    elif request.param == "delta":
        made = sinks.delta(disk / "table", patience=0)
    else:
        made = sinks.jsonl(disk, patience=0)
    made.validate(SCHEMA)
    return made


def visible(disk: Path) -> list[tuple[Any, ...]]:
    if (disk / "table").exists():
        found = DeltaTable(disk / "table").to_pyarrow_table().to_pylist()
        rows = [(row["clonos_id"].partition("/")[2], row["card"], row["n"]) for row in found]
        return sorted(rows, key=lambda row: int(row[0].rpartition("-")[2]))
    database = disk / "sink.db"
    return table_rows(f"sqlite:///{database}") if database.exists() else file_rows(disk)


def write_until_full(writer: Any) -> int:
    """The last position before the bundle that did not fit."""
    for at in range(0, UPTO, STEP):
        try:
            writer.write(**bundle(at + 1, at + STEP))
        except SinkUnavailable as error:
            assert "full" in error.message or "No space left" in error.message
            return at
    raise AssertionError("the disk never filled up")


def test_the_same_writer_goes_on(disk: Path, sink: Any) -> None:
    with closing(sink.writer()) as writer:
        writer.open(query=QUERY, node=5, instance=0, fence=1)
        at = write_until_full(writer)
        with pytest.raises(SinkUnavailable):
            writer.write(**bundle(at + 1, at + STEP))
        writer._patience = Patience(30, sleep=lambda _: enlarge(disk))
        while at < UPTO:
            writer.write(**bundle(at + 1, at + STEP))
            at += STEP
    assert visible(disk) == expected(UPTO)
    assert_covered(sink, expected(UPTO))


def test_a_new_writer_goes_on(disk: Path, sink: Any) -> None:
    with closing(sink.writer()) as writer:
        writer.open(query=QUERY, node=5, instance=0, fence=1)
        write_until_full(writer)
    enlarge(disk)
    with closing(sink.writer()) as writer:
        at = writer.open(query=QUERY, node=5, instance=0, fence=2).cursors[CHANNEL]
        assert visible(disk) == expected(at)
        writer.write(**bundle(at + 1, at + STEP))
    assert visible(disk) == expected(at + STEP)
    assert_covered(sink, expected(at + STEP))
