"""The commit record beside the output where it is damaged, locked or cannot be written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sink_support import QUERY

from clonos import sinks
from clonos.errors import LogCorrupt, SinkError, SinkUnavailable
from clonos.sinks import wal_files


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
    with wal_files.locked(lock), pytest.raises(SinkUnavailable, match="another process holds"):
        sink.record_commit(QUERY, 1, 0, b"")
    assert sink.last_commit(QUERY) is None
    sink.record_commit(QUERY, 1, 0, b"")
    assert sink.last_commit(QUERY) == (0, b"")


def test_a_failing_disk_leaves_the_record_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clonos.sinks import sink_wal

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    sink = sinks.jsonl(tmp_path, patience=0)
    sink.record_commit(QUERY, 1, 0, b"zero")
    with monkeypatch.context() as patch:
        patch.setattr(sink_wal, "replace_file", fail)
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
