"""Rollback: which lost process is not replaced."""

from __future__ import annotations

from clonos.errors import ResumeFailed, RollbackNeeded, SnapshotCorrupt, Where
from clonos.protocol.recovery.policy import InstancePolicy
from clonos.protocol.roles.attach_request import AttachRequest


def check_replaceable(policy: InstancePolicy, request: AttachRequest, name: str) -> None:
    """A conduit asks for a process in the place of one that was lost inside an epoch. What that one did since its
    checkpoint others have seen, and it is not known. Raises RollbackNeeded where it cannot be repeated."""
    if not policy.kind.replaces and not request.fresh:
        raise RollbackNeeded(
            "a process was lost, and what it did since its last checkpoint is not recorded: all instances go back to "
            "checkpoints that fit together",
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
