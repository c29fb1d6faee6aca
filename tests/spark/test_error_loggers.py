"""PySpark's loggers of errors are of its own class, whatever threads do at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ASKED = """
import logging
import clonos
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from clonos.spark import error_loggers

clonos.configure(SparkSession.builder)
logging.setLoggerClass(logging.Logger)  # as another thread does in between
for name in error_loggers._NAMES:
    assert type(logging.getLogger(name)) is PySparkLogger, name
"""


def test_they_are_made_before_there_are_threads(plugin_jar: Path) -> None:
    subprocess.run([sys.executable, "-c", _ASKED], check=True)
