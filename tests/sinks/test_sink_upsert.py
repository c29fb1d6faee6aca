"""`mode="upsert"`: one row per key, the newest, whatever is repeated, fenced, refused or killed."""

from __future__ import annotations

import datetime as dt
import threading
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
import sqlalchemy as sa
from sink_child import SCHEMA
from sink_support import (
    QUERY,
    SQL,
    execute,
    expected,
    fresh_database,
    opened,
    run_child,
    sql_sink,
    table_rows,
)

from clonos import sinks
from clonos.errors import Fenced, QueryDefinitionError, SinkError
from clonos.sinks import sql_statements, sql_upsert

OTHER = 1 << 6 | 3  # the channel of instance 1 of node 3


def upsert_sink(url: str, schema: pa.Schema = SCHEMA, key: Any = "card", **options: Any) -> sinks.SqlSink:
    return sql_sink(url, schema, mode="upsert", key=key, **options)


def rows(first: int, *given: tuple[Any, ...], instance: int = 0) -> dict[str, Any]:
    """A bundle of these rows, numbered from `first` on."""
    last = first + len(given) - 1
    ids = [f"3-{instance}-{number}" for number in range(first, last + 1)]
    return {"rows": list(given), "ids": ids, "cursors": {instance << 6 | 3: last}, "deltas": []}


def held(url: str, columns: str = "card, n") -> list[tuple[Any, ...]]:
    return [tuple(row) for row in execute(url, f"SELECT clonos_id, {columns} FROM out ORDER BY {columns}")]


# -- the newest row per key


def test_a_row_takes_the_place_of_the_one_with_its_key(url: str) -> None:
    with closing(opened(upsert_sink(url))) as writer:
        writer.write(**rows(1, ("a", 1), ("b", 2)))
        writer.write(**rows(3, ("b", 3), ("c", 4)))
    assert held(url) == [("3-0-1", "a", 1), ("3-0-3", "b", 3), ("3-0-4", "c", 4)]


def test_of_a_bundle_the_last_row_of_a_key_counts(url: str) -> None:
    with closing(opened(upsert_sink(url))) as writer:
        writer.write(**rows(1, ("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)))
    assert held(url) == [("3-0-5", "a", 5), ("3-0-4", "b", 4)]


def test_output_numbers_are_compared_as_numbers(url: str) -> None:
    with closing(opened(upsert_sink(url))) as writer:
        for number in (1, 2, 9, 10, 11, 99, 100, 101):
            writer.write(**rows(number, ("a", number)))
    assert held(url) == [("3-0-101", "a", 101)]


def test_a_key_may_have_several_columns_and_other_names(url: str) -> None:
    sink = upsert_sink(url, key=["n", "card"], columns={"card": "Order of 100%"})
    with closing(opened(sink)) as writer:
        writer.write(**rows(1, ("a", 1), ("a", 2), ("b", 1), ("a", 1)))
        writer.write(**rows(5, ("b", 1)))
    found = held(url, '"Order of 100%", n')
    assert found == [("3-0-4", "a", 1), ("3-0-2", "a", 2), ("3-0-5", "b", 1)]


def test_all_columns_may_be_the_key_and_the_id_may_have_any_name(url: str) -> None:
    sink = upsert_sink(url, pa.schema([("card", pa.string())]), id_column="id")
    with closing(opened(sink)) as writer:
        writer.write(**rows(1, ("a",), ("b",)))
        writer.write(**rows(3, ("a",)))
    assert execute(url, "SELECT id, card FROM out ORDER BY card") == [("3-0-3", "a"), ("3-0-2", "b")]


def test_of_several_instances_the_last_transaction_counts(url: str) -> None:
    """A key that several upstream instances make rows of; the second has fewer rows so far."""
    with closing(opened(upsert_sink(url))) as writer:
        writer.write(**rows(7, ("a", 1)))
        writer.write(**rows(2, ("a", 2), instance=1))
        assert held(url) == [("3-1-2", "a", 2)]
        writer.write(**rows(8, ("a", 3)))
    assert held(url) == [("3-0-8", "a", 3)]


def test_other_columns_of_the_row_stay(url: str) -> None:
    with closing(opened(upsert_sink(url))) as writer:
        writer.write(**rows(1, ("a", 1)))
        execute(url, "ALTER TABLE out ADD COLUMN note VARCHAR(9) DEFAULT 'new'")
        execute(url, "UPDATE out SET note = 'mine'")
        writer.write(**rows(2, ("a", 2), ("b", 3)))
    assert held(url, "card, note") == [("3-0-2", "a", "mine"), ("3-0-3", "b", "new")]


KEYS = pa.schema(
    [
        ("text", pa.string()), ("number", pa.int64()), ("small", pa.int16()), ("yes", pa.bool_()),
        ("raw", pa.binary()), ("digits", pa.decimal128(38, 0)), ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")),
    ]
)  # fmt: skip
BERLIN = ZoneInfo("Europe/Berlin")
KEY = (
    "ü'\"%s\U0001f600", -(2**63), 7, False, b"\0\xff", Decimal(10**37 + 1), dt.date(2024, 2, 29),
    dt.datetime(2024, 10, 27, 2, 30, 0, 4, BERLIN), dt.datetime(1999, 12, 31, 23, 59, 59, 999999),
)  # fmt: skip
LIKE_IT = {
    "text": "Ü'\"%s\U0001f600", "number": -(2**63) + 1, "small": -7, "yes": True, "raw": b"\0\xfe",
    "digits": Decimal(10**37), "day": dt.date(2024, 3, 1),
    "at": dt.datetime(2024, 10, 27, 2, 30, 0, 4, BERLIN, fold=1),
    "local": dt.datetime(1999, 12, 31, 23, 59, 59, 999998),
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS.names)
def test_every_type_of_key_tells_rows_apart(url: str, name: str) -> None:
    schema = KEYS.append(pa.field("n", pa.int64()))
    sink = upsert_sink(url, schema, key=name)
    like_it = tuple(LIKE_IT[name] if each == name else value for each, value in zip(KEYS.names, KEY))
    with closing(opened(sink)) as writer:
        writer.write(**rows(1, (*KEY, 1), (*like_it, 2)))
        writer.write(**rows(3, (*KEY, 3)))
    assert held(url, "n") == [("3-0-2", 2), ("3-0-3", 3)]


def test_one_key_in_several_forms_is_one(url: str) -> None:
    schema = pa.schema([("d", pa.decimal128(10, 0)), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    noon = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
    with closing(opened(upsert_sink(url, schema, key=["d", "at"]))) as writer:
        writer.write(**rows(1, (Decimal("70"), noon, 1), (Decimal("7E+1"), noon.astimezone(BERLIN), 2)))
        writer.write(**rows(3, (Decimal("70.0"), noon, 3)))
    assert held(url, "n") == [("3-0-3", 3)]


# -- deletions

GOING = pa.schema([("card", pa.string()), ("n", pa.int64()), ("gone", pa.bool_())])


def test_a_row_that_says_so_deletes_the_keys_row(url: str) -> None:
    with closing(opened(upsert_sink(url, GOING, delete="gone"))) as writer:
        writer.write(**rows(1, ("a", 1, False), ("b", 2, None), ("c", 3, True)))
        assert held(url) == [("3-0-1", "a", 1), ("3-0-2", "b", 2)]
        writer.write(**rows(4, ("a", None, True), ("d", 5, True)))
        assert held(url) == [("3-0-2", "b", 2)]
        writer.write(**rows(6, ("a", 6, False)))
    assert held(url) == [("3-0-6", "a", 6), ("3-0-2", "b", 2)]
    assert {name for name, _ in ((column["name"], 0) for column in columns(url))} == {
        "clonos_id",
        "card",
        "n",
    }


def columns(url: str) -> list[Any]:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    return list(sa.inspect(engine).get_columns("out"))


def test_of_a_bundle_the_last_row_says_whether_a_key_stays(url: str) -> None:
    with closing(opened(upsert_sink(url, GOING, delete="gone"))) as writer:
        writer.write(**rows(1, ("a", 1, None), ("b", 2, None)))
        writer.write(
            **rows(3, ("a", 3, True), ("b", 4, None), ("a", 5, None), ("b", 6, True), ("c", 7, None))
        )
    assert held(url) == [("3-0-5", "a", 5), ("3-0-7", "c", 7)]


def test_a_bundle_that_only_deletes_binds_the_query_to_its_table(url: str) -> None:
    with closing(opened(upsert_sink(url, GOING, delete="gone"))) as writer:
        writer.write(**rows(1, ("a", 1, True)))
    other = upsert_sink(url, GOING, delete="gone", table="other")
    with pytest.raises(SinkError, match="to table 'out'"):
        opened(other, 2)


def test_many_rows_go_and_come_at_once_whatever_the_id_column_is_called(url: str) -> None:
    sink = upsert_sink(url, GOING, delete="gone", id_column="id?%s")
    with closing(opened(sink)) as writer:
        writer.write(**rows(1, *((f"card {n}", n, None) for n in range(2000))))
        writer.write(**rows(2001, *((f"card {n}", n, n < 1990) for n in range(2000))))
    assert execute(url, "SELECT n FROM out ORDER BY n") == [(n,) for n in range(1990, 2000)]


# -- nothing that is repeated takes a newer row's place


def test_a_bundle_that_comes_again_after_a_newer_row_changes_nothing(url: str) -> None:
    """A recovery repeats what the writer before has shown; its cursors say so."""
    sink = upsert_sink(url)
    with closing(opened(sink)) as writer:
        writer.write(**rows(1, ("a", 1)))
        writer.write(**rows(2, ("a", 2)))
    with closing(opened(sink, fence=2)) as writer:
        for repeated in (rows(1, ("a", 1)), rows(1, ("a", 1), ("a", 2)), rows(2, ("a", 2), ("a", 3))):
            with pytest.raises(SinkError, match=r"would become visible twice|a cursor steps back"):
                writer.write(**repeated)
        assert held(url) == [("3-0-2", "a", 2)]
        writer.write(**rows(3, ("a", 3)))
    assert held(url) == [("3-0-3", "a", 3)]


def test_a_fenced_writers_row_does_not_take_its_successors_place(url: str) -> None:
    sink = upsert_sink(url)
    with closing(opened(sink)) as zombie:
        zombie.write(**rows(1, ("a", 1)))
        with closing(opened(sink, fence=2)) as writer:
            writer.write(**rows(2, ("a", 2)))
            with pytest.raises(Fenced):
                zombie.write(**rows(2, ("a", -2)))
    assert held(url) == [("3-0-2", "a", 2)]


def rewound(url: str, sink: sinks.SqlSink) -> Any:
    """A writer whose cursors are those of long ago, as after a wrong restoration; it has shown one row."""
    with closing(opened(sink)) as writer:
        writer.write(**rows(1, ("start", 0)))
        writer.write(**rows(2, ("a", 2), ("b", 3)))
        writer.write(**rows(4, ("a", 4)))
    execute(url, "UPDATE clonos_cursor SET position = 1")
    return opened(sink, fence=2)


def test_the_statement_itself_does_not_take_an_older_output(url: str) -> None:
    with closing(rewound(url, upsert_sink(url))) as writer:
        with pytest.raises(
            SinkError, match="output 3-0-2 would take the place of a later one: table out holds 3-0-4"
        ):
            writer.write(**rows(2, ("a", 2)))
        with pytest.raises(SinkError, match="output 3-0-3 would become visible twice"):
            writer.write(**rows(2, ("c", 9), ("b", 3)))
        assert held(url) == [("3-0-4", "a", 4), ("3-0-3", "b", 3), ("3-0-1", "start", 0)]
        writer.write(**rows(5, ("a", 5)))
    assert held(url)[0] == ("3-0-5", "a", 5)


def test_an_older_deletion_leaves_a_newer_row(url: str) -> None:
    rewound(url, upsert_sink(url)).close()
    sink = upsert_sink(url, GOING, delete="gone")
    with closing(opened(sink, fence=3)) as writer:
        writer.write(**rows(2, ("a", None, True), ("b", None, True)))
    assert held(url) == [("3-0-4", "a", 4), ("3-0-3", "b", 3), ("3-0-1", "start", 0)]


def test_after_a_deletion_an_older_row_may_come_again(url: str) -> None:
    """Where cursors were set back by hand there is nothing left to compare with."""
    sink = upsert_sink(url, GOING, delete="gone")
    with closing(opened(sink)) as writer:
        writer.write(**rows(1, ("start", 0, None)))
        writer.write(**rows(2, ("a", 2, None)))
        writer.write(**rows(3, ("a", None, True)))
    execute(url, "UPDATE clonos_cursor SET position = 1")
    with closing(opened(sink, fence=2)) as writer:
        writer.write(**rows(2, ("a", 2, None)))
    assert held(url) == [("3-0-2", "a", 2), ("3-0-1", "start", 0)]


# -- tables that are shared, or lost


def test_a_query_that_begins_anew_over_the_rows_of_another_is_refused_at_once(url: str) -> None:
    with closing(opened(upsert_sink(url))) as writer:
        writer.write(**rows(1, ("a", 1), ("b", 2)))
    with pytest.raises(
        SinkError, match="has rows that this query has not written, one of them is 3-0-"
    ) as caught:
        opened(upsert_sink(url), query="second")
    assert "clonos_cursor knows query query-1, this one is second" in str(caught.value)
    assert "with an id_prefix the rows of keys that do not come again would stay" in str(caught.value)
    with closing(opened(upsert_sink(url, id_prefix="second:"), query="second")) as writer:  # as the hint says
        writer.write(**rows(1, ("a", 3)))
    assert held(url) == [("second:3-0-1", "a", 3), ("3-0-2", "b", 2)]
    with closing(opened(upsert_sink(url, table="new"), query="third")) as writer:
        writer.write(**rows(1, ("a", 4)))
    assert execute(url, "SELECT card, n FROM new") == [("a", 4)]


def test_rows_of_a_prefix_that_begins_with_a_digit_are_anothers(url: str) -> None:
    with closing(opened(upsert_sink(url, id_prefix="7-"))) as writer:
        writer.write(**rows(1, ("a", 1)))
    opened(upsert_sink(url), query="second").close()
    with pytest.raises(SinkError, match="one of them is 7-3-0-1"):
        opened(upsert_sink(url, id_prefix="7-"), query="third")


def test_tables_of_ours_that_were_cleared_are_noticed_at_once(url: str) -> None:
    with closing(opened(upsert_sink(url))) as writer:
        writer.write(**rows(1, ("a", 1)))
    execute(url, "DELETE FROM clonos_cursor")
    with pytest.raises(SinkError, match="clonos_cursor knows no other query"):
        opened(upsert_sink(url), 2)


def test_two_that_begin_at_one_moment_are_told_apart_by_the_first_row_that_collides(url: str) -> None:
    first, second = (opened(upsert_sink(url), query=name) for name in ("first", "second"))
    with closing(first), closing(second):
        first.write(**rows(1, ("a", 1), ("b", 2)))
        with pytest.raises(SinkError, match="output 3-0-1 would become visible twice"):
            second.write(**rows(1, ("c", 1)))
        with pytest.raises(SinkError, match="output 3-0-1 would become visible twice"):
            second.write(**rows(1, ("a", 1)))
        assert held(url) == [("3-0-1", "a", 1), ("3-0-2", "b", 2)]


def test_another_sink_of_the_query_may_write_to_the_table(url: str) -> None:
    sink = upsert_sink(url)
    with closing(opened(sink)) as one, closing(sink.writer()) as other:
        one.write(**rows(1, ("a", 1)))
        other.open(query=QUERY, node=6, instance=0, fence=1)
        other.write([("a", 2)], ["4-0-1"], {4: 1}, [])
    assert held(url) == [("4-0-1", "a", 2)]


# -- tables that are there


def text(url: str) -> str:
    """A type of text in which keys are equal only where they are the same."""
    return "VARCHAR(99)" + (" CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if url.startswith("mysql") else "")


def make_table(url: str, columns: str) -> None:
    execute(url, f"CREATE TABLE out ({columns})")


def test_a_table_without_a_unique_index_on_the_key_is_refused(url: str) -> None:
    make_table(url, f"clonos_id VARCHAR(99) PRIMARY KEY, card {text(url)}, n BIGINT")
    execute(url, "CREATE UNIQUE INDEX both_of_them ON out (card, n)")
    execute(url, "CREATE INDEX not_unique ON out (card)")
    part = "(card(9))" if url.startswith("mysql") else "(card) WHERE n > 0"
    execute(url, f"CREATE UNIQUE INDEX in_part ON out {part}")
    with pytest.raises(
        SinkError, match=r"table out has no unique index on just the key \(card\).*Create one"
    ):
        opened(upsert_sink(url))
    execute(url, "CREATE UNIQUE INDEX whole ON out (card)")  # as the hint says
    with closing(opened(upsert_sink(url))) as writer:
        writer.write(**rows(1, ("a", 1), ("a", 2)))
    with closing(opened(upsert_sink(url, key=("n", "card")), 2)) as writer:
        writer.write(**rows(3, ("b", 2)))
    assert held(url) == [("3-0-2", "a", 2), ("3-0-3", "b", 2)]


def test_a_table_without_a_unique_id_is_refused(url: str) -> None:
    make_table(url, "clonos_id VARCHAR(99), card VARCHAR(99) PRIMARY KEY, n BIGINT")
    with pytest.raises(SinkError, match="column 'clonos_id' of table out is not unique"):
        opened(upsert_sink(url))


@pytest.mark.parametrize("kind", SQL[:2])
def test_rows_that_were_there_before_are_replaced(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """In MySQL the id may not be null."""
    url = fresh_database(kind, request, tmp_path)
    make_table(url, "clonos_id VARCHAR(99) UNIQUE, card VARCHAR(99) PRIMARY KEY, n BIGINT")
    execute(url, "INSERT INTO out (card, n) VALUES ('a', 0), ('b', 0), ('c', 0)")
    with closing(opened(upsert_sink(url, GOING, delete="gone"))) as writer:
        writer.write(**rows(1, ("a", 1, None), ("c", 1, True)))
    assert held(url) == [("3-0-1", "a", 1), (None, "b", 0)]


@pytest.mark.parametrize("kind", SQL[:2])
def test_what_the_index_takes_for_one_key_ends_as_the_last_of_them(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """In MySQL such a column is refused."""
    url = fresh_database(kind, request, tmp_path)
    if url.startswith("sqlite"):
        make_table(url, "clonos_id TEXT UNIQUE, card TEXT COLLATE NOCASE PRIMARY KEY, n BIGINT")
    else:
        execute(
            url, "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        make_table(url, "clonos_id TEXT UNIQUE, card TEXT COLLATE loose PRIMARY KEY, n BIGINT")
    with closing(opened(upsert_sink(url, GOING, delete="gone"))) as writer:
        writer.write(
            **rows(1, ("a", 1, None), ("A", 2, None), ("b", 3, None), ("B", 4, True), ("c", 5, True))
        )
        writer.write(**rows(6, ("C", 6, True), ("c", 7, None)))
    assert held(url) == [("3-0-2", "A", 2), ("3-0-7", "c", 7)]


def test_without_create_ddl_makes_the_table(url: str) -> None:
    sink = upsert_sink(url, key=["n", "card"], create=False)
    for statement in sink.ddl().split(";\n"):
        if statement.strip():
            execute(url, statement)
    with closing(opened(sink)) as writer:
        writer.write(**rows(1, ("a", 1), ("a", 1)))
    assert held(url) == [("3-0-2", "a", 1)]


def test_columns_that_rows_gain_are_added_but_never_the_key(url: str) -> None:
    with closing(opened(upsert_sink(url))) as writer:
        writer.write(**rows(1, ("a", 1)))
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    with closing(opened(upsert_sink(url, wider), 2)) as writer:
        writer.write(**rows(2, ("b", 2, 7)))
    assert held(url, "card, n, more") == [("3-0-1", "a", 1, None), ("3-0-2", "b", 2, 7)]
    with pytest.raises(SinkError, match="lacks the columns fresh"):
        opened(upsert_sink(url, SCHEMA.append(pa.field("fresh", pa.int64())), key=["card", "fresh"]), 3)


def test_a_query_that_inserted_goes_on_with_upserts_where_the_table_allows_it(url: str) -> None:
    with closing(opened(sql_sink(url))) as writer:
        writer.write(**rows(1, ("a", 1), ("b", 2)))
    with pytest.raises(SinkError, match="no unique index on just the key"):
        opened(upsert_sink(url), 2)
    if url.startswith("mysql"):  # which has no index on the whole of a long text
        execute(url, f"ALTER TABLE out MODIFY card {text(url)}")
    execute(url, "CREATE UNIQUE INDEX by_card ON out (card)")
    with closing(opened(upsert_sink(url), 3)) as writer:
        writer.write(**rows(3, ("a", 3)))
    assert held(url) == [("3-0-3", "a", 3), ("3-0-2", "b", 2)]


# -- what is refused


def test_a_row_without_a_key_is_named_and_nothing_of_its_bundle_is_visible(url: str) -> None:
    with closing(opened(upsert_sink(url, GOING, key=["n", "card"], delete="gone"))) as writer:
        writer.write(**rows(1, ("a", 1, None)))
        for wrong in ((None, 2, None), ("b", None, True)):
            with pytest.raises(SinkError, match=r"row 3-0-3: column '(card|n)' of the key is null") as caught:
                writer.write(**rows(2, ("a", 1, None), wrong, ("c", 4, None)))
            assert not caught.value.retryable
        writer.write(**rows(2, ("b", 2, None)))
    assert held(url) == [("3-0-1", "a", 1), ("3-0-2", "b", 2)]


def test_a_violation_of_another_unique_index_is_named_and_replaces_nothing(url: str) -> None:
    make_table(url, f"clonos_id VARCHAR(99) NOT NULL UNIQUE, card {text(url)} PRIMARY KEY, n BIGINT UNIQUE")
    with closing(opened(upsert_sink(url))) as writer:
        writer.write(**rows(1, ("a", 1), ("b", 2)))
        for wrong in (("d", 2), ("a", 2)):
            with pytest.raises(SinkError, match=r"refuses row 3-0-4: .*(?i:unique|duplicate)"):
                writer.write(**rows(3, ("c", 3), wrong))
        assert held(url) == [("3-0-1", "a", 1), ("3-0-2", "b", 2)]
        writer.write(**rows(3, ("a", 3)))
    assert held(url) == [("3-0-3", "a", 3), ("3-0-2", "b", 2)]


@pytest.mark.parametrize("kind", SQL[:2])
@pytest.mark.parametrize("event", ["INSERT", "UPDATE"])
def test_rows_that_a_trigger_skips_are_not_lost(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest, event: str
) -> None:
    """MySQL has no triggers that do."""
    url = fresh_database(kind, request, tmp_path)
    with closing(opened(upsert_sink(url))) as writer:
        writer.write(**rows(1, ("a", 1)))
        if url.startswith("sqlite"):
            execute(
                url,
                f"CREATE TRIGGER skip BEFORE {event} ON out WHEN new.n = 3 BEGIN SELECT RAISE(IGNORE); END",
            )
        else:
            body = "BEGIN IF NEW.n = 3 THEN RETURN NULL; END IF; RETURN NEW; END"
            execute(url, f"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
            execute(url, f"CREATE TRIGGER skip BEFORE {event} ON out FOR EACH ROW EXECUTE FUNCTION f()")
        card = "a" if event == "UPDATE" else "c"
        with pytest.raises(
            SinkError, match=r"has skipped row 3-0-3 without an error.*A trigger or rule"
        ) as caught:
            writer.write(**rows(2, ("b", 2), (card, 3)))
        assert not caught.value.retryable
        assert held(url) == [("3-0-1", "a", 1)]
        writer.write(**rows(2, (card, 4)))
    assert ("3-0-2", card, 4) in held(url)


def test_no_value_of_a_row_is_shown(url: str) -> None:
    make_table(
        url,
        f"clonos_id VARCHAR(99) NOT NULL UNIQUE, card {text(url)} PRIMARY KEY, n BIGINT UNIQUE CHECK (n <> 49)",
    )
    with closing(opened(upsert_sink(url))) as writer:
        writer.write(**rows(1, ("secret", 1)))
        for wrong in (("secret2", 49), ("secret3", 1), ("secret4", 1 << 70), (None, 2)):
            with pytest.raises(SinkError) as caught:
                writer.write(**rows(2, ("secret5", 5), wrong))
            assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "upsert"}, 'needs a key.*key="account"'),
        ({"mode": "upsert", "key": []}, "needs a key"),
        ({"mode": "merge"}, "mode must be"),
        ({"key": "card"}, 'Write mode="upsert" beside them'),
        ({"delete": "gone"}, 'Write mode="upsert" beside them'),
        ({"mode": "upsert", "key": ["card", "card"]}, "named twice"),
        ({"mode": "upsert", "key": ["card"], "delete": "card"}, "named twice"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(QueryDefinitionError, match=words):
        sinks.sql(f"sqlite:///{tmp_path}/a.db", "out", **arguments)


@pytest.mark.parametrize(
    ("kind", "delete", "words"),
    [
        (pa.float64(), None, "cannot be a key.*Keys are strings, integers"),
        (pa.float32(), None, "cannot be a key"),
        (pa.decimal128(10, 2), None, "cannot be a key"),
        (pa.list_(pa.int64()), None, "cannot be a key"),
        (pa.struct([("a", pa.int64())]), None, "cannot be a key"),
        (pa.duration("us"), None, "cannot be a key"),
        (pa.null(), None, "cannot be a key"),
        (pa.string(), "other", "must be a boolean column, not int64"),
        (pa.string(), "nope", "names what the rows do not have: nope"),
    ],
)
def test_keys_that_cannot_tell_rows_apart_are_refused(
    tmp_path: Path, kind: pa.DataType, delete: str | None, words: str
) -> None:
    sink = sinks.sql(f"sqlite:///{tmp_path}/a.db", "out", mode="upsert", key="k", delete=delete)
    with pytest.raises(QueryDefinitionError, match=words):
        sink.validate(pa.schema([("k", kind), ("other", pa.int64())]))


def test_a_key_that_the_rows_do_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QueryDefinitionError, match="do not have: nope"):
        sinks.sql(f"sqlite:///{tmp_path}/a.db", "out", mode="upsert", key="nope").validate(SCHEMA)


# -- killed


@pytest.mark.parametrize(("moment", "at"), [("before", 2), ("within", 3), ("after", 3)])
def test_a_writer_dies_and_the_next_one_leaves_the_newest_row_per_key(
    tmp_path: Path, url: str, moment: str, at: int
) -> None:
    arguments = {"url": url, "table": "out", "patience": 20, "mode": "upsert", "key": "card"}
    spec = {"sink": "sql", "arguments": arguments, "upto": 60}
    crash = {"point": f"transaction.{moment}", "at": at}
    status, _ = run_child(tmp_path, {**spec, "fence": 1, "crash": crash})
    assert status < 0, "the crash point was never passed"
    shown = 10 * (at if moment == "after" else at - 1)
    assert table_rows(url) == newest(shown)
    status, said = run_child(tmp_path, {**spec, "fence": 2})
    assert (status, said[0]["at"], said[-1]["at"]) == (0, shown, 60)
    assert table_rows(url) == newest(60)


def newest(upto: int) -> list[tuple[Any, ...]]:
    last = {card: (row_id, card, n) for row_id, card, n in expected(upto)}
    return sorted(last.values(), key=lambda row: int(row[0].rpartition("-")[2]))


@pytest.mark.parametrize("kind", SQL[1:])
def test_instances_that_write_the_same_keys_in_other_orders_only_delay(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """The database ends one of two transactions that wait for each other; it is tried again."""
    url = fresh_database(kind, request, tmp_path)
    sink = upsert_sink(url, patience=60.0)
    problems: list[BaseException] = []
    writers = [opened(sink, instance=instance) for instance in (0, 1)]

    def use(instance: int) -> None:
        cards = [f"card {number}" for number in range(200)]
        try:
            for turn in range(5):
                given = [(card, turn) for card in (cards if instance else reversed(cards))]
                writers[instance].write(**rows(1 + 200 * turn, *given, instance=instance))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=use, args=(instance,)) for instance in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for writer in writers:
        writer.close()
    assert problems == []
    assert execute(url, "SELECT count(*), min(n), max(n) FROM out") == [(200, 4, 4)]
    assert execute(url, "SELECT position FROM clonos_cursor") == [(1000,), (1000,)]


# -- without the rule these tests fail


def test_a_statement_that_takes_any_output_is_found(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_later", "_is_later_to_mysql"):
        monkeypatch.setattr(sql_statements, name, lambda old, new: "true")
    with pytest.raises(pytest.fail.Exception):
        test_the_statement_itself_does_not_take_an_older_output(url)


def test_a_bundle_that_is_written_without_regard_to_the_order_is_found(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_of_each_key(self: sql_upsert.Newest, ids: Any, columns: Any) -> list[sql_upsert.Change]:
        backwards = [list(reversed(column)) for column in columns]
        return whole(self, list(reversed(ids)), backwards)

    whole = sql_upsert.Newest.changes
    monkeypatch.setattr(sql_upsert.Newest, "changes", first_of_each_key)
    with pytest.raises(AssertionError):
        test_of_a_bundle_the_last_row_of_a_key_counts(url)
