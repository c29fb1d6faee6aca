"""Where a task attempt begins an epoch that is run again inside, and where not (`clonos.core.recovery_line`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from clonos.core.identity import Origin
from clonos.core.instance_snapshot import InstanceSnapshot
from clonos.core.recovery_line import RecoveryLine, Resume
from clonos.core.replacement import GENERATION_SHIFT
from clonos.core.resumption import check_resumable, resume_failed
from clonos.core.retrieval import Recovered
from clonos.errors import SnapshotCorrupt, Where
from clonos.store.line import read_line
from clonos.store.manifest import Manifest
from clonos.store.snapshots import SnapshotStore
from clonos.wire.messages import Hello
from standby import metadata


@dataclass(frozen=True, slots=True)
class Resuming:
    """What one instance was told to begin with."""

    line: RecoveryLine
    resume: Resume
    snapshots: SnapshotStore
    where: Where

    def find(self, hello: Hello) -> Manifest:
        """An attempt that lost its first replica before it was welcomed may have begun already. Raises ResumeFailed."""
        try:
            found = self.snapshots.resumed(hello.epoch, hello.fence) or self.snapshots.named(self.resume.name)
        except SnapshotCorrupt as error:
            raise resume_failed(error.message, self.where) from error
        if found is None:
            raise resume_failed("it is not there any more", self.where)
        return found

    def begin(
        self, manifest: Manifest, snapshot: InstanceSnapshot, recovered: Recovered, held: Sequence[bytes]
    ) -> None:
        """From now on the snapshot is this attempt's own, and what else was left of the epoch goes. Raises
        ResumeFailed where the instance does not hold what its state depends on."""
        check_resumable(
            snapshot, recovered.before, [*held, *recovered.received], self.line.stable, where=self.where
        )
        snapshot.owed = dict(self.resume.owed)
        self.snapshots.resume(manifest, metadata.resumed(manifest.meta, self.resume.owed))
        self.snapshots.discard_from(manifest.epoch)


def begin_epoch(
    checkpoint: str, snapshots: SnapshotStore, origin: Origin, hello: Hello, where: Where
) -> Resuming | None:
    """A new attempt: whether it resumes; what others left of an epoch that it runs from the beginning goes.

    It claims the instance either way: should it fail to resume, its predecessor's snapshots do not count again.
    """
    snapshots.claim()
    generation = hello.fence >> GENERATION_SHIFT
    line = read_line(checkpoint, generation)
    resume = line.resume(origin, generation=generation, epoch=hello.epoch)
    if resume is not None:
        return Resuming(line, resume, snapshots, where)
    snapshots.discard_from(hello.epoch)
    return None


def set_aside(state: str) -> str:
    """Where the state has gone that was here: most of a snapshot is in the one that a standby was at."""
    before = f"{state}.before"
    shutil.rmtree(before, ignore_errors=True)
    os.makedirs(os.path.dirname(before), exist_ok=True)
    if os.path.exists(state):
        os.rename(state, before)
    return before


def restore_state(
    snapshots: SnapshotStore, manifest: Manifest, state: str, beside: str, inside: Where | None
) -> None:
    """Without a snapshot `inside` an epoch it can be run again from its beginning; nothing stands in for that."""
    try:
        snapshots.restore(manifest, state, beside=beside)
    except SnapshotCorrupt as error:
        if inside is None:
            raise
        raise resume_failed(error.message, inside) from error
