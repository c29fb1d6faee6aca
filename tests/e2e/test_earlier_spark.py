"""Earlier releases of Spark, with the jar that is compiled against the newest: queries with kills, and what Spark shows
of them, once more in micro-batch mode.

    make soak ARGS=tests/e2e/test_earlier_spark.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from earlier_spark import NotFetched, environment_with

pytestmark = [pytest.mark.spark, pytest.mark.soak]

TESTS = (
    "tests/e2e/test_faults.py",
    "tests/e2e/test_kafka.py",
    "tests/e2e/test_standby.py::test_a_standby_takes_over",
    "tests/spark/test_spark_progress.py",
    "tests/spark/test_spark_tab.py",
    "tests/spark/test_spark_types.py",
)
PACKAGES = "--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:{} pyspark-shell"


def python(root: Path, environment: dict[str, str], *arguments: str) -> str:
    """What Python has written, which must have ended well."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("version", ["4.1.1", "4.2.0"])
def test_queries_are_exact_there(plugin_jar: Path, root: Path, version: str) -> None:
    try:
        environment = environment_with(version)
    except NotFetched as failure:
        pytest.skip(f"PySpark {version} cannot be fetched: {failure}")
    if version.startswith("4.1."):
        environment["PYSPARK_SUBMIT_ARGS"] = PACKAGES.format(version)
    jar = plugin_jar.read_bytes()
    table = python(root, environment, "-m", "clonos.cli", "doctor")
    assert f"{version}, micro-batch mode alone" in table
    python(root, environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not realtime", *TESTS)
    assert plugin_jar.read_bytes() == jar
