"""OpenLineage events of real queries in a real catalogue: what Data.Rentgen tells of them that it has heard of."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import data_rentgen
import pytest
from data_rentgen import TOPIC, DataRentgen
from kafka_broker import KafkaBroker
from postgres_server import PostgresServer
from pyspark.sql import functions as f

import clonos
from clonos.errors import UserFunctionError
from clonos.sources.log_writer import LogWriter

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

SETTINGS = {
    "spark.clonos.openlineage": "true",
    "spark.openlineage.namespace": "test",
    "spark.clonos.restart.limit": "0",
}
SINCE = "2020-01-01T00:00:00Z"
DEADLINE = 180.0


@pytest.fixture(scope="module")
def catalogue(broker: KafkaBroker, postgres: PostgresServer) -> Iterator[DataRentgen]:
    reason = data_rentgen.why_not()
    if reason:
        pytest.skip(reason)
    broker.topic(TOPIC, 1)
    with data_rentgen.data_rentgen(postgres.fresh_database(), broker.servers) as running:
        yield running


@pytest.fixture
def told(
    spark: Any, broker: KafkaBroker, catalogue: DataRentgen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DataRentgen]:
    """The catalogue, which the session's queries tell: by an openlineage.yml that names its topic."""
    file = tmp_path / "openlineage.yml"
    transport = {"type": "kafka", "topic": TOPIC, "config": {"bootstrap.servers": broker.servers}}
    file.write_text(json.dumps({"transport": transport}))  # which is YAML, too
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(file))
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    yield catalogue
    for key in SETTINGS:
        spark.conf.unset(key)


def until(done: Callable[[], Any], catalogue: DataRentgen) -> Any:
    end = time.monotonic() + DEADLINE
    while not (found := done()):
        assert time.monotonic() < end, catalogue.log()
        time.sleep(0.2)
    return found


def job_called(catalogue: DataRentgen, name: str) -> dict[str, Any]:
    jobs = [job["data"] for job in catalogue.ask("jobs")["items"] if job["data"]["name"] == name]
    return jobs[0] if jobs else {}


def ended_runs(catalogue: DataRentgen, name: str) -> list[dict[str, Any]]:
    """The runs of a job that have an end."""
    job = job_called(catalogue, name)
    runs = catalogue.ask("runs", job_id=job["id"], since=SINCE)["items"] if job else []
    return [run["data"] for run in runs if run["data"]["ended_at"]]


@pytest.mark.parametrize("said", ["subscribe", "subscribePattern"])
def test_a_catalogue_knows_what_a_query_reads_and_writes(
    spark: Any, told: DataRentgen, broker: KafkaBroker, postgres: PostgresServer, tmp_path: Path, said: str
) -> None:
    topic, database = broker.topic(), postgres.fresh_database()
    producer = broker.producer()
    for n in range(20):
        producer.produce(topic, json.dumps({"card": f"c{n % 2}", "amount": n}))
    producer.flush()
    options = {"kafka.bootstrap.servers": broker.servers, said: topic, "startingOffsets": "earliest"}
    raw = spark.readStream.format("kafka").options(**options).load()
    parsed = f.from_json(f.col("value").cast("string"), "card string, amount long").alias("j")
    paid = clonos.causal(raw.select(parsed, "timestamp").select("j.*", "timestamp")).where("amount > 3")
    spent = paid.groupBy("card").agg(f.sum("amount").alias("spent"), f.max("timestamp").alias("at"))
    writer = spent.writeStream.to(clonos.sinks.sql(database, "spent", mode="upsert", key="card"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).queryName(said)
    writer.trigger(availableNow=True).start().awaitTermination()

    (run,) = until(lambda: ended_runs(told, said), told)
    assert run["status"] == "SUCCEEDED"
    job = job_called(told, said)
    assert job["location"]["name"] == "test" and job["type"] == "CLONOS_QUERY"
    graph = told.ask(
        "jobs/lineage",
        start_node_id=job["id"],
        since=SINCE,
        include_column_lineage=True,
        granularity="JOB",
    )
    datasets, relations = graph["nodes"]["datasets"], graph["relations"]
    (read,), (written,) = relations["inputs"], relations["outputs"]
    source, target = datasets[read["from"]["id"]], datasets[written["to"]["id"]]
    where = urlsplit(database)
    assert (source["location"]["type"], source["location"]["name"]) == ("kafka", broker.servers)
    assert (target["location"]["type"], target["location"]["name"]) == (
        "postgres",
        f"{where.hostname}:{where.port}",
    )
    assert (source["name"], target["name"]) == (topic, f"{where.path.strip('/')}.public.spent")
    assert "value" in [column["name"] for column in source["schema"]["fields"]]
    assert [column["name"] for column in target["schema"]["fields"]] == ["card", "spent", "at"]
    assert read["num_rows"] == 20
    (columns,), (rows,) = relations["direct_column_lineage"], relations["indirect_column_lineage"]
    assert {
        name: {(each["field"], *each["types"]) for each in fields}
        for name, fields in columns["fields"].items()
    } == {
        "card": {("value", "TRANSFORMATION")},
        "spent": {("value", "AGGREGATION")},
        "at": {("timestamp", "AGGREGATION")},
    }
    assert [(each["field"], sorted(each["types"])) for each in rows["fields"]] == [
        ("value", ["FILTER", "GROUP_BY"])
    ]


def fail(row: Any, ctx: Any) -> Any:
    raise ValueError("no")


def test_a_catalogue_hears_how_runs_of_a_job_end(spark: Any, told: DataRentgen, tmp_path: Path) -> None:
    with LogWriter(tmp_path / "in", 1) as log:
        log.append(0, b'{"n": 1}')

    def start(stream: Any, checkpoint: str) -> Any:
        writer = stream.writeStream.to(clonos.sinks.jsonl(tmp_path / checkpoint / "out"))
        return writer.option("checkpointLocation", str(tmp_path / checkpoint)).queryName("ends").start()

    rows = (
        spark.readStream.format("clonos").load(str(tmp_path / "in")).selectExpr("cast(value as string) as s")
    )
    start(clonos.causal(rows), "whole").stop()
    with pytest.raises(UserFunctionError):
        start(clonos.causal(rows).map(fail, "n long", name="score"), "fails").awaitTermination()

    def both() -> list[dict[str, Any]]:
        runs = ended_runs(told, "ends")
        return runs if len(runs) == 2 else []

    assert sorted(run["status"] for run in until(both, told)) == ["FAILED", "SUCCEEDED"]
