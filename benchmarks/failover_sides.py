"""The sides of `benchmarks/failover.py`: the same two functions, causal with each protection, and as stock Spark has
them.

A side says when it may be struck, strikes, and tells what it knows itself of the recovery. What became visible, and
when, is watched from outside (`Watch`).
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from chains import Stage, native_stages, source

import clonos
from clonos.protocol.destination import destination
from clonos.sources.log_writer import LogWriter
from clonos.tools.bench.stock import create_table, shown, tune
from clonos.tools.bench.strike import workers

INSTANCES = 2
ENTRY_CHARACTERS = 1000
SLOT = 0.002
BUCKETS = 100
REMEMBERED = "k string, n bigint, b string, sent bigint"
PASSED_ON = REMEMBERED
PATIENCE_S = 120.0
OPERATORS = (2, 3)
REPEATED = "records repeated"  # not a time, but told with the phases


def remember(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    state = ctx.state
    state["n"] = n = state.get("n", 0) + 1
    if n == 1:
        state["filling"] = ctx.random.randbytes(ENTRY_CHARACTERS // 2).hex()
    yield key[0], n, str(ctx.random.randrange(BUCKETS)), row.sent


def pass_on(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield row.k, row.n, row.b, row.sent


def record(key: int) -> bytes:
    return json.dumps({"k": f"k{key}", "id": str(key), "sent": time.time_ns() // 1000}).encode()


class Feeder(threading.Thread):
    """Every key once, as fast as it goes; after that a steady rate of random ones among the first `used`."""

    def __init__(self, log: str, keys: int, used: int, rate: int) -> None:
        super().__init__(daemon=True)
        self._log, self.keys, self._used, self._rate = log, keys, used, rate
        self.appended = 0
        self.more = 0  # at once, beside the steady rate
        self.steady = threading.Event()
        self.done = threading.Event()

    def run(self) -> None:
        with LogWriter(self._log, 2) as writer:
            for partition in (0, 1):
                writer.append_many(partition, [record(key) for key in range(partition, self.keys, 2)])
            self.appended = self.keys
            self.steady.wait()
            start, sent = time.monotonic(), 0
            while not self.done.is_set():
                due = int((time.monotonic() - start) * self._rate)
                more, self.more = self.more, 0
                for _ in range(max(0, due - sent) + more):
                    writer.append(self.appended % 2, record(random.randrange(self._used)))
                    self.appended += 1
                writer.flush()
                sent = max(sent, due)
                time.sleep(SLOT)


class Shown(NamedTuple):
    """A row when it became visible. `way`: the instance of each operator that it came through, causally."""

    at: float
    sent: float
    way: tuple[int, int]


class Watch(threading.Thread):
    """The table, as the outside sees it: every row that comes."""

    def __init__(self, database: Path) -> None:
        super().__init__(daemon=True)
        self._database = database
        self.rows: list[Shown] = []
        self.done = threading.Event()

    def run(self) -> None:
        text = "select rowid, k, b, sent from out where rowid > ? order by rowid"
        last = 0
        while not self._database.exists():
            time.sleep(0.05)
        uri = f"file:{self._database}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            while not self.done.is_set():
                try:
                    found = connection.execute(text, (last,)).fetchall()
                except sqlite3.OperationalError:  # not yet created, or being written for the first time
                    found = []
                now = time.time()
                for _, k, b, sent in found:
                    way = (destination((k,), INSTANCES), destination((b,), INSTANCES))
                    self.rows.append(Shown(now, sent / 1e6, way))
                last = found[-1][0] if found else last
                time.sleep(0.001)

    def first(self, since: int, wanted: Callable[[Shown], bool]) -> Shown:
        """The first such row from a place in `rows` on."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            while since < len(self.rows):
                if wanted(self.rows[since]):
                    return self.rows[since]
                since += 1
            time.sleep(0.001)
        raise TimeoutError(f"no such row for {PATIENCE_S:g} s")


class Kill(NamedTuple):
    """Of one process. `concerned`: the instances whose rows waited for it (all, where `column` is None)."""

    at: float
    column: int | None
    instance: int
    shown: float
    phases: dict[str, float]

    def concerns(self, row: Shown) -> bool:
        return self.column is None or row.way[self.column] == self.instance


class Causal:
    """A causal query with one kind of protection."""

    def __init__(
        self, spark: Any, log: str, folder: Path, trigger: dict[str, Any], standby: str | None
    ) -> None:
        self._standby = standby
        protection: dict[str, Any] = {"standby": standby or "none"}
        self._query: Any = (
            clonos.causal(source(spark, log))
            .groupBy("k")
            .process(remember, REMEMBERED, name="remember", parallelism=INSTANCES, **protection)
            .groupBy("b")
            .process(pass_on, PASSED_ON, name="pass_on", parallelism=INSTANCES, **protection)
            .writeStream.to(clonos.sinks.sql(f"sqlite:///{folder}/out.db", "out", durable=False))
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(**trigger)
            .start()
        )

    @property
    def restarts(self) -> int:
        return len(self._query.restarts)

    def await_protection(self) -> None:
        """Until every instance has its replica, and its standby follows."""
        wanted = len(OPERATORS) * INSTANCES
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            found = [r for r in self._query.replicas() if r["node"] in OPERATORS and not r["dying"]]
            primaries = sum(not r["standby"] for r in found)
            following = sum(r["follows"] for r in found)
            if primaries == wanted and following == wanted * (self._standby is not None):
                return
            time.sleep(0.05)
        raise TimeoutError(f"replicas or standbys are not back: {self._query.causal_status()}")

    def kill(self, watch: Watch) -> Kill:
        self.await_protection()
        replicas = self._query.replicas()
        victim = random.choice([r for r in replicas if r["node"] in OPERATORS and not r["standby"]])
        column, instance = victim["node"] - OPERATORS[0], victim["instance"]
        since, at = len(watch.rows), time.time()
        os.kill(victim["pid"], signal.SIGKILL)
        row = watch.first(since, lambda row: row.sent >= at and row.way[column] == instance)
        return Kill(at, column, instance, row.at, self._phases(victim["node"], instance, at, row.at))

    def _phases(self, node: int, instance: int, killed: float, shown: float) -> dict[str, float]:
        """In milliseconds, by the instance's own account. What lies before its recovery is notice and fence, and the
        hand-over to another process."""
        for said in reversed(self._query.causal_status()["recoveries"]):
            if (said["node"], said["instance"]) == (node, instance) and said["at"] >= killed:
                live = (said["at"] - killed) * 1000
                return {
                    "notice and fence": live - said["ms"],
                    **{name: float(ms) for name, ms in said["phases"].items()},
                    "first output": (shown - killed) * 1000 - live,
                    REPEATED: float(said["records"]),
                }
        return {}

    def stop(self) -> None:
        self._query.stop()


class Native:
    """Spark's own Python stages, which fail with a worker: started again at once where the query ends by it."""

    def __init__(self, spark: Any, log: str, folder: Path, trigger: dict[str, Any]) -> None:
        self._realtime = "realTime" in trigger
        self._workers = folder / "workers"
        self._start: Callable[[], Any] = lambda: self._build(spark, log, folder, trigger)
        folder.mkdir(parents=True)
        create_table(f"{folder}/out.db", "out", Stage(pass_on, "b", PASSED_ON).columns)
        self._query = self._start()
        self.restarts = 0

    def _build(self, spark: Any, log: str, folder: Path, trigger: dict[str, Any]) -> Any:
        spark.conf.set("spark.sql.shuffle.partitions", str(INSTANCES))
        tune(spark, realtime=self._realtime)
        stages = (Stage(remember, "k", REMEMBERED), Stage(pass_on, "b", PASSED_ON))
        stream = native_stages(
            source(spark, log), stages, realtime=self._realtime, instances=INSTANCES, workers=self._workers
        )
        writer = shown(stream, f"{folder}/out.db", "out", "append", each_row=self._realtime)
        return writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(**trigger).start()

    def await_protection(self) -> None:
        """There is none."""

    def kill(self, watch: Watch) -> Kill:
        while not (found := workers(self._workers)):
            time.sleep(0.001)
        since, at = len(watch.rows), time.time()
        os.kill(random.choice(found), signal.SIGKILL)
        again = at
        if self._realtime:
            # Rows that were under way may still come out of what is about to be stopped.
            self._ended()
            again, since = time.time(), len(watch.rows)
            self.restarts += 1
            self._query = self._start()
        row = watch.first(since, lambda row: row.sent >= at)
        phases = {"until the query has ended": (again - at) * 1000} if self._realtime else {}
        return Kill(at, None, 0, row.at, phases)

    def _ended(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while self._query.isActive:
            if time.monotonic() > end:
                raise TimeoutError("the query outlived its worker")
            time.sleep(0.002)

    def stop(self) -> None:
        self._query.stop()
