"""A broker with TLS, passwords and rights: what the sink and the reader need there, and what they say without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kafka_broker import KafkaBroker
from secured_kafka import client, secured_broker
from services import Authority
from sink_child import SCHEMA, bundle
from sink_support import QUERY, opened

import clonos.kafka
from clonos import sinks
from clonos.errors import SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch

pytestmark = pytest.mark.kafka

MODES = ("transactions", "at_once")
A, R, P = AclOperation, ResourceType, ResourcePatternType


@dataclass
class Secured:
    """A broker that `root` may do everything at, and `app` what it was allowed to."""

    broker: KafkaBroker
    options: dict[str, str]

    def sink(self, topic: str, mode: str, **options: str) -> Any:
        made = sinks.kafka(
            self.broker.servers,
            topic=topic,
            prefix=f"{topic}-",
            options={**self.options, **options},
            patience=20,
            mode=mode,  # type: ignore[arg-type]
        )
        made.validate(SCHEMA)
        return made

    def allow(self, kind: R, name: str, *operations: A, pattern: P = P.LITERAL) -> None:
        admin = self.broker.admin()
        for operation in operations:
            rule = AclBinding(kind, name, pattern, "User:app", "*", operation, AclPermissionType.ALLOW)
            admin.create_acls([rule])[rule].result(60)

    def allow_what_the_docs_say(self, topic: str, mode: str) -> None:
        own = f"{topic}-"
        self.allow(R.TOPIC, topic, A.WRITE, A.DESCRIBE)
        rights = (A.CREATE, A.ALTER, A.READ, A.WRITE, A.DESCRIBE, A.DELETE)
        self.allow(R.TOPIC, own, *rights, pattern=P.PREFIXED)
        if mode == "transactions":
            self.allow(R.TRANSACTIONAL_ID, own, A.WRITE, A.DESCRIBE, pattern=P.PREFIXED)


@pytest.fixture(scope="module")
def secured(brokers: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("certificates")
    with secured_broker(brokers, folder) as broker:
        yield Secured(broker, client(folder, "app"))


@pytest.mark.parametrize("mode", MODES)
def test_the_rights_that_the_docs_name_suffice(secured: Secured, mode: str) -> None:
    topic = secured.broker.topic()
    secured.allow_what_the_docs_say(topic, mode)
    sink = secured.sink(topic, mode)
    sink.raise_fence(QUERY, Fence.of(1))
    with closing(opened(sink, Fence.of(1, 1))) as writer:
        for first in range(1, 200, 2):
            writer.write(**bundle(first, first + 1))
    sink.record_commit(QUERY, Fence.of(1), Epoch(3), b"record")
    assert sink.last_commit(QUERY) == (3, b"record")
    assert sink.truncate(QUERY, Fence.of(1), lambda delta: delta == b"delta up to 200") > 0
    assert len(secured.broker.read(topic)) == 200


@pytest.mark.parametrize("mode", MODES)
def test_without_rights_the_error_says_which_are_needed(secured: Secured, mode: str) -> None:
    topic = secured.broker.topic()
    with pytest.raises(SinkError, match=r"[Aa]uthoriz|no topic") as refused:
        opened(secured.sink(topic, mode), 1)
    secured.allow(R.TOPIC, topic, A.DESCRIBE)
    with pytest.raises(SinkError, match=r"[Aa]uthoriz") as refused:
        opened(secured.sink(topic, mode), 1)
    assert "to create, alter, read and write topics" in str(refused.value)
    secured.allow_what_the_docs_say(topic, mode)  # as the hint says
    opened(secured.sink(topic, mode), 1).close()


@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_password_is_told(secured: Secured, mode: str) -> None:
    with pytest.raises((SinkError, SinkUnavailable), match=r"[Aa]uthentication"):
        opened(secured.sink(secured.broker.topic(), mode, **{"sasl.password": "wrong"}), 1)


def test_a_certificate_that_is_not_trusted_is_told(secured: Secured, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    assert other.folder == tmp_path
    with pytest.raises((SinkError, SinkUnavailable), match=r"ssl|SSL|certificate"):
        opened(
            secured.sink(secured.broker.topic(), "at_once", **{"ssl.ca.location": str(tmp_path / "ca.pem")}),
            1,
        )


def test_a_reader_takes_the_same_settings(secured: Secured) -> None:
    topic = secured.broker.topic(partitions=1)
    secured.allow_what_the_docs_say(topic, "at_once")
    with closing(opened(secured.sink(topic, "at_once"), 1)) as writer:
        writer.write(**bundle(1, 3))
    secured.allow(R.TOPIC, topic, A.READ)
    secured.allow(R.GROUP, topic, A.READ)
    settings = {**secured.options, "bootstrap.servers": secured.broker.servers, "group.id": topic}
    with clonos.kafka.Reader({**settings, "auto.offset.reset": "earliest"}, [topic]) as reader:
        for _ in range(3):
            assert reader.poll(60) is not None
        reader.commit()
