"""What a Spark session needs before a causal query can run in it, and the refusals where it lacks that.

`configure` appends to what the builder already has and never overwrites it: a list of jars or plugins is extended, a
setting that the user chose stays. The few settings that a causal query cannot do without are checked again when a query
starts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from clonos.errors import ConfigurationError, QueryDefinitionError
from clonos.spark.error_loggers import make_error_loggers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger("clonos")

DEFAULTS = {
    "spark.sql.streaming.realTimeMode.minBatchDuration": "1s",
    # A stage must run in every epoch, also on an input that turned out empty.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # there where spark-submit has started this process
PLUGIN = "org.clonos.spark.executor.ReplicaPlugin"
# These name classes of the plugin. Spark's own manager keeps rows for up to 50 ms in each exchange of Real-Time Mode.
WITH_PLUGIN = {"spark.shuffle.manager.incremental": "org.clonos.spark.exchange.PromptShuffleManager"}


def configure(builder: SparkSession.Builder, *, kafka: bool = False) -> SparkSession.Builder:
    """Add the plugin's jar and class, and every setting a causal query needs, to a session builder.

    With `kafka`, Spark's connector for Kafka too. Raises ConfigurationError where this installation has no connector.
    """
    from clonos.connector_jars import kafka_jars
    from clonos.environment import check_spark_version, jar_path

    check_spark_version()
    make_error_loggers()
    given: dict[str, Any] = getattr(builder, "_options", {})
    jvm = _running_jvm()
    jars = [str(jar_path()), *(str(path) for path in (kafka_jars() if kafka else ()))]
    builder = builder.config("spark.jars", _extended("spark.jars", jars, given, jvm))
    defaults = DEFAULTS
    if jvm is None or _has_class(jvm, PLUGIN):  # else it would keep the session from starting
        builder = builder.config("spark.plugins", _extended("spark.plugins", [PLUGIN], given, jvm))
        defaults = WITH_PLUGIN | defaults
    for key, value in defaults.items():
        if key not in given:
            builder = builder.config(key, value)
    return builder


def _running_jvm() -> Any:
    """The JVM that is there before the session, of `spark-submit` or of an earlier session, or None: then it will be
    started with the plugin's jar."""
    from pyspark import SparkContext

    if SparkContext._gateway is None and _SUBMITTED not in os.environ:
        return None
    SparkContext._ensure_initialized()
    return SparkContext._jvm


def _extended(key: str, more: Sequence[str], given: Mapping[str, Any], jvm: Any) -> str:
    """The list that the builder has, or else `spark-submit`, with these in addition."""
    has = given.get(key)
    if has is None and _SUBMITTED in os.environ:
        has = jvm.org.apache.spark.SparkConf().get(key, "")
    entries = [entry for entry in str(has or "").split(",") if entry]
    there = {urlsplit(entry).path for entry in entries}
    return ",".join([*entries, *(one for one in more if one not in there)])


def require_dataframe(df: Any) -> None:
    """Refuse what is no DataFrame of this process's own session."""
    kind = type(df)
    if kind.__module__.startswith("pyspark.sql.connect"):
        raise _connect()
    if not hasattr(df, "_jdf"):
        raise QueryDefinitionError(f"causal() takes a streaming DataFrame, not {kind.__name__}")


def _connect() -> ConfigurationError:
    return ConfigurationError(
        "this is a Spark Connect session",
        hint="A causal query runs its conduits inside the driver's own session; create the session with "
        "clonos.configure(SparkSession.builder).getOrCreate() in the driver",
    )


def require_session(spark: Any) -> Any:
    """The session's JVM, or a clear refusal."""
    from clonos.environment import check_spark_version

    if not hasattr(spark, "_jvm") or type(spark).__module__.startswith("pyspark.sql.connect"):
        raise _connect()
    check_spark_version()
    jvm = spark._jvm
    if not _has_class(jvm, "org.clonos.spark.CausalStage"):
        raise ConfigurationError(
            "the Clonos plugin is not in this Spark session",
            hint="Create the session with clonos.configure(SparkSession.builder).getOrCreate(), before any other "
            "session exists in this process",
        )
    if spark.conf.get("spark.speculation", "false") == "true":
        raise ConfigurationError(
            "spark.speculation is on",
            hint="Two attempts of one instance at once would fence each other; set spark.speculation=false",
        )
    return jvm


def analysing_session(spark: Any) -> Any:
    """Where Spark analyses expressions of a stream: the stream's own session, or, of a stream of
    `clonos.testing.driver`, the one that the test has."""
    from pyspark.sql import SparkSession

    if spark._jvm is not None:
        return spark
    active = SparkSession.getActiveSession()
    if active is None:
        raise QueryDefinitionError(
            "Spark's expressions need a Spark session, and there is none",
            hint="Make one in the test, SparkSession.builder.getOrCreate(), or test the operator alone",
        )
    key = "spark.sql.session.timeZone"
    if active.conf.get(key) != spark.conf.get(key):
        raise QueryDefinitionError(
            f"the stream is in the time zone {spark.conf.get(key)}, the session in {active.conf.get(key)}",
            hint=f"Set {key} of the session, or give stream(..., timezone=)",
        )
    return active


def require_plugin(spark: Any, why: str) -> None:
    """Refuse a session that was not told of the plugin's class."""
    if PLUGIN not in spark.sparkContext.getConf().get("spark.plugins", "").split(","):
        raise ConfigurationError(
            f"{why}, and {PLUGIN} is not in spark.plugins",
            hint="Create the session with clonos.configure(SparkSession.builder).getOrCreate(), or name it to "
            "spark-submit: --conf spark.plugins=" + PLUGIN,
        )


def tell_of_slow_exchanges(spark: Any) -> None:
    """Spark's own shuffle of Real-Time Mode holds rows back, where the session has it."""
    conf = spark.sparkContext.getConf()
    for key, value in WITH_PLUGIN.items():
        if conf.get(key, "") != value:
            LOG.warning(
                "each exchange of a real-time query may hold rows back for %s ms: the session has no %s=%s, which "
                "clonos.configure(SparkSession.builder) sets",
                conf.get("spark.shuffle.streaming.networkBufferMaxWaitTimeMs", "50"),
                key,
                value,
            )


def is_stopped(spark: Any) -> bool:
    """Whether the session's context has been stopped, from here or from the JVM, or is gone with its JVM."""
    try:
        context = spark.sparkContext._jsc
        return context is None or bool(context.sc().isStopped())
    except Exception:
        return True


def _has_class(jvm: Any, name: str) -> bool:
    try:
        jvm.java.lang.Class.forName(name, True, jvm.Thread.currentThread().getContextClassLoader())
    except Exception:
        return False
    return True
