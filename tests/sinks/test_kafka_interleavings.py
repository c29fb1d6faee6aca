"""Writers, zombies and drivers of a Kafka sink in drawn orders, over a cluster that loses answers and delays requests.

The real writer, side topic and sink run, in both modes; only the cluster is imitated.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fake_kafka import FakeKafka, Turns

from clonos.errors import ClonosError, Fenced
from clonos.kafka.repetitions import Repetitions
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Epoch, InstanceId, NodeId, Origin, channel_id
from clonos.protocol.roles.append_order import AppendOrder
from clonos.protocol.roles.fence_log import FenceLog, Raising
from clonos.sinks import kafka_delivery, kafka_side_topic
from clonos.sinks.kafka_at_once import AtOnce
from clonos.sinks.kafka_format import Entry, EntryReader, Standing
from clonos.sinks.kafka_port import Cluster, Message
from clonos.sinks.kafka_rows import KafkaRows
from clonos.sinks.kafka_sink import KafkaSink, Mode
from clonos.sinks.kafka_writer import KafkaWriter
from clonos.sinks.patience import Patience
from clonos.testing.conformance.sinks import SCHEMA

QUERY, NODE, INSTANCE = "q", NodeId(5), InstanceId(0)
CHANNEL = channel_id(3, 0)
BUNDLES = 8
SEEDS = range(150)
MODES: tuple[Mode, ...] = ("transactions", "at_once")
Known = tuple[int, int, str]
"""The output numbers that a delta is of, from and to, and who wrote it."""


@pytest.fixture(autouse=True)
def condensed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_side_topic, "CONDENSED_FROM", 6)


class PatientSink(KafkaSink):
    """Over the imitated cluster; tries again without waiting."""

    def __init__(self, kafka: FakeKafka, mode: Mode) -> None:
        super().__init__("fake:1", topic="out", mode=mode)
        self.validate(SCHEMA)
        self._kafka = kafka

    def cluster(self) -> Cluster:
        return self._kafka.client()

    def writer(self) -> KafkaWriter:
        return self.writing(KafkaRows(self._layout, SCHEMA), forbearing())

    def _patiently(self, work: Callable[[Cluster], Any]) -> Any:
        return forbearing().run(lambda _: work(self.cluster()))


def forbearing() -> Patience:
    return Patience(1.0, clock=lambda: 0.0, sleep=lambda _: None)


@dataclass
class World:
    """One run: starts of the query, each with attempts of the sink instance, of which some are left as zombies."""

    rng: random.Random
    mode: Mode
    fault_rate: float
    kafka: FakeKafka = field(init=False)
    raised: Fence = LOWEST_FENCE  # what every driver's `raise_fence` that has returned has raised
    late_fences: list[Fence] = field(default_factory=list)  # committed below that: a promise that was broken
    finished: int = 0
    readings: list[tuple[Fence, dict[int, Known]]] = field(default_factory=list)
    """What drivers found known to the sink when they had raised their fences."""

    def __post_init__(self) -> None:
        self.kafka = FakeKafka(self.rng, self.fault_rate, Turns(self.rng), on_commit=self.committed)

    def committed(self, first_part: bytes) -> None:
        found = EntryReader("a test").take(0, first_part)
        assert found is not None
        if found[1].fence < self.raised:
            self.late_fences.append(found[1].fence)

    def sink(self) -> PatientSink:
        return PatientSink(self.kafka, self.mode)

    def write(self, fence: Fence) -> None:
        """An attempt: goes on from where the sink says that it stands. What the sink knows beyond that is made again as
        it was; the rest is this attempt's own."""
        sink = self.sink()
        writer = sink.writer()
        try:
            cursors = writer.open(query=QUERY, node=NODE, instance=INSTANCE, fence=fence).cursors
            at = cursors.get(CHANNEL, 0)
            known = self.known(sink)
            for _ in range(BUNDLES):
                first, last, by = known.get(at + 1, (at + 1, at + self.rng.randint(1, 3), f"{fence:x}"))
                writer.write(
                    [(f"by {by}", number) for number in range(at + 1, last + 1)],
                    [f"3-0-{number}" for number in range(at + 1, last + 1)],
                    {CHANNEL: last},
                    [f"{first}..{last} by {by}".encode()],
                )
                at = last
            self.finished += 1
        except Fenced:
            pass

    def drive(self, generation: int) -> None:
        """A start of the query: fences the others, reads the log, lets go of some, and says that it has committed."""
        sink, fence = self.sink(), Fence.of(generation)
        try:
            sink.raise_fence(QUERY, fence)
            self.raised = max(self.raised, fence)
            self.readings.append((fence, self.known(sink)))
            sink.record_commit(QUERY, fence, Epoch(generation), b"record")
            chosen = self.rng.random()
            sink.truncate(QUERY, fence, lambda delta: zlib.crc32(delta) % 97 / 97 > chosen)
        except Fenced:
            pass

    @staticmethod
    def read(sink: KafkaSink) -> list[bytes]:
        def once(_: int) -> list[bytes]:
            return list(sink.log_reader(QUERY).deltas())

        return forbearing().run(once)

    def known(self, sink: KafkaSink) -> dict[int, Known]:
        """The determinants that the sink has, by each output number that they are of."""
        found: dict[int, Known] = {}
        for delta in self.read(sink):
            places, _, by = delta.decode().partition(" by ")
            first, last = map(int, places.split(".."))
            for number in range(first, last + 1):
                assert found.setdefault(number, (first, last, by)) == (first, last, by), (
                    "a log of two histories"
                )
        return found

    def run(self) -> None:
        generations = range(1, self.rng.randint(2, 4))
        works: list[Callable[[], None]] = []
        for generation in generations:
            works.append(lambda generation=generation: self.drive(generation))
            for attempt in range(1, self.rng.randint(2, 4)):
                fence = Fence.of(generation, attempt)
                works.append(lambda fence=fence: self.write(fence))
        if self.kafka.row_partitions > 1:
            works.append(self.grow)
        self.rng.shuffle(works)
        self.kafka.turns.run(*works)
        self.kafka.fault_rate = 0.0
        last = Fence.of(9)
        self.sink().raise_fence(QUERY, last)
        self.raised = last
        for late in self.kafka.late:
            late()
        self.write(Fence.of(9, 1))

    def grow(self) -> None:
        """The user's topic gets more partitions."""
        for _ in range(self.rng.randint(0, 60)):
            self.kafka.point()
        self.kafka.row_partitions += 1

    def check(self) -> None:
        assert not self.late_fences, "a writer committed after its fence had been overtaken"
        came: dict[int | None, Repetitions] = {}
        seen = [
            row for row in self.kafka.rows if came.setdefault(row.partition, Repetitions()).takes(id_of(row))
        ]
        numbers = [int(row.row.rpartition("-")[2]) for row in seen]
        if self.kafka.row_partitions == 1 or self.mode == "transactions":
            assert numbers == list(range(1, len(numbers) + 1)), "rows repeat, lack or are out of order"
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), "rows repeat or lack"
        sink = self.sink()
        assert sink.log_reader(QUERY).cursors() == {Origin(NODE, INSTANCE): {CHANNEL: len(numbers)}}
        known = self.known(sink)
        for row in self.kafka.rows:  # repetitions, too
            number = int(row.row.rpartition("-")[2])
            by = json.loads(row.value or b"")["card"]
            assert number not in known or by == f"by {known[number][2]}", "a row of other determinants"
            for fence, found in self.readings:
                late = number >= min(found, default=0) and number not in found
                assert not (late and int(by.split()[1], 16) < fence), (
                    "a row that the start before did not know of"
                )
        kept = sorted(known)
        assert kept == list(range(kept[0], len(numbers) + 1)), "the determinants are not those of the rows"
        if self.mode == "transactions":
            assert len(self.read(sink)) == len(set(self.read(sink))), "determinants repeat"
        assert self.finished >= 1


def id_of(row: Message) -> str:
    [(_, content)] = row.headers
    return (content or b"").decode()


def run(seed: int, mode: Mode) -> World:
    rng = random.Random(seed)
    world = World(rng, mode, rng.choice([0.0, 0.03, 0.08]))
    world.kafka.row_partitions = rng.choice([1, 3]) if mode == "at_once" else 1
    world.run()
    world.check()
    return world


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_is_visible_once_with_the_determinants_of_its_writer(seed: int, mode: Mode) -> None:
    run(seed, mode)


def the_holder_is_not_looked_up_after_beginning(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kafka_delivery, "check_holding", lambda *_, **__: None)


def a_commit_in_doubt_is_taken_for_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KafkaWriter, "_took_effect", lambda self, standing, after: False)


def a_refused_offer_is_taken_for_accepted(patch: pytest.MonkeyPatch) -> None:
    def read(self: Any, mine: int | None) -> Any:
        return before(self, None)

    before = kafka_side_topic.SideTopic._read
    patch.setattr(kafka_side_topic.SideTopic, "_read", read)
    patch.setattr(kafka_delivery, "check_holding", lambda *_, **__: None)


def raising_a_fence_ends(
    overtaken: Callable[[FenceLog, Fence], list[Origin]], patch: pytest.MonkeyPatch
) -> None:
    """In place of the sink's: no more than what these instances have under way."""

    def raise_fence(self: KafkaSink, query: str, fence: Fence) -> None:
        def work(cluster: Cluster) -> None:
            side = self._side(cluster, query)
            side.create()
            for origin in overtaken(side.offer(Raising(fence)), fence):
                cluster.transactions(side.transactional_id(origin), side.name)

        self._patiently(work)

    patch.setattr(KafkaSink, "raise_fence", raise_fence)


def raising_a_fence_does_not_end_what_is_under_way(patch: pytest.MonkeyPatch) -> None:
    raising_a_fence_ends(lambda state, fence: [], patch)


def raising_a_fence_passes_over_whom_a_later_start_has_overtaken(patch: pytest.MonkeyPatch) -> None:
    raising_a_fence_ends(
        lambda state, fence: [each for each in state.partitions if state.holder(each).fence <= fence], patch
    )


def raising_a_fence_leaves_no_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KafkaSink, "_overtake", lambda *_: None)


def what_came_between_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kafka_side_topic.SideTopic, "follow", lambda *_: None)


def late_messages_of_a_writer_count(patch: pytest.MonkeyPatch) -> None:
    def counts(self: AppendOrder, fence: Fence, number: int) -> bool:
        self.number = number
        return before(self, fence, self.number + 1)

    before = AppendOrder.counts
    patch.setattr(AppendOrder, "counts", counts)


def rows_are_sent_before_their_determinants(patch: pytest.MonkeyPatch) -> None:
    def deliver(self: AtOnce, messages: Any, *others: Any) -> None:
        self._held.cluster.send([replace(each, partition=0) for each in messages])
        before(self, messages, *others)

    before = AtOnce.deliver
    patch.setattr(AtOnce, "deliver", deliver)


def cursors_are_written_before_the_rows(patch: pytest.MonkeyPatch) -> None:
    def append(self: AtOnce, entry: Entry) -> None:
        before(
            self,
            entry
            if entry.intent is None
            else replace(entry, cursors={**entry.cursors, **entry.intent.cursors}),
        )

    before = AtOnce._append
    patch.setattr(AtOnce, "_append", append)


def rows_in_doubt_go_by_the_partitions_of_now(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kafka_side_topic.Doubt, "add", lambda *_: None)


def a_send_leaves_gaps(patch: pytest.MonkeyPatch) -> None:
    def run_with_gaps(self: World) -> None:
        self.kafka.gaps = True
        before(self)

    before = World.run
    patch.setattr(World, "run", run_with_gaps)


def what_stands_is_taken_for_what_stood_where_it_lies(patch: pytest.MonkeyPatch) -> None:
    """As if nothing could come between reading it and writing it."""
    before = kafka_side_topic.SideTopic._beginning

    def beginning(self: Any, offers: Any, first: int, upto: int) -> Any:
        moved = [(at, Standing(at, one.state) if isinstance(one, Standing) else one) for at, one in offers]
        return before(self, moved, first, upto)

    patch.setattr(kafka_side_topic.SideTopic, "_beginning", beginning)


@pytest.mark.parametrize(
    ("plant", "mode"),
    [
        (the_holder_is_not_looked_up_after_beginning, "transactions"),
        (a_commit_in_doubt_is_taken_for_lost, "transactions"),
        (a_refused_offer_is_taken_for_accepted, "transactions"),
        (raising_a_fence_does_not_end_what_is_under_way, "transactions"),
        (raising_a_fence_passes_over_whom_a_later_start_has_overtaken, "transactions"),
        (what_stands_is_taken_for_what_stood_where_it_lies, "transactions"),
        (a_commit_in_doubt_is_taken_for_lost, "at_once"),
        (raising_a_fence_leaves_no_mark, "at_once"),
        (what_came_between_is_not_looked_at, "at_once"),
        # Half a minute: few orders show it.
        pytest.param(late_messages_of_a_writer_count, "at_once", marks=pytest.mark.soak),
        (rows_are_sent_before_their_determinants, "at_once"),
        (cursors_are_written_before_the_rows, "at_once"),
        (rows_in_doubt_go_by_the_partitions_of_now, "at_once"),
        (a_send_leaves_gaps, "at_once"),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ClonosError)):
        for seed in range(2000):
            run(seed, mode)


class Died(Exception):
    """A writer's process has."""


def test_rows_in_doubt_are_remembered_when_the_log_is_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one channel, while another one goes on; the topic has grown meanwhile."""
    kafka = FakeKafka(random.Random(1), 0.0, Turns(random.Random(1)))
    kafka.row_partitions = 2
    other = channel_id(4, 0)

    def opened(attempt: int) -> KafkaWriter:
        writer = PatientSink(kafka, "at_once").writer()
        writer.open(query=QUERY, node=NODE, instance=INSTANCE, fence=Fence.of(1, attempt))
        return writer

    def write(writer: KafkaWriter, node: int, channel: int, delta: bytes) -> None:
        ids = [f"{node}-0-{number}" for number in range(1, 11)]
        writer.write([("card", number) for number in range(1, 11)], ids, {channel: 10}, [delta])

    def dies(self: AtOnce, entry: Entry) -> None:
        if entry.intent is None:
            raise Died
        before(self, entry)

    before = AtOnce._append
    with monkeypatch.context() as patch:
        patch.setattr(AtOnce, "_append", dies)
        with pytest.raises(Died):
            write(opened(1), 3, CHANNEL, b"first")
    kafka.row_partitions = 5
    write(opened(2), 4, other, b"second")
    sink = PatientSink(kafka, "at_once")
    assert sink.truncate(QUERY, Fence.of(1), lambda delta: delta == b"second") == 1
    assert sink.log_reader(QUERY).reached() == {Origin(NODE, INSTANCE): {CHANNEL: 10, other: 10}}
    write(opened(3), 3, CHANNEL, b"first")
    came: dict[int | None, Repetitions] = {}
    shown = [row.row for row in kafka.rows if came.setdefault(row.partition, Repetitions()).takes(id_of(row))]
    assert len(kafka.rows) == 30
    assert len(shown) == len(set(shown)) == 20
