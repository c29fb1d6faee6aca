"""One Spark session for all tests of the Spark surface, and a place per test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from one_session import one_session
from streams import Place

import clonos

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of stock Spark's planner, which no setting reaches
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.clonos.restart.backoff": "50ms",
    "spark.default.parallelism": "2",  # otherwise Spark's own queries over a few rows have a task per slot
}


@pytest.fixture(scope="session")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark's metrics system writes once a second."""
    return tmp_path_factory.mktemp("metrics")


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest, plugin_jar: Path, metrics: Path) -> Any:
    """With slots enough for every module's queries, so that they share one session: a new one takes seconds. A module
    that needs another number says so by its `MASTER`, other settings by its `SESSION`."""
    from pyspark.sql import SparkSession

    builder = (
        clonos.configure(SparkSession.builder)
        .master(getattr(request.module, "MASTER", "local[32,4]"))
        .appName("surface")
    )
    for name, value in {**SETTINGS, **getattr(request.module, "SESSION", {})}.items():
        builder = builder.config(name, value)
    sink = {"class": "org.apache.spark.metrics.sink.CsvSink", "directory": metrics, "period": 1}
    for name, value in sink.items():
        builder = builder.config(f"spark.metrics.conf.*.sink.csv.{name}", str(value))
    return one_session(builder)


@pytest.fixture
def spark(session: Any) -> Iterator[Any]:
    """The session, with its settings as they were when the test is over."""
    before = dict(session.conf.getAll)
    yield session
    for query in session.streams.active:
        query.stop()
    after = dict(session.conf.getAll)
    for name in after.keys() - before.keys():
        session.conf.unset(name)
    for name, value in before.items():
        if after.get(name) != value:
            session.conf.set(name, value)


@pytest.fixture
def place(spark: Any, tmp_path: Path) -> Iterator[Place]:
    made = Place(spark, tmp_path)
    yield made
    made.stop()
