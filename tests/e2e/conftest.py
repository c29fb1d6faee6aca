"""One Spark session for the end-to-end tests of a module, and a setup per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, run
from sessions import session


@pytest.fixture(scope="module")
def spark(plugin_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Warmed up, so that the first real-time epoch of a test is not over before its first record."""
    spark = session()
    run(spark, Run(tmp_path_factory.mktemp("warm"), count=40))
    yield spark
    spark.stop()
