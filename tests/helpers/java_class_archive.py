"""Makes an archive of the classes that a JVM with Spark loads: those of tests start in half the time with it.

    python tests/helpers/java_class_archive.py .build/java-classes.jsa

A JVM that finds an archive unfit, because Java or PySpark is another by now, starts without it. Where none can be made,
this says so and ends well.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parents[2] / ".build" / "java-classes.jsa"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""JVMs of tests end before a second compiler, or collectors of garbage in parallel, have been worth their time."""
_DEADLINE = 300.0


def options() -> str:
    """What a JVM is told so that it takes the archive, where there is one; it keeps silent about what does not fit."""
    return f"-XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.is_file() else ""


def make(archive: Path) -> None:
    """Run one causal query in either mode and keep the classes that were loaded."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="java-classes-") as made:
        new = Path(made, "made.jsa")
        os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={new} -Xlog:disable"
        jvm = _run(Path(made))
        with contextlib.suppress(BrokenPipeError):
            jvm.stdin.close()  # type: ignore[union-attr]
        jvm.wait(_DEADLINE)
        new.replace(archive)


def _run(base: Path) -> subprocess.Popen[bytes]:
    """The JVM, with the queries over."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    import clonos
    from clonos.sources import LogWriter

    with LogWriter(base / "in", partitions=2) as log:
        for n in range(100):
            log.append(n % 2, b"key%d" % (n % 5))

    def count(key, row, ctx):  # type: ignore[no-untyped-def]
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield key[0], ctx.state["n"]

    builder = clonos.configure(SparkSession.builder).master("local[8]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for trigger in ({"processingTime": "0 seconds"}, {"realTime": "2 seconds"}):
        name = next(iter(trigger))
        keys = spark.readStream.format("clonos").load(str(base / "in")).selectExpr("string(value) AS k")
        counted = clonos.causal(keys).groupBy("k").process(count, "k string, n int", name="count")
        writer = counted.writeStream.to(clonos.sinks.jsonl(base / name, durable=False))
        query = writer.option("checkpointLocation", str(base / f"{name}-cp")).trigger(**trigger).start()
        query.processAllAvailable()
        query.stop()
        spark.read.json(str(base / name)).count()
    spark.stop()
    jvm: subprocess.Popen[bytes] = SparkContext._gateway.proc  # type: ignore[union-attr]
    return jvm


def main() -> None:
    archive = Path(sys.argv[1]).resolve()
    try:
        make(archive)
    except Exception as failure:
        print(f"no archive of Java classes could be made, so the JVMs of tests start slower: {failure!r}")


if __name__ == "__main__":
    main()
