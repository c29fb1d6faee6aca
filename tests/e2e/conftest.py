"""One Spark session for the end-to-end tests of a module, and a setup per test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, run

import clonos

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.clonos.bundle.rows": "40",
    "spark.clonos.restart.backoff": "50ms",
}


def session(master: str = "local[8,4]", settings: Mapping[str, str] = {}) -> Any:
    """A session as a user configures it."""
    from pyspark.sql import SparkSession

    builder = clonos.configure(SparkSession.builder).master(master).appName("faults")
    for name, value in {**SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


@pytest.fixture(scope="module")
def spark(plugin_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Warmed up, so that the first real-time epoch of a test is not over before its first record."""
    spark = session()
    run(spark, Run(tmp_path_factory.mktemp("warm"), count=40))
    yield spark
    spark.stop()
