"""Virtual clusters of up to 10,000 instances: what markers and dependency vectors come to beside the rows.

    python benchmarks/recovery_scale.py

prints a table in Markdown (`clonos.sim.recovery_scale`); what a vector costs to take is measured here, with the policy
that queries run with.
"""

from __future__ import annotations

import argparse
import statistics
import time

from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.communication_induced.forced_checkpoints import ForcedCheckpoints
from clonos.protocol.recovery.communication_induced.instance_numbering import InstanceNumbering
from clonos.sim.recovery_scale import (
    forced_per_own,
    messages_per_bundle,
    messages_with_markers,
    vector_bytes_per_row,
)
from clonos.sim.scale import Cluster

CLUSTERS = (
    Cluster(3, 4),
    Cluster(3, 16),
    Cluster(10, 10),
    Cluster(3, 64),
    Cluster(10, 100),
    Cluster(4, 250),
    Cluster(10, 1000),
)
COLUMNS = (
    "layers",
    "parallelism",
    "instances",
    "messages with markers, over none",
    "vectors, B/row",
    "forced over own checkpoints",
    "vectors, processor time of an instance",
)
SIMULATED = 100
"""The most instances of which every one takes every bundle."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--interval", type=float, default=1.0, help="of checkpoints, in seconds")
    interval = arguments.parse_args().interval
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for cluster in CLUSTERS:
        forced = forced_per_own(cluster, interval) if cluster.instances <= SIMULATED else None
        share = _seconds_per_vector(cluster) * messages_per_bundle(cluster) * cluster.bundles_per_second
        shown = (
            str(cluster.layers),
            str(cluster.parallelism),
            f"{cluster.instances:,}",
            f"{messages_with_markers(cluster, interval):.2f}",
            f"{vector_bytes_per_row(cluster):,.0f}",
            "" if forced is None else f"{forced:.2f}",
            f"{100 * share:,.1f} %",
        )
        print(f"| {' | '.join(shown)} |", flush=True)


def _seconds_per_vector(cluster: Cluster) -> float:
    """To take one."""
    count = cluster.instances
    sender, taker = (ForcedCheckpoints(0, InstanceNumbering(number, count, (0, 1))) for number in range(2))
    raw = sender.take_checkpoint()
    bundle = Bundle([], [], [], [raw] * 20)
    spent = []
    for _ in range(15):
        began = time.perf_counter()
        list(taker.arrive(bundle))
        spent.append((time.perf_counter() - began) / len(bundle.deltas))
    return statistics.median(spent)


if __name__ == "__main__":
    main()
