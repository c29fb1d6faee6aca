"""A state much larger than the replica's memory: what the process takes, what a snapshot costs, what a restore takes.

A real operator host (Arrow in, user function, keyed state, log store, Arrow out) without Spark around it. Every key is
filled once with bytes that do not compress; then keys at random are changed at a steady rate, with snapshots in the
background at the interval a query has. Printed are the process's own memory (resident and not of files), for every
snapshot how long it held the instance up (`begin`) and how many bytes are new in checkpoint storage, how long bundles
took meanwhile, and a restore by a second host. Where the checkpoint lies on the file system of the working state, new
files are linked and not even copied once; `--checkpoint` puts it elsewhere.

    python benchmarks/large_state.py [--megabytes 1000] [--seconds 60] [--rate 2000] [--checkpoint DIR]
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import re
import select
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from clonos.operators.process import ProcessOperator
from clonos.operators.types import arrow_schema
from clonos.protocol.fence import Fence
from clonos.protocol.ids import FIRST_EPOCH, LOG_BEGIN, NO_OUTPUT, Epoch, InstanceId, Origin
from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.steps import carry_out
from clonos.storage.recovery_line_file import write_line
from clonos.testing.faults import FaultInjector
from clonos.wire.block import Block, pack_block
from clonos.wire.messages import Bundle
from clonos_standby.cluster.spec import NodeSpec, QuerySpec, ReplicaSettings, Route, RouteKind
from clonos_standby.replica.operator_host import OperatorHost

INPUT = arrow_schema("k long")
OUTPUT = arrow_schema("k long, n long")
ENTRY_BYTES = 1000
FILL_ROWS = 1000
STEADY_ROWS = 20
MB = 1_000_000


def remember(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    state = ctx.state
    state["n"] = n = state.get("n", 0) + 1
    state["filling"] = ctx.random.randbytes(ENTRY_BYTES)
    yield key[0], n


class Discard:
    """The conduit's end of the connection."""

    def send(self, *frames: Any) -> None:
        """Bytes leave."""


class Memory(threading.Thread):
    """The most that this process has taken, in bytes of anonymous memory; sampled."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self.start()

    @staticmethod
    def now() -> int:
        found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    def run(self) -> None:
        while True:
            self.most = max(self.most, self.now())
            time.sleep(0.05)

    def lap(self) -> str:
        now = self.now()
        most, self.most = max(self.most, now), 0
        return f"{now / MB:,.0f} MB, at most {most / MB:,.0f} MB"


class Watched:
    """A snapshot store, and what its snapshots cost."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._stored: set[str] = set()
        self.snapshots: list[tuple[float, float, int, int]] = []
        self._begun = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def begin(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        pending = self._store.begin(*args, **kwargs)
        self._begun = time.perf_counter() - start
        return pending

    def finish(self, pending: Any) -> Any:
        start, begun = time.perf_counter(), self._begun
        manifest = self._store.finish(pending)
        spent = time.perf_counter() - start
        sizes = {file.stored: file.size for file in manifest.files if file.stored}
        new = sum(size for name, size in sizes.items() if name not in self._stored)
        self._stored |= sizes.keys()
        self.snapshots.append((begun, spent, new, sum(sizes.values())))
        return manifest


def make_host(data: Path, checkpoint: Path, interval: float) -> OperatorHost:
    node = NodeSpec(
        number=2,
        name="remember",
        input=INPUT,
        operator=functools.partial(ProcessOperator, remember, OUTPUT, name="remember"),
        key=(0,),
        output=OUTPUT,
        routes=(Route(RouteKind.KEY, 2, (0,)),),
    )
    query = QuerySpec(
        query="bench",
        token="",
        checkpoint=str(checkpoint),
        data=str(data),
        settings=ReplicaSettings(snapshot_interval=interval, snapshot_work=float("inf")),
    )
    return OperatorHost(
        query, node, InstanceId(0), FaultInjector([], operator="remember", instance=0, marks=data)
    )


def open_host(host: OperatorHost, checkpoint: Path, *, fence: Fence, epoch: Epoch) -> Watched:
    connection: Any = Discard()
    host.attach(connection)
    begin_start(checkpoint, epoch, fence)
    carry_out(host.session.attach(first_request(epoch, fence)))
    host._snapshots = watched = Watched(host._snapshots)  # type: ignore[assignment]
    carry_out(host.session.open_epoch())
    return watched


def begin_start(checkpoint: Path, epoch: Epoch, fence: Fence) -> None:
    """A start of the query begins with this epoch."""
    write_line(str(checkpoint), RecoveryLine(fence.generation, epoch))


def first_request(epoch: Epoch, fence: Fence) -> AttachRequest:
    """Of an epoch's first task attempt."""
    return AttachRequest(
        Origin.of(2, 0),
        epoch,
        fence,
        fresh=True,
        is_retry=False,
        emitted_output=NO_OUTPUT,
        log_start=LOG_BEGIN,
        log=b"",
    )


class Driver:
    """Feeds bundles, and serves finished snapshots as the replica's loop does."""

    def __init__(self, host: OperatorHost, checkpoint: Path) -> None:
        self._host = host
        self._checkpoint = checkpoint
        self._position = 0
        self._number = 0
        self._epoch = FIRST_EPOCH
        self.spent: list[float] = []

    def feed(self, keys: Any) -> None:
        rows = len(keys)
        numbers = np.arange(self._position + 1, self._position + rows + 1)
        self._position += rows
        self._number += 1
        message = pa.RecordBatch.from_arrays([pa.array(keys)], schema=INPUT).serialize()
        block = pack_block(Block(self._epoch, 1, numbers, b"", memoryview(message)))
        start = time.perf_counter()
        records = self._host.read(Bundle(self._number, rows, (memoryview(block),)))
        carry_out(self._host.session.bundle(self._number, records))
        if select.select([self._host.wakeups()], [], [], 0)[0]:
            self._host.finished()
        self.spent.append(time.perf_counter() - start)

    def next_epoch(self, epoch: Epoch, fence: Fence) -> None:
        """The same host goes on; a conduit numbers its bundles from 1."""
        self._number = 0
        self._epoch = epoch
        begin_start(self._checkpoint, epoch, fence)
        carry_out(self._host.session.attach(first_request(epoch, fence)))
        carry_out(self._host.session.open_epoch())

    def steadily(self, keys: int, rate: int, seconds: float) -> None:
        generator = np.random.default_rng(1)
        self.spent.clear()
        start, sent = time.perf_counter(), 0
        while (passed := time.perf_counter() - start) < seconds:
            if sent * STEADY_ROWS > passed * rate:
                time.sleep(0.001)
                continue
            self.feed(generator.integers(0, keys, STEADY_ROWS))
            sent += 1

    def end(self) -> float:
        start = time.perf_counter()
        carry_out(self._host.session.end(self._number))
        return time.perf_counter() - start


def told(snapshots: list[tuple[float, float, int, int]]) -> str:
    begun, spent, new, size = (list(column) for column in zip(*snapshots, strict=True))
    return (
        f"{len(snapshots)}: begin {statistics.median(begun) * 1000:.0f} ms, at most {max(begun) * 1000:.0f} ms; "
        f"upload {statistics.median(spent) * 1000:.0f} ms, at most {max(spent) * 1000:.0f} ms; "
        f"new {statistics.median(new) / MB:,.0f} MB, at most {max(new) / MB:,.0f} MB, of {size[-1] / MB:,.0f} MB"
    )


def measure(options: argparse.Namespace, base: Path, checkpoint: Path) -> None:
    memory = Memory()
    keys = options.megabytes * MB // ENTRY_BYTES
    host = make_host(base / "data", checkpoint, options.interval)
    watched = open_host(host, checkpoint, fence=Fence.of(1), epoch=FIRST_EPOCH)
    print(f"before                    {memory.lap()}", flush=True)
    driver = Driver(host, checkpoint)
    start = time.perf_counter()
    for first in range(0, keys, FILL_ROWS):
        driver.feed(np.arange(first, min(keys, first + FILL_ROWS)))
    spent = time.perf_counter() - start
    print(f"filled, {keys / spent:,.0f} rows/s    {memory.lap()}")
    if watched.snapshots:
        print(f"snapshots meanwhile       {told(watched.snapshots)}", flush=True)
    print(f"end of the epoch          {driver.end():.2f} s", flush=True)
    driver.next_epoch(Epoch(1), Fence.of(2))
    watched.snapshots.clear()
    memory.lap()
    driver.steadily(keys, options.rate, options.seconds)
    cuts = statistics.quantiles(driver.spent, n=1000, method="inclusive")
    print(f"{options.rate} changes/s            {memory.lap()}")
    print(f"snapshots meanwhile       {told(watched.snapshots)}")
    print(
        f"a bundle of {STEADY_ROWS}            p50 {cuts[499] * 1000:.1f} ms, p99 {cuts[989] * 1000:.1f} ms, "
        f"at most {max(driver.spent) * 1000:.0f} ms"
    )
    print(f"end of the epoch          {driver.end():.2f} s: {told(watched.snapshots[-1:])}", flush=True)
    host.close()
    del host, driver, watched
    gc.collect()
    again = make_host(base / "data", checkpoint, options.interval)
    memory.lap()
    start = time.perf_counter()
    open_host(again, checkpoint, fence=Fence.of(3), epoch=Epoch(2))
    print(f"restored in               {time.perf_counter() - start:.2f} s, {memory.lap()}")
    again.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1000, help="keyed state of the instance")
    parser.add_argument("--seconds", type=float, default=60.0, help="of steady changes")
    parser.add_argument("--rate", type=int, default=2000, help="changes a second")
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between snapshots")
    parser.add_argument("--checkpoint", help="a directory on another file system")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="clonos-bench-") as base,
        tempfile.TemporaryDirectory(prefix="clonos-bench-", dir=options.checkpoint) as checkpoint,
    ):
        measure(options, Path(base), Path(checkpoint))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
