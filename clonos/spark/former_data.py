"""Where the last start kept causal logs: not to be left behind while they are all there is of an open epoch.

A start with another data directory begins with empty logs. What instances did in the epoch that was under way is known
from there alone, where nobody downstream has been sent it: an effect would be done anew, with other values.
"""

from __future__ import annotations

import os

from clonos.errors import CheckpointMismatch
from clonos.protocol.ids import Epoch, epoch_after, log_after
from clonos.protocol.topology import Topology
from clonos.protocol.versions.upgrade import LastCommit, Remains, says_more
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.query_snapshots import final_snapshots
from clonos.spark.upgrade import last_commits, recorded
from clonos.storage.log_directory import is_copied_for, same_directory


def check_former_data(checkpoint: Checkpoint, program: Topology, data: str) -> None:
    """`data` is where this start will keep logs; `program` is what the last one ran. A directory that was moved holds
    nothing any more where it was, and what is on another host nobody can look at. Raises CheckpointMismatch."""
    place = checkpoint.place()
    if place is None:
        return
    _, former = place
    if same_directory(data, former) or is_copied_for(data, former, checkpoint.location):
        return
    passed = checkpoint.passed()
    if not _holds_more(former, data, checkpoint, program, passed):
        return
    raise CheckpointMismatch(
        f"the last start kept its causal logs in {former}, and of epoch {epoch_after(passed)}, which is not over, they "
        f"may say what nobody else knows; this start would keep them in {data}",
        hint=f"{_as_before(checkpoint, former)}, or move {former} to {data} first. Once an epoch has committed, "
        "any directory will do",
    )


def _as_before(checkpoint: Checkpoint, former: str) -> str:
    if checkpoint.inside is not None and same_directory(former, checkpoint.inside):
        return "Start without spark.clonos.data"
    return f"Start with spark.clonos.data={os.path.dirname(former)}"


def _holds_more(former: str, data: str, checkpoint: Checkpoint, program: Topology, passed: Epoch) -> bool:
    """Whether stores there say anything, as far as they can be read, behind the last commit and behind what is said
    here: a directory may have been copied."""
    stood = last_commits(final_snapshots(checkpoint.location, program, passed))
    here, handed_on, _ = recorded(data)
    for origin, (start, said) in Remains(stood, here, handed_on, cursors={}, whole=True).pieces():
        known = stood.get(origin, LastCommit())
        if known.log_offset < start + len(said):
            stood[origin] = known._replace(log_offset=log_after(start, said))
    own, deltas, whole = recorded(former)
    return says_more(Remains(stood, own, deltas, cursors={}, whole=whole))
