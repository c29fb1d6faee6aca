"""Virtual clusters of up to 1,000 instances: determinants on the wire, log sizes, recovery time by the cost model.

Calibrates the cost model on this machine, simulates the clusters (`clonos.sim.scale`), prints a table in Markdown and
draws it.

    python benchmarks/scale.py [--draw docs/scale.png]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import cloudpickle
from replica_overhead import GENERATION, INSTANCE, NODE, ledger_node

from clonos.protocol.destination import Reader, Routing, route_by_key
from clonos.protocol.engine.instance import Action, Bundle, Emit, Instance, InstanceConfig, Persist
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.fence import Fence
from clonos.protocol.ids import FIRST_EPOCH, LOG_BEGIN, NO_OUTPUT, LogOffset, NodeId, Origin
from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.recovery.causal.delta import encode_delta, encode_entry
from clonos.protocol.recovery.causal.delta_journal import FULL, DeltaJournal
from clonos.sim.cost_model import Costs, Load, recovery
from clonos.sim.fake_services import Outcomes, Timers
from clonos.sim.operator import Ledger, Outside, Uses, key_column
from clonos.sim.records import Rows, Tag
from clonos.sim.scale import Cluster, Figures, simulate
from clonos.storage.recovery_line_file import write_line
from clonos.wire import messages
from clonos.wire.framing import read_frame, send_frames
from clonos_standby.cluster.launcher import ReplicaServer
from clonos_standby.cluster.spec import QuerySpec

KILLS = 15
TARGET = NodeId(3)
COLUMNS = (
    "layers",
    "parallelism",
    "instances",
    "sharing depth",
    "own log, B/record",
    "on the wire, B/row",
    "sink log, B/row",
    "kept in memory, MB/s",
    "replica lost, s",
    "query lost, s",
)
CLUSTERS = [
    *(Cluster(3, parallelism) for parallelism in (4, 16, 64, 256)),
    *(Cluster(3, 64, sharing) for sharing in (1, 2)),
    Cluster(4, 250, 1),
    Cluster(4, 250, 2),
    Cluster(4, 250),
    Cluster(10, 100, 1),
    Cluster(10, 100, 2),
    Cluster(10, 100),
]


class Ports:
    """What an instance needs, and nothing that takes time."""

    def __init__(self) -> None:
        self.saved = bytearray()

    def clock(self) -> int:
        return time.time_ns() // 1000

    def entropy(self) -> int:
        return random.getrandbits(64)

    def encode(self, rows: list[Any]) -> Rows:
        return Rows(rows)

    def persist(self, persist: Persist, *, durable: bool) -> None:
        self.saved += b"".join(persist.own)

    def flush_log(self, due: Sequence[Emit], log_start: int, log: bytes) -> None:
        """There are no effects."""


def instance() -> tuple[Instance, Ports]:
    ports = Ports()
    services = CausalServices(
        state={}, timers=Timers(), event_timers=Timers(), random=random.Random(), outcomes=Outcomes()
    )
    outside = Outside(
        ask=lambda: 1,
        act=lambda *_: None,
        consumed=lambda *_: None,
        is_poison=lambda _: False,
        die=lambda *_: None,
        entropy=lambda: 1,
        ends_next=lambda count: 0,
    )
    operator = Ledger(NODE, TARGET, outside, Uses(False, False, False, False, False))
    operator.open(services)
    config = InstanceConfig(
        "op",
        Origin(NODE, INSTANCE),
        Routing([Reader(route_by_key([key_column(TARGET)], 4), 4)]),
        lambda rows: [(row[0],) for row in rows],
    )
    return Instance(config, operator, services, ports), ports


def begun(of: Instance) -> list[Action]:
    return of.open_epoch(FIRST_EPOCH, realtime=True)


def replay_seconds(bundles: int, size: int) -> float:
    """How long so many bundles of so many records take to repeat."""
    tag = Tag(1, 0, -1, {}, {})
    taken = [
        Bundle([1] * size, list(range(at * size, (at + 1) * size)), [("k", n, (), tag) for n in range(size)])
        for at in range(bundles)
    ]
    live, ports = instance()
    for action in [a for b in [None, *taken] for a in (live.take(b) if b else begun(live))]:
        if not isinstance(action, Emit):
            ports.persist(action, durable=False)
    again, _ = instance()
    again.restore(None, recorded=bytes(ports.saved))
    began = time.perf_counter()
    begun(again)
    for bundle in taken:
        again.take(bundle)
    return time.perf_counter() - began


def calibrate() -> Costs:
    """The constants of the cost model on this machine."""
    small, large = replay_seconds(4000, 1) / 4000, replay_seconds(100, 400) / 100
    record = (large - small) / 399
    return Costs(
        hand_over=hand_over_seconds(),
        restore_rate=restore_rate(),
        log_rate=log_rate(),
        record=record,
        step=small - record,
    )


def hand_over_seconds() -> float:
    """From the SIGKILL of a real replica to the WELCOME of the warm spare behind it, with nothing to restore."""
    spent = []
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as base:
        node = cloudpickle.dumps(ledger_node(True))
        query = QuerySpec(
            query="bench", token="bench", checkpoint=f"{base}/checkpoint", data=base, nodes={NODE: node}
        )
        write_line(query.checkpoint, RecoveryLine(GENERATION, FIRST_EPOCH))
        server = ReplicaServer(query.to_document(), base).start()
        try:
            server.set_generation(GENERATION)
            for kill in range(KILLS + 1):
                while len(server.status()["spares"]) < 1:
                    time.sleep(0.05)
                began = time.perf_counter()
                if kill:
                    os.kill(server.status()["replicas"][0]["pid"], signal.SIGKILL)
                hello = messages.Hello(
                    "bench",
                    GENERATION,
                    NODE,
                    INSTANCE,
                    FIRST_EPOCH,
                    Fence.of(GENERATION, 1, kill),
                    fresh=kill == 0,
                )
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(server.socket_path)
                send_frames(
                    connection, [messages.pack_hello(hello), messages.pack_resume(NO_OUTPUT, LOG_BEGIN)]
                )
                answer = read_frame(connection)
                assert answer is not None and isinstance(messages.parse(answer), messages.Welcome), answer
                spent.append(time.perf_counter() - began)
                connection.close()
        finally:
            server.stop()
    return statistics.median(spent[1:])


def restore_rate() -> float:
    """Bytes per second from storage to local disk, checked on the way."""
    block = os.urandom(64 << 20)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state")
        with open(path, "wb") as file:
            file.write(block)
        began = time.perf_counter()
        with open(path, "rb") as source, open(f"{path}.copy", "wb") as target:
            target.write(source.read())
        return len(block) / (time.perf_counter() - began)


def log_rate() -> float:
    """Bytes of deltas per second that a journal takes in."""
    deltas = [
        encode_delta(
            encode_entry(Origin.of(1, i), LogOffset(at * 100), 100, 1, bytes(100)) for i in range(100)
        )
        for at in range(200)
    ]
    journal = DeltaJournal(FULL)
    began = time.perf_counter()
    for raw in deltas:
        journal.receive(raw)
    return sum(map(len, deltas)) / (time.perf_counter() - began)


def table(all_figures: list[Figures], costs: Costs, load: Load) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|"]
    for figures in all_figures:
        cluster, seconds = figures.cluster, recovery(figures, costs, load)
        depth = "full" if cluster.sharing == FULL else cluster.sharing
        lines.append(
            f"| {cluster.layers} | {cluster.parallelism} | {cluster.instances} | {depth} "
            f"| {figures.own_log_per_record:.1f} | {figures.wire_per_record:,.0f} | {figures.sink_per_record:,.0f} "
            f"| {figures.journal_per_second / 1e6:.2f} | {seconds.replica_lost:.1f} | {seconds.query_lost:.1f} |"
        )
    return "\n".join(lines)


def draw(all_figures: list[Figures], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    series = [each for each in all_figures if each.cluster.layers == 3 and each.cluster.sharing == FULL]
    left.loglog([f.cluster.parallelism for f in series], [f.wire_per_record for f in series], "o-")
    left.set(
        title="3 layers, sharing depth full", xlabel="parallelism", ylabel="bytes of determinants per row"
    )
    wide = [each for each in all_figures if each.cluster.instances == 1000]
    names = [
        f"{f.cluster.layers} x {f.cluster.parallelism}\n{'full' if f.cluster.sharing == FULL else f.cluster.sharing}"
        for f in wide
    ]
    right.bar(names, [f.wire_per_record for f in wide])
    right.set(
        title="1,000 instances, by shape and sharing depth",
        yscale="log",
        ylabel="bytes of determinants per row",
    )
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draw", metavar="FILE", help="draw the figures as a PNG")
    options = parser.parse_args()
    costs, load = calibrate(), Load()
    print(
        f"Calibrated: {costs.record * 1e6:.0f} us per record and {costs.step * 1e6:.0f} us per step repeated, "
        f"{costs.log_rate / 1e6:.0f} MB/s of deltas, {costs.restore_rate / 1e6:,.0f} MB/s of state, "
        f"{costs.hand_over * 1e3:.0f} ms until a spare takes over.\n"
    )
    all_figures = [simulate(cluster) for cluster in CLUSTERS]
    print(table(all_figures, costs, load))
    if options.draw:
        draw(all_figures, options.draw)


if __name__ == "__main__":
    main()
