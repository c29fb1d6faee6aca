"""The job that judges itself: two ledgers in a row, on real Spark, and how to run it through faults.

The first operator, keyed by `k`, keeps a ledger with a recorded random draw and the bundle clock. The second, keyed by
a bucket of the input id, keeps a ledger over the first one's hashes, with a recorded call that never answers the same
twice and the exact clock. Every nondeterministic outcome thus stands in a hash chain, and so does the arrival order.
A run is right exactly when both ledgers are (`clonos.testing.ledger.judge`).

Half of the input is there when the query starts, so that the first epoch has enough of it for any fault; the rest
comes bit by bit once an epoch has committed, so that there is another. A job that `goes_on` gets more of it until its
end is awaited: what is done to it meanwhile meets a query at work, however long that takes.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import clonos
from clonos.sources.log_writer import LogWriter
from clonos.storage import dead_letters
from clonos.storage.dead_letters import DeadLetter
from clonos.storage.folder import Folder, resolve
from clonos.testing.faults import Fault, Point, Strike
from clonos.testing.ledger import Verdict, extend, judge, micros

FIRST = "a_key string, a_n bigint, id string, a_draw bigint, a_at bigint, a_prev string, a_hash string, bucket string"
SECOND = (
    "b_key string, b_n bigint, b_id string, b_draw bigint, b_at bigint, b_prev string, b_hash string, "
    + FIRST
)
Found = TypeVar("Found")
BUCKETS = 5
TRIGGERS = {"microbatch": {"processingTime": "0 seconds"}, "realtime": {"realTime": "1 second"}}
# Asked for by faults: to fire at the first opportunity, as a rule in the first epoch, or once an epoch has committed. A
# fault that is bound to one epoch by its number may miss it on a busy machine, where epochs are over without a record.
SOON, LATER = "", "later"
STEPS_PER_SECOND = 20
MORE_PER_STEP = 4  # of what goes on
PREFIX = "spark.clonos."


def fault(point: Point, strike: Strike, operator: str, when: str, after: int = 0) -> Fault:
    """`when`: SOON or LATER."""
    return Fault(point=point, strike=strike, operator=operator, asked=when, after=after)


def entropy() -> int:
    """A service that never answers the same twice."""
    return int.from_bytes(os.urandom(6))


def first(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    entry = extend(ctx.state, key[0], row.id, ctx.random.getrandbits(48), micros(ctx.now()))
    yield (*entry.row(), str(int(row.id) % BUCKETS))


def second(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    entry = extend(ctx.state, key[0], row.a_hash, ctx.call(entropy), ctx.now_us(exact=True))
    yield (*entry.row(), *row)


@dataclass
class Run:
    """How one run is set up."""

    base: Path
    mode: str = "microbatch"
    count: int = 600
    keys: int = 7
    faults: str = ""
    feed_seconds: float = 0.5
    parallelism: int = 2
    trigger: dict[str, str] | None = None
    deadline: float = 240.0
    first: Callable[..., Any] = first
    second: Callable[..., Any] = second
    # Version=, previous= and migrate= of the first operator
    upgrade: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)  # spark.clonos.*, without the prefix
    patience: float = 30.0
    on_poison: str = "fail"  # of the first operator
    first_recovery: str | None = None  # None: that of the query
    second_recovery: str | None = None
    passed_over: tuple[str, ...] = ()  # ids of records that are to end in letters
    all_fire: bool = True  # whether the end is awaited until every fault has fired
    goes_on: bool = False  # whether there is more input, beyond `count`, until the end is awaited
    location: str = ""  # of the checkpoint, where it is not in `base`
    appended: int = 0
    enough: threading.Event = field(default_factory=threading.Event)
    fed: threading.Event = field(default_factory=threading.Event)

    @property
    def database(self) -> Path:
        return self.base / "out.db"

    @property
    def source(self) -> Path:
        return self.base / "in"

    @property
    def checkpoint(self) -> Path:
        return self.base / "checkpoint"

    @property
    def data(self) -> Path:
        """What this host keeps of the query."""
        if self.location:
            (folder,) = (each for each in (self.base / "data").iterdir() if each.is_dir())
            return folder
        return self.checkpoint / "clonos" / "local"

    # ----------------------------------------------------------------- input

    def writer(self) -> Any:
        """Where input goes: see `LogWriter`."""
        return LogWriter(self.source, 2)

    def append(self, writer: Any, upto: int) -> None:
        """Inputs that are not there yet, over two partitions in a fixed but mixed manner."""
        for i in range(self.appended, upto):
            writer.append(i * 7 % 11 % 2, json.dumps({"k": f"k{i % self.keys}", "id": str(i)}).encode())
        writer.flush()
        self.appended = max(self.appended, upto)

    def prepare(self) -> None:
        """The first half of the input."""
        with self.writer() as writer:
            self.append(writer, self.count // 2)

    def feed(self, stop: threading.Event) -> None:
        """The second half, once an epoch has committed."""
        while not self.epochs("commits"):
            if stop.wait(0.02):
                return
        self.allow(LATER)
        half = self.count - self.count // 2
        steps = max(int(self.feed_seconds * STEPS_PER_SECOND), 1)
        with self.writer() as writer:
            for step in range(steps):
                self.append(writer, self.count // 2 + half * (step + 1) // steps)
                if stop.wait(self.feed_seconds / steps):
                    return
            while self.goes_on and not self.enough.is_set():
                self.count += MORE_PER_STEP
                self.append(writer, self.count)
                if stop.wait(1 / STEPS_PER_SECOND):
                    return
        self.fed.set()

    # ----------------------------------------------------------------- query

    def start(self, spark: Any) -> Any:
        """Start the query, with its settings and no others."""
        given = {key for key in dict(spark.conf.getAll) if key.startswith(PREFIX)}
        own = {PREFIX + name: value for name, value in self.settings.items() if PREFIX + name not in given}
        before = {
            PREFIX + name: spark.conf.get(PREFIX + name) for name in self.settings if PREFIX + name in given
        }
        try:
            for name, value in self.settings.items():
                spark.conf.set(PREFIX + name, value)
            return self._start(spark)
        finally:
            for name in own:
                spark.conf.unset(name)
            for name, value in before.items():
                spark.conf.set(name, value)

    def _start(self, spark: Any) -> Any:
        from pyspark.sql import functions as f

        parsed = (
            self.input(spark)
            .select(f.from_json(f.col("value").cast("string"), "k string, id string").alias("j"))
            .select("j.*")
        )
        return (
            clonos.causal(parsed)
            .groupBy("k")
            .process(
                self.first,
                FIRST,
                name="first",
                parallelism=self.parallelism,
                on_poison=self.on_poison,
                recovery=self.first_recovery,
                **self.upgrade,
            )
            .groupBy("bucket")
            .process(
                self.second,
                SECOND,
                name="second",
                parallelism=self.parallelism,
                recovery=self.second_recovery,
            )
            .writeStream.to(self.sink())
            .option("checkpointLocation", self.location or str(self.checkpoint))
            .option("clonos.faults", self.faults)
            .trigger(**(self.trigger or TRIGGERS[self.mode]))
            .start()
        )

    def input(self, spark: Any) -> Any:
        """The stream with the column `value`."""
        return spark.readStream.format("clonos").option("path", str(self.source)).load()

    def sink(self) -> Any:
        return clonos.sinks.sql(f"sqlite:///{self.database}", "out", patience=self.patience)

    # -------------------------------------------------------------- outcomes

    def rows(self, columns: str = "count(*)") -> list[tuple[Any, ...]]:
        """What the outside sees, in the order in which it became visible."""
        with contextlib.closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            return connection.execute(f"select {columns} from out order by rowid").fetchall()

    def visible(self) -> int:
        """Rows that the outside sees."""
        try:
            return int(self.rows()[0][0])
        except sqlite3.OperationalError:
            return 0

    def epochs(self, kind: str) -> list[int]:
        """Of Spark's logs `commits` or `offsets`."""
        names = Folder(*resolve(self.location or str(self.checkpoint)), tag="looking").sizes(kind)
        return sorted(int(name) for name in names if name.isdigit())

    def allow(self, asked: str) -> None:
        """Faults that ask for it may fire from now on."""
        marks = self.data / "faults"
        marks.mkdir(parents=True, exist_ok=True)
        (marks / asked).touch()

    def fired(self) -> list[str]:
        """Marks of the faults that have fired."""
        return sorted(path.name for path in (self.data / "faults").glob("[0-9]*-*"))

    def deaths(self) -> list[dict[str, Any]]:
        """Every unexpected death of a replica."""
        path = self.data / "deaths.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def due(self) -> int:
        """Rows that are to come out."""
        return self.count - len(self.passed_over)

    def dead_letters(self) -> list[DeadLetter]:
        """The dead letters of the first operator."""
        folder = self.checkpoint / "clonos" / "dead_letters"
        return [dead_letters.decode(path.read_bytes()) for path in sorted(folder.glob("*/*/*.letter"))]

    def judge(self) -> tuple[Verdict, Verdict]:
        """The verdicts on both ledgers."""
        inputs = [id for id in map(str, range(self.count)) if id not in self.passed_over]
        rows = self.rows(
            "a_key, a_n, id, a_draw, a_at, a_prev, a_hash, b_key, b_n, b_id, b_draw, b_at, b_prev, b_hash"
        )
        return (
            judge([row[:7] for row in rows], inputs),
            judge([row[7:] for row in rows], [row[6] for row in rows]),
        )


@contextlib.contextmanager
def running(spark: Any, setup: Run) -> Iterator[Any]:
    """The query with its input coming; stopped at the end."""
    if not setup.source.exists():
        setup.prepare()
    stop = threading.Event()
    feeder = threading.Thread(target=setup.feed, args=(stop,))
    query = setup.start(spark)
    try:
        feeder.start()
        yield query
    finally:
        stop.set()
        feeder.join()
        query.stop()


def run(spark: Any, setup: Run) -> Any:
    """Run the job to its end in this session; the handle, stopped. Raises the query's error, or TimeoutError."""
    with running(spark, setup) as query:
        await_end(query, setup)
    return query


def await_quarter(query: Any, setup: Run) -> None:
    """Until it is well on its way: a quarter of the output is visible, and something of either instance of the second
    operator, by whose number and its own the ids of rows begin."""
    quarter = setup.count // 4

    def is_well_on_its_way() -> bool:
        return setup.visible() >= quarter and setup.rows("count(distinct substr(clonos_id, 1, 4))") == [(2,)]

    await_(query, setup, is_well_on_its_way)


def await_end(query: Any, setup: Run) -> None:
    """Until every input has its row, every fault has fired, and an epoch has committed after that."""
    setup.enough.set()
    if setup.goes_on:
        await_(query, setup, setup.fed.is_set)
    expected = len(json.loads(setup.faults)) if setup.faults and setup.all_fire else 0
    await_(query, setup, lambda: setup.visible() >= setup.due and len(setup.fired()) >= expected)
    if setup.mode == "realtime":
        last = max(setup.epochs("commits"), default=-1)
        await_(query, setup, lambda: max(setup.epochs("commits"), default=-1) > last)
    else:
        await_(query, setup, lambda: setup.epochs("commits") == setup.epochs("offsets"))


def await_told(query: Any, setup: Run) -> list[Any]:
    """Until the progress has told of all rows that are visible, and of none twice."""

    def told() -> list[Any]:
        progress: list[Any] = query.recentProgress
        return progress if sum(one.sink.numOutputRows for one in progress) >= setup.visible() else []

    await_(query, setup, lambda: bool(told()))
    progress = told()
    rows = [(one.batchId, one.sink.numOutputRows) for one in progress]
    assert sum(shown for _, shown in rows) == setup.visible(), rows
    return progress


def await_(query: Any, setup: Run, reached: Callable[[], Found], seconds: float | None = None) -> Found:
    """Wait for something while the query runs: what is true of it. Raises its error where it ends, and TimeoutError."""
    seconds = setup.deadline if seconds is None else seconds
    until = time.monotonic() + seconds
    while not (found := reached()):
        if query.awaitTermination(0.05):
            raise AssertionError("the query has ended by itself")
        if time.monotonic() > until:
            raise TimeoutError(
                f"after {seconds} s: {setup.visible()} of {setup.count} rows, fired {setup.fired()}, "
                f"{query.causal_status()}"
            )
    return found


def await_replica(query: Any, setup: Run, node: int, instance: int) -> Any:
    """The primary of an instance as soon as it is there: for a moment after a death none is."""

    def found() -> list[Any]:
        return [
            one
            for one in query.replicas()
            if (one["node"], one["instance"], one["standby"]) == (node, instance, False)
        ]

    return await_(query, setup, found)[0]


def assert_exact(setup: Run) -> None:
    one, two = setup.judge()
    assert one.exact, f"first ledger: {one}\n" + "\n".join(one.first_problems)
    assert two.exact, f"second ledger: {two}\n" + "\n".join(two.first_problems)
    assert one.outputs == setup.due
