"""Which failures of a Spark query are worth another try.

A conduit fails its task with `[clonos:<class>] message`, so that the class of the error survives the way through the
JVM and Spark's own wrapping. A failure without that mark is Spark's own (an executor lost, a task killed): running the
epoch again can succeed. Where Spark's error class says that it is the user's expression or data, it cannot.
"""

from __future__ import annotations

import re

from clonos import errors
from clonos.protocol.roles.restart_policy import QueryFailed, named
from clonos.spark.kafka_failure import of_kafka

_MARK = re.compile(r"\[clonos:(\w+)\]\s*(.*)", re.DOTALL)
_TRACE = re.compile(r"\n\s+at [\w.$]+\(.*", re.DOTALL)
_STATE = re.compile(r"\s*SQLSTATE: XXKST\s*$")  # of a query that has failed, for whatever reason
_DETAILS = re.compile(r"\n=== Streaming Query ===.*", re.DOTALL)
_FINAL_ELSEWHERE = (
    "AnalysisException",
    "STREAM_FAILED_INCOMPATIBLE",
    "STREAMING_REAL_TIME_MODE",
)


_USERS_OWN = re.compile(
    r"\[(?!STREAM_FAILED)([A-Z][A-Z0-9_.]+)\] ((?:(?!\[[A-Z][A-Z0-9_.]+\] ).)*?) ?SQLSTATE: (?:22|23|42|P0)\w{3}",
    re.DOTALL,
)
"""Spark's error classes of bad data (SQLSTATE class 22, and 23 of keys that are there twice), of an expression that the
session's settings do not take (42), and of `raise_error` (P0). A Python UDF that raises (38) may not do so again."""


class SessionStopped(errors.ClonosError):
    """The Spark session is gone: there is nothing to start the query in."""


def translate(error: BaseException) -> errors.ClonosError:
    """A Spark failure as one of ours."""
    if isinstance(error, errors.ClonosError):
        return error
    # Spark adds the query's plan, where marks stand, too: those of errors that an expression would raise.
    text = _DETAILS.sub("", str(error))
    mark = _MARK.search(text)
    if mark is None:
        own = _USERS_OWN.search(text)
        if own is not None:
            return errors.ExpressionError(
                f"an expression before causal() failed: [{own.group(1)}] {own.group(2).strip()}",
                hint="It fails on the same record each time; use try_cast, try_divide and the like, or filter first",
            )
        kafka = of_kafka(text)
        if kafka is not None:
            return kafka
        kind = errors.ConfigurationError if any(word in text for word in _FINAL_ELSEWHERE) else QueryFailed
        return kind(text.strip() or type(error).__name__)
    return named(mark.group(1), _STATE.sub("", _TRACE.sub("", mark.group(2))).strip())
