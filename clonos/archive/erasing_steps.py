"""A key is erased from an archive, step by step, while no driver leads the query.

What is to be done is written down before the first step (`protocol.archive.erasure.ErasurePlan`), so that a command
that was killed anywhere is gone on with: each step finds out whether it is done. First states without the key are
stored, of all instances: where what is kept goes on, and in place of those that have the key. That takes what is
archived as it was. Then states with the key go; then epochs. What could be seen when that was decided, and cannot be
any more, as where other modules or keys of the archive are at hand, ends it before anything goes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from clonos import ending
from clonos.archive.erasing import NotToBeSeen, desk_at, looked_into
from clonos.archive.given_key import Key
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.errors import LogCorrupt, StateError
from clonos.protocol.archive.archive_segment import ArchiveSegment
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.erasure import ErasurePlan, InstanceErasure, erased, lower_bound
from clonos.protocol.archive.stored_segment import SegmentName
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.spark.leadership import DriverLeadership
from clonos.storage.archive_keys import KEY_HINT
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
    """See the module. `key` is of use where there are states to store (`InstanceErasure.changes_states`). With
    `passes_over`, what cannot be seen any more ends nothing: what follows it cannot be repeated then."""

    def __init__(
        self, query: ArchivedQuery, plan: ErasurePlan, key: Key, lead: Lead, *, passes_over: bool
    ) -> None:
        self._archive = query.archive
        self._plan = plan
        self._key = key
        self._lead = lead
        self._passes_over = passes_over
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
        """All that is left of it. Raises Fenced where a driver has begun to lead the query, and StateError where
        something cannot be seen any more that is needed."""
        for each in self._plan.instances:
            self._check_readable(each)
        with working_folder("erasure") as folder:
            changed = [
                (each, self._states(each, Path(folder)))
                for each in self._plan.instances
                if each.changes_states and each.origin in self._instances
            ]
            for each in self._plan.instances:
                if each.cleaned_upto is not None:
                    self._lead.check()
                    self._bound_all_where_unknown(each.origin, each.cleaned_upto)
            for each, states in changed:
                self._keep_ends(each, states)
            for each, states in changed:
                self._store_cleaned(each, states)
            for each, states in changed:
                self._drop_states(each, states)
        for each in self._plan.instances:
            self._lead.check()
            self._erase_epochs(each)
        self._lead.check()
        self._archive.end_erasure()

    @contextmanager
    def _needed(self, what: str) -> Iterator[None]:
        """Raises StateError where what is needed cannot be seen."""
        try:
            with looked_into():
                yield
        except NotToBeSeen as error:
            if not self._passes_over:
                raise self._refused(what, error.why) from error

    def _refused(self, what: str, why: str) -> StateError:
        hint = (
            "Where it can be mended, mend it: put a file back that was lost, or run this where the modules of the "
            "query are. The same command again goes on with it. With --erase-unknown it goes on without: what depends "
            "on that cannot be repeated any more"
        )
        return StateError(
            f"the erasure does not go on: {what} cannot be had ({why})",
            hint=f"{KEY_HINT}. The same command goes on with it" if self._archive.keys_not_given else hint,
        )

    def _check_readable(self, one: InstanceErasure) -> None:
        """What is left of epochs is how they ended, and what is left of files that have others, too, is those."""
        instance = self._instances.get(one.origin)
        if instance is None or self._passes_over:
            return
        if one.cleaned_upto is not None:
            with self._needed(f"what is noted of states of {instance}"):
                self._archive.cleaned.upto(one.origin)
        for epochs, why in instance.files.unreadable(one.epochs).items():
            raise self._refused(f"the file of epochs {epochs[0]} to {epochs[-1]} of {instance}", why)
        for epoch in one.epochs:
            found = instance.episode(epoch)
            if isinstance(found, Lacking) and found.is_curable and self._archive.keys_not_given:
                raise self._refused(f"epoch {epoch} of {instance}", found.why)

    def _bound_all_where_unknown(self, origin: Origin, upto: Epoch) -> None:
        """Where it cannot be read from which states an earlier version has erased a key."""
        ends = (name.epoch for name in self._archive.states(origin).manifests() if name.final)
        self._archive.cleaned.write_anew_if_unreadable(origin, upto, ends)

    def _states(self, one: InstanceErasure, folder: Path) -> SnapshotStore:
        pending = str(folder / f"{one.origin.node}-{one.origin.instance}")
        states = self._archive.states(one.origin, fence=self._lead.fence, pending=pending)
        states.keep_from(0)
        return states

    def _keep_ends(self, one: InstanceErasure, states: SnapshotStore) -> None:
        """Store the states that what is kept goes on from."""
        for end in self._plan.ends_left(one, states.manifests()):
            self._lead.check()
            instance = self._instances[one.origin]
            with self._needed(f"the state of {instance} at the end of epoch {end}"):
                self._keep_end(one, end, states)

    def _keep_end(self, one: InstanceErasure, end: Epoch, states: SnapshotStore) -> None:
        instance = self._instances[one.origin]
        with desk_for(instance) as desk:
            for found in instance.repeated(end, desk):
                if isinstance(found, Lacking):
                    raise NotToBeSeen(found.why)
            if instance.origin in self._owners:
                desk.forget(self._key)
            bound = lower_bound(one.cleaned_upto, instance.noted_bound(end))
            desk.store(states, epoch=end, final=True, is_anew=True, serves_upto=bound)

    def _store_cleaned(self, one: InstanceErasure, states: SnapshotStore) -> None:
        """Of the states that were there, some of those that have something to be erased are stored without it."""
        there = states.manifests()
        for name in one.cleans:
            if name in there and not self._plan.is_done(name, there):
                self._lead.check()
                instance = self._instances[one.origin]
                with self._needed(f"the state {name} of {instance}"):
                    self._store_without(one, name, states)

    def _drop_states(self, one: InstanceErasure, states: SnapshotStore) -> None:
        """Those that have something to be erased."""
        self._lead.check()
        there = states.manifests()
        # Also where there is none any more: files of those that went before may be left.
        states.drop([name for name in (*one.drops, *one.cleans) if name in there])

    def _store_without(self, one: InstanceErasure, name: SnapshotName, states: SnapshotStore) -> None:
        instance = self._instances[one.origin]
        if instance.origin not in self._owners:
            _store_without_log(instance, name, states)
            return
        with desk_at(instance, name) as (desk, _):
            desk.forget(self._key)
            bound = lower_bound(one.cleaned_upto, instance.bound_of(name))
            desk.store(
                states,
                epoch=name.epoch,
                final=name.final,
                sequence=name.sequence,
                is_anew=True,
                serves_upto=bound,
            )

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
    content = metadata.decode(found.meta, lambda _: tuple).without_log()
    meta = metadata.encode(replace(content, serves_upto=instance.bound_of(name)))
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
