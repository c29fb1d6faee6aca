"""How tests of the Spark surface feed a query, run it, strike it, and read what became visible."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import clonos
from clonos.api.streams import CausalStream
from clonos.sources.log_writer import LogWriter

TRIGGERS = {"microbatch": {"processingTime": "0 seconds"}, "realtime": {"realTime": "2 seconds"}}
DEADLINE = 180.0
Found = TypeVar("Found")


class Place:
    """A directory with source logs, a checkpoint and an output; one query at a time."""

    def __init__(self, spark: Any, base: Path) -> None:
        self.spark = spark
        self.base = base
        self.checkpoint = base / "checkpoint"
        self.output = base / "out"
        self.query: Any = None

    # ---------------------------------------------------------------- input

    def write(self, rows: Iterable[dict[str, Any]], log: str = "in", partitions: int = 2) -> None:
        """Append rows as JSON, to the partitions in turn; those of one partition come into one batch."""
        payloads = [json.dumps(row).encode() for row in rows]
        with LogWriter(self.base / log, partitions) as writer:
            for partition in range(partitions):
                writer.append_many(partition, payloads[partition::partitions])

    def read(self, schema: str, log: str = "in", partitions: int = 2) -> Any:
        """The rows of a log as a streaming DataFrame."""
        from pyspark.sql import functions as f

        self.write((), log, partitions)
        raw = self.spark.readStream.format("clonos").load(str(self.base / log))
        parsed = f.from_json(
            f.col("value").cast("string"), schema, {"timestampFormat": "yyyy-MM-dd HH:mm:ss"}
        )
        return raw.select(parsed.alias("j")).select("j.*")

    def causal(self, schema: str, log: str = "in", partitions: int = 2) -> CausalStream:
        return clonos.causal(self.read(schema, log, partitions))

    # ------------------------------------------------------------------ run

    def writer(self, stream: CausalStream, mode: str = "microbatch", sink: Any = None, **options: str) -> Any:
        return (
            stream.writeStream.to(sink or clonos.sinks.jsonl(self.output, durable=False))
            .option("checkpointLocation", str(self.checkpoint))
            .options(**options)
            .trigger(**TRIGGERS[mode])
        )

    def start(self, stream: CausalStream, mode: str = "microbatch", sink: Any = None, **options: str) -> Any:
        self.stop()
        self.query = self.writer(stream, mode, sink, **options).start()
        return self.query

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()
            self.query = None

    def kill(self, node: int = 2, instance: int = 0) -> None:
        """SIGKILL one replica, not its standby, as soon as it is there: for a moment after a death nothing is.

        Sources are numbered first: node 2 is usually the first operator."""
        wanted = (node, instance, False)

        def found() -> list[Any]:
            return [r for r in self.query.replicas() if (r["node"], r["instance"], r["standby"]) == wanted]

        (replica,) = self.until(found, f"a replica {node}/{instance}")
        os.kill(replica["pid"], signal.SIGKILL)

    def kill_until_restart(self, node: int, instance: int) -> None:
        """The same, where it makes the query start again."""
        before = len(self.query.restarts)
        self.kill(node, instance)
        self.until(lambda: len(self.query.restarts) > before, "the restart")

    def replicas(self, count: int) -> list[Any]:
        """All of them in order of place, as soon as there are so many at one moment."""

        def found() -> list[Any]:
            there = sorted(self.query.replicas(), key=lambda each: (each["node"], each["instance"]))
            return there if len(there) == count else []

        return self.until(found, f"{count} replicas")

    # --------------------------------------------------------------- output

    def rows(self) -> list[dict[str, Any]]:
        """What is visible."""
        found: list[dict[str, Any]] = []
        for path in sorted(self.output.glob("*.jsonl")):
            text = path.read_text()
            found += [json.loads(line) for line in text[: text.rfind("\n") + 1].split("\n")[:-1]]
        return found

    def await_rows(self, count: int, *, deadline: float = DEADLINE) -> list[dict[str, Any]]:
        """What is visible as soon as there are `count` rows; no more may follow soon."""
        self.until(lambda: len(self.rows()) >= count, f"{count} rows", deadline)
        time.sleep(0.1)
        rows = self.rows()
        assert len(rows) == count, rows
        assert len({row.pop("clonos_id") for row in rows}) == count
        return rows

    def await_commit(self) -> None:
        """Until no epoch is open that Spark has planned."""

        def closed() -> bool:
            offsets, commits = (
                {path.name for path in (self.checkpoint / name).glob("[0-9]*")}
                for name in ("offsets", "commits")
            )
            return bool(commits) and offsets <= commits

        self.until(closed, "the last epoch is committed")

    def await_epochs(self) -> int:
        """Until those are over that instances are in; the last of these."""
        last = max(int(each["epoch"]) for each in self.query.replicas())
        assert self.query.wait_for_epoch(last, 120)
        return last

    def finish(self) -> int:
        """Stop when these are over."""
        last = self.await_epochs()
        self.stop()
        return last

    def until(self, done: Callable[[], Found], what: object, deadline: float = DEADLINE) -> Found:
        """What it answers that is true. To ask again afterwards may be answered otherwise."""
        end = time.monotonic() + deadline
        while not (found := done()):
            if self.query is not None and self.query.awaitTermination(0.05):
                raise AssertionError("the query has ended by itself")
            assert time.monotonic() < end, f"not after {deadline} s: {what}; {len(self.rows())} rows visible"
        return found
