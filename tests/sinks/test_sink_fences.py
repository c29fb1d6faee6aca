"""Who may write to a sink and who may drop what it keeps: every sink says the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import sqlalchemy as sa
from sink_child import CHANNEL, SCHEMA, bundle
from sink_support import QUERY, SQL, fresh_database

from clonos import sinks
from clonos.errors import Fenced, SinkError
from clonos.protocol.fence import Fence
from clonos.protocol.line.sink_trim import Entry, Page
from clonos.sinks import sql_log
from clonos.sinks.patience import Patience
from clonos.sinks.sql_log import Trimmer, pages, transact
from clonos.sinks.sql_tables import Books

KINDS = ["jsonl", "call", *SQL]
Make = Callable[[], Any]


def sink_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> Any:
    if kind == "jsonl":
        made: Any = sinks.JsonlSink(folder / "rows", segment_bytes=1)
    elif kind == "call":
        made = sinks.call(lambda rows, ids: None, path=folder / "log")
    else:
        made = sinks.sql(fresh_database(kind, request, folder), "out")
    made.validate(SCHEMA)
    return made


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Gives a sink over one and the same place, as each process of a query has it."""
    pickled = cloudpickle.dumps(sink_of(request.param, tmp_path, request))
    return lambda: cloudpickle.loads(pickled)


@pytest.fixture
def database(url: str) -> str:
    return url


@pytest.fixture(params=SQL[:2])
def old_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a kind that there was when tables had layout 1."""
    return fresh_database(request.param, request, tmp_path)


def opened(sink: Any, fence: int) -> Any:
    writer = sink.writer()
    writer.open(query=QUERY, node=5, instance=0, fence=fence)
    return writer


def kept(sink: Any) -> list[bytes]:
    with closing(sink.log_reader(QUERY)) as reader:
        return list(reader.deltas())


# -- writers


def test_a_fence_that_was_removed_is_not_called_a_takeover(make: Make, tmp_path: Path) -> None:
    sink = make()
    with closing(opened(sink, 3)) as writer:
        writer.write(**bundle(1, 2))
        where = remove_fence(sink, tmp_path)
        with pytest.raises(SinkError) as caught:
            writer.write(**bundle(3, 4))
        assert f"the fence of sink node 5 is gone: {where} holds none" in str(caught.value)
    with closing(opened(make(), 4)) as writer:  # what the hint says
        writer.write(**bundle(3, 4))
    assert kept(make()) == [b"delta up to 2", b"delta up to 4"]


def remove_fence(sink: Any, folder: Path) -> str:
    """What a writer took; says where it was."""
    if isinstance(sink, sinks.SqlSink):
        with sink._engine(immediate=True).begin() as connection:
            connection.exec_driver_sql("DELETE FROM clonos_fence WHERE node = 5")
        return "table clonos_fence"
    (path,) = folder.rglob("5-0/fence")
    path.unlink()
    return f"the file {path}"


# -- the SQL log's numbers


def entries(url: str) -> list[Entry]:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    return [found.entry for found in pages(engine, Books(None), QUERY, Patience(5))]


def late_delete(url: str, page: list[Entry]) -> None:
    """The page of a truncation whose answer was lost, once more."""
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    trimmer = Trimmer(engine, Books(None), QUERY, Fence.of(1), Patience(5))
    transact(engine, lambda connection: trimmer.remove(connection, (5, 0), Page.of(page)))


def sql_sink(url: str, **options: Any) -> Any:
    sink = sinks.sql(url, "out", **options)
    sink.validate(SCHEMA)
    return sink


def test_a_late_page_does_not_remove_what_was_written_since(database: str) -> None:
    """The log is emptied, a new writer begins, and the deletion comes a second time."""
    sink = sql_sink(database)
    with closing(opened(sink, Fence.of(1, 1))) as writer:
        writer.write(**bundle(1, 2))
        writer.write(**bundle(3, 4))
    page = entries(database)
    assert sink.truncate(QUERY, Fence.of(1), lambda _: False) == 2
    with closing(opened(sink, Fence.of(1, 2))) as writer:
        writer.write(**bundle(5, 6))
        writer.write(**bundle(7, 8))
        late_delete(database, page)
    assert kept(sink) == [b"delta up to 6", b"delta up to 8"]


def test_numbers_go_on_after_everything_was_trimmed(database: str) -> None:
    sink = sql_sink(database)
    given: list[int] = []
    for attempt in range(1, 5):
        with closing(opened(sink, Fence.of(1, attempt))) as writer:
            writer.write(rows=[], ids=[], cursors={CHANNEL: attempt}, deltas=[b"same", b"same"])
        given += [entry.number for entry in entries(database)]
        assert sink.truncate(QUERY, Fence.of(1), lambda _: False) == 2
    assert given == list(range(1, 9))


def test_an_entry_is_named_by_its_checksum_too(database: str) -> None:
    sink = sql_sink(database)
    with closing(opened(sink, Fence.of(1, 1))) as writer:
        writer.write(**bundle(1, 2))
    (entry,) = entries(database)
    late_delete(database, [Entry(entry.number, entry.checksum ^ 1)])
    assert kept(sink) == [b"delta up to 2"]


# -- tables of layout 1

LAYOUT_1 = """
CREATE TABLE clonos_format (version INTEGER NOT NULL);
CREATE TABLE clonos_fence (query VARCHAR(255) NOT NULL, node INTEGER NOT NULL, instance INTEGER NOT NULL,
    fence BIGINT NOT NULL, PRIMARY KEY (query, node, instance));
CREATE TABLE clonos_cursor (query VARCHAR(255) NOT NULL, node INTEGER NOT NULL, instance INTEGER NOT NULL,
    channel BIGINT NOT NULL, position BIGINT NOT NULL, PRIMARY KEY (query, node, instance, channel));
CREATE TABLE clonos_log (query VARCHAR(255) NOT NULL, node INTEGER NOT NULL, instance INTEGER NOT NULL,
    seq BIGINT NOT NULL, checksum BIGINT NOT NULL, bytes {blob} NOT NULL, PRIMARY KEY (query, node, instance, seq));
INSERT INTO clonos_format VALUES (1);
INSERT INTO clonos_fence VALUES ('query-1', 0, -1, 844424930131968);
INSERT INTO clonos_fence VALUES ('query-1', 5, 0, 844424930263043);
INSERT INTO clonos_cursor VALUES ('query-1', 5, 0, 3, 2);
CREATE TABLE out (clonos_id VARCHAR(255) PRIMARY KEY, card TEXT, n BIGINT);
INSERT INTO clonos_log VALUES ('query-1', 5, 0, 1, 891568578, {abc})
"""  # fences 3 << 48 and 3 << 48 | 2 << 16 | 3; the log holds b"abc"


def old_tables(url: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    sqlite = engine.dialect.name == "sqlite"
    script = LAYOUT_1.format(
        blob="BLOB" if sqlite else "BYTEA", abc="x'616263'" if sqlite else "'\\x616263'::bytea"
    )
    with engine.begin() as connection:
        for statement in script.split(";\n"):
            connection.exec_driver_sql(statement)


def test_tables_of_layout_1_are_taken_over(old_database: str) -> None:
    old_tables(old_database)
    sink = sql_sink(old_database)
    late = Fence.of(3, 2, 2)  # of the start that had written it
    with pytest.raises(Fenced, match=f"fence {Fence.of(3, 2, 3):x} stands, this writer holds {late:x}"):
        opened(sink, late)
    sink.raise_fence(QUERY, Fence.of(4))
    with closing(sink.writer()) as writer:
        place = {"query": QUERY, "node": 5, "instance": 0}
        assert writer.open(**place, fence=Fence.first(4, 0)).cursors == {CHANNEL: 2}
        writer.write(**bundle(3, 4))
    old, new = entries(old_database)
    assert old.number == 1
    assert new.number > 1 << 40, "a delete of before may still come, and names entries by number alone"
    with pytest.raises(Fenced):
        sink.truncate(QUERY, Fence.of(3), lambda _: False)
    assert sink.truncate(QUERY, Fence.of(4), lambda _: False) == 2


def test_where_tables_may_not_be_changed_layout_1_is_refused_with_what_to_do(old_database: str) -> None:
    old_tables(old_database)
    sink = sql_sink(old_database, create=False)
    with pytest.raises(SinkError, match=r"layout 1.*Let a sink with create=True open it once"):
        sink.raise_fence(QUERY, Fence.of(4))
    sql_sink(old_database).raise_fence(QUERY, Fence.of(4))
    sink.raise_fence(QUERY, Fence.of(4))
    opened(sink, Fence.first(4, 0)).close()


# -- without the rule these tests fail


def test_log_numbers_that_begin_again_are_found(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_log, "next_number", lambda last, removed_upto: last + 1)
    with pytest.raises(AssertionError):
        test_numbers_go_on_after_everything_was_trimmed(database)
