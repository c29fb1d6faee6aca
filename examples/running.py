"""What the examples share: a session, input that trickles in, and output that is printed as it appears."""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import clonos
from clonos.sources.log_writer import LogWriter

TRIGGERS = {"microbatch": {"processingTime": "0 seconds"}, "realtime": {"realTime": "5 seconds"}}
DEADLINE_SECONDS = 120


def arguments(about: str | None) -> argparse.Namespace:
    """The examples' command line."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--mode", choices=TRIGGERS, default="microbatch")
    parser.add_argument("--kill", action="store_true", help="kill a process of the query on the way")
    return parser.parse_args()


def run(
    build: Callable[[SparkSession], Any],
    base: Path,
    lines: Sequence[str],
    given: argparse.Namespace,
    rows: int,
) -> Iterator[dict[str, Any]]:
    """The rows of a query, until there are so many."""
    spark = clonos.configure(SparkSession.builder).master("local[8,4]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with LogWriter(base / "in", 2) as log:
        query = (
            build(spark)
            .writeStream.to(clonos.sinks.jsonl(base / "out"))
            .option("checkpointLocation", str(base / "checkpoint"))
            .trigger(**TRIGGERS[given.mode])
            .start()
        )
        try:
            for number, line in enumerate(lines):
                log.append(number % 2, line.encode())
            log.flush()
            seen: set[str] = set()
            until = time.monotonic() + DEADLINE_SECONDS
            while len(seen) < rows and time.monotonic() < until:
                query.awaitTermination(0.05)
                if given.kill and any(replica["node"] == 2 for replica in query.replicas()):
                    os.kill(next(r["pid"] for r in query.replicas() if r["node"] == 2), signal.SIGKILL)
                    given.kill = False
                for row in _visible(base / "out"):
                    if row["clonos_id"] not in seen:
                        seen.add(row["clonos_id"])
                        yield row
        finally:
            query.stop()
            spark.stop()


def _visible(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.jsonl")):
        text = path.read_text()
        yield from map(json.loads, text[: text.rfind("\n") + 1].splitlines())
