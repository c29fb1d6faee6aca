"""The driver process of the native side: `python -m clonos.tools.demo.run_native JOB`.

Every setting here is one that helps Spark: task retries in micro-batch mode, the pipelined Python stages and
small buffers that Real-Time Mode needs to be fast. A query that fails is started again at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clonos.processes import alive
from clonos.tools.demo.job import Job, Pilot, Role
from clonos.tools.demo.native import STATE_SCHEMA, Appender, arrow_stage, create_table, ddl, grouped_stage
from clonos.tools.demo.source import read_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
    "spark.sql.streaming.realTimeMode.minBatchDuration": "1s",
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
}
_MICROBATCH_SETTINGS = {
    # Spark refuses a second applyInPandasWithState for the sake of watermarks, of which there are none here.
    "spark.sql.streaming.unsupportedOperationCheck": "false",
}
_REALTIME_SETTINGS = {
    "spark.python.udf.pipelined.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "256",
    "spark.buffer.size": "256",
}
SLOTS = 12
ATTEMPTS = 4


def session(job: Job) -> SparkSession:
    """A stock session, but for the jar of the embedded source, which both sides read."""
    from pyspark.sql import SparkSession

    from clonos.environment import jar_path

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("flights, native").master(f"local[{SLOTS},{ATTEMPTS}]")
    builder = builder.config("spark.jars", str(jar_path()))
    builder = builder.config("spark.sql.shuffle.partitions", str(job.instances))
    settings = _SETTINGS | (_REALTIME_SETTINGS if job.mode == "realtime" else _MICROBATCH_SETTINGS)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def query(spark: SparkSession, job: Job) -> StreamingQuery:
    """Start the job."""
    from pyspark.sql import functions as f

    stream = read_events(spark, job.log)
    if job.mode == "microbatch":
        for role, key in _STAGES:
            stream = stream.groupBy(key).applyInPandasWithState(
                grouped_stage(role, job), ddl(role), STATE_SCHEMA, "append", "NoTimeout"
            )
            # An exchange or a foreach directly behind it fails with a ClassCastException (Spark 4.3.0); a
            # projection that the optimizer cannot drop avoids that.
            stream = stream.withColumn("carrier", f.concat(f.col("carrier"), f.lit("")))
    else:
        for role, key in _STAGES:
            stream = stream.repartition(job.instances, key).mapInArrow(
                arrow_stage(role, job, _arrow_schema(spark, role)), ddl(role)
            )
    writer: Any = stream.writeStream.foreach(Appender(job)).option("checkpointLocation", job.checkpoint)
    if job.mode == "microbatch":
        writer = writer.outputMode("append").trigger(processingTime="1 second")
    else:
        writer = writer.outputMode("update").trigger(realTime="10 seconds")
    started: StreamingQuery = writer.start()
    return started


_STAGES: tuple[tuple[Role, str], ...] = (("legs", "tailnum"), ("compensation", "carrier"))


def _arrow_schema(spark: SparkSession, role: Role) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    empty: DataFrame = spark.createDataFrame([], ddl(role))
    return to_arrow_schema(empty.schema)


def workers(job: Job) -> list[dict[str, Any]]:
    """The Python workers, the last active first."""
    notes = [note for note in Path(job.workers).iterdir() if not note.suffix]
    notes.sort(key=lambda note: note.stat().st_mtime, reverse=True)
    found = []
    for note in notes:
        role, instance = note.read_text().split()
        if alive(int(note.name)):
            found.append({"role": role, "instance": int(instance), "pid": int(note.name)})
    return found


def main(path: str) -> int:
    pilot = Pilot()
    job = Job.load(path)
    create_table(job.database)
    spark = session(job)
    running = query(spark, job)
    pilot.say("ready")
    while True:
        command = pilot.command(0.05) or {}
        if command.get("do") == "stop":
            break
        if command.get("do") == "workers":
            pilot.say("workers", workers=workers(job))
        elif command.get("do") == "fault":
            Path(job.faults, command["point"]).touch()
        if not running.isActive:
            error = running.exception()
            pilot.say("restart", reason=str(error).splitlines()[0] if error else "ended")
            running = query(spark, job)
    running.stop()
    spark.stop()
    pilot.say("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
