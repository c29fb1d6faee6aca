"""A key is erased from an archive, step by step, while no driver leads the query.

What is to be done is written down before the first step (`protocol.archive.erasure.ErasurePlan`), so that a command
that was killed anywhere is gone on with: each step finds out whether it is done. First there are states without the
key where what is kept goes on, of all instances, which takes what is archived as it was; then states with the key go;
then epochs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from clonos import ending
from clonos.archive.erasing import NotToBeSeen, desk_at, looked_into
from clonos.archive.given_key import Key
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.errors import LogCorrupt
from clonos.protocol.archive.archive_segment import ArchiveSegment
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.erasure import ErasurePlan, InstanceErasure, erased
from clonos.protocol.archive.stored_segment import SegmentName
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.spark.leadership import DriverLeadership
from clonos.storage.keyed_state import KeyedState
from clonos.storage.segment_files import SegmentFiles
from clonos.storage.snapshots import SnapshotStore
from clonos.storage.working_folders import working_folder
from clonos_standby.replica import snapshot_metadata as metadata


@dataclass(frozen=True, slots=True)
class Lead:
    """As long as it is held, no driver leads the query."""

    leadership: DriverLeadership
    fence: Fence

    def check(self) -> None:
        """Before anything is changed. Raises Fenced where a driver has begun to lead it."""
        ending.check()
        self.leadership.check()


@contextmanager
def leading(query: ArchivedQuery) -> Iterator[Lead]:
    """What was read of the archive before may be out of date. Raises AlreadyRunning where a driver leads the query."""
    leadership = DriverLeadership(query.checkpoint.location)
    generation = leadership.take()
    try:
        yield Lead(leadership, Fence.of(generation))
    finally:
        leadership.release()


def has_run_since(query: ArchivedQuery, plan: ErasurePlan) -> bool:
    """Whether there may be something in the archive that was not there when it was decided what goes."""
    return any(
        not plan.is_from_before(name.fence) for instance in query.instances() for name in instance.segments
    )


class ErasureSteps:
    """See the module. `key` is of use where there are states to store (`InstanceErasure.changes_states`)."""

    def __init__(self, query: ArchivedQuery, plan: ErasurePlan, key: Key, lead: Lead) -> None:
        self._archive = query.archive
        self._plan = plan
        self._key = key
        self._lead = lead
        self._owners = (
            set() if not plan.operator else {each.origin for each in query.instances(plan.operator)}
        )
        self._instances = {
            each.origin: found
            for each in plan.instances
            if (found := self._as_it_was(query, each)) is not None
        }

    def _as_it_was(self, query: ArchivedQuery, one: InstanceErasure) -> ArchivedInstance | None:
        found = query.instance(one.origin)
        if found is None:
            return None
        return ArchivedInstance(
            found.operator, found.origin, found.archive, found.segments, found.states, before=self._plan.fence
        )

    def carry_out(self) -> None:
        """All that is left of it. Raises Fenced where a driver has begun to lead the query."""
        with working_folder("erasure") as folder:
            changed = [
                (each, self._states(each, Path(folder)))
                for each in self._plan.instances
                if each.changes_states and each.origin in self._instances
            ]
            for each in self._plan.instances:
                if each.cleaned_upto is not None:
                    self._lead.check()
                    self._note_cleaned(each.origin, each.cleaned_upto)
            for each, states in changed:
                self._keep_ends(each, states)
            for each, states in changed:
                self._clean_states(each, states)
        for each in self._plan.instances:
            self._lead.check()
            self._erase_epochs(each)
        self._lead.check()
        self._archive.end_erasure()

    def _note_cleaned(self, origin: Origin, upto: Epoch) -> None:
        ends = (name.epoch for name in self._archive.states(origin).manifests() if name.final)
        self._archive.cleaned.note(origin, upto, ends)

    def _states(self, one: InstanceErasure, folder: Path) -> SnapshotStore:
        pending = str(folder / f"{one.origin.node}-{one.origin.instance}")
        states = self._archive.states(one.origin, fence=self._lead.fence, pending=pending)
        states.keep_from(0)
        return states

    def _keep_ends(self, one: InstanceErasure, states: SnapshotStore) -> None:
        """Store the states that what is kept goes on from."""
        for end in self._plan.ends_left(one, states.manifests()):
            self._lead.check()
            with suppress(NotToBeSeen):
                self._keep_end(self._instances[one.origin], end, states)

    def _keep_end(self, instance: ArchivedInstance, end: Epoch, states: SnapshotStore) -> None:
        with desk_for(instance) as desk, looked_into():
            for found in instance.repeated(end, desk):
                if isinstance(found, Lacking):
                    return  # so what follows could not be repeated before, either
            if instance.origin in self._owners:
                desk.forget(self._key)
            desk.store(states, epoch=end, final=True, is_anew=True)

    def _clean_states(self, one: InstanceErasure, states: SnapshotStore) -> None:
        """Of the states that were there, those that have something to be erased go; some are stored without it."""
        there = states.manifests()
        for name in one.cleans:
            if name in there and not self._plan.is_done(name, there):
                self._lead.check()
                with suppress(NotToBeSeen):
                    self._store_without(self._instances[one.origin], name, states)
        self._lead.check()
        # Also where there is none any more: files of those that went before may be left.
        states.drop([name for name in (*one.drops, *one.cleans) if name in there])

    def _store_without(self, instance: ArchivedInstance, name: SnapshotName, states: SnapshotStore) -> None:
        with looked_into():
            if instance.origin not in self._owners:
                _store_without_log(instance, name, states)
                return
            with desk_at(instance, name) as (desk, _):
                desk.forget(self._key)
                desk.store(states, epoch=name.epoch, final=name.final, sequence=name.sequence, is_anew=True)

    def _erase_epochs(self, one: InstanceErasure) -> None:
        """What the query has run of them since the plan was made is not in the plan, and is looked at behind it."""
        files = self._archive.segments(one.origin)
        epochs, now = self._plan.epochs_of(one.origin), time.time_ns() // 1000
        gone = [
            name for name in files.names() if name.epoch in epochs and self._plan.is_from_before(name.fence)
        ]
        left = [_last_readable(files, list(names)) for _, names in groupby(gone, lambda name: name.epoch)]
        if gone:
            files.replace(gone, [erased(each, now) for each in left if each is not None])


def _store_without_log(instance: ArchivedInstance, name: SnapshotName, states: SnapshotStore) -> None:
    """It is all that has to go. No program is needed for that: what cannot be repeated here may be elsewhere."""
    found = instance.states.named(str(name))
    if found is None:
        return
    meta = metadata.encode(metadata.decode(found.meta, lambda _: tuple).without_log())
    with working_folder("erasure") as folder:
        path = str(Path(folder, "state"))
        states.restore(found, path)
        with closing(KeyedState(path)) as state:
            states.finish(
                states.begin(state, meta, epoch=name.epoch, sequence=name.sequence, final=name.final)
            )


def _last_readable(files: SegmentFiles, names: Sequence[SegmentName]) -> ArchiveSegment | None:
    """Of the segments of an epoch, the one that says how it ended, if it had."""
    found: list[ArchiveSegment] = []
    for name in names:
        with suppress(LogCorrupt):
            found += files.read([name])
    return max(found, key=lambda each: (each.ended is not None, each.fence, each.number), default=None)
