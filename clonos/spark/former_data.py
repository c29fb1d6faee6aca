"""Where the last start kept causal logs: not to be left behind while they are all there is of an open epoch.

A start with another data directory begins with empty logs. What instances did in the epoch that was under way is known
from there alone where no instance downstream has been sent it: an effect would be done anew, with other values.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator

from clonos.errors import CheckpointMismatch
from clonos.protocol.fence import NO_GENERATION
from clonos.protocol.ids import Epoch, LogOffset, Origin, epoch_after
from clonos.protocol.recovery.causal.causal_log import CausalLog, Segment
from clonos.protocol.topology import Topology
from clonos.protocol.versions.upgrade import LastCommit, Remains, is_seen
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.query_snapshots import final_snapshots
from clonos.spark.upgrade import last_commits, recorded
from clonos.storage.log_directory import is_copied_for, same_directory
from clonos.storage.recovery_line_file import newest_line


def check_former_data(checkpoint: Checkpoint, program: Topology, query: str, data: str) -> None:
    """`data` is where this start will keep logs; `program` is what the last one ran. A directory that was moved holds
    nothing any more where it was, and this driver cannot look at one on another host. Raises CheckpointMismatch."""
    place = checkpoint.place()
    if place is None:
        return
    _, former = place
    if same_directory(data, former):
        return
    line = newest_line(checkpoint.location)
    last = line.generation if line is not None else NO_GENERATION
    if is_copied_for(data, former, checkpoint.location, query, last):
        return
    passed = checkpoint.passed()
    if not _holds_more(former, data, checkpoint, program, passed):
        return
    raise CheckpointMismatch(
        f"the last start kept its causal logs in {former}, and of epoch {epoch_after(passed)}, which is not over, they "
        f"may say what no other log says; this start would keep them in {data}",
        hint=f"{_as_before(checkpoint, former)}, or move {former} to {data} first. Once an epoch has committed, "
        "any directory will do",
    )


def _as_before(checkpoint: Checkpoint, former: str) -> str:
    if checkpoint.inside is not None and same_directory(former, checkpoint.inside):
        return "Start without spark.clonos.data"
    return f"Start with spark.clonos.data={os.path.dirname(former)}"


def _holds_more(former: str, data: str, checkpoint: Checkpoint, program: Topology, passed: Epoch) -> bool:
    """Whether stores there say anything behind the last commit, as far as they can be read, that `data` does not say: a
    directory may have been copied."""
    stood = last_commits(final_snapshots(checkpoint.location, program, passed))
    here: dict[Origin, CausalLog] = defaultdict(CausalLog)
    for origin, piece in _pieces(data):
        here[origin].merge_agreeing([piece])
    for origin, (start, said) in _pieces(former):
        known = here[origin].agreement(start, said)
        more = LogOffset(start + known), said[known:]
        if is_seen(more, stood.get(origin, LastCommit()).log_offset):
            return True
    return False


def _pieces(data: str) -> Iterator[tuple[Origin, Segment]]:
    own, deltas, whole = recorded(data)
    return Remains({}, own, deltas, cursors={}, whole=whole).pieces()
