"""A private Kafka broker for tests: own folder, own ports, gone afterwards. The real one, fetched once per tree."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from free_port import free_port
from maven_jars import fetched_once
from private_server import running

from clonos.connector_jars import FetchFailure, resolve
from clonos.environment import find_java, jar_path, spark_jars
from clonos.kafka.repetitions import Repetitions
from clonos.sinks.kafka_ids import ID_HEADER

COORDINATES = "org.apache.kafka:kafka_2.13:4.1.0"
_FOLDER = Path(__file__).resolve().parents[2] / ".build" / "kafka-broker"
_SMALL = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_PATIENCE_S = 240.0
_SOON_AGAIN = {"reconnect.backoff.max.ms": 200}
"""Else a client waits longer after each attempt, up to ten seconds, and a broker has started before."""


def broker_jars() -> list[str]:
    """The classpath of the broker. Raises FetchFailure."""

    def fetch(java: Path) -> list[Path]:
        found = resolve(java, jar_path(), _FOLDER / "ivy", [COORDINATES], dependencies=True)
        return [
            *found,
            *Path(str(spark_jars())).glob("scala-library-*.jar"),
        ]  # what Spark has, it does not fetch

    return fetched_once(_FOLDER, fetch)


def why_not() -> str | None:
    """Why no broker can be started here, or None."""
    try:
        broker_jars()
    except FetchFailure as failure:
        return f"the broker cannot be fetched: {failure}"
    return None


class KafkaBroker:
    """One broker that can be killed and started again over the same data and port. `protocol`: of its listener for
    clients; `client`: with which settings the tests reach it then; `jvm`: options of its JVM."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        protocol: str = "PLAINTEXT",
        client: Mapping[str, str] | None = None,
        jvm: Sequence[str] = _SMALL,
    ) -> None:
        self._folder, self._jvm = folder, jvm
        self.client = {"log_level": 0, **(client or {})}
        self._port, self._controller = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = folder / "server.properties"
        given = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"{protocol}://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"{protocol}://127.0.0.1:{self._port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": protocol,
            "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
            "log.dirs": str(folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "3",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "4194304",
            "log.retention.check.interval.ms": "1000",
            "log.initial.task.delay.ms": "1000",
            **(settings or {}),
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        identity = subprocess.list2cmdline([uuid.uuid4().hex[:22]])
        identity = base64.urlsafe_b64encode(b"clonos-test-0000").decode().rstrip("=")
        self._run("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(self._properties))

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it answers."""
        with open(self._folder / "broker.log", "ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._properties)), stdout=log, stderr=log, cwd=self._folder
            )
        deadline = time.monotonic() + _PATIENCE_S
        admin = AdminClient({"bootstrap.servers": self.servers, **self.client, **_SOON_AGAIN})
        while True:
            try:
                admin.list_topics(timeout=5)
                return
            except Exception as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    text = (self._folder / "broker.log").read_text(errors="replace")[-4000:]
                    raise RuntimeError(f"the broker does not answer: {error}\n{text}") from error

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self.kill()

    # -- what tests do with it

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, **self.client})

    def topic(self, name: str | None = None, partitions: int = 2, **settings: str) -> str:
        """A new one, there when this returns."""
        made = name or f"t{uuid.uuid4().hex[:12]}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin = self.admin()  # kept until it has answered
        admin.create_topics([NewTopic(made, partitions, 1, config=config)])[made].result(timeout=60)
        self._await(lambda: made in admin.list_topics(timeout=60).topics, f"{made} is not told of")
        return made

    def _await(self, reached: Callable[[], bool], otherwise: str) -> None:
        """What a broker has answered it tells of only a little later."""
        deadline = time.monotonic() + _PATIENCE_S
        while not reached():
            if time.monotonic() > deadline:
                raise TimeoutError(otherwise)

    def grow(self, topic: str, partitions: int) -> None:
        """To so many partitions."""
        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(timeout=60)

        def has_grown() -> bool:
            return len(admin.list_topics(timeout=60).topics[topic].partitions) == partitions

        self._await(has_grown, f"{topic} does not grow")

    def configure(self, topic: str, **settings: str) -> None:
        """Settings of a topic, as of `topic`."""
        admin = self.admin()
        changes = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes)
        admin.incremental_alter_configs([resource])[resource].result(timeout=60)

    def producer(self, **settings: Any) -> Producer:
        """Idempotent: without, what a slow broker is sent again may come behind what was sent later."""
        own = {"bootstrap.servers": self.servers, "linger.ms": 0, "enable.idempotence": True}
        return Producer({**own, **self.client, **settings})

    def read(self, topic: str, *, committed: bool = True) -> list[Any]:
        """All that a reader sees when no transaction is under way any more, a partition after the other."""
        self._await_ends(topic)
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **self.client,
            }
        )
        try:
            partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
            consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
            found, left = [], set(partitions)
            while left:
                message = consumer.poll(60)
                if message is None:
                    raise TimeoutError(f"no answer on {topic}")
                if message.error() is None:
                    found.append(message)
                elif message.error().name() == "_PARTITION_EOF":
                    left.discard(message.partition())
                else:
                    raise RuntimeError(str(message.error()))
            return sorted(found, key=lambda one: (one.partition(), one.offset()))
        finally:
            consumer.close()

    def _await_ends(self, topic: str) -> None:
        admin = self.admin()
        partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            asked = {TopicPartition(topic, each): OffsetSpec.latest() for each in partitions}
            ends = [
                {at.partition: future.result(60).offset for at, future in answers.items()}
                for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
                for answers in [admin.list_offsets(asked, isolation_level=level)]
            ]
            if ends[0] == ends[1]:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"a transaction stays open on {topic}")

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(self._command(*arguments), capture_output=True, text=True, timeout=_PATIENCE_S)
        if done.returncode:
            raise RuntimeError(f"{arguments[0]} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")

    def _command(self, *arguments: str) -> list[str]:
        return [str(find_java("java")), *self._jvm, "-cp", os.pathsep.join(broker_jars()), *arguments]


def shown_once(messages: list[Any]) -> list[Any]:
    """What a reader of ids sees of `KafkaBroker.read`; what came again must be the same."""
    came: dict[int, Repetitions] = {}
    contents: dict[str, Any] = {}
    found = []
    for message in messages:
        message_id = dict(message.headers())[ID_HEADER].decode()
        content = (message.partition(), message.key(), message.value())
        assert contents.setdefault(message_id, content) == content, f"{message_id} came with two contents"
        if came.setdefault(message.partition(), Repetitions()).takes(message_id):
            found.append(message)
    return found


@contextlib.contextmanager
def kafka_broker(settings: Mapping[str, str] | None = None, **more: Any) -> Iterator[KafkaBroker]:
    """A running broker in a folder of its own."""
    with running("clonos-kafka-", lambda folder: KafkaBroker(folder, settings, **more)) as server:
        yield server
