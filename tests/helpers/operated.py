"""A query to operate: a checkpoint and a real replica server, with the replicas of `standby_replica` in it."""

from __future__ import annotations

import os
from pathlib import Path

from standby_conduit import SPEC

from clonos.protocol.topology import Node, NodeKind, Topology
from clonos.spark.checkpoint import Checkpoint
from clonos_standby.cluster.launcher import ReplicaServer

TOPOLOGY = Topology(
    (
        Node(1, NodeKind.OPERATOR, "review", 2, (3,)),
        Node(2, NodeKind.SINK, "out", 1, (1,)),
        Node(3, NodeKind.SOURCE, "source", 0),
    )
)


def make_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint of a query with one operator of two instances and a sink, epoch 4 committed."""
    checkpoint = Checkpoint(str(folder))
    checkpoint.open(TOPOLOGY)
    checkpoint.set_place(checkpoint.inside or "")
    for kind in ("offsets", "commits"):
        (folder / kind).mkdir()
        (folder / kind / "4").write_text("v1\n{}")
    return checkpoint


def serve(checkpoint: Path) -> ReplicaServer:
    spec = {**SPEC, "driver_pids": [os.getpid()]}
    return ReplicaServer(
        spec, checkpoint / "clonos" / "local", entry="standby_replica:main", determinants=False
    )
