"""Which parts of an archive have something of a key, so that they have to go (`erasing_steps`) before nothing of it can
be repeated or read there any more.

Which epochs and states go is a rule of its own (`protocol.archive.erasure`). Here it is looked at what these have: what
records came, for which keys the function was called, and what is kept.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from clonos.archive.desk import Desk
from clonos.archive.erasing_beyond import Beyond, beyond_epochs
from clonos.archive.gaps import ArchiveGaps, is_erased
from clonos.archive.given_key import Key, key_given
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.record_keys import RecordKeys
from clonos.archive.repeating import repeated_throughout, repeated_to
from clonos.archive.tracing import TracedCall, Watcher
from clonos.errors import (
    ClonosError,
    Fenced,
    LogCorrupt,
    SnapshotCorrupt,
    StateError,
    StorageUnavailable,
)
from clonos.protocol.archive.episode import Episode, Lacking
from clonos.protocol.archive.erasure import (
    ErasurePlan,
    InstanceErasure,
    StatesFound,
    may_have_key,
    planned,
    with_those_that_were_waited_for,
)
from clonos.protocol.fence import Fence
from clonos.protocol.ids import NO_EPOCH, Epoch, Origin
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.storage.manifest import Manifest
from clonos.values.key_codec import pack
from clonos_standby.cluster.spec import NodeSpec

_FROM_STATE: Final = "it can be repeated only from a state"
_ARRAY: Final = 0x90  # how a short array begins, packed
_LONGER: Final = 4
"""Columns that an operator may add to a key for what it keeps of it, at most."""


@dataclass(slots=True)
class Erasure:
    """Of a key of an operator: what has to go."""

    epochs: frozenset[Epoch] = frozenset()  # of all instances
    instances: set[Origin] = field(default_factory=set)  # of the operator, which have had the key
    # States with something of the key, or with remains that may be
    with_key: dict[Origin, set[SnapshotName]] = field(default_factory=dict)
    with_recorded: dict[Origin, set[SnapshotName]] = field(default_factory=dict)
    """States with what was recorded, or came, in an epoch of which it is not known that the key did not come in it."""
    unknown_states: dict[Origin, set[SnapshotName]] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    """What cannot be looked into, so that it has to go, too, and why it cannot."""

    @property
    def states(self) -> int:
        """That have something of the key, or may have."""
        found: set[tuple[Origin, SnapshotName]] = set()
        for each in (self.with_key, self.with_recorded, self.unknown_states):
            found.update((origin, name) for origin, names in each.items() for name in names)
        return len(found)

    @property
    def is_nothing(self) -> bool:
        return not (self.epochs or self.states or self.unknown)


class _KeyWatcher(Watcher):
    """Notes whether the function was called for a key."""

    keeps_state = False
    keeps_rows = False
    is_on = True

    def __init__(self, key: Key) -> None:
        super().__init__()
        self._key = pack(key)
        self._was_called = False

    def ended(self, call: TracedCall) -> None:
        self._was_called = self._was_called or any(pack(each) == self._key for each in call.keys)

    def was_called(self) -> bool:
        """Since this was asked before."""
        found, self._was_called = self._was_called, False
        return found


class KeyEraser:
    """See the module. Of one key of an operator."""

    def __init__(self, query: ArchivedQuery, operator: str, wanted: str | Sequence[Any]) -> None:
        """`wanted`: the key as text, or its columns' values, as JSON has them (`given_key`). Raises ConfigurationError
        where the operator has no such key."""
        self._query = query
        self._operator = operator
        self._wanted = wanted
        self._gaps = ArchiveGaps.of_query(query)
        self._owners = query.instances(operator)
        self._all = query.instances()
        if not any(each.state_names for each in self._all):
            query.check_archive(self._all)
        self._record_keys: dict[str, RecordKeys] = {}  # by program
        self._repeats: dict[Origin, set[Epoch]] = defaultdict(set)  # what could be repeated

    @cached_property
    def key(self) -> Key:
        """Raises ConfigurationError where the operator has no such key."""
        return key_given(self._query, self._operator, self._wanted)

    @property
    def keys_not_given(self) -> list[str]:
        """With which something is encrypted that was to be looked into."""
        return self._query.archive.keys_not_given

    # ---------------------------------------------------------------- what has to go

    def find(self) -> Erasure:
        """Raises StateError where no program of the operator can be loaded, by which its keys are known."""
        found = Erasure()
        marked: set[Epoch] = set()
        beyond = {instance.origin: beyond_epochs(instance) for instance in self._all}
        gone_on = {epoch for each in beyond.values() for epoch in each.epochs}
        waits = set(gone_on)
        for instance in self._owners:
            if isinstance(instance.cleaned_upto, Lacking):
                found.unknown[f"states of {instance}"] = instance.cleaned_upto.why
                found.instances.add(instance.origin)
            has, waited = self._marked_in(instance, self._gaps_in(instance, gone_on, found), found)
            if self._look_at_states(instance, found) or has:
                found.instances.add(instance.origin)
            marked |= has
            waits |= waited
        for instance in self._all:
            if instance not in self._owners and marked:
                waits |= self._waits(instance)
        found.epochs = with_those_that_were_waited_for(marked, waits)
        known = frozenset[Epoch].intersection(*(frozenset(each.epochs) for each in self._owners))
        for instance in self._all:
            for epochs, why in instance.files.unreadable(found.epochs).items():
                found.unknown[f"epochs {epochs[0]} to {epochs[-1]} of {instance}"] = why
            self._look_beyond(instance, beyond[instance.origin], known, found)
            self._look_behind(instance, found)
        for each in self.keys_not_given:
            found.unknown[f"what is encrypted with the key {each}"] = "that key is not given here"
        return found

    def _look_behind(self, instance: ArchivedInstance, found: Erasure) -> None:
        """At what an instance has behind epochs that go: it is repeated from a state that has to be stored first, which
        takes repeating the epoch before it."""
        for end in self._planned(instance, found).ends:
            if end not in self._repeats[instance.origin] and instance not in self._owners:
                with desk_for(instance) as desk:
                    for each, _ in repeated_to(instance, end, desk):
                        if isinstance(each, Lacking) and each.is_curable:
                            found.unknown[_behind(instance, end)] = each.why

    def _look_beyond(
        self, instance: ArchivedInstance, beyond: Beyond, known: frozenset[Epoch], found: Erasure
    ) -> None:
        """At what of an epoch is in states. One whose files are not known keeps those of others from being removed.
        `known`: the epochs that all instances of the operator have."""
        recorded = {name for name in beyond.states if may_have_key(name.epoch, found.epochs, known)}
        if recorded:
            found.with_recorded[instance.origin] = recorded
        if instance in self._owners:
            return  # they have been looked at
        for name, why in beyond.damaged.items():
            if found.epochs or may_have_key(name.epoch, found.epochs, known):
                _note_unknown(instance, name, why, found)
                found.unknown_states.setdefault(instance.origin, set()).add(name)

    def _gaps_in(
        self, instance: ArchivedInstance, gone_on: AbstractSet[Epoch], found: Erasure
    ) -> frozenset[Epoch]:
        """Of which epochs an instance of the operator has nothing, so that the key may be in what others have."""
        gaps = self._gaps.erasing(instance, gone_on)
        for each in gaps.missing:
            found.unknown[f"{each} that {instance} does not have"] = each.why
        return gaps.epochs

    def _marked_in(
        self, instance: ArchivedInstance, gaps: frozenset[Epoch], found: Erasure
    ) -> tuple[set[Epoch], set[Epoch]]:
        """In which epochs the function was called for the key, or a record of it came, or may have, as in those of
        `gaps`; and at which epochs' ends records waited for the next one."""
        watcher = _KeyWatcher(self.key)
        marked: set[Epoch] = set(gaps)
        known: set[Epoch] = set()
        waits: set[Epoch] = set()
        whys: dict[Epoch, str] = {}
        for each, desk in _repeated(instance, watcher):
            was_called = watcher.was_called()  # of one that could not be repeated it says nothing
            if isinstance(each, Lacking):
                whys.setdefault(NO_EPOCH if each.epoch is None else each.epoch, each.why)
                continue
            known.add(each.epoch)
            self._repeats[instance.origin].add(each.epoch)
            if desk.keeps_records_waiting:
                waits.add(each.epoch)
            if was_called:
                marked.add(each.epoch)
        for epoch in sorted(set(instance.epochs) - marked):
            if epoch in known:
                if self._may_have_record(instance, epoch, found):
                    marked.add(epoch)
                continue
            episode = instance.episode(epoch)
            cause = max((each for each in whys if each <= epoch), default=None)
            why = "it cannot be repeated" if cause is None else whys[cause]
            lacking = episode if isinstance(episode, Lacking) else Lacking(why)
            if is_erased(instance, epoch):
                continue
            is_known = lacking.is_open or lacking.is_erased
            cut_off = None if is_known else instance.cut_off(epoch)
            if cut_off is not None and cut_off.is_erased:
                if not self._may_have_been_called(instance, epoch, marked, found):
                    continue
                is_known = True
            marked.add(epoch)
            if epoch >= instance.first and not is_known:  # what is from before that was never to be repeated
                is_damaged = cut_off is None or lacking is episode
                found.unknown[f"epoch {epoch} of {instance}"] = lacking.why if is_damaged else _FROM_STATE
        return marked, waits

    def _waits(self, instance: ArchivedInstance) -> set[Epoch]:
        """At which epochs' ends records waited for the next one, as far as that can be known."""
        waits: set[Epoch] = set()
        for each, desk in _repeated(instance):
            if isinstance(each, Episode):
                self._repeats[instance.origin].add(each.epoch)
                if desk.keeps_records_waiting:
                    waits.add(each.epoch)
        return waits

    def _may_have_record(self, instance: ArchivedInstance, epoch: Epoch, found: Erasure) -> bool:
        """Whether a record of the key came in an epoch, whatever became of it."""
        try:
            with looked_into():
                return any(
                    self._keys_by(instance, segment.program).are_in(segment.blocks, epoch, self.key)
                    for segment in instance.files.read(instance.epochs[epoch])
                )
        except NotToBeSeen as error:
            found.unknown[f"epoch {epoch} of {instance}"] = error.why
            return True

    def _may_have_been_called(
        self, instance: ArchivedInstance, epoch: Epoch, marked: set[Epoch], found: Erasure
    ) -> bool:
        """In an epoch that cannot be repeated, since another key was erased from the state that it began with: by a
        record, or by what that state, or an epoch behind it, has left to happen for the key."""
        states = [name for name in instance.state_names if name.final and name.epoch < epoch]
        if not states or any(states[-1].epoch < each < epoch for each in marked):
            return True
        if self._may_have_record(instance, epoch, found):
            return True
        try:
            with looked_into(), desk_at(instance, states[-1]) as (desk, _):
                return desk.awaits(self.key)
        except NotToBeSeen as error:
            _note_unknown(instance, states[-1], error.why, found)
            return True

    def _keys_by(self, instance: ArchivedInstance, program: str) -> RecordKeys:
        """Raises StateError where the program cannot be loaded."""
        if program not in self._record_keys:
            node = instance.program(program)
            if isinstance(node, Lacking):
                raise StateError(node.why)
            self._record_keys[program] = RecordKeys(node)
        return self._record_keys[program]

    # ---------------------------------------------------------------- states

    def _look_at_states(self, instance: ArchivedInstance, found: Erasure) -> bool:
        """Whether one has the key. What its files have of what is deleted, or was written again, may be the key's: what
        became of it may be in no epoch any more."""
        with_key: set[SnapshotName] = set()
        with_remains: set[SnapshotName] = set()
        unknown: set[SnapshotName] = set()
        for name in instance.state_names:
            try:
                with looked_into(), desk_at(instance, name, as_stored=True) as (desk, state):
                    if desk.keeps(self.key):
                        with_key.add(name)
                    elif _names(state, self.key) or desk.has_remains:
                        with_remains.add(name)
            except NotToBeSeen as error:
                _note_unknown(instance, name, error.why, found)
                unknown.add(name)
        if with_key or with_remains:
            found.with_key[instance.origin] = with_key | with_remains
        if unknown:
            found.unknown_states[instance.origin] = unknown
        return bool(with_key or unknown)

    # ---------------------------------------------------------------- what is done

    def plan(self, found: Erasure, fence: Fence) -> ErasurePlan:
        """What is to be done, by a driver of this fence."""
        salt = secrets.token_bytes(16)
        return ErasurePlan(
            tuple(self._repeatable(self._planned(instance, found)) for instance in self._all),
            self._operator,
            salt,
            self._digest(salt),
            fence,
            found.states,
        )

    def _planned(self, instance: ArchivedInstance, found: Erasure) -> InstanceErasure:
        return planned(
            instance.origin,
            instance.epochs,
            self._states_found(instance, found),
            found.epochs,
            _upto(instance) if instance.origin in found.instances else None,
        )

    def _repeatable(self, one: InstanceErasure) -> InstanceErasure:
        """Without the states that could not be stored before either, so that nothing is lost without them."""
        repeats = self._repeats[one.origin]
        return replace(one, ends=tuple(end for end in one.ends if end in repeats))

    def _states_found(self, instance: ArchivedInstance, found: Erasure) -> StatesFound:
        return StatesFound(
            instance.state_names,
            found.with_key.get(instance.origin, frozenset()),
            found.with_recorded.get(instance.origin, frozenset()),
            found.unknown_states.get(instance.origin, frozenset()),
        )

    def is_of(self, plan: ErasurePlan) -> bool:
        """Whether a plan is that of this key."""
        return plan.operator == self._operator and plan.digest == self._digest(plan.salt)

    def _digest(self, salt: bytes) -> bytes:
        return hashlib.scrypt(pack(self.key), salt=salt, n=1 << 14, r=8, p=1, dklen=32)


def _repeated(
    instance: ArchivedInstance, watcher: Watcher | None = None
) -> Iterator[tuple[Episode | Lacking, Desk]]:
    if not instance.epochs:
        return iter(())
    return repeated_throughout(instance, max(instance.epochs), watcher)


def _behind(instance: ArchivedInstance, end: Epoch) -> str:
    return f"the state of {instance} at the end of epoch {end}, from which what follows is repeated"


def _upto(instance: ArchivedInstance) -> Epoch:
    return NO_EPOCH if instance.last_ended is None else instance.last_ended


def _note_unknown(instance: ArchivedInstance, name: SnapshotName, why: str, found: Erasure) -> None:
    where = "at the end of" if name.final else "inside"
    found.unknown[f"the state of {instance} {where} epoch {name.epoch}"] = why


def _names(state: Manifest, key: Key) -> bool:
    """Whether a file of a state that is no table has the key, as RocksDB's list of tables may."""
    packed = pack(key)
    if packed[0] & 0xF0 != _ARRAY:
        return False  # of more columns than any key has here
    longer = range(len(key), len(key) + _LONGER)
    parts = [bytes([_ARRAY | count]) + packed[1:] for count in longer if count < 16]
    contents = [file.content for file in state.files if file.content is not None]
    return any(part in content for content in contents for part in parts)


class NotToBeSeen(Exception):
    """Something that is archived cannot be looked into, or repeated; `why`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@contextmanager
def looked_into() -> Iterator[None]:
    """Raises NotToBeSeen for what is wrong with what is archived: not for storage that fails, behind which it may be as
    it should."""
    try:
        yield
    except (StorageUnavailable, Fenced):
        raise
    except ClonosError as error:
        raise NotToBeSeen(error.message) from error


@contextmanager
def desk_at(
    instance: ArchivedInstance, name: SnapshotName, *, as_stored: bool = False
) -> Iterator[tuple[Desk, Manifest]]:
    """At an archived state (`desk_for`). Raises what is wrong with it, or with its program."""
    state = instance.states.named(str(name))
    if state is None:
        raise SnapshotCorrupt("it is gone")
    node = program_of(instance, name.epoch)
    with desk_for(instance, as_stored=as_stored) as desk:
        desk.begin(node, state, instance.states, intercept=False)
        yield desk, state


def program_of(instance: ArchivedInstance, epoch: Epoch | None = None) -> NodeSpec:
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
