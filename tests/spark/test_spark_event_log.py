"""Logs of events: a process that takes a lost one's place begins with its last transaction, wherever that is kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer
from streams import Place

from clonos.errors import CheckpointMismatch, ClonosError, ConfigurationError
from clonos.protocol.ids import InstanceId, NodeId, Origin
from clonos.storage.event_logs import EventLogs
from clonos.storage.event_place import EventPlace

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
OUT = f"{SCHEMA}, seen long, total long"
FIRST, SECOND = NodeId(2), NodeId(3)
SETTING = "spark.clonos.events.url"


def passed_on(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    yield row.k, row.n, ctx.state["seen"]


def total(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["total"] = ctx.state.get("total", 0) + row.n
    yield (*row, ctx.state["total"])


def chain(place: Place) -> Any:
    first = (
        place.causal(SCHEMA)
        .groupBy("k")
        .process(passed_on, f"{SCHEMA}, seen long", name="first", parallelism=2)
    )
    return first.groupBy("k").process(total, OUT, name="total", parallelism=1)


@pytest.fixture
def in_postgres(place: Place, postgres: PostgresServer) -> Place:
    """A query with logs of events there."""
    place.spark.conf.set("spark.clonos.recovery", "event_log")
    place.spark.conf.set(SETTING, postgres.fresh_database())
    return place


@pytest.fixture(params=["files", pytest.param("postgres", marks=pytest.mark.postgres)])
def logged(place: Place, request: pytest.FixtureRequest) -> Place:
    """A query with logs of events, and where they are."""
    if request.param == "postgres":
        request.getfixturevalue("in_postgres")
    place.spark.conf.set("spark.clonos.recovery", "event_log")
    return place


def transactions(place: Place, node: NodeId, instance: int = 0) -> list[int]:
    """The numbers of the checkpoints in an instance's logs."""
    medium = EventPlace.of(str(place.checkpoint)).medium(Origin(node, InstanceId(instance)))
    assert medium is not None
    return [name.sequence for name in EventLogs(medium, may_look_again=True).names()]


def send(place: Place, upto: int, sent: list[int]) -> None:
    """One after the other, so that each is a step of its own."""
    while len(sent) < upto:
        sent.append(len(sent) + 1)
        place.write([{"k": f"k{sent[-1] % 3}", "n": sent[-1]}])
        place.until(lambda: len(place.rows()) >= len(sent), f"row {sent[-1]}")


def await_end_of_epochs(place: Place) -> None:
    """What is visible now is then of an epoch that has committed: of the open one, or of the one before, which may
    commit while the next one runs."""

    def commits() -> int:
        return len(list((place.checkpoint / "commits").glob("[0-9]*")))

    before = commits()
    place.until(lambda: commits() >= before + 2, "the end of the epochs")


def assert_exact(place: Place, sent: list[int]) -> None:
    rows = place.await_rows(len(sent))
    assert sorted(row["n"] for row in rows) == sent
    for key in range(3):
        of_key = sorted((row for row in rows if row["k"] == f"k{key}"), key=lambda row: row["seen"])
        assert [row["seen"] for row in of_key] == [*range(1, len(of_key) + 1)]
        so_far = 0
        for row in of_key:
            so_far += row["n"]
            assert row["total"] == so_far


def test_a_lost_process_is_replaced_by_one_that_begins_with_the_last_transaction(logged: Place) -> None:
    place, sent = logged, []
    place.query = place.writer(chain(place), "realtime").trigger(realTime="10 minutes").start()
    send(place, 12, sent)
    for node in (FIRST, SECOND, SECOND):
        assert len(transactions(place, SECOND)) > 1, "most checkpoints are transactions"
        place.kill(node)
        send(place, len(sent) + 6, sent)
    assert not place.query.restarts
    assert_exact(place, sent)


def test_a_query_that_is_started_again_inside_an_epoch_goes_on(logged: Place) -> None:
    place, sent = logged, []
    for _ in range(3):
        place.query = place.writer(chain(place), "realtime").trigger(realTime="10 minutes").start()
        send(place, len(sent) + 8, sent)
        place.stop()
        assert transactions(place, SECOND)
    place.start(chain(place), "realtime")  # with epochs that end
    send(place, len(sent) + 4, sent)
    place.stop()
    assert_exact(place, sent)


def test_logs_go_with_their_epoch(logged: Place) -> None:
    place, sent = logged, []
    place.start(chain(place), "realtime")
    send(place, 4, sent)
    place.await_commit()
    place.until(lambda: max(transactions(place, SECOND), default=0) < 4, "the logs of epochs before to go")
    send(place, 8, sent)
    assert_exact(place, sent)


@pytest.mark.postgres
def test_a_query_keeps_the_place_of_its_logs(place: Place, postgres: PostgresServer) -> None:
    place.spark.conf.set("spark.clonos.recovery", "event_log")
    place.write([{"k": "a", "n": 1}])
    place.start(chain(place), "realtime")
    place.await_rows(1)
    place.stop()
    place.spark.conf.set(SETTING, postgres.fresh_database())
    with pytest.raises(
        CheckpointMismatch, match=r"its logs of events in files beside it, and .* says postgresql://"
    ):
        place.start(chain(place), "realtime")
    place.spark.conf.unset(SETTING)  # as the hint says
    place.write([{"k": "a", "n": 2}])
    place.start(chain(place), "realtime")
    place.await_rows(2)


@pytest.mark.postgres
def test_a_copy_of_a_checkpoint_goes_on_where_an_epoch_ended_and_nowhere_else(
    in_postgres: Place, tmp_path: Path
) -> None:
    """What the database has of the open epoch the original may go on with."""
    place = in_postgres
    sent: list[int] = []
    place.query = place.writer(chain(place), "realtime").trigger(realTime="10 minutes").start()
    send(place, 6, sent)
    place.stop()
    original, place.checkpoint = place.checkpoint, tmp_path / "copy"
    shutil.copytree(original, place.checkpoint)
    with pytest.raises(ClonosError, match=r"rows behind that would be made again, and differently"):
        place.start(chain(place), "realtime")
        place.query.awaitTermination()
    place.query = None
    place.checkpoint = original  # which still goes on
    place.start(chain(place), "realtime")
    send(place, 9, sent)
    await_end_of_epochs(place)
    place.stop()
    place.checkpoint = tmp_path / "next"
    shutil.copytree(original, place.checkpoint)
    place.start(chain(place), "realtime")
    send(place, 12, sent)
    assert_exact(place, sent)


@pytest.mark.postgres
def test_what_is_put_back_from_a_copy_has_not_done_what_came_later(
    in_postgres: Place, tmp_path: Path
) -> None:
    """Together with its sink, at the same place, while the database has it."""
    place = in_postgres
    sent: list[int] = []
    place.start(chain(place), "realtime")
    send(place, 4, sent)
    await_end_of_epochs(place)
    place.stop()
    both = (place.checkpoint, place.output)
    for folder in both:
        shutil.copytree(folder, tmp_path / "copy" / folder.name)
    place.query = place.writer(chain(place), "realtime").trigger(realTime="10 minutes").start()
    send(place, 20, sent)
    place.stop()
    for folder in both:
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "copy" / folder.name, folder)
    place.start(chain(place), "realtime")
    place.await_rows(20)
    send(place, 24, sent)
    assert_exact(place, sent)


def test_a_damaged_log_is_named(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.spark.conf.set("spark.clonos.recovery", "event_log")
    sent: list[int] = []
    place.query = place.writer(chain(place), "realtime").trigger(realTime="10 minutes").start()
    send(place, 9, sent)
    place.stop()
    (log,) = (place.checkpoint / f"clonos/state/{SECOND}/0/events").iterdir()
    raw = bytearray(log.read_bytes())
    raw[len(raw) // 2] ^= 1
    log.write_bytes(raw)
    with pytest.raises(ClonosError, match=r"the newest checkpoints that fit together end at"):
        place.start(chain(place), "realtime")
        place.query.awaitTermination()
    place.query = None
    assert f"{log} is damaged at byte" in caplog.text
    raw[len(raw) // 2] ^= 1
    log.write_bytes(raw)  # restored, as the hint says
    place.start(chain(place), "realtime")
    send(place, 12, sent)
    assert_exact(place, sent)


def test_a_place_that_will_not_do_is_refused_before_anything_is_written(place: Place) -> None:
    place.spark.conf.set("spark.clonos.recovery", "event_log")
    place.spark.conf.set(SETTING, "postgresql://me:secret@host/db")
    with pytest.raises(ConfigurationError, match=r"has a password.*~/\.pgpass"):
        place.start(chain(place), "realtime")
    place.spark.conf.set(SETTING, "sqlite:///here")
    with pytest.raises(ConfigurationError, match=r"kept in PostgreSQL.*or leave it out"):
        place.start(chain(place), "realtime")
    assert not (place.checkpoint / "clonos" / "query.json").exists()
    place.spark.conf.unset(SETTING)
    place.write([{"k": "a", "n": 1}])
    place.start(chain(place), "realtime")
    place.await_rows(1)
