"""What recording costs in the replica: the ledger operator with and without it, same plan, interleaved.

Bundles go into a real operator host (Arrow in, user function, keyed state, log store on disk, Arrow out) without Spark
around it, so that nothing but the replica is measured; `benchmarks/overhead.py` measures the whole job. Both sides run
in one process, bundle by bundle in turn, in thread CPU time; the ratio is taken per round.

    python benchmarks/replica_overhead.py [--rounds 40] [--channels 2]
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

from clonos.operators.process import ProcessOperator
from clonos.operators.types import arrow_schema
from clonos.protocol.fence import Fence, Generation
from clonos.protocol.ids import FIRST_EPOCH, LOG_BEGIN, NO_OUTPUT, InstanceId, NodeId, Origin
from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.steps import carry_out
from clonos.storage.recovery_line_file import write_line
from clonos.testing.faults import FaultInjector
from clonos.testing.ledger import LEDGER_SCHEMA, ledger
from clonos.wire.block import Block, pack_block
from clonos.wire.messages import Bundle
from clonos_standby.cluster.spec import NodeSpec, QuerySpec, ReplicaSettings, Route, RouteKind
from clonos_standby.replica.operator_host import OperatorHost

INPUT = arrow_schema("k string, input_id string")
NODE = NodeId(2)
INSTANCE = InstanceId(0)
GENERATION = Generation(1)
KEYS = 997
SIZES = (1, 10, 100, 1000, 4096)
ROWS_PER_ROUND = 20_000
WARM_UP = 2
"""Rounds that are not counted."""


class Discard:
    """The conduit's end of the connection."""

    def send(self, *frames: Any) -> None:
        """Bytes leave."""


def ledger_node(recording: bool) -> NodeSpec:
    output = arrow_schema(LEDGER_SCHEMA)
    return NodeSpec(
        number=NODE,
        name="ledger",
        input=INPUT,
        operator=functools.partial(ProcessOperator, ledger, output, name="ledger"),
        key=(0,),
        output=output,
        routes=(Route(RouteKind.KEY, 2, (0,)),),
        recording=recording,
    )


def make_host(base: str, node: NodeSpec, **more: Any) -> OperatorHost:
    """With these settings. It takes no snapshots."""
    query = QuerySpec(
        query="bench",
        token="",
        checkpoint=f"{base}/checkpoint",
        data=f"{base}/data",
        settings=ReplicaSettings(snapshot_interval=float("inf"), snapshot_work=float("inf"), **more),
        nodes={NODE: cloudpickle.dumps(node)},
    )
    host = OperatorHost(
        query, node, INSTANCE, FaultInjector([], operator=node.name, instance=0, marks=Path(base))
    )
    connection: Any = Discard()
    write_line(query.checkpoint, RecoveryLine(GENERATION, FIRST_EPOCH))
    host.attach(connection)
    request = AttachRequest(
        Origin(NODE, INSTANCE),
        FIRST_EPOCH,
        Fence.of(GENERATION),
        fresh=True,
        is_retry=False,
        emitted_output=NO_OUTPUT,
        log_start=LOG_BEGIN,
        log=b"",
    )
    carry_out(host.session.attach(request))
    carry_out(host.session.open_epoch())
    return host


def make_bundles(count: int, rows: int, channels: int) -> list[Bundle]:
    """Bundles whose rows come from the channels at random, as one block of each channel."""
    generator = np.random.default_rng(1)
    bundles = []
    for number in range(count):
        at = number * rows
        senders = (generator.integers(0, channels, rows) << 6) | 1
        blocks = []
        for sender in np.unique(senders):
            numbers = at + 1 + np.flatnonzero(senders == sender)
            columns = [pa.array([f"k{n % KEYS}" for n in numbers]), pa.array([str(n) for n in numbers])]
            message = pa.RecordBatch.from_arrays(columns, schema=INPUT).serialize()
            block = Block(FIRST_EPOCH, int(sender), numbers, b"", memoryview(message))
            blocks.append(memoryview(pack_block(block)))
        bundles.append(Bundle(number + 1, rows, tuple(blocks)))
    return bundles


def in_turns(
    sides: tuple[OperatorHost, OperatorHost],
    bundles: list[Bundle],
    rounds: int,
    ends: Callable[[OperatorHost], None] = lambda host: None,
) -> tuple[list[float], list[float]]:
    """Processor seconds of this thread, of each side and round, over an equal part of the bundles each: one by one in
    turn, so that what else the machine does strikes both; garbage is collected in between, or one side would pay for
    both. `ends` is counted, too."""
    per_round = len(bundles) // (rounds + WARM_UP)
    cpu: tuple[list[float], list[float]] = [], []
    gc.disable()
    for number in range(rounds + WARM_UP):
        gc.collect()
        spent = [0.0, 0.0]
        for at in range(number * per_round, (number + 1) * per_round):
            for side in (0, 1) if at % 2 else (1, 0):
                host, bundle = sides[side], bundles[at]
                start = time.thread_time()
                carry_out(host.session.bundle(bundle.seq, host.read(bundle)))
                spent[side] += time.thread_time() - start
        for side, times in enumerate(cpu):
            start = time.thread_time()
            ends(sides[side])
            times.append(spent[side] + time.thread_time() - start)
    gc.enable()
    return cpu[0][WARM_UP:], cpu[1][WARM_UP:]


def bundles_per_round(rows: int) -> int:
    return max(4, min(400, ROWS_PER_ROUND // rows))


def measure(rows: int, rounds: int, channels: int, base: str) -> str:
    per_round = bundles_per_round(rows)
    bundles = make_bundles(per_round * (rounds + WARM_UP), rows, channels)
    sides = [make_host(f"{base}/{name}-{rows}", ledger_node(name == "on")) for name in ("on", "off")]
    on, off = in_turns((sides[0], sides[1]), bundles, rounds)
    ratios = sorted(b / a for a, b in zip(on, off, strict=True))
    scale = 1e9 / per_round / rows
    logged = sides[0].live.log_offset / (len(bundles) * rows)
    quarter = len(ratios) // 4
    for host in sides:
        host.close()
    return (
        f"{rows:>6} {statistics.median(on) * scale:>10,.0f} {statistics.median(off) * scale:>10,.0f} "
        f"{statistics.median(ratios):>9.3f}   [{ratios[quarter]:.3f} .. {ratios[-1 - quarter]:.3f}] {logged:>12.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--channels", type=int, default=2)
    options = parser.parse_args()
    print("rows per   recorded  unrecorded  throughput  quartiles       log bytes")
    print("  bundle     ns/row      ns/row       ratio                   per row")
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as base:
        for rows in SIZES:
            print(measure(rows, options.rounds, options.channels, base), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
