"""What is particular to MySQL and MariaDB, on a real server: sessions, silent conversions, DDL that commits, sizes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
import test_sink_upsert
from mysql_server import MysqlServer
from pyarrow import types as pt
from sink_child import CHANNEL, SCHEMA, bundle
from sink_support import QUERY, engine_of, execute, expected, opened, sql_sink, table_rows

from clonos import sinks
from clonos.errors import QueryDefinitionError, SinkError
from clonos.sinks import sql_mysql, sql_statements
from clonos.sinks.patience import Patience

pytestmark = pytest.mark.mysql

WIDE_OPEN = (
    "sql_mode = ''",
    "time_zone = '+05:00'",
    "transaction_isolation = 'SERIALIZABLE'",
    "sql_notes = 0",
    "innodb_lock_wait_timeout = 1000",
)


@pytest.fixture
def database(mysql: MysqlServer) -> str:
    return mysql.fresh_database()


@contextmanager
def set_globally(server: MysqlServer, *settings: str) -> Iterator[None]:
    """What new sessions begin with."""
    names = [each.partition(" ")[0] for each in settings]
    if server.is_mariadb:  # which has another name for it
        names = [each.replace("transaction_isolation", "tx_isolation") for each in names]
        settings = tuple(each.replace("transaction_isolation", "tx_isolation") for each in settings)
    (before,) = server.execute("SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in names))
    for each in settings:
        server.execute(f"SET GLOBAL {each}")
    try:
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            server.execute(f"SET GLOBAL {name} = {value!r}")


def make_table(url: str, columns: str, rest: str = "") -> None:
    execute(url, f"CREATE TABLE out (clonos_id VARCHAR(99) PRIMARY KEY, {columns}) {rest}")


def one(value: Any, number: int = 1) -> dict[str, Any]:
    return {"rows": [(value,)], "ids": [f"3-0-{number}"], "cursors": {CHANNEL: number}, "deltas": []}


# -- sessions


def test_a_session_is_strict_and_in_utc_whatever_the_server_says(mysql: MysqlServer, database: str) -> None:
    make_table(database, "card VARCHAR(3), at TIMESTAMP(6) NULL")
    schema = pa.schema([("card", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    noon = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
    with set_globally(mysql, *WIDE_OPEN), closing(opened(sql_sink(database, schema))) as writer:
        with pytest.raises(SinkError, match=r"refuses row 3-0-2: .*[Tt]oo long"):
            writer.write([("abc", noon), ("abcd", noon)], ["3-0-1", "3-0-2"], {CHANNEL: 2}, [])
        writer.write([("abc", noon)], ["3-0-1"], {CHANNEL: 1}, [])
        settings = "@@sql_notes, @@innodb_lock_wait_timeout, @@time_zone"
        said = writer._connection.exec_driver_sql(f"SELECT {settings}").one()
        assert tuple(said) == (1, 2, "+00:00")
        writer._connection.rollback()
    assert execute(database, "SELECT card, UNIX_TIMESTAMP(at) FROM out") == [
        ("abc", Decimal("1719835200.000000"))
    ]


def test_what_was_committed_behind_the_locked_fence_is_read(mysql: MysqlServer, database: str) -> None:
    """Under REPEATABLE READ the cursors that a writer reads might be those of before its predecessor's commit."""
    with set_globally(mysql, "transaction_isolation = 'REPEATABLE-READ'"):
        writer = opened(sql_sink(database))
        name = "@@tx_isolation" if mysql.is_mariadb else "@@transaction_isolation"
        assert writer._connection.exec_driver_sql(f"SELECT {name}").scalar() == "READ-COMMITTED"
        writer.close()


def test_a_zero_is_not_replaced_in_a_column_that_counts(database: str) -> None:
    execute(
        database,
        "CREATE TABLE out (clonos_id VARCHAR(99) UNIQUE NOT NULL, n BIGINT AUTO_INCREMENT PRIMARY KEY)",
    )
    sink = sql_sink(database, pa.schema([("n", pa.int64())]), mode="upsert", key="n")
    with closing(opened(sink)) as writer:
        writer.write(**one(0))
        writer.write(**one(0, 2))
    assert execute(database, "SELECT clonos_id, n FROM out") == [("3-0-2", 0)]


def test_a_connection_that_the_server_has_ended_only_delays(mysql: MysqlServer, database: str) -> None:
    """As MySQL ends one that was idle for `wait_timeout`."""
    with closing(opened(sql_sink(database))) as writer:
        writer.write(**bundle(1, 5))
        ((own,),) = writer._connection.exec_driver_sql("SELECT CONNECTION_ID()").all()
        writer._connection.rollback()
        mysql.execute(f"KILL {own}")
        writer.write(**bundle(6, 10))
    assert table_rows(database) == expected(10)


def test_the_server_ends_what_waits_for_longer_than_the_patience(mysql: MysqlServer, database: str) -> None:
    with closing(opened(sql_sink(database, patience=17))) as writer:
        name = "idle_transaction_timeout" if mysql.is_mariadb else "wait_timeout"
        assert writer._connection.exec_driver_sql(f"SELECT @@SESSION.{name}").scalar() == 17


def test_a_fence_that_another_transaction_has_locked_only_delays(database: str) -> None:
    with closing(opened(sql_sink(database))) as writer, engine_of(database).connect() as other:
        other.exec_driver_sql("SELECT * FROM clonos_fence FOR UPDATE")
        writer._connect().exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 1")
        writer._connection.rollback()
        waited: list[float] = []

        def let_go(seconds: float) -> None:
            waited.append(seconds)
            other.rollback()

        writer._patience = Patience(60, sleep=let_go)
        writer.write(**bundle(1, 5))
        assert waited
    assert table_rows(database) == expected(5)


def test_a_connection_is_encrypted_where_the_server_can(mysql: MysqlServer, database: str) -> None:
    with closing(opened(sql_sink(database.partition("?")[0]))) as writer:
        writer.write(**bundle(1, 2))
        assert writer._connection.exec_driver_sql("SHOW STATUS LIKE 'Ssl_cipher'").one()[1]
    assert table_rows(database) == expected(2)


@pytest.mark.parametrize(
    ("said", "is_mariadb"),
    [("8.0.19", False), ("9.7.4-2", False), ("5.5.5-10.5.0-MariaDB", True), ("11.4.5-MariaDB-log", True)],
)
def test_versions_that_can_serve(said: str, is_mariadb: bool) -> None:
    assert sql_mysql.check_version(said) == is_mariadb


@pytest.mark.parametrize(
    "said", ["8.0.18", "5.7.44-log", "10.4.33-MariaDB", "5.5.5-10.4.33-MariaDB", "unknown"]
)
def test_older_versions_are_refused(said: str) -> None:
    with pytest.raises(SinkError, match=r"needs MySQL 8\.0\.19 or newer, or MariaDB 10\.5"):
        sql_mysql.check_version(said)


# -- values that would be changed without a word


@pytest.mark.parametrize(
    ("kind", "column", "hint"),
    [
        (pa.float64(), "INT", "Make it DOUBLE"),
        (pa.float64(), "FLOAT", "Make it DOUBLE"),
        (pa.float64(), "DECIMAL(20, 5)", "Make it DOUBLE"),
        (pa.decimal128(10, 2), "BIGINT", r"Make it DECIMAL\(10, 2\)"),
        (pa.decimal128(10, 2), "DOUBLE", r"Make it DECIMAL\(10, 2\)"),
        (pa.int64(), "DOUBLE", "Make it BIGINT"),
        (pa.int32(), "FLOAT", "Make it BIGINT"),
        (pa.timestamp("us"), "DATETIME", r"Make it DATETIME\(6\)"),
        (pa.timestamp("us", "UTC"), "TIMESTAMP(3) NULL", r"Make it DATETIME\(6\)"),
    ],
)
def test_a_column_that_would_round_is_refused_and_the_hint_helps(
    database: str, kind: pa.DataType, column: str, hint: str
) -> None:
    make_table(database, f"v {column}")
    sink = sql_sink(database, pa.schema([("v", kind)]))
    with pytest.raises(
        SinkError, match=f"column v of table out is of type .* would round values.*{hint}"
    ) as caught:
        opened(sink)
    execute(database, f"ALTER TABLE out MODIFY v {str(caught.value).partition('Make it ')[2]}")
    opened(sink, 2).close()


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        (pa.decimal128(10, 3), "DECIMAL(10, 2)", Decimal("1.239")),
        (pa.string(), "VARCHAR(3)", "abc  "),
        (pa.string(), "VARCHAR(3)", "abcd"),
        (pa.string(), "TEXT CHARACTER SET latin1", "\U0001f600 secret"),
        (pa.string(), "DATETIME(6)", "secret"),
        (pa.string(), "BIGINT", "12 secret"),
        (pa.int64(), "TINYINT", 128),
        (pa.int64(), "BIGINT UNSIGNED", -1),
        (pa.timestamp("us"), "DATE", dt.datetime(2024, 1, 1, 1)),
        (pa.timestamp("us"), "TIMESTAMP(6) NULL", dt.datetime(1950, 1, 1)),
    ],
)
def test_a_value_that_the_column_cannot_keep_is_refused(
    database: str, kind: pa.DataType, column: str, value: Any
) -> None:
    make_table(database, f"v {column}")
    with closing(opened(sql_sink(database, pa.schema([("v", kind)])))) as writer:
        with pytest.raises(SinkError, match=r"table out refuses row 3-0-2: ") as caught:
            writer.write([(None,), (value,)], ["3-0-1", "3-0-2"], {CHANNEL: 2}, [])
        assert "secret" not in str(caught.value)
        writer.write(**one(None))
    assert execute(database, "SELECT v FROM out") == [(None,)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_mysql_has_not_are_refused_by_name(database: str, value: float) -> None:
    with closing(opened(sql_sink(database, pa.schema([("v", pa.float64())])))) as writer:
        with pytest.raises(SinkError, match=f"row 3-0-2: column 'v' holds a float .* MySQL has no {value}"):
            writer.write([(1.5,), (value,)], ["3-0-1", "3-0-2"], {CHANNEL: 2}, [])
        writer.write(**one(1.5))
    assert execute(database, "SELECT v FROM out") == [(1.5,)]


def test_a_decimal_with_more_digits_than_mysql_has_is_refused(database: str) -> None:
    with pytest.raises(
        QueryDefinitionError, match=r"no decimals with 31 digits behind the point.*to 30 of them"
    ):
        sql_sink(database, pa.schema([("v", pa.decimal128(38, 31))]))
    sql_sink(database, pa.schema([("v", pa.decimal128(38, 30))]))


EXTREME = {
    pa.float64(): [1.7976931348623157e308, 5e-324, -0.0, 0.1, 123456789.12345679],
    pa.float32(): [0.10000000149011612, 3.4028234663852886e38],
    pa.int64(): [-(2**63), 2**63 - 1],
    pa.decimal128(38, 30): [
        Decimal("12345678.123456789012345678901234567891"), Decimal("-0.000000000000000000000000000001"),
    ],
    pa.timestamp("us"): [dt.datetime(1, 1, 1, 0, 0, 0, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)],
    pa.date32(): [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    pa.string(): ["", " ", "a\0b\\%s'\"\n\r\x1a", "\U0001f600" * 30_000],
    pa.binary(): [b"", bytes(range(256)) * 500],
    pa.bool_(): [True, False],
}  # fmt: skip


@pytest.mark.parametrize("kind", EXTREME, ids=str)
def test_values_at_the_edge_arrive_as_they_were(database: str, kind: pa.DataType) -> None:
    values = EXTREME[kind]
    with closing(opened(sql_sink(database, pa.schema([("v", kind)])))) as writer:
        for number, value in enumerate(values, 1):
            writer.write(**one(value, number))
    found = [value for (value,) in execute(database, "SELECT v FROM out ORDER BY clonos_id")]
    assert [repr(bool(each) if pt.is_boolean(kind) else each) for each in found] == list(map(repr, values))


# -- sizes


def test_a_row_that_the_server_would_not_read_is_named(mysql: MysqlServer, database: str) -> None:
    with (
        set_globally(mysql, "max_allowed_packet = 1048576"),
        closing(opened(sql_sink(database))) as writer,
    ):
        wrong = bundle(1, 3)
        wrong["rows"][1] = ("x" * 1_048_576, 1)
        with pytest.raises(
            SinkError, match=r"refuses row 3-0-2: it takes .* max_allowed_packet .* is 1048576"
        ):
            writer.write(**wrong)
        many = bundle(1, 30)
        many["rows"] = [("'" * 100_000, n) for n in range(30)]  # each mark takes two bytes
        writer.write(**many)
    assert execute(database, "SELECT count(*), sum(length(card)) FROM out") == [(30, 3_000_000)]


def test_determinants_that_the_server_would_not_read_are_told(mysql: MysqlServer, database: str) -> None:
    with (
        set_globally(mysql, "max_allowed_packet = 1048576"),
        closing(opened(sql_sink(database))) as writer,
        pytest.raises(SinkError, match=r"determinants of 1048576 bytes .*Raise max_allowed_packet"),
    ):
        writer.write(**{**bundle(1, 1), "deltas": [b"ok", b"\xff" * 1_048_576]})
    large = [b"\0" * 3_000_000, b"'\\\xff" * 100_000]
    with closing(opened(sql_sink(database), 2)) as writer:  # as the hint says
        writer.write(**{**bundle(1, 1), "deltas": large})
    with closing(sql_sink(database).log_reader(QUERY)) as reader:
        assert list(reader.deltas()) == large


# -- tables


def test_tables_have_transactions_whatever_the_server_makes_otherwise(
    mysql: MysqlServer, database: str
) -> None:
    with set_globally(mysql, "default_storage_engine = 'MyISAM'"):
        opened(sql_sink(database)).close()
    found = execute(
        database,
        "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1",
    )
    assert len(found) == 8
    assert {engine for _, engine in found} == {"InnoDB"}


def test_every_table_has_a_primary_key(mysql: MysqlServer, database: str) -> None:
    setting = "innodb_force_primary_key = 1" if mysql.is_mariadb else "sql_require_primary_key = 1"
    with set_globally(mysql, setting), closing(opened(sql_sink(database))) as writer:
        writer.write(**bundle(1, 2))
    assert table_rows(database) == expected(2)


def test_a_table_without_transactions_is_refused_and_the_hint_helps(database: str) -> None:
    make_table(database, "card TEXT, n BIGINT", "ENGINE=MyISAM")
    with pytest.raises(SinkError, match=r"engine MyISAM, which has no transactions.*ENGINE=InnoDB") as caught:
        opened(sql_sink(database))
    execute(database, str(caught.value).partition("Change it: ")[2])
    with closing(opened(sql_sink(database), 2)) as writer:
        writer.write(**bundle(1, 2))
    assert table_rows(database) == expected(2)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("tables", range(9))
def test_a_first_start_that_is_interrupted_is_gone_on_with(
    database: str, monkeypatch: pytest.MonkeyPatch, tables: int
) -> None:
    """Each statement that makes a table commits; there are seven of ours and the user's."""
    whole, left = sa.Table.create, [tables]

    def create(self: sa.Table, *arguments: Any, **named: Any) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        whole(self, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(sa.Table, "create", create)
        writer = sql_sink(database).writer()
        if tables < 8:
            with pytest.raises(Killed):
                writer.open(query=QUERY, node=5, instance=0, fence=1)
    with closing(opened(sql_sink(database), 2)) as writer:
        writer.write(**bundle(1, 3))
    assert table_rows(database) == expected(3)
    assert execute(database, "SELECT version FROM clonos_format") == [(2,)]


def test_an_interrupted_start_keeps_no_lock(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not where its connection lives on, as that of a writer that was refused does."""
    make_table(database, "n BIGINT")
    with closing(sql_sink(database).writer()) as refused:
        with pytest.raises(SinkError, match=r"lacks the columns card"):
            refused.open(query=QUERY, node=5, instance=0, fence=1)
        execute(database, "ALTER TABLE out ADD COLUMN card TEXT")
        opened(sql_sink(database, patience=0), 2).close()


def test_tables_may_be_in_another_database_of_the_server(mysql: MysqlServer, database: str) -> None:
    other = mysql.fresh_database()
    name = other.rpartition("/")[2].partition("?")[0]
    sink = sql_sink(database, table=f"{name}.out", mode="upsert", key="n")
    with closing(opened(sink)) as writer:
        writer.write(**bundle(1, 3))
        writer.write(**{**bundle(4, 4), "rows": [("again", 1)]})
    assert [each[0] for each in table_rows(other)] == ["3-0-2", "3-0-3", "3-0-4"]
    assert table_rows(database) == []


def test_the_statements_for_mariadb_and_for_mysql_make_the_tables(mysql: MysqlServer, database: str) -> None:
    scheme = "mariadb" if mysql.is_mariadb else "mysql"
    url = database.replace("mysql+pymysql", scheme, 1)
    sink = sql_sink(url, mode="upsert", key="card", create=False)
    for statement in sink.ddl().split(";\n"):
        if statement.strip():
            execute(database, statement)
    with closing(opened(sink)) as writer:
        writer.write(
            [("a", 1), ("a ", 2), ("A", 3), ("ä", 4)], [f"3-0-{n}" for n in range(1, 5)], {CHANNEL: 4}, []
        )
    assert execute(database, "SELECT count(*) FROM out") == [(4,)]


# -- keys


def test_keys_that_differ_in_case_accents_or_spaces_are_several(database: str) -> None:
    keys = ["a", "A", "ä", "a ", "a\t", "\uff41"]
    with closing(opened(sql_sink(database, mode="upsert", key="card"))) as writer:
        for first in (1, 7):
            rows = [(key, first) for key in keys]
            writer.write(rows, [f"3-0-{first + n}" for n in range(6)], {CHANNEL: first + 5}, [])
    assert sorted(execute(database, "SELECT card, n FROM out")) == sorted((key, 7) for key in keys)


def test_a_key_with_zero_is_not_taken_for_the_one_before_it(mysql: MysqlServer, database: str) -> None:
    """MariaDB 10.11.5 does so in a unique index."""
    with closing(opened(sql_sink(database, mode="upsert", key="card"))) as writer:
        two: dict[str, Any] = {"rows": [("a", 1), ("a\0b", 2)], "ids": ["3-0-1", "3-0-2"], "deltas": []}
        if mysql.is_mariadb:
            with pytest.raises(
                SinkError, match=r"row 3-0-2: column 'card' of the key holds U\+0000.*Remove that"
            ):
                writer.write(**two, cursors={CHANNEL: 2})
        else:
            writer.write(**two, cursors={CHANNEL: 2})
            assert execute(database, "SELECT count(*) FROM out") == [(2,)]


def test_a_key_column_that_takes_several_for_one_is_refused(mysql: MysqlServer, database: str) -> None:
    columns = "clonos_id VARCHAR(99) NOT NULL UNIQUE, n BIGINT, card VARCHAR(99) PRIMARY KEY"
    execute(database, f"CREATE TABLE out ({columns}) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    sink = sql_sink(database, mode="upsert", key="card")
    with pytest.raises(SinkError, match=r"collation utf8mb4_general_ci.*case or accents.*utf8mb4_0900_bin"):
        opened(sink)
    execute(database, "ALTER TABLE out MODIFY card VARCHAR(99) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    with closing(opened(sink, 2)) as writer:  # compares bytes, but not spaces at the end
        with pytest.raises(
            SinkError, match=r"row 3-0-2: column 'card' of the key ends with a space.*nopad_bin"
        ):
            writer.write([("a", 1), ("a ", 2)], ["3-0-1", "3-0-2"], {CHANNEL: 2}, [])
        writer.write([("a", 1), ("A", 2)], ["3-0-1", "3-0-2"], {CHANNEL: 2}, [])
    collation = "utf8mb4_nopad_bin" if mysql.is_mariadb else "utf8mb4_0900_bin"
    execute(database, f"ALTER TABLE out MODIFY card VARCHAR(99) CHARACTER SET utf8mb4 COLLATE {collation}")
    with closing(opened(sink, 3)) as writer:  # as the hint says
        writer.write([("a ", 3)], ["3-0-3"], {CHANNEL: 3}, [])
    assert execute(database, "SELECT count(*) FROM out") == [(3,)]


def test_an_id_that_may_be_null_is_refused_and_the_hint_helps(database: str) -> None:
    execute(
        database, "CREATE TABLE out (clonos_id VARCHAR(99) UNIQUE, card VARBINARY(99) PRIMARY KEY, n BIGINT)"
    )
    sink = sql_sink(database, mode="upsert", key="card")
    with pytest.raises(SinkError, match=r"column clonos_id of table out may be null. Make it NOT NULL"):
        opened(sink)
    execute(database, "ALTER TABLE out MODIFY clonos_id VARCHAR(99) NOT NULL")
    opened(sink, 2).close()


def test_a_key_that_is_too_long_is_refused_by_name(database: str) -> None:
    with closing(opened(sql_sink(database, mode="upsert", key="card"))) as writer:
        with pytest.raises(SinkError, match=r"refuses row 3-0-2: .*too long"):
            writer.write([("x" * 255, 1), ("x" * 256, 2)], ["3-0-1", "3-0-2"], {CHANNEL: 2}, [])
        writer.write([("\U0001f600" * 255, 1)], ["3-0-1"], {CHANNEL: 1}, [])


def test_a_key_of_many_columns_fits_into_an_index(database: str) -> None:
    names = [f"k{n}" for n in range(12)]
    schema = pa.schema([(name, pa.string() if n % 2 else pa.binary()) for n, name in enumerate(names)])
    with closing(opened(sql_sink(database, schema, mode="upsert", key=names))) as writer:
        writer.write([tuple("k" if n % 2 else b"k" for n in range(12))], ["3-0-1"], {CHANNEL: 1}, [])
    assert execute(database, "SELECT count(*) FROM out") == [(1,)]


def test_a_name_with_a_percent_sign_may_be_anywhere(database: str) -> None:
    renamed = {"card": "100%s", "n": "%s"}
    schema = SCHEMA.append(pa.field("gone", pa.bool_()))
    place: dict[str, Any] = {"columns": renamed, "id_column": "%s%(id)s", "table": "a%b"}
    sink = sql_sink(database, schema, mode="upsert", key="card", delete="gone", **place)
    with closing(opened(sink)) as writer:
        for number in (1, 2, 3):
            row = ("a" if number < 3 else "b", number, False)
            writer.write([row], [f"3-0-{number}"], {CHANNEL: number}, [])
        writer.write([("b", None, True)], ["3-0-4"], {CHANNEL: 4}, [])
    assert execute(database, 'SELECT "%s%(id)s", "100%s", "%s" FROM "a%b"') == [("3-0-2", "a", 2)]


def test_a_url_names_a_database(database: str) -> None:
    with pytest.raises(QueryDefinitionError, match=r"names no database. Write mysql://host/db"):
        sinks.sql("mysql://root@127.0.0.1", "out")


# -- without the rule these tests fail


def test_a_statement_that_replaces_by_any_unique_index_is_found(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sql_statements._replacing_of_mysql

    def of_any_index(table: str, columns: list[str], key: list[str], dialect: sa.Dialect) -> str:
        return whole(table, columns, [], dialect).replace("IF( AND ", "IF(")

    monkeypatch.setattr(sql_statements, "_replacing_of_mysql", of_any_index)
    with pytest.raises(pytest.fail.Exception):
        test_sink_upsert.test_a_violation_of_another_unique_index_is_named_and_replaces_nothing(database)


def test_notes_that_are_not_read_are_found(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_mysql, "_LOST_VALUES", frozenset())
    with pytest.raises(pytest.fail.Exception):
        test_a_value_that_the_column_cannot_keep_is_refused(database, pa.string(), "VARCHAR(3)", "abc  ")
