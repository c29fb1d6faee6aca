"""A SQL sink goes on only in the table and the columns that its query has written to."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from postgres_server import PostgresServer
from sink_child import SCHEMA, bundle
from sink_support import QUERY, engine_of, execute, expected, opened, sql_sink, table_rows

from clonos.errors import SinkError

WIDER = SCHEMA.append(pa.field("more", pa.int64()))


def wider(first: int, last: int) -> dict[str, Any]:
    made = bundle(first, last)
    return {**made, "rows": [(*row, 7) for row in made["rows"]]}


def write(sink: Any, fence: int, what: dict[str, Any], **place: Any) -> None:
    with closing(opened(sink, fence, **place)) as writer:
        writer.write(**what)


def refused(sink: Any, fence: int, words: str) -> str:
    with pytest.raises(SinkError, match=words) as caught:
        opened(sink, fence)
    assert not caught.value.retryable
    return str(caught.value)


def tables(url: str) -> set[str]:
    with engine_of(url).connect() as connection:
        return set(sa.inspect(connection).get_table_names())


@pytest.mark.parametrize("create", [True, False])
def test_a_table_that_was_dropped_is_not_made_anew(url: str, create: bool) -> None:
    write(sql_sink(url), 1, bundle(1, 3))
    execute(url, "ALTER TABLE out RENAME TO backup")
    sink = sql_sink(url, create=create)
    said = refused(
        sink, 2, "table out is not there, and clonos_cursor says that up to 3 rows of this query are out"
    )
    assert "out" not in tables(url)
    assert "Restore the table with its rows" in said
    execute(url, "ALTER TABLE backup RENAME TO out")
    write(sink, 3, bundle(4, 5))
    assert table_rows(url) == expected(5)


@pytest.mark.postgres
def test_the_rows_of_all_channels_and_instances_count(server: PostgresServer) -> None:
    url = server.fresh_database()
    sink = sql_sink(url)
    for instance in (0, 1):
        write(sink, 1, {**bundle(instance + 1, instance + 1), "deltas": []}, instance=instance)
    write(sink, 2, {"rows": [("a", 1)], "ids": ["3-1-1"], "cursors": {1 << 6 | 3: 1}, "deltas": []})
    execute(url, "DROP TABLE out")
    refused(sink, 3, "up to 3 rows of this query are out")


def test_rows_from_before_there_was_a_record_miss_their_table_too(url: str) -> None:
    write(sql_sink(url), 1, bundle(1, 3))
    execute(url, "DROP TABLE clonos_target")
    execute(url, "DROP TABLE out")
    refused(sql_sink(url), 2, "table out is not there")


@pytest.mark.parametrize("there", [True, False])
def test_another_table_under_the_same_checkpoint_is_refused(url: str, there: bool) -> None:
    write(sql_sink(url), 1, bundle(1, 3))
    if there:
        write(sql_sink(url, table="other"), 1, bundle(1, 1), query="another")
    said = refused(
        sql_sink(url, table="other"), 2, "has written up to 3 rows to table 'out'.* is now given 'other'"
    )
    assert ("other" in tables(url)) is there
    assert "Name the former table" in said
    write(sql_sink(url), 3, bundle(4, 5))
    assert table_rows(url) == expected(5)
    write(sql_sink(url, table="new"), 1, bundle(1, 2), query="begun anew")
    assert table_rows(url, "new") == expected(2)


def test_a_start_that_has_shown_nothing_binds_to_nothing(url: str) -> None:
    sink = sql_sink(url)
    opened(sink).close()
    execute(url, "DROP TABLE out")
    write(sink, 2, {"rows": [], "ids": [], "cursors": {}, "deltas": [b"determinants alone"]})
    execute(url, "DROP TABLE out")
    write(sql_sink(url, table="other"), 3, bundle(1, 2))
    assert table_rows(url, "other") == expected(2)


def test_a_table_that_was_made_anew_by_hand_is_taken_for_the_old_one(url: str) -> None:
    """Its rows may have been moved out; the sink cannot tell."""
    write(sql_sink(url), 1, bundle(1, 3))
    execute(url, "DROP TABLE out")
    execute(url, "CREATE TABLE out (clonos_id VARCHAR(99) PRIMARY KEY, card TEXT, n BIGINT)")
    write(sql_sink(url), 2, bundle(4, 5))
    assert table_rows(url) == expected(5)[3:]


def test_a_sink_whose_cursors_were_cleared_begins_anew(url: str) -> None:
    write(sql_sink(url), 1, bundle(1, 3))
    execute(url, "DELETE FROM clonos_cursor")
    execute(url, "DROP TABLE out")
    write(sql_sink(url), 2, bundle(1, 2))
    assert table_rows(url) == expected(2)


def test_a_column_that_was_renamed_is_not_added_anew(url: str) -> None:
    write(sql_sink(url), 1, bundle(1, 3))
    execute(url, "ALTER TABLE out RENAME COLUMN n TO m")
    said = refused(
        sql_sink(url), 2, "table out lacks the columns n, to which this query has written: up to 3 rows"
    )
    assert "Rename or restore them, or say in columns= what they are called now" in said
    write(sql_sink(url, columns={"n": "m"}), 3, bundle(4, 5))
    execute(url, "ALTER TABLE out RENAME COLUMN m TO n")
    refused(sql_sink(url, columns={"n": "m"}), 4, "lacks the columns m, to which")
    write(sql_sink(url), 5, bundle(6, 6))
    assert table_rows(url) == expected(6)


def test_a_column_that_gets_another_name_is_not_taken_for_a_gained_one(url: str) -> None:
    write(sql_sink(url), 1, bundle(1, 3))
    sink = sql_sink(url, columns={"n": "m"})
    refused(sink, 2, "lacks the columns m, and this query does not write n any more")
    execute(url, "ALTER TABLE out RENAME COLUMN n TO m")
    write(sink, 3, bundle(4, 4))
    assert execute(url, "SELECT count(m) FROM out") == [(4,)]


def test_columns_are_gained_one_start_after_another(url: str) -> None:
    write(sql_sink(url), 1, bundle(1, 1))
    write(sql_sink(url, WIDER), 2, wider(2, 2))
    execute(url, "ALTER TABLE out RENAME COLUMN more TO less")
    refused(sql_sink(url, WIDER), 3, "lacks the columns more, to which")


def test_a_version_that_has_shown_nothing_leaves_no_column_behind(url: str) -> None:
    write(sql_sink(url), 1, bundle(1, 1))
    opened(sql_sink(url, WIDER), 2).close()
    other = SCHEMA.append(pa.field("other", pa.int64()))
    write(sql_sink(url, other), 3, wider(2, 2))
    assert execute(url, "SELECT n, more, other FROM out ORDER BY n") == [(1, None, None), (4, None, 7)]


def test_the_record_counts_only_with_its_rows(url: str) -> None:
    with closing(opened(sql_sink(url))) as writer:
        wrong = bundle(1, 2)
        wrong["rows"][1] = ("too large", 1 << 70)
        with pytest.raises(SinkError, match="refuses row 3-0-2"):
            writer.write(**wrong)
        assert execute(url, "SELECT * FROM clonos_target") == []
        writer.write(**bundle(1, 2))
    kept = execute(url, "SELECT query, node, table_name, column_names FROM clonos_target")
    assert kept == [(QUERY, 5, "out", '["card", "clonos_id", "n"]')]
