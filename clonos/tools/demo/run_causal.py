"""The driver process of the causal side: `python -m clonos.tools.demo.run_causal JOB`.

The same job, the same user functions, the same source; what differs from the native side is what a user would
change.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import clonos
from clonos.errors import ClonosError
from clonos.tools.demo.job import ROLES, TABLE, Job, Pilot
from clonos.tools.demo.source import read_events
from clonos.tools.flights.operators import COMPENSATION_SCHEMA, LEGS_SCHEMA, compensation, legs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from clonos.api.query import CausalQuery

SLOTS = 12
ATTEMPTS = 4


def session(job: Job) -> SparkSession:
    """What `clonos.configure` makes of a stock session."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("flights, causal").master(f"local[{SLOTS},{ATTEMPTS}]")
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.clonos.parallelism", str(job.instances))
    builder = builder.config("spark.clonos.standby", job.standby)
    builder = builder.config("spark.clonos.snapshot.interval", "2s")
    builder = builder.config("spark.clonos.archive.keep", "1 day" if job.archive else "off")
    return clonos.configure(builder).getOrCreate()


def query(spark: SparkSession, job: Job) -> CausalQuery:
    """Start the job."""
    sink = clonos.sinks.sql(f"sqlite:///{job.database}", TABLE)
    trigger = {"processingTime": "1 second"} if job.mode == "microbatch" else {"realTime": "10 seconds"}
    return (
        clonos.causal(read_events(spark, job.log, "partition", "position"))
        .groupBy("tailnum")
        .process(legs(job.weather), LEGS_SCHEMA, name="legs")
        .groupBy("carrier")
        .process(compensation, COMPENSATION_SCHEMA, name="compensation")
        .writeStream.to(sink, name="sink")
        .option("checkpointLocation", job.checkpoint)
        .option("clonos.faults", job.script)
        .trigger(**trigger)
        .start()
    )


def workers(running: CausalQuery) -> list[dict[str, Any]]:
    """The replicas by role, without standbys. Nodes are numbered from the sources to the sink."""
    replicas = [each for each in running.replicas() if not each["standby"]]
    nodes = sorted({each["node"] for each in replicas})
    names = dict(zip(nodes, ROLES, strict=False))
    return [
        {"role": names[each["node"]], "instance": each["instance"], "pid": each["pid"]} for each in replicas
    ]


def main(path: str) -> int:
    pilot = Pilot()
    job = Job.load(path)
    spark = session(job)
    running = query(spark, job)
    told = 0
    pilot.say("ready")
    while True:
        command = pilot.command(0.05) or {}
        if command.get("do") == "stop":
            break
        if command.get("do") == "workers":
            pilot.say("workers", workers=_asked(running))
        for reason in running.restarts[told:]:
            pilot.say("restart", reason=reason)
            told += 1
        if not running.isActive:
            pilot.say("failed", reason=str(running.exception()))
            break
    if running.isActive:
        running.stop()
    spark.stop()
    pilot.say("stopped")
    return 0


def _asked(running: CausalQuery) -> list[dict[str, Any]]:
    """The workers there are. None to kill just now is an answer, too: the harness asks again."""
    try:
        return workers(running)
    except ClonosError:
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
