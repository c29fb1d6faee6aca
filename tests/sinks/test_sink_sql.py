"""The SQL sink on SQLite and on a real PostgreSQL server: one transaction, one fence, exact values."""

from __future__ import annotations

import datetime as dt
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa
from free_port import free_port
from postgres_server import PostgresServer
from sink_child import CHANNEL, SCHEMA, bundle
from sink_support import QUERY, assert_covered, execute, expected, opened, sql_sink, table_rows

from clonos import sinks
from clonos.errors import ConfigurationError, Fenced, QueryDefinitionError, SinkError, SinkUnavailable
from clonos.sinks.patience import Patience

POSTGRES = pytest.param("server", marks=pytest.mark.postgres)
MYSQL = pytest.param("mysql", marks=pytest.mark.mysql)


def test_sqlite_has_one_instance(url: str) -> None:
    assert sql_sink(url).parallelism == (1 if url.startswith("sqlite") else None)


def test_rows_cursors_and_determinants_take_effect_together(url: str) -> None:
    sink = sql_sink(url)
    with closing(opened(sink)) as writer:
        writer.write(**bundle(1, 10))
        writer.write(rows=[], ids=[], cursors={CHANNEL: 12, 7: 4}, deltas=[])
        writer.write(**bundle(13, 14))
    assert [each[0] for each in table_rows(url)] == [f"3-0-{n}" for n in (*range(1, 11), 13, 14)]
    with closing(sink.writer()) as again:
        assert again.open(query=QUERY, node=5, instance=0, fence=2).cursors == {CHANNEL: 14, 7: 4}
        assert again.open(query="another", node=5, instance=0, fence=1).cursors == {}
    with closing(sink.log_reader(QUERY)) as reader:
        assert list(reader.deltas()) == [b"delta up to 10", b"delta up to 14"]
        assert reader.cursors() == {(5, 0): {CHANNEL: 14, 7: 4}}
    with closing(sink.log_reader("another")) as reader:
        assert list(reader.deltas()) == []


@pytest.mark.postgres
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_postgresql_database_in_another_encoding_takes_text(server: PostgresServer, encoding: str) -> None:
    """SQL_ASCII, which `initdb` chooses in the C locale, says no encoding of its own."""
    url = server.fresh_database(encoding)
    with closing(opened(sql_sink(url))) as writer:
        writer.write(**{**bundle(1, 1), "rows": [("Zürich", 1)]})
    with psycopg.connect(url.replace("+psycopg", ""), client_encoding="utf8") as open_:
        assert open_.execute("SELECT card FROM out").fetchone() == ("Zürich",)


def test_a_row_of_another_width_is_refused(url: str) -> None:
    with closing(opened(sql_sink(url))) as writer:
        with pytest.raises(SinkError):
            writer.write(**{**bundle(1, 2), "rows": [("a",), ("b", 1)]})
        writer.write(**bundle(1, 2))
    assert table_rows(url) == expected(2)


def test_an_output_that_is_already_there_is_refused_by_the_table(url: str) -> None:
    sink = sql_sink(url)
    with closing(opened(sink)) as writer:
        writer.write(**bundle(1, 5))
    execute(url, "DELETE FROM clonos_cursor")
    with closing(opened(sink, fence=2)) as writer:
        with pytest.raises(SinkError, match="output 3-0-3 would become visible twice"):
            writer.write(**bundle(3, 8))
        writer.write(**bundle(6, 8))
    assert table_rows(url) == expected(8)


def test_two_queries_share_a_table_by_prefix(url: str) -> None:
    for name in ("a", "b"):
        sink = sql_sink(url, id_prefix=f"{name}:")
        with closing(sink.writer()) as writer:
            writer.open(query=name, node=5, instance=0, fence=1)
            writer.write(**bundle(1, 3))
    assert sorted(each[0] for each in table_rows(url)) == [f"{q}:3-0-{n}" for q in "ab" for n in (1, 2, 3)]


def test_a_refused_row_is_named_and_nothing_of_its_bundle_is_visible(url: str) -> None:
    execute(
        url,
        "CREATE TABLE out (clonos_id VARCHAR(99) PRIMARY KEY, card TEXT, n BIGINT CHECK (n <> 49), x INT DEFAULT 1)",
    )
    sink = sql_sink(url)
    with closing(opened(sink)) as writer:
        writer.write(**bundle(1, 4))
        with pytest.raises(SinkError, match=r"refuses row 3-0-7.*Nothing of its bundle") as caught:
            writer.write(**bundle(5, 10))
        assert not caught.value.retryable
        writer.write(**bundle(5, 6))
    assert table_rows(url) == expected(6)
    assert_covered(sink, expected(6))


def test_a_value_the_database_cannot_hold_is_named(url: str) -> None:
    with closing(opened(sql_sink(url))) as writer:
        wrong = bundle(1, 3)
        wrong["rows"][1] = ("ok", 1 << 70)
        with pytest.raises(SinkError, match="3-0-2"):
            writer.write(**wrong)
        writer.write(**bundle(1, 3))
    assert table_rows(url) == expected(3)


def test_the_log_is_trimmed_in_pages(url: str) -> None:
    sink = sql_sink(url)
    with closing(opened(sink)) as writer:
        deltas = [b"%d" % n for n in range(1200)]
        writer.write(rows=[], ids=[], cursors={CHANNEL: 1}, deltas=deltas)
        with closing(sink.log_reader(QUERY)) as reader:
            assert list(reader.deltas()) == deltas
            assert sink.truncate(QUERY, 9, lambda each: int(each) % 100 == 0) == 1188
            assert list(reader.deltas()) == [b"%d" % n for n in range(0, 1200, 100)]
        writer.write(rows=[], ids=[], cursors={CHANNEL: 2}, deltas=[b"after"])
        assert sink.truncate(QUERY, 9, lambda each: False) == 13
    with closing(opened(sink, fence=2)) as writer:
        writer.write(rows=[], ids=[], cursors={CHANNEL: 3}, deltas=[b"again"])
    with closing(sink.log_reader(QUERY)) as reader:
        assert list(reader.deltas()) == [b"again"]


def test_a_damaged_delta_is_reported_and_never_returned(url: str) -> None:
    sink = sql_sink(url)
    with closing(opened(sink)) as writer:
        writer.write(rows=[], ids=[], cursors={CHANNEL: 1}, deltas=[b"one", b"two", b"three"])
    execute(url, "UPDATE clonos_log SET checksum = checksum + 1 WHERE seq = 2")
    with closing(sink.log_reader(QUERY)) as reader:
        assert list(reader.deltas()) == [b"one", b"three"]
        assert reader.corrupt == ["clonos_log: node 5, instance 0, seq 2"]
    assert sink.truncate(QUERY, 9, lambda _: False) == 2


def test_another_layout_is_refused(url: str) -> None:
    sink = sql_sink(url)
    opened(sink).close()
    execute(url, "UPDATE clonos_format SET version = 99")
    with closing(sink.writer()) as writer, pytest.raises(SinkError, match="layout 99"):
        writer.open(query=QUERY, node=5, instance=0, fence=1)


def test_without_create_the_tables_must_be_there_and_ddl_makes_them(url: str) -> None:
    sink = sql_sink(url, create=False)
    with closing(sink.writer()) as writer:
        with pytest.raises(SinkError, match="clonos_fence"):
            writer.open(query=QUERY, node=5, instance=0, fence=1)
        assert table_rows(url) == []
        for statement in sink.ddl().split(";\n"):
            if statement.strip():
                execute(url, statement)
        writer.open(query=QUERY, node=5, instance=0, fence=1)
        writer.write(**bundle(1, 3))
    assert table_rows(url) == expected(3)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("clonos_id VARCHAR(99), card TEXT, n BIGINT", "not unique"),
        ("clonos_id VARCHAR(99) UNIQUE, n BIGINT", "lacks"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(url: str, columns: str, words: str) -> None:
    execute(url, f"CREATE TABLE out ({columns})")
    with closing(sql_sink(url).writer()) as writer, pytest.raises(SinkError, match=words):
        writer.open(query=QUERY, node=5, instance=0, fence=1)


WIDER = SCHEMA.append(pa.field("Order of 100%", pa.int64()))


def test_a_table_gets_the_columns_that_a_query_adds(url: str) -> None:
    with closing(opened(sql_sink(url))) as writer:
        writer.write(**bundle(1, 2))
    with closing(opened(sql_sink(url, WIDER), fence=2)) as writer:
        more = bundle(3, 3)
        writer.write(**{**more, "rows": [(*row, 7) for row in more["rows"]]})
    assert execute(url, 'SELECT "Order of 100%" FROM out ORDER BY n') == [(None,), (None,), (7,)]
    assert len(table_rows(url)) == 3


def test_without_create_added_columns_are_refused_by_name(url: str) -> None:
    with closing(opened(sql_sink(url))) as writer:
        writer.write(**bundle(1, 2))
    refused = pytest.raises(SinkError, match=r"lacks the columns Order of 100%\. Add them, without NOT NULL")
    with closing(sql_sink(url, WIDER, create=False).writer()) as writer, refused:
        writer.open(query=QUERY, node=5, instance=0, fence=2)


def test_columns_can_be_renamed_and_quoted(url: str) -> None:
    sink = sql_sink(url, columns={"card": "Order of 100%", "n": 'sel"ect'})
    with closing(opened(sink)) as writer:
        writer.write(**bundle(1, 2))
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        table = sa.Table("out", sa.MetaData(), autoload_with=connection)
        assert table.columns.keys() == ["clonos_id", "Order of 100%", 'sel"ect']
        assert len(connection.execute(table.select()).all()) == 2


def test_a_table_that_is_there_by_a_name_in_another_case_is_named(url: str) -> None:
    """To SQLite it is that table; other databases have both."""
    with closing(opened(sql_sink(url))) as writer:
        writer.write(**bundle(1, 2))
    shouting = sql_sink(url, table="OUT")
    if url.startswith("sqlite"):
        with (
            closing(shouting.writer()) as writer,
            pytest.raises(SinkError, match=r"is there as out.*table='out'"),
        ):
            writer.open(query="another", node=5, instance=0, fence=1)
    else:
        with closing(opened(shouting, query="another")) as writer:
            writer.write(**bundle(1, 2))
    assert len(table_rows(url)) == 2


UTC = dt.UTC
EVERY_TYPE = pa.schema(
    [
        ("i8", pa.int8()), ("i16", pa.int16()), ("i32", pa.int32()), ("i64", pa.int64()),
        ("f32", pa.float32()), ("f64", pa.float64()), ("yes", pa.bool_()), ("text", pa.string()),
        ("raw", pa.binary()), ("money", pa.decimal128(38, 10)), ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")), ("took", pa.duration("us")),
        ("items", pa.list_(pa.int32())), ("box", pa.struct([("a", pa.decimal128(5, 2)), ("b", pa.binary())])),
        ("tags", pa.map_(pa.string(), pa.float64())), ("void", pa.null()),
    ]
)  # fmt: skip
EVERY_VALUE = (
    -128, 32767, -(2**31), 2**63 - 1, 0.5, 1e300, True, "ü'\"%s\U0001f600", b"\0\xff", Decimal("1234567890.0123456789"),
    dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 1, 2, 3, 4, UTC), dt.datetime(1999, 12, 31, 23, 59, 59, 999999),
    dt.timedelta(days=-1, microseconds=1), [1, None, 3], {"a": Decimal("1.10"), "b": b"\xfe"},
    [("x", 1.5), ("y", float("nan"))], None,
)  # fmt: skip


def test_every_type_arrives_as_it_was(url: str) -> None:
    with closing(opened(sql_sink(url, EVERY_TYPE))) as writer:
        nothing = (None,) * len(EVERY_TYPE.names)
        writer.write([EVERY_VALUE, nothing], ["3-0-1", "3-0-2"], {CHANNEL: 2}, [])
    found = execute(url, "SELECT * FROM out ORDER BY clonos_id")
    assert tuple(found[1])[1:] == nothing
    values = dict(zip(EVERY_TYPE.names, found[0][1:], strict=True))
    for name in ("i8", "i16", "i32", "i64", "f32", "f64", "text", "void"):
        assert values[name] == EVERY_VALUE[EVERY_TYPE.names.index(name)]
    assert values["yes"] in (True, 1)
    assert bytes(values["raw"]) == b"\0\xff"
    if url.startswith("sqlite"):
        assert values["money"] == "1234567890.0123456789"
        assert (values["day"], values["took"]) == ("2024-02-29", -86_399_999_999)
        assert (values["at"], values["local"]) == (
            "2024-02-29 01:02:03.000004+00:00",
            "1999-12-31 23:59:59.999999",
        )
        assert values["box"] == '{"a":"1.10","b":"/g=="}'
        assert values["tags"] == '{"x":1.5,"y":"NaN"}'
    elif url.startswith("mysql"):
        for name in ("money", "day", "local"):
            assert values[name] == EVERY_VALUE[EVERY_TYPE.names.index(name)], name
        assert (values["at"], values["took"]) == (dt.datetime(2024, 2, 29, 1, 2, 3, 4), -86_399_999_999)
        assert (values["items"], values["box"]) == ("[1,null,3]", '{"a":"1.10","b":"/g=="}')
        assert values["tags"] == '{"x":1.5,"y":"NaN"}'
    else:
        for name in ("money", "day", "at", "local", "took", "items"):
            assert values[name] == EVERY_VALUE[EVERY_TYPE.names.index(name)], name
        assert values["box"] == {"a": "1.10", "b": "/g=="}
        assert values["tags"] == {"x": 1.5, "y": "NaN"}


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([]),
        pa.schema([("a", pa.int64()), ("A", pa.int64())]),
        pa.schema([("clonos_id", pa.string())]),
        pa.schema([("", pa.string())]),
        pa.schema([("a", pa.month_day_nano_interval())]),
        pa.schema([("a", pa.uint64())]),
        pa.schema([("a", pa.list_(pa.struct([("b", pa.time32("s"))])))]),
        pa.schema([("a", pa.map_(pa.list_(pa.int8()), pa.int8()))]),
        pa.schema([("x" * 2000, pa.string())]),
    ],
)
def test_rows_that_do_not_fit_are_refused_when_the_query_is_built(schema: pa.Schema, tmp_path: Path) -> None:
    with pytest.raises(QueryDefinitionError):
        sinks.sql(f"sqlite:///{tmp_path}/a.db", "out").validate(schema)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "mssql://h/db",
        "mysql://h",
        "mysql+mysqldb://h/db",
        "no url",
        "postgresql+psycopg2://h/db",
    ],
)
def test_a_database_that_cannot_serve_is_refused(wrong: str) -> None:
    with pytest.raises(QueryDefinitionError):
        sinks.sql(wrong, "out")


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with pytest.raises(ConfigurationError):
        sinks.sql(url, "out", patience=-1)
    with pytest.raises(QueryDefinitionError):
        sinks.sql(url, "other.out")
    with pytest.raises(QueryDefinitionError):
        sinks.sql(url, "")
    with pytest.raises(QueryDefinitionError, match="nope"):
        sql_sink(url, columns={"nope": "x"})
    with pytest.raises(ConfigurationError, match="validate"):
        sinks.sql(url, "out").writer()


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(sinks.sql("postgresql://me:secret@host/db", "out"))


def lose_answers(writer: Any, count: int) -> None:
    """Let the next transactions take effect, and lose the answer to their commit."""
    whole, left = writer._transact, [count]

    def lossy(work: Callable[..., Any]) -> Any:
        result = whole(work)
        if left[0]:
            left[0] -= 1
            writer._disconnect()
            raise SinkUnavailable("the answer was lost")
        return result

    writer._transact = lossy


def test_a_commit_whose_answer_is_lost_is_not_repeated(url: str) -> None:
    sink = sql_sink(url)
    with closing(opened(sink)) as writer:
        writer.write(**bundle(1, 5))
        lose_answers(writer, 1)
        writer.write(**bundle(6, 10))
        writer.write(**bundle(11, 12))
    assert table_rows(url) == expected(12)


def test_after_patience_ends_the_same_bundle_finds_out(url: str) -> None:
    sink = sql_sink(url, patience=0)
    with closing(opened(sink)) as writer:
        lose_answers(writer, 1)
        with pytest.raises(SinkUnavailable, match="tried 1 times"):
            writer.write(**bundle(1, 5))
        with pytest.raises(SinkError, match="neither where this bundle starts"):
            writer.write(**bundle(1, 9))
        writer.write(**bundle(1, 5))
        writer.write(**bundle(6, 7))
    assert table_rows(url) == expected(7)


def test_racing_writers_never_repeat_or_lose(url: str) -> None:
    """Every writer raises the fence and writes on until it is refused; the last one finishes."""
    sink = sql_sink(url)
    opened(sink, fence=1).close()
    start = threading.Barrier(4)
    problems: list[BaseException] = []

    def race(fence: int) -> None:
        start.wait()
        writer = sink.writer()
        try:
            at = writer.open(query=QUERY, node=5, instance=0, fence=fence).cursors.get(CHANNEL, 0)
            while at < 60:
                writer.write(**bundle(at + 1, at + 3))
                at += 3
        except Fenced:
            pass
        except BaseException as error:
            problems.append(error)
        finally:
            writer.close()

    threads = [threading.Thread(target=race, args=(fence,)) for fence in (2, 3, 4)]
    for thread in threads:
        thread.start()
    start.wait()
    for thread in threads:
        thread.join()
    assert problems == []
    assert table_rows(url) == expected(60)
    assert_covered(sink, table_rows(url))


def test_instances_that_open_at_once_create_the_tables_once(url: str) -> None:
    sink = sql_sink(url)
    problems: list[BaseException] = []

    def use(instance: int) -> None:
        try:
            with closing(opened(sink, instance=instance)) as writer:
                writer.write([("a", 1)], [f"3-{instance}-1"], {instance << 6 | 3: 1}, [])
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=use, args=(instance,)) for instance in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(table_rows(url)) == 6


def test_a_locked_database_only_delays(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/sink.db"
    with closing(opened(sql_sink(url))) as writer, closing(sqlite3.connect(f"{tmp_path}/sink.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        writer._connect().connection.dbapi_connection.execute("PRAGMA busy_timeout=0")
        writer._patience = Patience(10, sleep=lambda _: other.rollback())
        writer.write(**bundle(1, 5))
    assert table_rows(url) == expected(5)


def test_an_unreachable_database_ends_patience_with_a_retryable_error(tmp_path: Path) -> None:
    sink = sql_sink(f"sqlite:///{tmp_path}/no/such/folder/sink.db", patience=0.05)
    with closing(sink.writer()) as writer, pytest.raises(SinkUnavailable, match="unable to open") as caught:
        writer.open(query=QUERY, node=5, instance=0, fence=1)
    assert caught.value.retryable


@pytest.mark.parametrize("kind", [POSTGRES, MYSQL])
@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_server_that_is_away_for_a_while_only_delays(
    kind: str, how: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(kind)
    url = server.fresh_database()
    sink = sql_sink(url, patience=240)
    waiting = threading.Event()
    with closing(opened(sink)) as writer:
        writer.write(**bundle(1, 5))

        def sleep(seconds: float) -> None:
            waiting.set()
            threading.Event().wait(seconds)

        writer._patience = Patience(60, sleep=sleep)
        getattr(server, how)()
        try:
            thread = threading.Thread(target=lambda: writer.write(**bundle(6, 10)))
            thread.start()
            assert waiting.wait(120)
        finally:
            server.start()
        thread.join(120)
        assert not thread.is_alive()
        writer.write(**bundle(11, 12))
    assert table_rows(url) == expected(12)
    assert_covered(sink, expected(12))


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "mariadb"])
def test_a_server_that_stays_away_is_a_retryable_error(scheme: str) -> None:
    sink = sql_sink(f"{scheme}://clonos@127.0.0.1:{free_port()}/nothing", patience=0.05)
    with closing(sink.writer()) as writer, pytest.raises(SinkUnavailable):
        writer.open(query=QUERY, node=5, instance=0, fence=1)
