"""Spark sessions of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from one_session import one_session

import clonos
from clonos.connector_jars import kafka_jars
from clonos.errors import ConfigurationError

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.clonos.bundle.rows": "40",
    "spark.clonos.restart.backoff": "50ms",
}


def has_connector() -> bool:
    """Whether Spark's connector for Kafka is here: it has been fetched where there was a network."""
    try:
        kafka_jars()
    except ConfigurationError:
        return False
    return True


def session(
    master: str = "local[8,4]",
    settings: Mapping[str, str] = {},
    *,
    begin: Callable[[Any], None] | None = None,
) -> Any:
    """A session as a user configures it."""
    from pyspark.sql import SparkSession

    builder = clonos.configure(SparkSession.builder, kafka=has_connector()).master(master).appName("faults")
    for name, value in {**SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    return one_session(builder, begin=begin)
