"""Spark sessions of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from one_session import one_session

import clonos

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.clonos.bundle.rows": "40",
    "spark.clonos.restart.backoff": "50ms",
}


def session(
    master: str = "local[8,4]",
    settings: Mapping[str, str] = {},
    *,
    begin: Callable[[Any], None] | None = None,
) -> Any:
    """A session as a user configures it."""
    from pyspark.sql import SparkSession

    builder = clonos.configure(SparkSession.builder).master(master).appName("faults")
    for name, value in {**SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    return one_session(builder, begin=begin)
