"""What a table refuses, or does not keep, is said with what to do, and without the users' values."""

from __future__ import annotations

import traceback
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer
from sink_child import bundle
from sink_support import SQL, execute, expected, fresh_database, opened, sql_sink, table_rows

from clonos.errors import SinkError


def write(sink: Any, what: dict[str, Any], fence: int = 1, **place: Any) -> None:
    with closing(opened(sink, fence, **place)) as writer:
        writer.write(**what)


def skip_even(url: str) -> None:
    """A trigger on `out` skips every second row."""
    if url.startswith("sqlite"):
        begin = "CREATE TRIGGER skip BEFORE INSERT ON out WHEN new.n % 2 = 0"
        execute(url, f"{begin} BEGIN SELECT RAISE(IGNORE); END")
        return
    body = "BEGIN IF NEW.n % 2 = 0 THEN RETURN NULL; END IF; RETURN NEW; END"
    execute(url, f"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    execute(url, "CREATE TRIGGER skip BEFORE INSERT ON out FOR EACH ROW EXECUTE FUNCTION f()")


@pytest.mark.parametrize("kind", SQL[:2])
def test_rows_that_a_trigger_skips_are_not_lost(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """MySQL has no triggers that do."""
    url = fresh_database(kind, request, tmp_path)
    sink = sql_sink(url)
    with closing(opened(sink)) as writer:
        writer.write(**bundle(1, 3))
        skip_even(url)
        with pytest.raises(
            SinkError, match="skipped 2 of 3 rows without an error, the first is 3-0-4"
        ) as caught:
            writer.write(**bundle(4, 6))
        assert not caught.value.retryable
        assert "Nothing of its bundle was written. A trigger or rule" in str(caught.value)
        assert table_rows(url) == expected(3)
        with pytest.raises(SinkError, match="skipped 1 of 1 rows"):
            writer.write(**bundle(4, 4))
    with closing(sink.log_reader("query-1")) as reader:
        assert list(reader.deltas()) == [b"delta up to 3"]
    execute(url, "DROP TRIGGER skip" + ("" if url.startswith("sqlite") else " ON out"))
    write(sink, bundle(4, 6), 2)
    assert table_rows(url) == expected(6)


def test_a_trigger_that_writes_elsewhere_skips_nothing(url: str) -> None:
    sink = sql_sink(url)
    opened(sink).close()
    execute(url, "CREATE TABLE audit (n BIGINT)")
    if url.startswith("mysql"):
        body = "BEGIN INSERT INTO audit VALUES (new.n); INSERT INTO audit VALUES (0); END"
        execute(url, f"CREATE TRIGGER t AFTER INSERT ON out FOR EACH ROW {body}")
    elif url.startswith("sqlite"):
        execute(
            url,
            "CREATE TRIGGER t AFTER INSERT ON out BEGIN INSERT INTO audit VALUES (new.n); "
            "INSERT INTO audit VALUES (0); END",
        )
    else:
        execute(
            url,
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit VALUES (NEW.n), (0); "
            "RETURN NEW; END $$",
        )
        execute(url, "CREATE TRIGGER t AFTER INSERT ON out FOR EACH ROW EXECUTE FUNCTION f()")
    write(sink, bundle(1, 700), 2)
    assert table_rows(url) == expected(700)
    assert execute(url, "SELECT count(*) FROM audit") == [(1400,)]


@pytest.mark.postgres
def test_rows_that_a_trigger_puts_into_a_part_of_the_table_are_there(server: PostgresServer) -> None:
    """Partitions by inheritance: the insert into the parent counts nothing."""
    url = server.fresh_database()
    sink = sql_sink(url)
    opened(sink).close()
    execute(url, "CREATE TABLE part (LIKE out INCLUDING ALL) INHERITS (out)")
    execute(
        url,
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO part SELECT NEW.*; RETURN NULL; END $$",
    )
    execute(url, "CREATE TRIGGER t BEFORE INSERT ON out FOR EACH ROW EXECUTE FUNCTION f()")
    write(sink, bundle(1, 700), 2)
    assert table_rows(url) == expected(700)


def twice(sink: Any, **place: Any) -> str:
    with pytest.raises(
        SinkError, match="output 3-0-1 would become visible twice: table out already holds it"
    ) as caught:
        write(sink, bundle(1, 2), **place)
    return str(caught.value)


def test_the_hint_for_an_unrelated_query_helps(url: str) -> None:
    write(sql_sink(url), bundle(1, 3))
    said = twice(sql_sink(url), query="second")
    assert "clonos_cursor knows query query-1, this one is second" in said
    assert "If it is an unrelated query, give this one an id_prefix" in said
    write(sql_sink(url, id_prefix="second:"), bundle(1, 2), 2, query="second")
    assert len(execute(url, "SELECT * FROM out")) == 5


def test_the_hints_for_a_lost_checkpoint_help(url: str) -> None:
    """The same query under a new checkpoint has another id."""
    write(sql_sink(url), bundle(1, 3))
    said = twice(sql_sink(url), query="query-1 under a new checkpoint")
    assert "under a checkpoint that is lost or was replaced" in said
    assert said.index("restore the checkpoint, or begin anew") < said.index("give this one an id_prefix")
    write(sql_sink(url), bundle(4, 5), 2)
    assert table_rows(url) == expected(5)
    write(sql_sink(url, table="new"), bundle(1, 2), 2, query="query-1 under a new checkpoint")
    assert table_rows(url, "new") == expected(2)


def test_the_hint_for_lost_tables_of_ours_helps(url: str) -> None:
    write(sql_sink(url), bundle(1, 3))
    execute(url, "DELETE FROM clonos_cursor")
    said = twice(sql_sink(url), fence=2)
    assert "clonos_cursor knows no other query" in said
    assert "id_prefix" not in said
    assert "begin anew with a new checkpointLocation and a new table" in said
    write(sql_sink(url, table="new"), bundle(1, 2), query="begun anew")
    assert table_rows(url, "new") == expected(2)


def test_many_queries_are_not_all_named(url: str) -> None:
    for number in range(6):
        write(sql_sink(url, id_prefix=f"{number}:"), bundle(1, 1), query=f"q{number}")
    write(sql_sink(url), bundle(1, 1), query="q6")
    assert "knows query q0, q1, q2, q3, ..., this one is q7" in twice(sql_sink(url), query="q7")


@pytest.mark.parametrize("how", ["refused", "twice", "skipped", "closed"])
def test_no_value_of_a_row_is_shown(url: str, how: str) -> None:
    """The driver's exceptions would bring the statement's values, PostgreSQL's the whole row."""
    execute(
        url,
        "CREATE TABLE out (clonos_id VARCHAR(99) PRIMARY KEY, card TEXT, n BIGINT CHECK (n <> 49))",
    )
    if how == "skipped" and not url.startswith("mysql"):
        skip_even(url)
    with closing(opened(sql_sink(url))) as writer:
        if how == "twice":
            writer.write(**bundle(1, 1))
            execute(url, "INSERT INTO out (clonos_id) VALUES ('3-0-7')")
        if how == "closed":
            execute(url, "DROP TABLE out")
        what = bundle(6, 7) if how == "twice" else bundle(6, 8)
        what["rows"] = [("secret", n) for _, n in what["rows"]]
        if how == "skipped" and url.startswith("mysql"):  # that is refused in another way
            execute(url, "ALTER TABLE out MODIFY n DOUBLE, MODIFY card BIGINT")
        with pytest.raises(SinkError) as caught:
            writer.write(**what)
    shown = "".join(traceback.format_exception(caught.value))
    assert "secret" not in shown
    assert "[parameters" not in shown
    assert "direct cause" not in shown
    assert "During handling" not in shown
