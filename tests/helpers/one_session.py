"""One Spark session at a time, shared by all test files of a process that ask for it in the same way.

A process has one Spark context at most, and a new one costs seconds. Test files come in any order where several
processes share them, so that a file may find a session that was made for other tests: then that one is stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_asked: dict[str, Any] = {}
_session: Any = None


def one_session(builder: Any, *, log_level: str = "OFF", begin: Callable[[Any], None] | None = None) -> Any:
    """The session that this builder describes. `begin` is called with it where it had to be made."""
    global _asked, _session
    from clonos.spark.session import is_stopped

    asked = dict(builder._options)
    if _session is not None and asked == _asked and not is_stopped(_session):
        return _session
    stop()
    _forget_what_the_jvm_was_started_with(asked)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel(log_level)
    _asked, _session = asked, made
    if begin is not None:
        begin(made)
    return made


def _forget_what_the_jvm_was_started_with(asked: dict[str, Any]) -> None:
    """The settings of a process's first session are properties of its JVM, which each later one would have, too."""
    from pyspark import SparkContext

    system = SparkContext._jvm.java.lang.System if SparkContext._jvm is not None else None
    for key in list(system.getProperties().stringPropertyNames()) if system is not None else ():
        if key.startswith(("spark.clonos.", "spark.pyspark.")) and key not in asked:
            system.clearProperty(key)


def stop() -> None:
    """Stop the session, if there is one."""
    global _session
    if _session is not None:
        _session.stop()
        _session = None
