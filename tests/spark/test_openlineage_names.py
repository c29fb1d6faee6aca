"""What datasets are called in OpenLineage's events: its conventions, and no user or password."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clonos
from clonos.spark.openlineage.naming import at_uri, kafka_topic, sql_table
from clonos.spark.openlineage.sink_datasets import columns_in_sink, dataset_of_sink
from clonos.spark.openlineage.source_datasets import jdbc_table


def sinks(folder: Path) -> dict[str, tuple[Any, tuple[str, str] | None]]:
    make = clonos.sinks
    home = str(folder.resolve())
    return {
        "jsonl": (make.jsonl(folder / "out"), ("file", f"{home}/out")),
        "log": (make.log(folder / "log"), ("file", f"{home}/log")),
        "delta": (make.delta(folder / "table"), ("file", f"{home}/table")),
        "s3": (make.jsonl("s3://bucket/a/b"), ("s3://bucket", "a/b")),
        "s3a": (make.parquet("s3a://bucket/a/b/"), ("s3://bucket", "a/b")),
        "gs": (make.parquet("gs://bucket/a"), ("gs://bucket", "a")),
        "azure": (
            make.parquet("abfss://box@account.dfs.core.windows.net/a"),
            ("abfss://box@account.dfs.core.windows.net", "/a"),
        ),
        "kafka": (make.kafka("b2:9093, b1", topic="out"), ("kafka://b2:9093", "out")),
        "kafka without a port": (make.kafka("broker", topic="out"), ("kafka://broker:9092", "out")),
        "redis": (make.redis("redis://u:secret@host/2", "orders"), ("redis://host:6379/2", "orders")),
        "iceberg": (
            make.iceberg("db.t", {"uri": "http://u:secret@rest:8181/ws/", "type": "rest"}),
            ("iceberg://rest:8181/ws", "db.t"),
        ),
        "sqlite": (make.sql(f"sqlite:///{folder}/a.db", "t"), (f"sqlite://{home}/a.db", "t")),
        "postgres": (
            make.sql("postgresql://u:secret@db/shop", "t"),
            ("postgres://db:5432", "shop.public.t"),
        ),
        "postgres with a schema": (
            make.sql("postgresql+psycopg://u:secret@db:6432/shop", "s.t"),
            ("postgres://db:6432", "shop.s.t"),
        ),
        "mysql": (make.sql("mysql://u:secret@db/shop", "t"), ("mysql://db:3306", "shop.t")),
        "mariadb": (make.sql("mariadb://u:secret@db/shop", "other.t"), ("mysql://db:3306", "other.t")),
        "call": (make.call(print), None),
        "foreachBatch": (make.batches(print), None),
    }


def test_sinks_are_called_as_other_producers_call_their_places(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    for what, (sink, name) in sinks(tmp_path).items():
        assert dataset_of_sink(sink) == name, what
        assert "secret" not in str(dataset_of_sink(sink)), what


def test_a_place_has_one_name_by_whichever_link_it_is_said_to_be(tmp_path: Path) -> None:
    """Or else who reads what another query writes would not be connected with that."""
    (tmp_path / "real" / "out").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    by_link = tmp_path / "link" / "out"
    names = {
        dataset_of_sink(clonos.sinks.jsonl(by_link)),
        dataset_of_sink(clonos.sinks.delta(by_link)),
        at_uri(str(by_link)),
        at_uri(f"file://{by_link}/"),
        at_uri(str(tmp_path / "real" / "out")),
    }
    assert names == {("file", str((tmp_path / "real" / "out").resolve()))}
    databases = {
        dataset_of_sink(clonos.sinks.sql(f"sqlite:///{by_link}/a.db", "t")),
        jdbc_table(f"jdbc:sqlite:{by_link}/a.db", "t"),
    }
    assert len(databases) == 1


def test_columns_are_called_as_the_table_has_them() -> None:
    sink = clonos.sinks.sql(
        "sqlite:////tmp/a.db", "t", mode="upsert", key="k", delete="gone", columns={"n": "amount"}
    )
    assert columns_in_sink(sink, ["k", "n", "gone"]) == {"k": "k", "n": "amount"}
    assert columns_in_sink(clonos.sinks.jsonl("/tmp/out"), ["k", "n"]) == {"k": "k", "n": "n"}


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("/data/in", ("file", "/data/in")),
        ("file:///data/a%20b/", ("file", "/data/a%20b")),
        ("file:/data/../in", ("file", "/in")),
        ("hdfs://nn:8020/data", ("hdfs://nn:8020", "/data")),
        ("s3a://bucket", ("s3://bucket", "/")),
        ("s3://bucket/a%20b", ("s3://bucket", "a b")),
        ("relative", None),
        ("", None),
    ],
)
def test_paths_and_uris(uri: str, name: tuple[str, str] | None) -> None:
    assert at_uri(uri) == name


@pytest.mark.parametrize(
    ("url", "table", "name"),
    [
        (
            "jdbc:postgresql://db:5433/shop?user=u&password=secret",
            "t",
            ("postgres://db:5433", "shop.public.t"),
        ),
        ("jdbc:postgresql://db/shop?currentSchema=s,public", '"t"', ("postgres://db:5432", "shop.s.t")),
        ("jdbc:postgresql:shop", "s.t", None),
        ("jdbc:mysql://u:secret@db/shop", "`t`", ("mysql://db:3306", "shop.t")),
        ("jdbc:sqlite:/data/a.db", "t", ("sqlite:///data/a.db", "t")),
        ("jdbc:postgresql://db/shop", "(select 1) q", None),
        ("jdbc:oracle:thin:@db:1521/x", "t", None),
        ("jdbc:postgresql://a:5432,b:5432/shop", "t", None),
    ],
)
def test_tables_over_jdbc(url: str, table: str, name: tuple[str, str] | None) -> None:
    assert jdbc_table(url, table) == name


def test_brokers_and_servers() -> None:
    assert kafka_topic("[::1]:9094,other:9092", "t") == ("kafka://[::1]:9094", "t")
    assert kafka_topic("SASL_SSL://b1:9094", "t") == ("kafka://b1:9094", "t")
    assert kafka_topic("broker", "t") == ("kafka://broker:9092", "t")
    assert sql_table("postgresql", None, None, "d", "t") == ("postgres://localhost:5432", "d.public.t")
    assert sql_table("oracle", "db", None, "d", "t") is None
