"""The loggers by which PySpark tells of Spark's errors, made before any thread of the library's meets one.

PySpark makes each when it first converts an error, and changes the class of all new loggers meanwhile: two threads that
do so at once may get one of another class for good, and every error after that is lost in a TypeError
(`PySparkLogger.getLogger`, `PySparkException._log_exception`).
"""

from __future__ import annotations

from typing import Final

_NAMES: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def make_error_loggers() -> None:
    """What is there already stays."""
    from pyspark.logger import PySparkLogger

    for name in _NAMES:
        PySparkLogger.getLogger(name)
