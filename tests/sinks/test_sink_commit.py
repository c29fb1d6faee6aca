"""The commit record beside the output: every sink keeps it alike, and so does the simulator's."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import cloudpickle
import pytest
import sqlalchemy as sa
from postgres_server import PostgresServer, postgres_server, why_not
from sink_child import SCHEMA
from sink_support import QUERY

from clonos import sinks
from clonos.errors import Fenced, LogCorrupt, SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.sim.sinks import SinkCommits
from clonos.sinks import wal_files as ahead_files

KINDS = ["jsonl", "call", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres), "simulated"]


class Keeps(Protocol):
    """What these tests ask of a sink."""

    def raise_fence(self, query: str, fence: int) -> None: ...

    def standing_fence(self, query: str) -> int: ...

    def record_commit(self, query: str, fence: int, epoch: int, record: bytes) -> None: ...

    def last_commit(self, query: str) -> tuple[int, bytes] | None: ...


class Simulated:
    """The simulator's, which has one query per world, behind the port."""

    def __init__(self) -> None:
        self.queries: dict[str, SinkCommits] = {}

    def of(self, query: str) -> SinkCommits:
        return self.queries.setdefault(query, SinkCommits())

    def raise_fence(self, query: str, fence: int) -> None:
        self.of(query).raise_fence(fence)

    def standing_fence(self, query: str) -> int:
        return max(self.of(query).floor, 0)

    def record_commit(self, query: str, fence: int, epoch: int, record: bytes) -> None:
        self.of(query).record_commit(fence, epoch, record)

    def last_commit(self, query: str) -> tuple[int, bytes] | None:
        return self.of(query).last_commit()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with postgres_server() as running:
        yield running


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """Gives a sink over one and the same place, as each process of a query has it."""
    if request.param == "simulated":
        simulated = Simulated()
        return lambda: simulated
    if request.param == "jsonl":
        made: Any = sinks.jsonl(tmp_path / "rows")
    elif request.param == "call":
        made = sinks.call(print, path=tmp_path / "log")
    elif request.param == "sqlite":
        made = sinks.sql(f"sqlite:///{tmp_path}/sink.db", "out")
    else:
        made = sinks.sql(request.getfixturevalue("server").fresh_database(), "out")
    made.validate(SCHEMA)
    return lambda: cloudpickle.loads(cloudpickle.dumps(made))


def test_what_is_recorded_is_there_for_everybody(make: Callable[[], Keeps]) -> None:
    assert make().last_commit(QUERY) is None
    make().record_commit(QUERY, 3, 0, b"\0\xffzero")
    assert make().last_commit(QUERY) == (0, b"\0\xffzero")
    assert make().last_commit("another") is None
    make().record_commit(QUERY, 3, 1, b"")
    assert make().last_commit(QUERY) == (1, b"")


def test_a_driver_hears_of_every_start_that_has_fenced_the_sink(make: Callable[[], Keeps]) -> None:
    """Its checkpoint may be an older copy, which has not heard of them."""
    assert make().standing_fence(QUERY) == 0
    for generation in (7, 5):
        make().raise_fence(QUERY, Fence.of(generation))
    assert make().standing_fence(QUERY) == Fence.of(7)
    assert make().standing_fence("another") == 0


def test_it_never_goes_back_under_one_fence(make: Callable[[], Keeps]) -> None:
    sink = make()
    sink.record_commit(QUERY, 3, 5, b"five")
    sink.record_commit(QUERY, 3, 4, b"late")
    assert sink.last_commit(QUERY) == (5, b"five")
    sink.record_commit(QUERY, 4, 2, b"begun again from an older checkpoint")
    assert sink.last_commit(QUERY) == (2, b"begun again from an older checkpoint")


def test_a_deposed_driver_does_not_record(make: Callable[[], Keeps]) -> None:
    sink = make()
    sink.record_commit(QUERY, 3, 5, b"five")
    sink.raise_fence(QUERY, 7)
    with pytest.raises(Fenced):
        sink.record_commit(QUERY, 6, 6, b"six")
    sink.record_commit(QUERY, 7, 6, b"of the newer")
    assert sink.last_commit(QUERY) == (6, b"of the newer")
    sink.record_commit(QUERY, 8, 7, b"of one whose floor was not raised")
    with pytest.raises(Fenced):
        sink.record_commit(QUERY, 7, 8, b"late")
    assert sink.last_commit(QUERY) == (7, b"of one whose floor was not raised")


def test_one_of_two_that_write_at_once_stands(make: Callable[[], Keeps]) -> None:
    """Each is read and replaced in one step: the highest epoch wins in whatever order they come."""

    def write(first: int) -> None:
        sink = make()
        for epoch in range(first, 12, 2):
            sink.record_commit(QUERY, 1, epoch, b"%d" % epoch)

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 1)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert make().last_commit(QUERY) == (11, b"11")


@pytest.mark.parametrize("kind", ["jsonl", "call"])
def test_a_damaged_file_is_told_and_kept(kind: str, tmp_path: Path) -> None:
    sink: Any = sinks.jsonl(tmp_path) if kind == "jsonl" else sinks.call(print, path=tmp_path)
    sink.record_commit(QUERY, 3, 5, b"five")
    (path,) = tmp_path.glob(f"**/{QUERY}/commit")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"E")
    for act in (lambda: sink.last_commit(QUERY), lambda: sink.record_commit(QUERY, 3, 6, b"six")):
        with pytest.raises(LogCorrupt, match=f"the commit record in {path} is damaged"):
            act()
    path.write_bytes(whole)
    assert sink.last_commit(QUERY) == (5, b"five")


def test_a_damaged_row_is_told(tmp_path: Path) -> None:
    sink = sinks.sql(f"sqlite:///{tmp_path}/sink.db", "out")
    sink.record_commit(QUERY, 3, 5, b"five")
    with closing(sqlite3.connect(tmp_path / "sink.db")) as raw:
        raw.execute("UPDATE clonos_commit SET bytes = x'00'")
        raw.commit()
    with pytest.raises(LogCorrupt, match="the commit record in table clonos_commit is damaged"):
        sink.last_commit(QUERY)


def test_a_lock_held_elsewhere_only_delays(tmp_path: Path) -> None:
    sink = sinks.jsonl(tmp_path, patience=0)
    sink.raise_fence(QUERY, 1)
    (lock,) = tmp_path.glob(f"**/{QUERY}/lock")
    with ahead_files.locked(lock), pytest.raises(SinkUnavailable, match="another process holds"):
        sink.record_commit(QUERY, 1, 0, b"")
    assert sink.last_commit(QUERY) is None
    sink.record_commit(QUERY, 1, 0, b"")
    assert sink.last_commit(QUERY) == (0, b"")


def test_a_failing_disk_leaves_the_record_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clonos.sinks import sink_wal as ahead_log

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    sink = sinks.jsonl(tmp_path, patience=0)
    sink.record_commit(QUERY, 1, 0, b"zero")
    with monkeypatch.context() as patch:
        patch.setattr(ahead_log, "replace_file", fail)
        with pytest.raises(SinkUnavailable, match="disk is full"):
            sink.record_commit(QUERY, 1, 1, b"one")
    assert sink.last_commit(QUERY) == (0, b"zero")


def test_tables_of_before_get_the_new_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/sink.db"
    sinks.sql(url, "out").raise_fence(QUERY, 1)
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE clonos_commit"))
    assert sinks.sql(url, "out").last_commit(QUERY) is None
    with pytest.raises(SinkError, match=r"clonos_commit.*ddl\(\)"):
        sinks.sql(url, "out", create=False).record_commit(QUERY, 1, 0, b"")
    sinks.sql(url, "out").record_commit(QUERY, 1, 0, b"zero")
    assert sinks.sql(url, "out").last_commit(QUERY) == (0, b"zero")
