"""`clonos.kafka.Reader` over a real broker: each row once, over commits, other members of the group, and restarts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from hypothesis import given, strategies as st
from kafka_broker import KafkaBroker
from repeated_topic import RepeatedTopic

import clonos.kafka
from clonos.errors import ConfigurationError, LogCorrupt, ReaderError
from clonos.kafka.repetitions import Repetitions
from clonos.sinks.kafka_ids import ID_HEADER

WAIT_S = 60.0

pytestmark = pytest.mark.kafka


# -- what is remembered


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20))))
def test_a_message_is_shown_unless_one_as_high_of_its_channel_was(messages: list[tuple[int, int]]) -> None:
    came = Repetitions()
    last: dict[int, int] = {}
    for channel, position in messages:
        came = Repetitions.unpack(came.packed(), "here")
        assert came.takes(f"q/5-0/{channel}-0-{position}") == (position > last.get(channel, -1))
        last[channel] = max(position, last.get(channel, -1))


@pytest.mark.parametrize("message_id", [None, "", "mine", "q/3-0-7", "q/5-0/3-0-x", "q/5-0/3-0-²", "a-b/c"])
def test_messages_without_an_id_of_this_kind_are_shown_always(message_id: str | None) -> None:
    came = Repetitions()
    assert came.takes(message_id)
    assert came.takes(message_id)
    assert came.packed() == ""


def test_golden_metadata() -> None:
    came = Repetitions.unpack("AVdXsWJ42mtaWahvqmugb6xrcJZRB8ox0TVkAABj4Aaz", "here")
    assert not came.takes("q/5-0/3-0-300")
    assert came.takes("q/5-0/3-0-301")
    assert not came.takes("q/5-0/4-1-0")


@given(st.data())
def test_damage_is_noticed(data: Any) -> None:
    came = Repetitions()
    assert came.takes("q/5-0/3-0-300")
    text = came.packed()
    at = data.draw(st.integers(0, len(text) - 1))
    instead = data.draw(st.sampled_from("Az09+é \0"))
    for wrong in (text[:at] + instead + text[at + 1 :], text[:at]):
        if wrong in ("", text):
            continue
        with pytest.raises(LogCorrupt, match="here"):
            Repetitions.unpack(wrong, "here")


# -- over a broker


class Topic(RepeatedTopic):
    """Read by members of one group."""

    def reader(self, **settings: Any) -> clonos.kafka.Reader:
        given = {"bootstrap.servers": self.broker.servers, "group.id": self.group, "log_level": 0}
        given |= {"auto.offset.reset": "earliest", "heartbeat.interval.ms": 500}
        return clonos.kafka.Reader({**given, **settings}, [self.name])


@pytest.fixture
def topic(broker: KafkaBroker) -> Topic:
    return Topic(broker)


def id_of(message: Any) -> str:
    found: str = dict(message.headers())[ID_HEADER].decode()
    return found


def taken(reader: clonos.kafka.Reader, count: int) -> Iterator[str]:
    for _ in range(count):
        message = reader.poll(WAIT_S)
        assert message is not None, "nothing came"
        yield id_of(message)


def test_each_row_is_shown_once_by_readers_that_take_turns(topic: Topic) -> None:
    assert topic.sent > len(topic.expected)
    seen: list[str] = []
    while len(seen) < len(topic.expected):
        with topic.reader() as reader:
            seen += taken(reader, min(37, len(topic.expected) - len(seen)))
            reader.commit()
    assert sorted(seen) == sorted(topic.expected)
    topic.send(100)
    with topic.reader() as reader:
        seen += taken(reader, len(topic.expected) - len(seen))
        reader.commit()
        assert reader.poll(0.5) is None
    assert sorted(seen) == sorted(topic.expected)


def test_what_was_not_committed_is_shown_again(topic: Topic) -> None:
    with topic.reader() as reader:
        first = list(taken(reader, 20))
        reader.commit()
        lost = list(taken(reader, 30))
    with topic.reader() as reader:
        again = list(taken(reader, len(topic.expected) - 20))
    assert set(lost) <= set(again)
    assert sorted(first + again) == sorted(topic.expected)


def test_members_of_a_group_hand_over_what_came_before(broker: KafkaBroker) -> None:
    """A second member joins in the middle; later the first one leaves."""
    topic = Topic(broker, rows=600, partitions=4)
    seen: set[str] = set()

    def take(reader: clonos.kafka.Reader, count: int = 20) -> int:
        """What is shown and not committed, another member shows again."""
        messages = reader.consume(count, 0.2)
        seen.update(id_of(each) for each in messages)
        commit_unless_moved(reader)
        return len(messages)

    with topic.reader() as first:
        while len(seen) < 100:
            take(first)
        with topic.reader() as second:
            while not take(second):  # both go on polling, so that the group can settle
                take(first, 1)
                topic.send(20)
            first.close()
            while len(seen) < len(topic.expected):
                take(second)
    assert sorted(seen) == sorted(topic.expected)


def commit_unless_moved(reader: clonos.kafka.Reader) -> None:
    """A partition may go to another member between reading and committing."""
    try:
        reader.commit()
    except ReaderError as error:
        assert any(
            reason in str(error).lower() for reason in ("rebalance", "generation", "unknown member")
        ), error


def test_offsets_go_into_a_transaction_of_ones_own(topic: Topic) -> None:
    producer = topic.broker.producer(**{"transactional.id": topic.group})
    producer.init_transactions(60)
    with topic.reader() as reader:
        seen = list(taken(reader, 50))
        producer.begin_transaction()
        producer.send_offsets_to_transaction(reader.offsets(), reader.consumer.consumer_group_metadata())
        producer.commit_transaction(60)
    with topic.reader() as reader:
        seen += taken(reader, len(topic.expected) - 50)
    assert sorted(seen) == sorted(topic.expected)


def test_iterating_ends_when_the_reader_is_closed(topic: Topic) -> None:
    reader = topic.reader()
    seen = []
    for message in reader:
        seen.append(id_of(message))
        if len(seen) == len(topic.expected):
            reader.close()
    reader.close()
    assert sorted(seen) == sorted(topic.expected)


def test_a_broker_that_dies_delays_a_reader(brokers: Any) -> None:
    with brokers() as broker:
        topic = Topic(broker)
        with topic.reader() as reader:
            seen = list(taken(reader, 20))
            reader.commit()
            broker.kill()
            broker.start()
            topic.send(100)
            seen += taken(reader, len(topic.expected) - 20)
            reader.commit()
        assert sorted(seen) == sorted(topic.expected)


def test_what_came_before_has_to_fit_beside_the_offset(brokers: Any) -> None:
    with brokers({"offset.metadata.max.bytes": "20"}) as broker:
        topic = Topic(broker)
        with topic.reader() as reader:
            list(taken(reader, 20))
            with pytest.raises(ReaderError, match=r"offset\.metadata\.max\.bytes"):
                reader.commit()


def test_what_comes_beside_an_error_is_given_first(topic: Topic) -> None:
    """A topic that is not there, in one batch with rows of one that is."""
    settings = {"bootstrap.servers": topic.broker.servers, "group.id": topic.group, "log_level": 0}
    seen: list[str] = []
    errors = 0
    with clonos.kafka.Reader(
        {**settings, "auto.offset.reset": "earliest"}, [topic.name, "not-there"]
    ) as reader:
        while len(seen) < len(topic.expected) or not errors:
            try:
                seen += [id_of(message) for message in reader.consume(1000, 3)]
            except ReaderError as error:
                assert "not-there" in str(error)
                errors += 1
    assert sorted(seen) == sorted(topic.expected)


def test_what_came_before_is_looked_up_again_when_that_failed(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    with topic.reader() as reader:
        first = list(taken(reader, 20))
        reader.commit()
    with topic.reader() as reader:
        before, failures = reader._came_before, []

        def fails_at_first(place: tuple[str, int]) -> Repetitions:
            if len(failures) < 3:
                failures.append(place)
                raise ReaderError("no answer")
            return before(place)

        monkeypatch.setattr(reader, "_came_before", fails_at_first)
        again: list[str] = []
        while len(again) < len(topic.expected) - 20:
            try:
                again += [id_of(message) for message in reader.consume(50, 1.0)]
            except ReaderError:
                assert failures
    assert len(failures) == 3
    assert sorted(first + again) == sorted(topic.expected)


def test_offsets_of_another_consumer_are_told(topic: Topic) -> None:
    other = Consumer({"bootstrap.servers": topic.broker.servers, "group.id": topic.group})
    other.commit(offsets=[TopicPartition(topic.name, 0, 3, "mine")], asynchronous=False)
    other.close()
    with topic.reader() as reader, pytest.raises(LogCorrupt, match=f"partition 0 of the topic {topic.name}"):
        reader.poll(WAIT_S)


@pytest.mark.parametrize("setting", ["enable.auto.commit", "enable.auto.offset.store"])
def test_it_commits_by_itself_alone(setting: str) -> None:
    with pytest.raises(ConfigurationError, match=r"call commit\(\)"):
        clonos.kafka.Reader({"bootstrap.servers": "localhost:1", "group.id": "g", setting: True}, ["t"])


def test_one_topic_is_a_list_of_one() -> None:
    with pytest.raises(ConfigurationError, match=r"Write \['t'\]"):
        clonos.kafka.Reader({"bootstrap.servers": "localhost:1", "group.id": "g"}, "t")


def test_a_partition_that_was_assigned_by_hand_is_refused(topic: Topic) -> None:
    with topic.reader() as reader:
        reader.consumer.unsubscribe()
        reader.consumer.assign([TopicPartition(topic.name, 0, 0)])
        with pytest.raises(ConfigurationError, match="do not assign"):
            reader.poll(WAIT_S)
