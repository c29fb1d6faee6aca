"""The Kafka sink that writes at once, over a real broker: what a reader of ids sees when writers and brokers die."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from kafka_broker import KafkaBroker, shown_once
from kafka_place import UPTO, Place
from sink_child import SCHEMA, bundle
from sink_support import (
    QUERY,
    assert_covered,
    expected,
    kill_at_any_moment,
    opened,
    run_child,
    stopped_writer,
)

from clonos import sinks
from clonos.errors import Fenced, QueryDefinitionError, SinkError
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.sinks.kafka_partitions import murmur2

pytestmark = pytest.mark.kafka


@pytest.fixture
def place(broker: KafkaBroker) -> Place:
    return Place(broker, "at_once")


# Calls of `append` after opening: of the intent of the first bundle, of its cursors, of the next intent, and so on.
@pytest.mark.parametrize(
    ("point", "at", "known"),
    [
        ("append.before", 3, 10),
        ("append.after", 3, 10),
        ("send.before", 2, 10),
        ("send.after", 2, 10),
        ("append.before", 4, 10),
        ("append.after", 4, 20),
        ("append.after", 1, 0),
    ],
)
def test_a_writer_dies(tmp_path: Path, place: Place, point: str, at: int, known: int) -> None:
    status, _ = run_child(tmp_path, {**place.spec, "fence": 1, "crash": {"point": point, "at": at}})
    assert status == -signal.SIGKILL
    status, said = run_child(tmp_path, {**place.spec, "fence": 2})
    assert (status, said[0]["at"], said[-1]["at"]) == (0, known, UPTO)
    assert place.rows() == expected(UPTO)
    assert_covered(place.sink(), place.rows())


def test_writers_killed_at_any_moment(tmp_path: Path, broker: KafkaBroker) -> None:
    place = Place(broker, "at_once", key=None, partitions=3)
    spec = {**place.spec, "upto": 10_000}
    least = kill_at_any_moment(tmp_path, spec)
    with closing(place.sink().writer()) as writer:
        at = writer.open(query=QUERY, node=5, instance=0, fence=Fence(99)).cursors[3]
    rows = place.rows()
    assert rows == expected(len(rows))
    assert len(rows) >= at >= least


@pytest.mark.parametrize("point", ["append.after", "send.before"])
def test_a_writer_that_was_stopped_repeats_what_its_successor_has_written(
    tmp_path: Path, place: Place, point: str
) -> None:
    """Its determinants are known, its rows are not there yet. It sends them when it goes on, and is fenced."""
    hang = {"crash": {"point": point, "at": 3 if point == "append.after" else 2}}
    spec = {**place.spec, "upto": 40}
    with stopped_writer(tmp_path, {**spec, **hang}) as (zombie, said):
        status, after = run_child(tmp_path, {**spec, "fence": 2})
        assert (status, after[0]["at"], after[-1]["at"]) == (0, 10, 40)
        os.kill(zombie.pid, signal.SIGCONT)
        assert [each.get("error") for each in said] == ["Fenced"]
    messages = place.broker.read(place.topic)
    assert len(messages) == 50
    assert place.rows() == expected(40)


def test_a_writer_that_was_overtaken_sends_nothing_new(place: Place) -> None:
    old = opened(place.sink(), 1)
    old.write(**bundle(1, 10))
    place.sink().raise_fence(QUERY, Fence(2))
    for _ in range(2):
        with pytest.raises(Fenced):
            old.write(**bundle(11, 20))
    new = opened(place.sink(), 2)
    with pytest.raises(Fenced):
        old.write(**bundle(11, 20))
    new.write(**bundle(11, 30))
    for writer in (old, new):
        writer.close()
    assert len(place.broker.read(place.topic)) == 30
    assert place.rows() == expected(30)


def test_rows_in_doubt_stay_in_their_partition_when_the_topic_grows(
    tmp_path: Path, broker: KafkaBroker
) -> None:
    place = Place(broker, "at_once", key=None, partitions=2)
    status, _ = run_child(tmp_path, {**place.spec, "fence": 1, "crash": {"point": "send.after", "at": 2}})
    assert status == -signal.SIGKILL
    broker.grow(place.topic, 5)
    status, said = run_child(tmp_path, {**place.spec, "fence": 2})
    assert (status, said[0]["at"]) == (0, 10)
    assert place.rows() == expected(UPTO)
    messages = broker.read(place.topic)
    assert len(messages) == UPTO + 10
    assert {message.partition() for message in messages} == set(range(5))


def test_a_writer_that_begins_again_uses_partitions_that_were_added(broker: KafkaBroker) -> None:
    """Its client has not heard of them."""
    place = Place(broker, "at_once", key=None, partitions=2)
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
        broker.grow(place.topic, 5)
        writer.write(**bundle(11, 20))
        assert writer.open(query=QUERY, node=5, instance=0, fence=Fence(1)).cursors == {3: 20}
        writer.write(**bundle(21, 30))
    assert place.rows() == expected(30)
    last = [message.partition() for message in broker.read(place.topic) if b'"n":900' in message.value()]
    assert last == [0]
    used = {message.partition() for message in broker.read(place.topic)}
    assert used == set(range(5))
    assert_covered(place.sink(), place.rows())  # what was written after it began again counts


@pytest.mark.parametrize(("before", "then"), [("at_once", "transactions"), ("transactions", "at_once")])
def test_the_mode_stays(place: Place, before: str, then: str) -> None:
    with closing(opened(place.sink(mode=before), 1)) as writer:
        writer.write(**bundle(1, 3))
    with pytest.raises(SinkError, match=f"mode='{before}'") as refused:
        opened(place.sink(mode=then), 2)
    assert "new checkpoint" in str(refused.value)
    with closing(opened(place.sink(mode=before), 3)) as writer:  # as the hint says
        writer.write(**bundle(4, 5))


def test_another_mode_is_refused() -> None:
    with pytest.raises(QueryDefinitionError, match="'transactions' or 'at_once'"):
        sinks.kafka("localhost:1", topic="t", mode="soon")  # type: ignore[arg-type]


def test_a_row_that_the_broker_refuses_is_not_passed_over_when_it_comes_again(broker: KafkaBroker) -> None:
    """The client takes it, the topic does not; rows behind it are not sent before it. The hint is followed."""
    place = Place(broker, "at_once", key=None, options={"message.max.bytes": 10_000_000})
    large = bundle(1, 1000)
    large["rows"][500] = ("x" * 2_000_000, 500)
    with (
        closing(opened(place.sink(), 1)) as writer,
        pytest.raises(SinkError, match=r"row 3-0-501 .*too large"),
    ):
        writer.write(**large)
    broker.configure(place.topic, max_message_bytes="10000000")
    with closing(opened(place.sink(), 2)) as writer:
        writer.write(**large)
        writer.write(**bundle(1001, 1010))
    assert [int(row[0].rpartition("-")[2]) for row in place.rows()] == list(range(1, 1011))


def test_rows_in_doubt_are_not_written_again_as_others(tmp_path: Path, broker: KafkaBroker) -> None:
    place = Place(broker, "at_once", partitions=2)
    status, _ = run_child(tmp_path, {**place.spec, "fence": 1, "crash": {"point": "send.after", "at": 2}})
    assert status == -signal.SIGKILL
    with closing(place.sink().log_reader(QUERY)) as reader:
        assert reader.cursors() == {Origin.of(5, 0): {3: 10}}
        assert reader.reached() == {Origin.of(5, 0): {3: 20}}  # where output would be numbered anew
    with pytest.raises(SinkError, match="another topic, key, value, headers or columns") as refused:
        opened(place.sink(key=None), 2)
    assert "once more as it was" in str(refused.value)
    status, _ = run_child(tmp_path, {**place.spec, "fence": 3})
    assert status == 0
    with closing(opened(place.sink(key=None), 4)) as writer:
        writer.write(**bundle(UPTO + 1, UPTO + 5))
    assert [row[0] for row in place.rows()] == [f"3-0-{number}" for number in range(1, UPTO + 6)]


def test_a_row_that_is_too_large_is_named(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 3))
        large = {**bundle(4, 5), "rows": [("small", 1), ("x" * 2_000_000, 2)]}
        with pytest.raises(SinkError, match=r"row 3-0-5 .*too large") as refused:
            writer.write(**large)
        assert "may be visible" in str(refused.value)
        assert "max.message.bytes" in str(refused.value)


def test_rows_of_a_key_go_where_kafkas_own_client_would_send_them(broker: KafkaBroker) -> None:
    topic = broker.topic(partitions=5)
    for mode in ("transactions", "at_once"):
        sink = sinks.kafka(broker.servers, topic=topic, key="card", prefix=f"{topic}-{mode}", mode=mode)  # type: ignore[arg-type]
        sink.validate(SCHEMA)
        with closing(opened(sink, 1)) as writer:
            writer.write(**bundle(1, 14))
    messages = broker.read(topic)
    partitions = {(message.key(), message.partition()) for message in messages}
    assert partitions == {(key, (murmur2(key) & 0x7FFFFFFF) % 5) for key, _ in partitions}
    assert (len(messages), len(partitions)) == (28, 7)


def test_a_key_is_hashed_as_by_kafkas_own_client() -> None:
    """Values of UtilsTest of Kafka's client."""
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: murmur2(key) - (murmur2(key) >> 31 << 32) for key in known} == known


def test_rows_of_two_operators_and_sink_instances_are_kept_apart(broker: KafkaBroker) -> None:
    """The numbers of an operator's rows do not rise over several sink instances."""
    place = Place(broker, "at_once")
    schema = pa.schema([("n", pa.int64())])
    sink = sinks.kafka(broker.servers, topic=place.topic, prefix=f"{place.topic}-", mode="at_once")
    sink.validate(schema)
    first, second = opened(sink, 1), opened(sink, 1, instance=1)
    first.write([(2,), (9,)], ["3-0-2", "4-0-9"], {3: 2, 4: 9}, [])
    second.write([(1,), (8,)], ["3-0-1", "4-0-8"], {3: 1, 4: 8}, [])
    for writer in (first, second):
        writer.close()
    assert [json.loads(each.value())["n"] for each in shown_once(broker.read(place.topic))] == [2, 9, 1, 8]
