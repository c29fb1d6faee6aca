"""A Kafka cluster in memory, whose answers get lost and whose requests arrive late, for clients that take turns.

What it imitates is Kafka, not the sink: partitions with offsets, one epoch per transactional id, and transactions that
take effect at once if their epoch is still the last one when they arrive.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from clonos.errors import SinkUnavailable
from clonos.sinks.kafka_port import Message, Page


class Turns:
    """Threads that run one at a time; which goes on at each point is drawn, and some are slow."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._turns: dict[threading.Thread, threading.Semaphore] = {}
        self._pace: dict[threading.Thread, float] = {}
        self._failure: BaseException | None = None

    def run(self, *works: Callable[[], None]) -> None:
        """All of them to their ends. Raises what one of them has raised."""
        threads = [threading.Thread(target=self._run, args=(work,)) for work in works]
        self._turns = {thread: threading.Semaphore(0) for thread in threads}
        self._pace = {thread: self._rng.choice([0.02, 0.2, 1.0]) for thread in threads}
        for thread in threads:
            thread.start()
        self._wake_one()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def point(self) -> None:
        """Here another one may go on."""
        mine = self._turns.get(threading.current_thread())
        if mine is not None:
            self._wake_one()
            mine.acquire()

    def _run(self, work: Callable[[], None]) -> None:
        self._turns[threading.current_thread()].acquire()
        try:
            work()
        except BaseException as error:
            self._failure = self._failure or error
        del self._turns[threading.current_thread()]
        self._wake_one()

    def _wake_one(self) -> None:
        if self._turns:
            threads = list(self._turns)
            [chosen] = self._rng.choices(threads, [self._pace[thread] for thread in threads])
            self._turns[chosen].release()


@dataclass
class FakeKafka:
    """The brokers."""

    rng: random.Random
    fault_rate: float
    turns: Turns
    topics: dict[str, list[dict[int, bytes]]] = field(default_factory=dict)
    rows: list[Message] = field(default_factory=list)  # of the user's topic, as readers see them
    row_partitions: int = 1
    gaps: bool = False
    epochs: dict[str, int] = field(default_factory=dict)
    late: list[Callable[[], None]] = field(default_factory=list)
    on_commit: Callable[[bytes], None] = lambda _: None
    ends: dict[tuple[str, int], int] = field(default_factory=dict)

    def client(self) -> FakeCluster:
        return FakeCluster(self)

    def point(self) -> None:
        """Between two requests: another client goes on, and what is late may arrive."""
        self.turns.point()
        if self.late and self.rng.random() < 0.3:
            self.late.pop(self.rng.randrange(len(self.late)))()

    def fails(self) -> bool:
        return self.rng.random() < self.fault_rate

    def put(self, topic: str, partition: int, message: bytes) -> int:
        offset = self.ends.get((topic, partition), 0)
        self.ends[topic, partition] = offset + 1
        self.topics[topic][partition][offset] = message
        return offset

    def skip(self, topic: str, partition: int) -> None:
        """The mark at a transaction's end has an offset, too."""
        self.ends[topic, partition] = self.ends.get((topic, partition), 0) + 1


class FakeCluster:
    """See `clonos.sinks.kafka_client.Cluster`."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def ensure_topic(self, topic: str, partitions: int) -> None:
        self._request()
        made = self._kafka.topics.setdefault(topic, [])
        made += [{} for _ in range(partitions - len(made))]

    def partitions(self, topic: str) -> int:
        self._request()
        return self._kafka.row_partitions

    def send(self, messages: Sequence[Message]) -> None:
        """Any of them may be there, or come to be there late, when a request or its answer is lost; of a partition the
        first ones, or with `gaps` just any."""
        kafka = self._kafka
        lost: dict[int | None, list[Message]] = {}
        for message in messages:
            kafka.point()
            if kafka.fails() or (message.partition in lost and not kafka.gaps):
                lost.setdefault(message.partition, []).append(message)
            else:
                kafka.rows.append(message)
        if lost:
            for some in lost.values():
                if kafka.rng.random() < 0.5:
                    kafka.late.append(partial(kafka.rows.extend, some))
            raise SinkUnavailable("some rows are lost")
        self._answer()

    def append(self, topic: str, partition: int, message: bytes) -> int:
        kafka = self._kafka
        self._request(lambda: kafka.put(topic, partition, message) and None)
        offset = kafka.put(topic, partition, message)
        self._answer()
        return offset

    def read(self, topic: str, partition: int, begin: int) -> Page:
        self._request()
        kafka = self._kafka
        partitions = kafka.topics.get(topic, [])
        if partition >= len(partitions):
            return Page([])
        found = sorted(each for each in partitions[partition].items() if each[0] >= begin)
        some = found[: kafka.rng.randint(1, 30)]
        return Page(some, some[-1][0] + 1 if len(some) < len(found) else None)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        self._request()
        kept = self._kafka.topics[topic][partition]
        for each in [each for each in kept if each < offset]:
            del kept[each]
        self._answer()

    def transactions(self, identity: str, topic: str) -> FakeTransactions:
        self._request()
        epochs = self._kafka.epochs
        epochs[identity] = epochs.get(identity, 0) + 1
        self._answer()
        return FakeTransactions(self._kafka, identity, epochs[identity])

    def close(self) -> None: ...

    def _request(self, late: Callable[[], None] | None = None) -> None:
        """May get lost on its way, or arrive when its client has given up."""
        kafka = self._kafka
        kafka.point()
        if kafka.fails():
            if late is not None and kafka.rng.random() < 0.5:
                kafka.late.append(late)
            raise SinkUnavailable("the request is lost")

    def _answer(self) -> None:
        """May get lost on its way."""
        if self._kafka.fails():
            raise SinkUnavailable("the answer is lost")


@dataclass
class FakeTransactions:
    """See `clonos.sinks.kafka_client.Transactions`."""

    kafka: FakeKafka
    identity: str
    epoch: int
    aborted: int = 0

    def commit(self, messages: Sequence[Message], topic: str, partition: int, entry: Sequence[bytes]) -> None:
        kafka = self.kafka
        kafka.point()
        done = False

        def arrives() -> None:
            nonlocal done
            if not done and kafka.epochs[self.identity] == self.epoch:
                done = True
                kafka.on_commit(entry[0])
                kafka.rows += messages
                for part in entry:
                    kafka.put(topic, partition, part)
                kafka.skip(topic, partition)

        if kafka.fails():
            if kafka.rng.random() < 0.5:
                kafka.late.append(arrives)
            raise SinkUnavailable("the commit is lost")
        arrives()
        if not done:
            raise SinkUnavailable("this producer is fenced")
        if kafka.fails():
            raise SinkUnavailable("the answer to the commit is lost")

    def close(self) -> None: ...
