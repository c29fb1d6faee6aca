"""From topic to topic in Real-Time Mode: the time from a record's sending to the sight of its output.

A producer sends records at a steady rate over two partitions, each with the time in it; one keyed operator with state
and a random draw handles them; a consumer compares its clock: of committed messages where the sink's mode is
transactions, of all where it writes at once. Beside them, in turn at each rate and with the same consumer: stock
Spark, a projection, no state, no function, output as its sink gives it, at least once; and Kafka Streams with the
same operator, exactly once, in Java, with a commit every 100 ms, which is its own choice, and every 10 ms. Samples
around the ends of Spark's batches are left out of the first columns. The broker is a real one, fetched once, with one
replica, on the same machine. Before all that each side runs once, unmeasured, until JVMs have compiled what they run.

    python benchmarks/kafka_latency.py [--rates 100,1000,10000] [--seconds 24]
    python benchmarks/kafka_latency.py --sink      how long the sink takes in both modes, without Spark
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from latency import BATCH_SECONDS, WARM_UP, away_from_commits

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))

from confluent_kafka import Consumer, TopicPartition
from kafka_broker import KafkaBroker, kafka_broker

import clonos
from clonos.connector_jars import resolve
from clonos.environment import jar_path, java_home
from clonos.protocol.fence import Fence
from clonos.protocol.ids import InstanceId, NodeId, channel_id

SLOT = 0.005
BUNDLES = 150
WARM_UP_RATE, WARM_UP_BUNDLES = 300, 2000
BROKER = ("-Xms256m", "-Xmx1g")
MODES = ("transactions", "at_once")
STREAMS = {"streams-100": 100, "streams-10": 10}
SIDES = (*MODES, "stock", *STREAMS)
STREAMS_JOB = Path(__file__).resolve().parent / "peers_kit" / "KafkaStreamsJob.java"
STREAMS_JARS = "org.apache.kafka:kafka-streams:4.1.0"


def decide(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["n"] = seen = ctx.state.get("n", 0) + 1
    yield key[0], row.sent, seen, ctx.random.random()


class Feeder(threading.Thread):
    """Sends at a steady rate until told to stop."""

    def __init__(self, broker: KafkaBroker, topic: str, rate: int) -> None:
        super().__init__(daemon=True)
        self._producer, self._topic, self._rate = broker.producer(), topic, rate
        self.done = threading.Event()
        self.sent = 0

    def run(self) -> None:
        start = time.monotonic()
        while not self.done.wait(SLOT):
            due = int((time.monotonic() - start) * self._rate)
            for number in range(self.sent, due):
                self._producer.produce(
                    self._topic, b"%d" % int(time.time() * 1e6), b"k%d" % (number % 100), partition=number % 2
                )
            self._producer.poll(0)
            self.sent = max(self.sent, due)
        self._producer.flush(60)


def query(spark: Any, broker: KafkaBroker, side: str, topics: tuple[str, str], checkpoint: Path) -> Any:
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.servers)
    read = source.option("subscribe", topics[0]).option("startingOffsets", "earliest").load()
    trigger = {"realTime": f"{BATCH_SECONDS} seconds"}
    if side == "stock":
        writer = read.select("key", "value").writeStream.format("kafka").outputMode("update")
        writer = writer.option("kafka.bootstrap.servers", broker.servers).option("topic", topics[1])
        return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()
    cards = clonos.causal(read.selectExpr("string(key) AS card", "bigint(string(value)) AS sent"))
    decided = cards.groupBy("card").process(
        decide, "card string, sent bigint, n int, drawn double", name="decide", parallelism=1
    )
    sink = clonos.sinks.kafka(
        broker.servers,
        topic=topics[1],
        key="card",
        headers={"sent": "sent"},
        mode=side,
    )
    writer = decided.writeStream.to(sink, parallelism=1).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start()


class Streams:
    """The job of Kafka Streams, as a process of its own."""

    def __init__(self, broker: KafkaBroker, side: str, topics: tuple[str, str], folder: Path) -> None:
        java, cache = java_home() / "bin" / "java", STREAMS_JOB.parents[2] / ".build" / "kafka-streams"
        jars = resolve(java, jar_path(), cache, [STREAMS_JARS], dependencies=True)
        command = [
            str(java),
            "-Xmx1g",
            "-cp",
            ":".join(map(str, jars)),
            str(STREAMS_JOB),
            broker.servers,
            *topics,
        ]
        command += [str(folder), str(STREAMS[side])]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        """It is killed: what it has not committed is not looked at."""
        self._process.kill()
        self._process.wait()


def reader(broker: KafkaBroker, topic: str, level: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.servers,
            "group.id": uuid.uuid4().hex,
            "isolation.level": level,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in (0, 1)])
    return consumer


def follow(consumer: Consumer, seconds: float) -> list[tuple[float, float]]:
    """(moment in s, latency in ms) of all that comes in so many seconds."""
    samples, end = [], time.time() + seconds
    while (now := time.time()) < end:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            now = time.time()
            sent = dict(message.headers() or []).get("sent") or message.value()
            samples.append((now, now * 1000 - int(sent) / 1000))
    consumer.close()
    return samples


def run_side(spark: Any, broker: KafkaBroker, side: str, rate: int, seconds: float, base: str) -> str:
    topics = broker.topic(), broker.topic()
    checkpoint = Path(base, uuid.uuid4().hex)
    feeder = Feeder(broker, topics[0], rate)
    job = Streams if side in STREAMS else partial(query, spark)
    running = job(broker, side, topics, checkpoint)
    try:
        feeder.start()
        started = time.time()
        level = "read_committed" if side == "transactions" or side in STREAMS else "read_uncommitted"
        samples = follow(reader(broker, topics[1], level), seconds + WARM_UP)
        is_quiet = (lambda _: True) if side in STREAMS else away_from_commits(checkpoint)
    finally:
        feeder.done.set()
        feeder.join()
        running.stop()
    steady = [sample for sample in samples if sample[0] > started + WARM_UP]
    quiet = [latency for at, latency in steady if is_quiet(at)]
    if len(quiet) < 100:
        return f"{rate:>8} {side:>12}  too few rows became visible ({len(samples)} of {feeder.sent})"
    pace = "" if len(samples) > 0.95 * feeder.sent - rate else "   does not keep pace"
    return f"{rate:>8} {side:>12} {quantiles(quiet)} {quantiles([each[1] for each in steady])} {len(quiet):>9}{pace}"


def quantiles(values: list[float]) -> str:
    ordered = sorted(values)
    return " ".join(
        f"{ordered[min(int(q * len(ordered)), len(ordered) - 1)]:>9.1f}" for q in (0.5, 0.95, 0.99)
    )


class Bundles:
    """A writer of the sink, and a reader that waits for what it writes."""

    def __init__(self, broker: KafkaBroker, mode: str) -> None:
        self.mode, topic = mode, broker.topic()
        sink = clonos.sinks.kafka(broker.servers, topic=topic, key="card", mode=mode)
        sink.validate(pa.schema([("card", pa.string()), ("n", pa.int64())]))
        self._writer, self._last = sink.writer(), 0
        self._writer.open(query=topic, node=NodeId(3), instance=InstanceId(0), fence=Fence.of(1))
        level = "read_committed" if mode == "transactions" else "read_uncommitted"
        self._consumer = reader(broker, topic, level)
        self._consumer.poll(0.1)

    def write(self, size: int) -> tuple[float, float]:
        """Seconds until the last row was seen, and until the next bundle could begin."""
        numbers = range(self._last + 1, self._last + size + 1)
        self._last += size
        rows = [(f"card{number % 7}", number) for number in numbers]
        ids = [f"2-0-{number}" for number in numbers]
        seen: list[float] = []

        def see() -> None:
            left = size
            while left:
                left -= len([each for each in self._consumer.consume(left, 1.0) if each.error() is None])
            seen.append(time.perf_counter())

        waiting = threading.Thread(target=see)
        waiting.start()
        begin = time.perf_counter()
        self._writer.write(rows, ids, {channel_id(2, 0): self._last}, [b"x" * 100])
        done = time.perf_counter()
        waiting.join()
        return seen[0] - begin, done - begin

    def close(self) -> None:
        self._writer.close()
        self._consumer.close()


def bundles(broker: KafkaBroker) -> Iterator[str]:
    """How long the sink takes for a bundle, the modes in turns."""
    both = [Bundles(broker, mode) for mode in MODES]
    for each in both * WARM_UP_BUNDLES:
        each.write(10)
    for size in (1, 10, 100, 1000):
        took: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
        for _ in range(BUNDLES):
            for each in both:
                took[each.mode].append(each.write(size))
        for mode in MODES:
            steady = took[mode][BUNDLES // 3 :]
            seen = quantiles([each[0] * 1000 for each in steady])
            done = quantiles([each[1] * 1000 for each in steady])
            rate = size * len(steady) / sum(each[1] for each in steady)
            yield f"{size:>8} {mode:>12} {seen} {done} {rate:>12,.0f}"
    for each in both:
        each.close()


def main() -> None:
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", default="100,1000,10000")
    parser.add_argument("--seconds", type=float, default=24)
    parser.add_argument("--sink", action="store_true")
    options = parser.parse_args()
    if options.sink:
        print(
            "    rows         mode  seen: p50       p95       p99 ms  done: p50   p95       p99 ms       rows/s"
        )
        with kafka_broker(jvm=BROKER) as broker:
            for line in bundles(broker):
                print(line, flush=True)
        return
    builder = clonos.configure(SparkSession.builder, kafka=True).master("local[8]")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    print("    rate         side   p50 ms    p95 ms    p99 ms   with batch ends, the same         rows")
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as base, kafka_broker(jvm=BROKER) as broker:
        for side in SIDES:
            run_side(spark, broker, side, WARM_UP_RATE, options.seconds, base)
        for rate in map(int, options.rates.split(",")):
            for side in SIDES:
                print(run_side(spark, broker, side, rate, options.seconds, base), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
