"""Rollback: which lost process is not replaced."""

from __future__ import annotations

from collections.abc import Sequence

from clonos.errors import GapError, ResumeFailed, RollbackNeeded, SnapshotCorrupt, Where
from clonos.protocol.recovery.policy import InstancePolicy
from clonos.protocol.roles.attach_request import AttachRequest


def check_replaceable(policy: InstancePolicy, request: AttachRequest, name: str) -> None:
    """A conduit asks for a process in the place of one that was lost inside an epoch. What that one did since its
    checkpoint others have seen, and it is not known. Raises RollbackNeeded where it cannot be repeated."""
    if not policy.kind.replaces and not request.fresh:
        lost = request.previous.message if request.previous is not None else "a process was lost"
        raise RollbackNeeded(
            f"{lost}; what it did since its last checkpoint is not recorded: all instances go back to checkpoints that "
            "fit together",
            where=Where(name, request.origin.instance, request.epoch),
        )


def run_again(request: AttachRequest, name: str) -> RollbackNeeded:
    """In micro-batch Spark runs a task again whose output it has lost, and an earlier attempt of this start has ended
    the epoch. Others may have read that output, and what is made now may be something else."""
    return RollbackNeeded(
        "Spark runs a task again that had ended the epoch; others may have read what it made, and that is not "
        "recorded: the epoch is done again as a whole",
        where=Where(name, request.origin.instance, request.epoch),
    )


def gone(error: ResumeFailed) -> SnapshotCorrupt:
    """An instance cannot begin where the line says. Nothing stands in for it: from the beginning of the epoch something
    else would be made than what was seen."""
    return SnapshotCorrupt(
        error.message,
        where=error.where,
        hint="Restore the checkpoint as it was, or begin anew with a new sink",
    )


def later_checkpoint_gone(where: Where) -> SnapshotCorrupt:
    """Others have the mark of a checkpoint (`engine.instance_log`) that is not there: so rows that it had."""
    return SnapshotCorrupt(
        "other instances, or what is visible, depend on rows that are in none of its checkpoints: a later one is gone, "
        "or the checkpoint was restored from an older copy",
        where=where,
        hint="Restore the checkpoint as it was last, or begin anew with a new checkpoint and a new sink",
    )


def not_reached(error: GapError, damage: Sequence[str]) -> SnapshotCorrupt:
    """An instance that replaces a lost one cannot begin where that one was, as others have seen it."""
    found = f" ({'; '.join(damage)})" if damage else ""
    return SnapshotCorrupt(
        f"others have rows of the instance that are in none of its checkpoints that can be read{found}",
        where=error.where,
        hint="Restore the checkpoint as it was, or begin anew with a new sink",
    )
