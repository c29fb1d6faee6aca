"""An instance of which no snapshot is there, though it has run.

An instance begins from nothing only where it has never run. That no snapshot is found is no proof of that: a user may
have removed it. Once a commit record names the end of an instance, the record is the proof. Before the first record,
and in epochs that no driver lived to record, other instances bear witness: in real time every instance runs in every
epoch, and in either mode a receiver that has ended an epoch with its rows has them from an instance that has run. (A
sink may have them from an epoch that has not committed, which an instance may begin with nothing; so it bears no
witness.) And where its log is found, that says which epochs it has run: each begins with an entry of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from clonos.errors import SnapshotCorrupt, Where
from clonos.protocol.ids import LOG_BEGIN, Epoch, Origin
from clonos.protocol.recovery.causal.determinant import Kind
from clonos.protocol.recovery.causal.determinant_codec import chunk_at, decode_steps
from clonos.protocol.topology import NodeKind, Topology

Reached = Mapping[Origin, Mapping[int, int]]
"""By instance, and channel, the last position that it has."""


def check_no_end_is_missing(topology: Topology, ends: Reached, *, epoch: Epoch, realtime: bool) -> None:
    """`ends` are the snapshots with which instances ended `epoch`, which has committed, or the last one before that
    they ran, `realtime` whether that epoch ran in real time. Raises SnapshotCorrupt."""
    if epoch < 0:
        return
    for origin in topology.instances(NodeKind.OPERATOR):
        if origin in ends:
            continue
        witness = _witness(topology, origin, ends)
        if witness is not None or realtime:
            what = f"{witness} has its rows" if witness is not None else "all instances run in real time"
            raise SnapshotCorrupt(
                f"node {origin.node}, instance {origin.instance} has run before the end of epoch {epoch}, for "
                f"{what}, and no snapshot of it is there",
                hint="Restore the checkpoint as it was after that epoch",
            )


def check_log_has_no_earlier_epoch(log: bytes, *, epoch: Epoch, where: Where) -> None:
    """`log` is what is known, from its beginning, of the log of an instance that begins `epoch` from nothing. Raises
    SnapshotCorrupt where it has run an epoch before."""
    if not log:
        return
    _, end = chunk_at(log, 0)  # the log may be long, and is decoded for the replay
    first = decode_steps(log[:end], LOG_BEGIN)[0]
    if first.kind is Kind.BOUNDARY and first.epoch < epoch:
        raise SnapshotCorrupt(
            f"the instance has run epoch {first.epoch}, as its log says, and no snapshot of it is there",
            where=where,
            hint=f"Restore the checkpoint as it was after epoch {epoch - 1}",
        )


def _witness(topology: Topology, sender: Origin, ends: Reached) -> str | None:
    """An instance that has received rows of the sender, in words."""
    for receiver in topology.downstream(sender.node):
        for origin, reached in ends.items():
            if origin.node == receiver.number and reached.get(sender.channel, 0) > 0:
                return f"node {origin.node}, instance {origin.instance}"
    return None
