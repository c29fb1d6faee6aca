"""When events are sent, and what becomes of a query whose consumer is away: without Spark, to a real HTTP server."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import event_reader
import pytest
from lineage_consumer import Consumer, lineage_consumer
from openlineage.client.serde import Serde

from clonos.errors import ClonosError, ConfigurationError, Fenced, UserFunctionError, Where
from clonos.operators.column_flow import Transformation, identity, through
from clonos.protocol.ids import NO_EPOCH, Epoch, NodeId
from clonos.spark.failure import SessionStopped
from clonos.spark.openlineage import consumer as consumers, emitter as emitters
from clonos.spark.openlineage.consumer import client_for, consumer_of
from clonos.spark.openlineage.emitter import Emitter
from clonos.spark.openlineage.facets import PRODUCER, QueryFacts, Standing
from clonos.spark.openlineage.lineage import job_identity
from clonos.spark.openlineage.naming import kafka_topic, sqlite_table
from clonos.spark.openlineage.query_datasets import Datasets, Given, Taken
from clonos.spark.openlineage.row_counts import RowCounts
from clonos.spark.openlineage.run_events import RunEvents
from clonos.spark.openlineage.source_datasets import Column
from clonos.spark.openlineage.untold_runs import FOLDER, UntoldRun, UntoldRuns
from clonos.spark.settings import read_settings

GOLDEN = Path(__file__).parent.parent / "golden" / "openlineage_run_v1.json"
FACTS = QueryFacts("q", "/checkpoint", "microbatch", "causal", "4.3.0", ("score",))
PARENT = "3f5e83fa-3480-44ff-99c5-ff943904e5e8"
SECRET = "card 4711"
DEADLINE = 120.0


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing is configured, and nothing that the client adds to the environment stays."""
    before = dict(os.environ)
    for name in before:
        if name.startswith("OPENLINEAGE"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(emitters, "_LOOK_SECONDS", 0.01)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


class Run:
    """One run, whose standing the test says."""

    def __init__(self, url: str, settings: dict[str, str] | None = None) -> None:
        self.standing = Standing(NO_EPOCH, 1)
        consumer = consumer_of(url)
        assert consumer is not None
        counts = RowCounts(list, NO_EPOCH, [])
        job = job_identity(settings or {}, "payments")
        self.emitter = Emitter(
            client_for(consumer),
            lambda: RunEvents(job, FACTS, Datasets(), counts),
            counts,
            lambda: self.standing,
            UntoldRuns(str(Path.cwd())),
        )

    def commit(self, epoch: int) -> None:
        self.standing = Standing(Epoch(epoch), 1)


def until(done: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def test_a_run_starts_goes_on_and_ends_under_one_id() -> None:
    with lineage_consumer() as consumer:
        run = Run(consumer.url)
        run.emitter.launched()
        until(lambda: consumer.types == ["START"], "it has started")
        run.commit(0)
        until(lambda: len(consumer.events) == 2, "an epoch")
        run.emitter.launched()  # again, as after a failure: the same run
        run.emitter.ended(None)
    assert consumer.types == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in consumer.events}) == 1
    times = [event["eventTime"] for event in consumer.events]
    assert times == sorted(times)
    assert "committedEpoch" not in consumer.facets(0)["clonos_query"], "none has committed"
    assert consumer.facets(1)["clonos_query"]["committedEpoch"] == 0
    assert consumer.paths == {"/api/v1/lineage"}


def test_epochs_that_commit_soon_after_another_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with lineage_consumer() as consumer:
        run = Run(consumer.url)
        run.emitter.launched()
        run.commit(0)
        until(lambda: "RUNNING" in consumer.types, "the first at once")
        for epoch in range(1, 50):
            run.commit(epoch)
            time.sleep(0.002)
        run.emitter.ended(None)
    assert consumer.types == ["START", "RUNNING", "COMPLETE"]
    assert consumer.facets()["clonos_query"]["committedEpoch"] == 49

    monkeypatch.setattr(emitters, "EVERY_SECONDS", 0.0)
    with lineage_consumer() as consumer:
        run = Run(consumer.url)
        run.emitter.launched()
        for epoch in range(3):
            run.commit(epoch)
            until(lambda e=epoch: consumer.types.count("RUNNING") == e + 1, "each, when it is time")  # type: ignore[misc]
        run.emitter.ended(None)
    assert consumer.types == ["START", *["RUNNING"] * 3, "COMPLETE"]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (None, "COMPLETE"),
        (UserFunctionError(f"raised at {SECRET}", where=Where("score", 1, 4), hint=SECRET), "FAIL"),
        (UserFunctionError(f"of (operator '{SECRET}', instance 7)"), "FAIL"),
        (SessionStopped(SECRET), "ABORT"),
        (Fenced(SECRET), "ABORT"),
    ],
)
def test_how_it_ends_is_said_without_the_text_of_an_error(error: ClonosError | None, state: str) -> None:
    with lineage_consumer() as consumer:
        run = Run(consumer.url)
        run.emitter.launched()
        run.emitter.ended(error)
    event = consumer.of(state)
    assert SECRET not in json.dumps(consumer.events)
    said = event["run"]["facets"].get("errorMessage")
    assert (said is None) == (error is None)
    if error is not None:
        assert said["message"].startswith(f"{type(error).__name__}: ")
        assert said["programmingLanguage"] == "PYTHON"
        assert ("(operator 'score', instance 1, epoch 4)" in said["message"]) == (error.where is not None)


LEFT = (
    "import sys, threading; from test_openlineage_emitter import Run; "
    "Run(sys.argv[1]).emitter.launched(); threading.Event().wait()"
)


def untold() -> list[str]:
    return sorted(path.name for path in Path("clonos", FOLDER).glob("*"))


def test_the_run_of_a_driver_that_was_killed_is_ended_by_the_next_start() -> None:
    with lineage_consumer() as consumer:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        driver = subprocess.Popen([sys.executable, "-c", LEFT, consumer.url], env=environment)
        try:
            until(lambda: consumer.types == ["START"], "it runs")
        finally:
            driver.kill()
            driver.wait()
        (lost,) = (event["run"]["runId"] for event in consumer.events)
        assert untold() == [f"{lost}.json"]
        send_one(consumer.url)
        send_one(consumer.url)
    assert consumer.types == ["START", "ABORT", "START", "COMPLETE", "START", "COMPLETE"]
    assert consumer.of("ABORT")["run"]["runId"] == lost
    assert consumer.of("ABORT")["job"] == consumer.events[0]["job"] | {"facets": {}}
    assert not untold()


def test_an_end_that_was_not_taken_is_told_by_the_next_start() -> None:
    with lineage_consumer() as consumer:
        run = Run(consumer.url)
        run.emitter.launched()
        until(lambda: consumer.types == ["START"], "it runs")
        consumer.status = 503
        run.emitter.ended(UserFunctionError(SECRET))
        until(
            lambda: UntoldRun(consumer.events[0]["run"]["runId"], "default", "payments", "FAIL") in left(),
            "it ends",
        )
        consumer.status = 201
        send_one(consumer.url)
    assert consumer.types == ["START", "FAIL", "START", "COMPLETE"]
    assert len({event["run"]["runId"] for event in consumer.events[:2]}) == 1
    assert not untold() and SECRET not in json.dumps(consumer.events)


@pytest.mark.parametrize(
    ("error", "state"), [(None, "COMPLETE"), (UserFunctionError(SECRET), "FAIL"), (Fenced(SECRET), "ABORT")]
)
def test_how_it_ended_is_noted_while_an_earlier_event_hangs(
    error: ClonosError | None, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may end before that is taken."""
    monkeypatch.setattr(emitters, "_FLUSH_SECONDS", 0.01)
    with lineage_consumer() as consumer:
        consumer.answers.clear()
        run = Run(consumer.url)
        run.emitter.launched()
        until(consumer.asked.is_set, "the first event is under way")
        run.emitter.ended(error)
        assert run.emitter._thread.is_alive() and consumer.events == []
        (noted,) = untold()
        said = json.loads(Path("clonos", FOLDER, noted).read_text())
        assert said["body"]["state"] == state
        consumer.answers.set()
        run.emitter._thread.join()
    assert consumer.types == ["START", state] and not untold()


def test_a_run_that_this_process_still_tells_of_is_left_to_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its query may run, or have ended while an event hangs."""
    monkeypatch.setattr(emitters, "_FLUSH_SECONDS", 0.01)
    with lineage_consumer() as consumer, lineage_consumer() as at_hand:
        running = Run(consumer.url)
        running.emitter.launched()
        until(lambda: consumer.types == ["START"], "it runs")
        consumer.asked.clear()
        consumer.answers.clear()
        running.commit(0)
        until(consumer.asked.is_set, "an event is under way")
        send_one(at_hand.url)
        running.emitter.ended(None)
        assert running.emitter._thread.is_alive()
        send_one(at_hand.url)
        assert len(untold()) == 1 and at_hand.types == ["START", "COMPLETE"] * 2
        consumer.answers.set()
        running.emitter._thread.join()
        assert consumer.types == ["START", "RUNNING", "COMPLETE"] and not untold()


def test_a_run_is_noted_before_others_are_told_of() -> None:
    UntoldRuns(str(Path.cwd())).note(UntoldRun(PARENT, "prod", "payments"))
    with lineage_consumer() as consumer:
        consumer.answers.clear()
        run = Run(consumer.url)
        run.emitter.launched()
        until(consumer.asked.is_set, "the end of the earlier one is under way")
        assert len(untold()) == 2
        consumer.answers.set()
        run.emitter.ended(None)
    assert consumer.types == ["ABORT", "START", "COMPLETE"] and not untold()


def left() -> list[UntoldRun]:
    return list(UntoldRuns(str(Path.cwd())).others())


def test_what_is_kept_of_runs_without_an_end_holds_nothing_up() -> None:
    folder = Path("clonos", FOLDER)
    folder.mkdir(parents=True)
    golden = UntoldRun("01936f7e-0000-7000-8000-000000000000", "prod", "payments", "ABORT")
    shutil.copy(GOLDEN, folder)
    (folder / "damaged.json").write_bytes(GOLDEN.read_bytes()[:-9])
    assert left() == [golden] and untold() == [GOLDEN.name], "what is damaged is of no use"
    shutil.rmtree(folder)
    folder.touch()  # so that nothing can be kept in it
    with lineage_consumer() as consumer:
        send_one(consumer.url)
    assert consumer.types == ["START", "COMPLETE"]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a reader of the log sees, of whichever logger."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_consumer_that_refuses_is_told_of_once_and_again_when_it_had_come_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emitters, "EVERY_SECONDS", 0.0)
    with lineage_consumer(status=404) as consumer:
        run = Run(consumer.url)
        run.emitter.launched()
        for epoch in range(3):
            consumer.asked.clear()
            run.commit(epoch)
            until(consumer.asked.is_set, "it is asked again")
        consumer.status = 201
        run.commit(3)
        until(lambda: consumer.types == ["RUNNING"], "it takes one")
        assert len(told(caplog)) == 1 and "404" in told(caplog)[0]
        consumer.status = 403
        run.commit(4)
        run.emitter.ended(None)
        until(lambda: len(told(caplog)) == 2, "that it does not, any more")


def test_attempts_at_a_consumer_that_is_away_are_not_told_one_by_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    run = Run(f"http://127.0.0.1:{port}")  # where nothing listens any more
    run.emitter.launched()
    until(lambda: told(caplog), "that it is away")
    run.emitter.ended(None)
    (said,) = told(caplog)
    assert "does not take them; the query goes on" in said
    logging.getLogger("urllib3.connectionpool").warning("of another thread")
    assert told(caplog)[-1] == "of another thread"


def test_the_end_does_not_wait_for_a_consumer_that_says_nothing() -> None:
    with lineage_consumer() as consumer:
        consumer.answers.clear()
        run = Run(consumer.url)
        run.emitter.launched()
        until(consumer.asked.is_set, "the first event is under way")
        began = time.monotonic()
        run.emitter.ended(None)
        assert time.monotonic() - began < 60


def test_what_was_not_launched_can_be_ended() -> None:
    with lineage_consumer() as consumer:
        Run(consumer.url).emitter.ended(None)
    assert consumer.events == []


def test_what_cannot_be_described_is_told_and_hurts_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with lineage_consumer() as consumer:
        run = Run(consumer.url, {"parentRunId": "no uuid", "parentJobNamespace": "p", "parentJobName": "j"})
        run.emitter.launched()
        run.emitter.ended(None)
    assert consumer.events == []
    (said,) = told(caplog)
    assert "events of OpenLineage cannot be made of this query" in said


def test_job_parent_and_owners_are_those_of_the_spark_integration(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "namespace": "prod",
        "parentRunId": PARENT,
        "parentJobNamespace": "airflow",
        "parentJobName": "nightly.stream",
        "rootParentRunId": PARENT,
        "rootParentJobNamespace": "airflow",
        "rootParentJobName": "nightly",
        "job.owners.team": "payments",
        "job.owners.person": "ada",
        "transport.type": "console",
    }
    with lineage_consumer() as consumer:
        run = Run(consumer.url, given)
        run.emitter.launched()
        run.emitter.ended(None)
    event = consumer.of("START")
    assert (event["job"]["namespace"], event["job"]["name"]) == ("prod", "payments")
    kind = event["job"]["facets"]["jobType"]
    assert (kind["processingType"], kind["integration"], kind["jobType"]) == ("STREAMING", "CLONOS", "QUERY")
    owners = event["job"]["facets"]["ownership"]["owners"]
    assert owners == [{"name": "ada", "type": "person"}, {"name": "payments", "type": "team"}]
    parent = event["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == PARENT and parent["root"]["job"]["name"] == "nightly"
    assert parent["job"] == {"namespace": "airflow", "name": "nightly.stream", "facets": {}}
    assert event["run"]["facets"]["processing_engine"]["version"] == "4.3.0"

    assert job_identity({}, "q").namespace == "default"
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "of the driver")
    assert job_identity({}, "q").namespace == "of the driver"
    assert job_identity({"parentRunId": PARENT}, "q").parent is None, "it is not named in full"


# ------------------------------------------------------------------ the setting


def test_the_setting() -> None:
    key = "spark.clonos.openlineage"
    assert read_settings({}).openlineage is None
    assert read_settings({key: "false"}).openlineage is None
    for wrong in ("yes", "marquez:5000", "ftp://marquez", "http://"):
        with pytest.raises(ConfigurationError, match=r"false, true, or http\(s\)://HOST:PORT"):
            read_settings({key: wrong})


def send_one(url: str) -> None:
    run = Run(url)
    run.emitter.launched()
    run.emitter.ended(None)
    run.emitter._thread.join()


def test_a_path_is_that_of_the_endpoint_and_the_key_that_of_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "open sesame")
    with lineage_consumer() as consumer:
        send_one(f"{consumer.url}/openapi/openlineage/api/v1/lineage?tenant=7")
    assert consumer.paths == {"/openapi/openlineage/api/v1/lineage?tenant=7"}
    assert consumer.keys == {"Bearer open sesame"}


def _by_environment(monkeypatch: pytest.MonkeyPatch, consumer: Consumer) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", consumer.url)


def _by_file(monkeypatch: pytest.MonkeyPatch, consumer: Consumer) -> None:
    text = f"transport:\n  type: http\n  url: {consumer.url}\n  compression: gzip\n"
    Path("openlineage.yml").write_text(text)  # in the working directory


@pytest.mark.parametrize("configure", [_by_environment, _by_file])
def test_the_clients_own_configuration_is_enough(
    monkeypatch: pytest.MonkeyPatch, configure: Callable[[pytest.MonkeyPatch, Consumer], None]
) -> None:
    with pytest.raises(ConfigurationError, match=r"OPENLINEAGE_URL=.*openlineage\.yml.*openlineage=http"):
        Run("true")
    with lineage_consumer() as consumer:
        configure(monkeypatch, consumer)
        send_one("true")
    assert consumer.types == ["START", "COMPLETE"]


def test_configuration_that_is_nonsense_is_told_before_the_query_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("openlineage.yml").write_text("transport:\n  type: pigeon\n")
    with pytest.raises(ConfigurationError, match=r"pigeon.*Correct openlineage\.yml"):
        Run("true")
    Path("openlineage.yml").write_text("transport:\n  type: console\n")
    Run("true").emitter.ended(None)  # the log is asked for
    with pytest.raises(ConfigurationError, match="http://host:abc") as raised:
        Run("http://user:open-sesame@host:abc/way?key=open-sesame")
    assert "sesame" not in str(raised.value)
    monkeypatch.setattr(consumers, "installed", lambda package: False)
    with pytest.raises(ConfigurationError, match=r"clonos-spark\[openlineage\]"):
        Run("true")


def test_openlineages_own_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    with lineage_consumer() as consumer:
        send_one(consumer.url)
    assert consumer.events == []


# ----------------------------------------------------------------- row counts


class Batch:
    """As Spark's progress of one."""

    def __init__(self, epoch: int, read: tuple[int, ...], written: int) -> None:
        self._epoch, self._read, self._written = epoch, read, written

    def batchId(self) -> int:
        return self._epoch

    def json(self) -> str:
        sources = [{"numInputRows": rows} for rows in self._read]
        return json.dumps(
            {"sources": sources, "sink": {"metrics": {"out.numOutputRows": str(self._written)}}}
        )


def test_rows_are_added_up_once_and_not_known_where_a_batch_was_missed() -> None:
    recent: list[Any] = []
    one, two = NodeId(1), NodeId(2)
    counts = RowCounts(lambda: recent, Epoch(4), [one, two])
    assert counts.read(one, Epoch(4)) == 0 and counts.written("out", Epoch(4)) == 0
    recent += [Batch(4, (9, 9), 9), Batch(5, (1, 2), 3), Batch(6, (10, 20), 30)]
    counts.look()
    counts.look()
    recent += [Batch(6, (0, 0), 0), Batch(7, (0, 0), 300)]  # told again, while nothing came
    counts.look()
    found = counts.read(one, Epoch(7)), counts.read(two, Epoch(7)), counts.written("out", Epoch(7))
    assert found == (11, 22, 333)
    assert counts.read(one, Epoch(8)) is None, "which has committed, and is not told of yet"
    recent[:] = [Batch(9, (1, 1), 1)]
    counts.look()
    assert counts.read(one, Epoch(9)) is None and counts.written("out", Epoch(9)) is None

    counts = RowCounts(lambda: [Batch(0, (5,), -1)], NO_EPOCH, [one])
    counts.look()
    assert counts.read(one, Epoch(0)) == 5
    assert counts.written("out", Epoch(0)) is None, "Spark does not know"
    counts = RowCounts(lambda: [Batch(0, (5,), 1)], NO_EPOCH, [one, two])
    counts.look()
    assert counts.read(one, Epoch(0)) is None, "progress tells of other sources"


# ------------------------------------------------------------------ the format


def test_openlineages_own_classes_know_all_of_an_event(root: Path) -> None:
    """They are made of its schemas."""
    if reason := event_reader.why_not():
        pytest.skip(reason)
    given = {"job.owners.team": "payments"}
    given |= {f"{which}{part}": PARENT for which in ("parent", "rootParent") for part in ("RunId", "JobName")}
    given |= {f"{which}JobNamespace": "airflow" for which in ("parent", "rootParent")}
    with lineage_consumer() as consumer:
        run = Run(consumer.url, given)
        run.emitter.launched()
        run.commit(0)
        until(lambda: "RUNNING" in consumer.types, "an epoch")
        run.emitter.ended(Fenced("by another driver"))
    sent = [json.dumps(event) for event in consumer.events]
    golden = json.loads((root / "tests" / "golden" / "openlineage_event_v1.json").read_text())
    sent.append(json.dumps(golden))
    kinds = ["START", "RUNNING", "ABORT", "COMPLETE"]
    said = event_reader.read_events(sent)
    assert set(said) == {"facet clonos_query", *(f"read {kind}" for kind in kinds)}
    assert [line for line in said if line.startswith("read")] == [f"read {kind}" for kind in kinds]
    golden["job"]["facets"]["jobType"]["pace"] = "slow"
    assert "unknown COMPLETE.Job.Facets.JobType.pace" in event_reader.read_events([json.dumps(golden)])


def test_an_event_is_as_it_was(root: Path) -> None:
    """What consumers read of all that is of our own; a change has to be one that adds."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    topic, table = kafka_topic("broker:9092", "in"), sqlite_table("/out.db", "t")
    value = identity(Column(topic, "value"))
    nested = StructField("place", StructType([StructField("city", StringType())]))
    fields = (StructField("card", StringType()), StructField("spent", LongType()), nested)
    columns = {"card": value, "spent": through(value, Transformation.AGGREGATION)}
    rows = through(value, Transformation.FILTER) | through(value, Transformation.GROUP_BY)
    datasets = Datasets(
        (Given(topic, (StructField("value", StringType()),), (NodeId(1),)),),
        (Taken(table, fields, ("out",), columns, rows),),
    )
    counts = RowCounts(lambda: [Batch(0, (5,), 2)], NO_EPOCH, [NodeId(1)])
    counts.look()
    job = job_identity({"job.owners.team": "payments"}, "spent")
    made = RunEvents(job, FACTS, datasets, counts).end(1_700_000_000.0, Standing(Epoch(0), 1), None)
    event = json.loads(Serde.to_json(made))
    event["run"]["runId"] = PARENT
    event["run"]["facets"]["processing_engine"]["openlineageAdapterVersion"] = "?"
    said = json.dumps(event, indent=1, sort_keys=True).replace(PRODUCER, "urn:clonos:clonos-spark:?")
    said = re.sub(r"/spec/(facets/)?[\d-]+/", r"/spec/\1?/", said)  # of the client that is installed
    assert said + "\n" == (root / "tests" / "golden" / "openlineage_event_v1.json").read_text()
