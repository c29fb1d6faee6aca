"""Where the last start kept causal logs: not to be left behind while they are all there is of an open epoch.

A start with another data directory begins with empty logs. What instances did in the epoch that was under way is known
from there alone, where nobody downstream has been sent it: an effect would be done anew, with other values.
"""

from __future__ import annotations

import os
import platform

from clonos.errors import CheckpointMismatch
from clonos.protocol.ids import Epoch, epoch_after
from clonos.protocol.topology import Topology
from clonos.protocol.versions.upgrade import Remains, says_more
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.query_snapshots import final_snapshots
from clonos.spark.upgrade import last_commits, recorded


def check_former_data(checkpoint: Checkpoint, program: Topology, data: str) -> None:
    """`data` is where this start will keep logs; `program` is what the last one ran. A directory that was moved holds
    nothing any more where it was, and on another host nobody can look. Raises CheckpointMismatch."""
    place = checkpoint.place()
    if place is None:
        return
    host, former = place
    if host != platform.node() or os.path.abspath(data) == os.path.abspath(former):
        return
    passed = checkpoint.passed()
    if not _holds_more(former, checkpoint, program, passed):
        return
    raise CheckpointMismatch(
        f"the last start kept its causal logs in {former}, and of epoch {epoch_after(passed)}, which is not over, they "
        f"may say what nobody else knows; this start would keep them in {data}",
        hint=f"Start with spark.clonos.data={os.path.dirname(former)}, or move {former} to {data} first. Once an epoch "
        "has committed, any directory will do",
    )


def _holds_more(former: str, checkpoint: Checkpoint, program: Topology, passed: Epoch) -> bool:
    """Whether stores there say anything behind the last commit, as far as they can be read."""
    own, deltas, whole = recorded(former)
    stood = last_commits(final_snapshots(checkpoint.location, program, passed))
    return says_more(Remains(stood, own, deltas, cursors={}, whole=whole))
