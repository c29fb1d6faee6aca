"""The Kafka sink over a real broker: writers that die, stop or race, brokers that die, and what is refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_broker import KafkaBroker
from kafka_place import UPTO, Place
from sink_child import NODE, SCHEMA, bundle
from sink_support import (
    QUERY,
    assert_covered,
    child,
    events,
    expected,
    kill_at_any_moment,
    opened,
    race,
    run_child,
    stopped_writer,
)

from clonos import sinks
from clonos.errors import Fenced, QueryDefinitionError, SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, Origin
from clonos.sinks import kafka_side_topic
from clonos.sinks.kafka_ids import ID_HEADER

pytestmark = pytest.mark.kafka

MODES = ("transactions", "at_once")
KILLED = -signal.SIGKILL


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """For what both modes promise."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def place(broker: KafkaBroker) -> Place:
    return Place(broker)


# ------------------------------------------------------------------ deaths


@pytest.mark.parametrize(
    ("moment", "at"),
    [
        ("before", 3),
        ("within", 1),  # in a writer's first transaction
        ("within", 3),
        ("after", 1),
        pytest.param("before", 1, marks=pytest.mark.soak),
        pytest.param("after", 3, marks=pytest.mark.soak),
    ],
)
def test_a_writer_dies(tmp_path: Path, place: Place, moment: str, at: int) -> None:
    crash = {"crash": {"point": f"kafka.{moment}", "at": at}}
    status, _ = run_child(tmp_path, {**place.spec, "fence": 1, **crash})
    assert status == KILLED
    status, said = run_child(tmp_path, {**place.spec, "fence": 2})
    assert (status, said[0]["at"], said[-1]["at"]) == (0, 10 * (at if moment == "after" else at - 1), UPTO)
    assert place.rows() == expected(UPTO)
    assert_covered(place.sink(), place.rows())


def test_writers_killed_at_any_moment(tmp_path: Path, place: Place) -> None:
    spec = {**place.spec, "upto": 10_000}
    least = kill_at_any_moment(tmp_path, spec)
    sink = place.sink()
    with closing(sink.writer()) as writer:
        at = writer.open(query=QUERY, node=NODE, instance=0, fence=Fence(99)).cursors[3]
    assert at >= least
    assert place.rows() == expected(at)
    assert_covered(sink, place.rows())


def test_two_processes_race(tmp_path: Path, broker: KafkaBroker, mode: str) -> None:
    place = Place(broker, mode)
    race(tmp_path, place.spec, 600)
    assert place.rows() == expected(600)


def test_a_stopped_writer_cannot_keep_its_successor_out(tmp_path: Path, place: Place) -> None:
    """It hangs in its transaction. Its successor's first step ends that; readers of committed messages go on."""
    hang = {"crash": {"point": "kafka.within", "at": 2}}
    spec = {**place.spec, "upto": 40}
    with stopped_writer(tmp_path, {**spec, **hang}) as (zombie, said):
        status, after = run_child(tmp_path, {**spec, "fence": 2})
        assert (status, after[0]["at"], after[-1]["at"]) == (0, 10, 40)
        os.kill(zombie.pid, signal.SIGCONT)
        assert [each.get("error") for each in said] == ["Fenced"]
    assert place.rows() == expected(40)


def test_a_zombie_that_begins_again_only_delays_its_successor(place: Place) -> None:
    """Kafka lets the last one in that begins: the zombie ends its successor's transactions, finds itself fenced, and
    the successor begins again."""
    old, new = opened(place.sink(), 1), opened(place.sink(), 2)
    new.write(**bundle(1, 10))
    for _ in range(3):
        with pytest.raises(Fenced):
            old.write(**bundle(1, 10))
    new.write(**bundle(11, 20))
    for writer in (old, new):
        writer.close()
    assert place.rows() == expected(20)


# ------------------------------------------------------------------ metrics


def test_transactions_are_counted_by_how_they_end(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 3))
        with pytest.raises(SinkError, match="too large"):
            writer.write(**{**bundle(4, 5), "rows": [("small", 1), ("x" * 2_000_000, 2)]})
        writer.write(**bundle(4, 6))
        counted = dict(writer.counted())
        counted.pop("sink_retries")  # a broker that is slow is asked again
        assert counted == {"kafka_committed": 2, "kafka_aborted": 1, "kafka_in_doubt": 0}


def test_what_a_writer_leaves_in_doubt_its_successor_counts(tmp_path: Path, broker: KafkaBroker) -> None:
    place = Place(broker, "at_once")
    status, _ = run_child(tmp_path, {**place.spec, "fence": 1, "crash": {"point": "send.after", "at": 2}})
    assert status == KILLED
    with closing(opened(place.sink(), 2)) as writer:
        assert writer.counted()["kafka_in_doubt"] == 1
    with closing(opened(Place(broker, "at_once").sink(), 1)) as fresh:
        assert fresh.counted()["kafka_in_doubt"] == 0


# ------------------------------------------------------------------ brokers


@pytest.fixture(scope="module")
def mortal(brokers: Any) -> Iterator[KafkaBroker]:
    """A broker that this file kills."""
    with brokers() as running:
        yield running


def test_a_broker_is_killed_again_and_again(tmp_path: Path, mortal: KafkaBroker, mode: str) -> None:
    place = Place(mortal, mode, patience=240)
    spec = {**place.spec, "upto": 1500}
    with child(tmp_path, {**spec, "fence": 1}) as process:
        said = events(process)
        for _ in range(3):
            for event in said:
                assert event["event"] in ("open", "written"), event
                if event["at"] % 70 == 0:
                    break
            mortal.kill()
            mortal.start()
        assert list(said)[-1] == {"event": "written", "at": 1500}
    assert place.rows() == expected(1500)
    assert_covered(place.sink(), place.rows())


@pytest.mark.parametrize("mode", [pytest.param("transactions", marks=pytest.mark.soak), "at_once"])
def test_a_broker_that_stays_away_is_waited_for_as_long_as_was_said(mortal: KafkaBroker, mode: str) -> None:
    place = Place(mortal, mode, patience=1.0)
    writer = opened(place.sink(), 1)
    writer.write(**bundle(1, 10))
    mortal.kill()
    try:
        with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1"):
            writer.write(**bundle(11, 20))
        with pytest.raises(SinkUnavailable, match=place.topic):
            place.sink().standing_fence(QUERY)
    finally:
        mortal.start()
    patient = opened(place.sink(patience=240), 2)
    patient.write(**bundle(11, 20))
    assert place.rows() == expected(20)


# -------------------------------------------------------------- what is kept


def test_the_sinks_own_topic_is_trimmed(broker: KafkaBroker, mode: str) -> None:
    place = Place(broker, mode)
    with closing(opened(place.sink(), 1)) as writer:
        for first in range(1, 2000, 10):
            writer.write(**bundle(first, first + 9))
    dropped = place.sink().truncate(QUERY, Fence(1), lambda delta: delta == b"delta up to 1500")
    assert dropped >= 100
    with closing(place.sink().log_reader(QUERY)) as reader:
        deltas = list(reader.deltas())
        assert reader.cursors() == {Origin.of(5, 0): {3: 2000}}
    assert len(deltas) == 200 - dropped
    assert deltas[-1] == b"delta up to 2000"
    assert b"delta up to 1500" in deltas
    with closing(opened(place.sink(), 2)) as writer:
        writer.write(**bundle(2001, 2010))
    assert place.rows() == expected(2010)


def test_the_fence_log_is_condensed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_side_topic, "CONDENSED_FROM", 10)
    sink = place.sink()
    opened(sink, 3).close()
    for epoch in range(35):
        sink.record_commit(QUERY, Fence(3), Epoch(epoch), b"record %d" % epoch)
    assert sink.last_commit(QUERY) == (34, b"record 34")
    assert len(place.broker.read(f"{place.topic}-{QUERY}")) < 15
    with pytest.raises(Fenced):
        opened(sink, 2)
    opened(sink, 4).close()


# ------------------------------------------------------------------ messages


def written(broker: KafkaBroker, schema: pa.Schema, rows: list[Any], **arguments: Any) -> list[Any]:
    topic = broker.topic(partitions=1)
    sink = sinks.kafka(broker.servers, topic=topic, prefix=f"{topic}-", **arguments)
    sink.validate(schema)
    with closing(opened(sink, 1)) as writer:
        ids = [f"3-0-{number}" for number in range(1, len(rows) + 1)]
        writer.write(rows, ids, {3: len(rows)}, [])
    return [
        (each.key(), each.value(), [(name, value) for name, value in each.headers() if name != ID_HEADER])
        for each in broker.read(topic)
    ]


def test_a_message_is_a_json_object_unless_told_otherwise(broker: KafkaBroker) -> None:
    schema = pa.schema([("k", pa.string()), ("b", pa.binary()), ("d", pa.float64()), ("n", pa.int64())])
    rows = [("ä", b"\0\xff", float("nan"), None), (None, None, 1.5, 2**53 + 1)]
    assert written(broker, schema, rows) == [
        (None, '{"k":"ä","b":"AP8=","d":"NaN","n":null}'.encode(), []),
        (None, b'{"k":null,"b":null,"d":1.5,"n":9007199254740993}', []),
    ]


def test_keys_values_and_headers_are_columns(broker: KafkaBroker) -> None:
    schema = pa.schema([("k", pa.int64()), ("j", pa.string()), ("v", pa.binary()), ("h", pa.string())])
    rows = [(1, "a", b"\1\2", "x"), (None, None, None, None)]
    assert written(broker, schema, rows, key="k", value="v", headers={"trace": "h"}) == [
        (b"1", b"\1\2", [("trace", b"x")]),
        (None, None, []),
    ]
    assert written(broker, schema, rows, key=["k", "j"], headers={"raw": "v"}) == [
        (b'[1,"a"]', b'{"k":1,"j":"a","h":"x"}', [("raw", b"\1\2")]),
        (b"[null,null]", b'{"k":null,"j":null,"h":null}', []),
    ]


def test_what_is_a_header_may_be_part_of_a_key_and_nothing_may_be_left_for_the_value(
    broker: KafkaBroker,
) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.binary())])
    headers = {"k": "k", "v": "v"}
    assert written(broker, schema, [(1, b"\1\2")], key=["k", "v"], headers=headers) == [
        (b'[1,"AQI="]', b"{}", [("k", b"1"), ("v", b"\1\2")]),
    ]


# ----------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"key": "nope"}, "no column 'nope'"),
        ({"value": "n"}, "text or binary"),
        ({"headers": {"clonos_id": "card"}}, "the sink's own"),
        ({"options": {"transactional.id": "x"}}, "cannot set transactional.id"),
        ({"topic": ""}, "name of a topic"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_query_is_defined(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(QueryDefinitionError, match=says):
        sinks.kafka("localhost:1", **{"topic": "t", **arguments}).validate(SCHEMA)


def test_a_topic_that_is_not_there_is_named_and_not_made(brokers: Any) -> None:
    with brokers({"auto.create.topics.enable": "true"}) as broker:
        place = Place(broker)
        with pytest.raises(SinkError, match="no topic 'tpyo'"):
            opened(place.sink(topic="tpyo"), 1)
        assert "tpyo" not in broker.admin().list_topics(timeout=60).topics


def test_servers_that_are_not_there_are_named() -> None:
    sink = sinks.kafka("127.0.0.1:9", topic="t", patience=0.5)
    with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:9"):
        sink.standing_fence(QUERY)


def test_a_row_that_is_too_large_is_named_and_nothing_of_its_bundle_is_visible(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 3))
        large = {**bundle(4, 5), "rows": [("small", 1), ("x" * 2_000_000, 2)]}
        with pytest.raises(SinkError, match=r"row 3-0-5 .*too large") as refused:
            writer.write(**large)
        assert "max.message.bytes" in str(refused.value)
        writer.write(**bundle(4, 6))
    assert place.rows() == expected(6)


def test_large_rows_go_where_the_hint_says(broker: KafkaBroker) -> None:
    topic = broker.topic(partitions=1, max_message_bytes="4000000")
    options = {"message.max.bytes": 4_000_000}
    sink = sinks.kafka(broker.servers, topic=topic, prefix=f"{topic}-", options=options)
    sink.validate(SCHEMA)
    with closing(opened(sink, 1)) as writer:
        writer.write([("x" * 2_000_000, 2)], ["3-0-1"], {3: 1}, [])
    assert [len(message.value()) for message in broker.read(topic)] == [len(b'{"card":"","n":2}') + 2_000_000]


def test_a_large_delta_takes_several_messages(broker: KafkaBroker, mode: str) -> None:
    place = Place(broker, mode)
    delta = os.urandom(3_000_000)
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**{**bundle(1, 3), "deltas": [delta, b"small"]})
    with closing(place.sink().log_reader(QUERY)) as reader:
        assert list(reader.deltas()) == [delta, b"small"]


def test_a_topic_that_is_deleted_under_the_query_is_named(broker: KafkaBroker) -> None:
    place = Place(broker, patience=5.0, options={"topic.metadata.propagation.max.ms": 500})
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 3))
        admin = broker.admin()
        admin.delete_topics([place.topic])[place.topic].result(60)
        with pytest.raises((SinkError, SinkUnavailable), match=r"[Uu]nknown topic|no topic"):
            for first in range(4, 400, 3):
                writer.write(**bundle(first, first + 2))


def test_a_foreign_message_in_the_sinks_own_topic_is_told(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 3))
    producer = place.broker.producer()
    producer.produce(f"{place.topic}-{QUERY}", b"foreign", partition=1)
    producer.flush(60)
    with closing(place.sink().log_reader(QUERY)) as reader:
        assert list(reader.deltas()) == [b"delta up to 3"]
        [corrupt] = reader.corrupt
        assert f"{place.topic}-{QUERY}, partition 1, offset 2" in corrupt
