"""Writers, zombies and drivers of a Kafka sink in drawn orders, over a cluster that loses answers and delays requests.

The real writer, side topic and sink run; only the cluster is imitated.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from fake_kafka import FakeKafka, Turns

from clonos.errors import ClonosError, Fenced
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Epoch, InstanceId, NodeId, Origin, channel_id
from clonos.protocol.roles.fence_log import FenceLog, Raising
from clonos.sinks import kafka_side_topic, kafka_writer
from clonos.sinks.kafka_client import Cluster
from clonos.sinks.kafka_format import EntryReader, Standing
from clonos.sinks.kafka_rows import KafkaRows
from clonos.sinks.kafka_sink import KafkaSink
from clonos.sinks.kafka_writer import KafkaWriter
from clonos.sinks.patience import Patience
from clonos.testing.conformance.sinks import SCHEMA

QUERY, NODE, INSTANCE = "q", NodeId(5), InstanceId(0)
CHANNEL = channel_id(3, 0)
BUNDLES = 8
SEEDS = range(150)


@pytest.fixture(autouse=True)
def condensed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_side_topic, "CONDENSED_FROM", 6)


class PatientSink(KafkaSink):
    """Over the imitated cluster; tries again without waiting."""

    def __init__(self, kafka: FakeKafka) -> None:
        super().__init__("fake:1", topic="out", key="card")
        self.validate(SCHEMA)
        self._kafka = kafka

    def cluster(self) -> Cluster:
        return self._kafka.client()

    def writer(self) -> KafkaWriter:
        rows = KafkaRows(self._layout, SCHEMA)
        return KafkaWriter("out", rows, self.cluster, prefix="clonos-", patience=forbearing())

    def _patiently(self, work: Callable[[Cluster], Any]) -> Any:
        return forbearing().run(lambda _: work(self.cluster()))


def forbearing() -> Patience:
    return Patience(1.0, clock=lambda: 0.0, sleep=lambda _: None)


@dataclass
class World:
    """One run: starts of the query, each with attempts of the sink instance, of which some are left as zombies."""

    rng: random.Random
    fault_rate: float
    kafka: FakeKafka = field(init=False)
    raised: Fence = LOWEST_FENCE  # what every driver's `raise_fence` that has returned has raised
    late_fences: list[Fence] = field(default_factory=list)  # committed below that: a promise that was broken
    finished: int = 0

    def __post_init__(self) -> None:
        self.kafka = FakeKafka(self.rng, self.fault_rate, Turns(self.rng), on_commit=self.committed)

    def committed(self, first_part: bytes) -> None:
        found = EntryReader("a test").take(0, first_part)
        assert found is not None
        if found[1].fence < self.raised:
            self.late_fences.append(found[1].fence)

    def write(self, fence: Fence) -> None:
        """An attempt: goes on from where the sink says that it stands."""
        writer = PatientSink(self.kafka).writer()
        try:
            cursors = writer.open(query=QUERY, node=NODE, instance=INSTANCE, fence=fence).cursors
            at = cursors.get(CHANNEL, 0)
            for _ in range(BUNDLES):
                last = at + self.rng.randint(1, 3)
                writer.write(
                    [(f"by {fence:x}", number) for number in range(at + 1, last + 1)],
                    [f"3-0-{number}" for number in range(at + 1, last + 1)],
                    {CHANNEL: last},
                    [f"{at + 1}..{last} by {fence:x}".encode()],
                )
                at = last
            self.finished += 1
        except Fenced:
            pass

    def drive(self, generation: int) -> None:
        """A start of the query: fences the others, reads the log, lets go of some, and says that it has committed."""
        sink, fence = PatientSink(self.kafka), Fence.of(generation)
        try:
            sink.raise_fence(QUERY, fence)
            self.raised = max(self.raised, fence)
            self.read(sink)
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

    def run(self) -> None:
        generations = range(1, self.rng.randint(2, 4))
        works: list[Callable[[], None]] = []
        for generation in generations:
            works.append(lambda generation=generation: self.drive(generation))
            for attempt in range(1, self.rng.randint(2, 4)):
                fence = Fence.of(generation, attempt)
                works.append(lambda fence=fence: self.write(fence))
        self.rng.shuffle(works)
        self.kafka.turns.run(*works)
        self.kafka.fault_rate = 0.0
        last = Fence.of(9)
        PatientSink(self.kafka).raise_fence(QUERY, last)
        self.raised = last
        for late in self.kafka.late:
            late()
        self.write(Fence.of(9, 1))

    def check(self) -> None:
        assert not self.late_fences, "a writer committed after its fence had been overtaken"
        ids = [row.row for row in self.kafka.rows]
        assert ids == [f"3-0-{number}" for number in range(1, len(ids) + 1)], (
            "rows repeat, lack or are out of order"
        )
        sink = PatientSink(self.kafka)
        assert sink.log_reader(QUERY).cursors() == {Origin(NODE, INSTANCE): {CHANNEL: len(ids)}}
        deltas = [delta.decode().partition(" by ") for delta in self.read(sink)]
        begin = int(deltas[0][0].partition("..")[0])
        by = {number: row.value for number, row in enumerate(self.kafka.rows, 1)}
        for places, _, fence in deltas:
            first, last = map(int, places.split(".."))
            assert first == begin, "the determinants are not those of the rows, in their order"
            for number in range(first, last + 1):
                assert f'"by {fence}"'.encode() in (by[number] or b""), (
                    "a row of another writer than its determinants"
                )
            begin = last + 1
        assert begin == len(ids) + 1
        assert self.finished >= 1


def run(seed: int) -> World:
    rng = random.Random(seed)
    world = World(rng, rng.choice([0.0, 0.03, 0.08]))
    world.run()
    world.check()
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_is_visible_once_with_the_determinants_of_its_writer(seed: int) -> None:
    run(seed)


def the_holder_is_not_looked_up_after_beginning(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kafka_writer, "check_holding", lambda *_, **__: None)


def a_commit_in_doubt_is_taken_for_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KafkaWriter, "_took_effect", lambda self, standing, after: False)


def a_refused_offer_is_taken_for_accepted(patch: pytest.MonkeyPatch) -> None:
    def read(self: Any, mine: int | None) -> Any:
        return before(self, None)

    before = kafka_side_topic.SideTopic._read
    patch.setattr(kafka_side_topic.SideTopic, "_read", read)
    patch.setattr(kafka_writer, "check_holding", lambda *_, **__: None)


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


def what_stands_is_taken_for_what_stood_where_it_lies(patch: pytest.MonkeyPatch) -> None:
    """As if nothing could come between reading it and writing it."""
    before = kafka_side_topic.SideTopic._beginning

    def beginning(self: Any, offers: Any, first: int, upto: int) -> Any:
        moved = [(at, Standing(at, one.state) if isinstance(one, Standing) else one) for at, one in offers]
        return before(self, moved, first, upto)

    patch.setattr(kafka_side_topic.SideTopic, "_beginning", beginning)


@pytest.mark.parametrize(
    "plant",
    [
        the_holder_is_not_looked_up_after_beginning,
        a_commit_in_doubt_is_taken_for_lost,
        a_refused_offer_is_taken_for_accepted,
        raising_a_fence_does_not_end_what_is_under_way,
        raising_a_fence_passes_over_whom_a_later_start_has_overtaken,
        what_stands_is_taken_for_what_stood_where_it_lies,
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ClonosError)):
        for seed in range(2000):
            run(seed)
