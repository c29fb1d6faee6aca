"""A Kafka broker with TLS, passwords and rights: `root` may do everything, `app` what it is allowed to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka_broker import KafkaBroker
from services import Authority

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def client(folder: Path, user: str) -> dict[str, str]:
    """Settings of librdkafka."""
    secret = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": f"{user}pass"}
    return {"security.protocol": "SASL_SSL", "ssl.ca.location": str(folder / "ca.pem"), **secret}


def spark_options(folder: Path, user: str) -> dict[str, str]:
    """Options of Spark's source."""
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(folder / "ca.pem"),
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{_PLAIN} username="{user}" password="{user}pass";',
    }


@contextlib.contextmanager
def secured_broker(brokers: Any, folder: Path) -> Iterator[KafkaBroker]:
    """`brokers`: the fixture; `folder`: where certificates go."""
    Authority(folder).issue("broker")
    store = folder / "keystore.pem"
    store.write_text((folder / "broker.key").read_text() + (folder / "broker.pem").read_text())
    users = 'username="root" password="rootpass" user_root="rootpass" user_app="apppass"'
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{_PLAIN} {users};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root;User:ANONYMOUS",
    }
    with brokers(settings, protocol="SASL_SSL", client=client(folder, "root")) as broker:
        yield broker
