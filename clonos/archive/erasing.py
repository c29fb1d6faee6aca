"""Erasing a key from an archive, so that nothing of it can be repeated or read there any more.

Which epochs go is a rule of its own (`protocol.archive.erasure`). Before any does, there is a state without the key
where what is kept goes on; then it is written down which ones go, so that an erasure that was cut short is gone on
with; then they go. Meanwhile no driver leads the query.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from clonos.archive.desk import Desk
from clonos.archive.given_key import Key, key_given
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.repeating import repeated_throughout
from clonos.archive.tracing import TracedCall, Watcher
from clonos.errors import ClonosError, LogCorrupt, SnapshotCorrupt, StateError
from clonos.protocol.archive.archive_segment import ArchiveSegment
from clonos.protocol.archive.episode import Episode, Lacking
from clonos.protocol.archive.erasure import ends_that_are_needed, erased, with_those_that_were_waited_for
from clonos.protocol.archive.stored_segment import SegmentName
from clonos.protocol.fence import Fence
from clonos.protocol.ids import NO_EPOCH, Epoch, Origin
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.spark.leadership import DriverLeadership
from clonos.storage.archive import Archive
from clonos.storage.segment_files import SegmentFiles
from clonos.storage.snapshots import SnapshotStore
from clonos_standby.cluster.spec import NodeSpec
from clonos_standby.replica import snapshot_metadata as metadata


@dataclass(slots=True)
class Erasure:
    """Of a key of an operator: what has to go, or has gone."""

    epochs: frozenset[Epoch] = frozenset()  # of all instances
    instances: set[Origin] = field(default_factory=set)  # of the operator, which have had the key
    states: int = 0  # that have something of the key
    unknown: dict[str, str] = field(default_factory=dict)
    """What cannot be looked into, so that it has to go, too, and why it cannot."""


class _KeyWatcher(Watcher):
    """Notes whether the function was called for a key."""

    keeps_state = False
    keeps_rows = False
    is_on = True

    def __init__(self, key: Key) -> None:
        super().__init__()
        self._key = key
        self.was_called = False

    def ended(self, call: TracedCall) -> None:
        self.was_called = self.was_called or self._key in call.keys


class KeyEraser:
    """See the module. Of one key of an operator."""

    def __init__(self, query: ArchivedQuery, operator: str, wanted: str | Sequence[Any]) -> None:
        """`wanted`: the key as text, or its columns' values, as JSON has them (`given_key`). Raises ConfigurationError
        where the operator has no such key."""
        self._query = query
        self._operator = operator
        self._wanted = wanted
        self._owners = [each for each in query.instances(operator) if each.segments]
        query.check_archive(self._owners)
        self._all = [each for each in query.instances() if each.segments]

    @cached_property
    def _key(self) -> Key:
        return key_given(self._query, self._operator, self._wanted)

    # ---------------------------------------------------------------- what has to go

    def find(self) -> Erasure:
        """Raises StateError where no program of the operator can be loaded, by which its keys are known."""
        found = Erasure()
        marked: set[Epoch] = set()
        waits: set[Epoch] = set()
        for instance in self._owners:
            called, waited = self._called_in(instance, found)
            had = [name for name in instance.state_names if self._has_key(instance, name, found)]
            found.states += len(had)
            if called or had:
                found.instances.add(instance.origin)
            marked |= called
            waits |= waited
        for instance in self._all:
            if instance not in self._owners:
                waits |= _waits_behind(instance, marked)
        found.epochs = with_those_that_were_waited_for(marked, waits)
        for instance in self._all:
            for epochs, why in instance.files.unreadable(found.epochs).items():
                found.unknown[f"epochs {epochs[0]} to {epochs[-1]} of {instance}"] = why
        return found

    def _called_in(self, instance: ArchivedInstance, found: Erasure) -> tuple[set[Epoch], set[Epoch]]:
        """In which epochs the function was called for the key, or may have been; and at which epochs' ends records
        waited for the next one."""
        watcher = _KeyWatcher(self._key)
        marked: set[Epoch] = set()
        known: set[Epoch] = set()
        waits: set[Epoch] = set()
        why = "it cannot be repeated"
        for each, desk in repeated_throughout(instance, max(instance.epochs), watcher):
            if isinstance(each, Lacking):
                why = each.why
                continue
            known.add(each.epoch)
            if desk.keeps_records_waiting:
                waits.add(each.epoch)
            if watcher.was_called:
                marked.add(each.epoch)
            watcher.was_called = False
        for epoch in sorted(set(instance.epochs) - known):
            episode = instance.episode(epoch)
            lacking = episode if isinstance(episode, Lacking) else Lacking(why)
            if lacking.is_erased and len(instance.epochs[epoch]) == 1:
                continue
            marked.add(epoch)
            is_known = lacking.is_open or lacking.is_erased or instance.is_cut_off(epoch)
            if epoch >= instance.first and not is_known:  # what is from before that was never to be repeated
                found.unknown[f"epoch {epoch} of {instance}"] = lacking.why
        return marked, waits

    def _has_key(self, instance: ArchivedInstance, name: SnapshotName, found: Erasure) -> bool:
        """Whether a state has the key, or may have it."""
        try:
            with self._desk_at(instance, name) as desk:
                return desk.keeps(self._key)
        except ClonosError as error:
            where = "at the end of" if name.final else "inside"
            found.unknown[f"the state of {instance} {where} epoch {name.epoch}"] = error.message
            return True

    @contextmanager
    def _desk_at(self, instance: ArchivedInstance, name: SnapshotName) -> Iterator[Desk]:
        """At an archived state. Raises what is wrong with it, or with its program."""
        state = instance.states.named(str(name))
        if state is None:
            raise SnapshotCorrupt("it is gone")
        node = self._program(instance, name.epoch)
        with desk_for(instance) as desk:
            desk.begin(node, state, instance.states, intercept=False)
            yield desk

    def _program(self, instance: ArchivedInstance, epoch: Epoch | None = None) -> NodeSpec:
        """That of an epoch, if that is there, or else the last. Raises StateError where none can be loaded."""
        why = "none is in the archive"
        for each in sorted(instance.epochs, key=lambda each: (each == epoch, each), reverse=True):
            try:
                segment = next(instance.files.read(instance.epochs[each][-1:]), None)
            except LogCorrupt as error:
                why = error.message
                continue
            if segment is not None:
                program = instance.program(segment.program)
                if isinstance(program, NodeSpec):
                    return program
                why = program.why
        raise StateError(f"the program of {instance} cannot be loaded: {why}")

    # ---------------------------------------------------------------- it goes

    def carry_out(self, erasure: Erasure) -> None:
        """Raises AlreadyRunning where a driver leads the query, and Fenced where one has begun to."""
        with _leading(self._query) as (leadership, fence):
            self._query.archive.sweep(each.origin for each in self._query.instances())
            for instance in self._all:
                leadership.check()
                with tempfile.TemporaryDirectory(prefix="clonos-erasure-") as folder:
                    archive = instance.archive
                    states = archive.states(
                        instance.origin, fence=fence, pending=str(Path(folder, "pending"))
                    )
                    states.keep_from(0)
                    if instance.origin in erasure.instances:
                        archive.note_cleaned(instance.origin, instance.last_ended or NO_EPOCH)
                    self._keep_ends(instance, states, erasure.epochs)
                    self._clean_states(instance, states, erasure.epochs)
            parts = [
                (instance.origin, epoch)
                for instance in self._all
                for epoch in sorted(erasure.epochs & set(instance.epochs))
            ]
            self._query.archive.write_erasure(parts)
            _erase_what_is_due(self._query.archive, leadership, fence)

    def _keep_ends(self, instance: ArchivedInstance, states: SnapshotStore, epochs: frozenset[Epoch]) -> None:
        """Store the states that what is kept goes on from."""
        has = set(instance.state_epochs)
        for end in ends_that_are_needed(instance.epochs, epochs):
            if end in has:
                continue
            with desk_for(instance) as desk:
                for found in instance.repeated(end, desk):
                    if isinstance(found, Lacking):
                        break  # so what follows could not be repeated before, either
                else:
                    if instance in self._owners:
                        desk.forget(self._key)
                    desk.store(states, epoch=end, final=True)

    def _clean_states(
        self, instance: ArchivedInstance, states: SnapshotStore, epochs: frozenset[Epoch]
    ) -> None:
        """Of the states that were there: those that nothing kept goes on from go, others are stored without the key."""
        needed = set(ends_that_are_needed(instance.epochs, epochs))
        drops: list[SnapshotName] = []
        first = min(epochs, default=None)
        for name in instance.state_names:
            is_erased = name.epoch in epochs and not (name.final and name.epoch in needed)
            is_behind = first is not None and name.epoch >= first
            if is_erased or self._is_stored_clean(instance, name, states, is_behind=is_behind):
                drops.append(name)
        if drops:
            states.drop(drops)

    def _is_stored_clean(
        self, instance: ArchivedInstance, name: SnapshotName, states: SnapshotStore, *, is_behind: bool
    ) -> bool:
        """Whether a state goes, since it has something to be erased; then it is stored without that. One of an owner
        that cannot be looked into goes (`Erasure.unknown`)."""
        is_owner = instance in self._owners
        try:
            has_log = is_behind and _has_log(instance, name)
            if not is_owner and not has_log:
                return False
            with self._desk_at(instance, name) as desk:
                if is_owner and desk.keeps(self._key):
                    desk.forget(self._key)
                elif not has_log:
                    return False
                desk.store(states, epoch=name.epoch, final=name.final, sequence=name.sequence)
        except ClonosError:
            return is_owner
        return True


def _waits_behind(instance: ArchivedInstance, marked: set[Epoch]) -> set[Epoch]:
    """At which epochs' ends records waited for the next one, as far as that can be known."""
    if not marked & set(instance.epochs):
        return set()
    repeated = repeated_throughout(instance, max(instance.epochs))
    return {each.epoch for each, desk in repeated if isinstance(each, Episode) and desk.keeps_records_waiting}


def _has_log(instance: ArchivedInstance, name: SnapshotName) -> bool:
    """Whether a state has the end of the log, in which there may be what was recorded of an erased epoch."""
    state = instance.states.readable(name)
    return state is not None and bool(metadata.decode(state.meta, lambda _: tuple).log)


@contextmanager
def _leading(query: ArchivedQuery) -> Iterator[tuple[DriverLeadership, Fence]]:
    """No driver leads the query meanwhile."""
    leadership = DriverLeadership(query.checkpoint.location)
    generation = leadership.take()
    try:
        yield leadership, Fence.of(generation)
    finally:
        leadership.release()


def finish_erasure(query: ArchivedQuery) -> None:
    """Go on with an erasure that was cut short when all states were cleaned. What was read of the archive before is out
    of date behind it. Raises AlreadyRunning where a driver leads the query, and Fenced where one has begun to."""
    with _leading(query) as (leadership, fence):
        _erase_what_is_due(query.archive, leadership, fence)


def _erase_what_is_due(archive: Archive, leadership: DriverLeadership, fence: Fence) -> None:
    now = time.time_ns() // 1000
    due: dict[Origin, set[Epoch]] = {}
    for origin, epoch in archive.erasure():
        due.setdefault(origin, set()).add(epoch)
    for origin, epochs in due.items():
        leadership.check()
        files = archive.segments(origin)
        gone = [name for name in files.names() if name.epoch in epochs]
        left = [_last_readable(files, list(names)) for _, names in groupby(gone, lambda name: name.epoch)]
        files.replace(gone, [erased(each, now) for each in left if each is not None], fence)
    archive.end_erasure()


def _last_readable(files: SegmentFiles, names: Sequence[SegmentName]) -> ArchiveSegment | None:
    """Of the segments of an epoch, the one that says how it ended, if it had."""
    found: list[ArchiveSegment] = []
    for name in names:
        with suppress(LogCorrupt):
            found += files.read([name])
    return max(found, key=lambda each: (each.ended is not None, each.fence, each.number), default=None)
