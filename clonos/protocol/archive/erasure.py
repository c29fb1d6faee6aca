"""What of an archive is erased so that nothing of a key can be repeated, or read, any more.

An instance repeats an epoch whole, so an epoch goes whole. What the key's records became of in other operators happened
in the same epoch, as a rule: it goes for all instances of all operators. Only where records waited for the next epoch,
or segments of that have the end of the log before it, both go. What is not erased has to be repeated as before: it
begins with a state from behind the erased epochs, which has nothing of the key.

All that is decided before anything is changed (`ErasurePlan`). In the middle of it there are states with the key and
states without, from which nothing could be decided any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise

from clonos.errors import LogCorrupt
from clonos.protocol.archive.archive_segment import ArchiveSegment
from clonos.protocol.archive.missing import InstanceKeeps, MissingEpochs
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import FIRST_EPOCH, NO_EPOCH, Epoch, Origin, epoch_after, epoch_before
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.recovery.causal.determinant import Kind
from clonos.protocol.recovery.causal.determinant_codec import decode_steps


@dataclass(frozen=True, slots=True)
class InstanceErasure:
    """What is to be done with one instance, in this order."""

    origin: Origin
    cleaned_upto: Epoch | None = None
    """Of an instance that has had the key, the last epoch that may be repeated from a state that is stored without."""
    ends: tuple[Epoch, ...] = ()  # at which a state is stored, since there is none
    cleans: tuple[SnapshotName, ...] = ()  # states that are stored without the key, and go
    drops: tuple[SnapshotName, ...] = ()  # states that go
    epochs: tuple[Epoch, ...] = ()  # of which only the end is left

    @property
    def changes_states(self) -> bool:
        return bool(self.ends or self.cleans or self.drops)


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    """All that an erasure does. It tells the key when it is given, and does not say it."""

    instances: tuple[InstanceErasure, ...]
    operator: str = ""  # "": an older version wrote it down, when states were as they should be
    salt: bytes = b""
    digest: bytes = b""  # of the key
    fence: Fence = LOWEST_FENCE  # what is stored under it, or a higher one, was not there
    states: int = 0  # that have, or had, something of the key

    @property
    def epochs(self) -> frozenset[Epoch]:
        return frozenset(epoch for each in self.instances for epoch in each.epochs)

    def epochs_of(self, origin: Origin) -> frozenset[Epoch]:
        """That are erased of an instance."""
        return frozenset(epoch for each in self.instances if each.origin == origin for epoch in each.epochs)

    def is_from_before(self, fence: Fence) -> bool:
        """Whether what was written under a fence was there when the plan was made."""
        return not self.operator or fence < self.fence

    def is_done(self, name: SnapshotName, there: Iterable[SnapshotName]) -> bool:
        """Whether a state has been stored without the key, of those that are there now."""
        place = name.epoch, name.sequence, name.final
        return any(
            (each.epoch, each.sequence, each.final) == place
            for each in there
            if not self.is_from_before(each.fence)
        )

    def ends_left(self, one: InstanceErasure, there: Iterable[SnapshotName]) -> list[Epoch]:
        """At which ends a state is still to be stored."""
        done = {each.epoch for each in there if each.final and not self.is_from_before(each.fence)}
        return [end for end in one.ends if end not in done]


@dataclass(frozen=True, slots=True)
class StatesFound:
    """Of the archived states of an instance, which have something that has to go."""

    names: Sequence[SnapshotName] = ()
    with_key: AbstractSet[SnapshotName] = frozenset()
    with_recorded: AbstractSet[SnapshotName] = frozenset()
    """With the end of the log, or records, of an epoch that `may_have_key`."""
    unknown: AbstractSet[SnapshotName] = frozenset()  # that cannot be looked into


def may_have_key(epoch: Epoch, erased: AbstractSet[Epoch], known: AbstractSet[Epoch]) -> bool:
    """Whether what was recorded of an epoch, by an instance of whatever operator, may be of the key. What of it is kept
    elsewhere than with the epoch, in a state, is still there where retention has dropped the epoch. `known`: those that
    all instances of the operator have, of which it has been found out whether the key came: then they are `erased`."""
    return epoch in erased or epoch not in known


def planned(
    origin: Origin,
    archived: Iterable[Epoch],
    states: StatesFound,
    erased: frozenset[Epoch],
    cleaned_upto: Epoch | None,
) -> InstanceErasure:
    """What is to be done with an instance, of which these epochs are archived. `erased` are all that go: of one that
    the instance lacks, a state may be there that what is kept goes on from, and none can be made."""
    has = sorted(archived)
    there = erased.union(has)
    needed = ends_that_are_needed(there, erased)
    drops: list[SnapshotName] = []
    cleans: list[SnapshotName] = []
    ends: set[Epoch] = set()
    for name in states.names:
        is_end = name.final and name.epoch in needed
        is_of_no_use = not name.final and name.epoch not in there and name in states.with_recorded
        if name in states.unknown or (name.epoch in erased and not is_end) or is_of_no_use:
            drops.append(name)
            continue
        if is_end:
            ends.add(name.epoch)
        if name in states.with_key or name in states.with_recorded:
            cleans.append(name)
    return InstanceErasure(
        origin,
        cleaned_upto,
        tuple(end for end in needed if end in has and end not in ends),
        tuple(cleans),
        tuple(drops),
        tuple(epoch for epoch in has if epoch in erased),
    )


def epochs_before_its_own(segment: ArchiveSegment) -> set[Epoch]:
    """Of which a segment has the end of the log: as earlier versions cut the first one of a standby that took over."""
    before = segment.log[: max(0, segment.epoch_start - segment.log_start)]
    if not before:
        return set()
    try:
        steps = decode_steps(before, segment.log_start)
    except LogCorrupt:
        return {epoch_before(segment.epoch)}
    begun = [step.epoch for step in steps if step.kind is Kind.BOUNDARY and step.epoch is not None]
    first = min(begun, default=segment.epoch)
    if steps[0].kind is not Kind.BOUNDARY:
        first = epoch_before(first)
    return {Epoch(epoch) for epoch in range(first, segment.epoch)}


def with_those_that_were_waited_for(erased: Iterable[Epoch], waits: AbstractSet[Epoch]) -> frozenset[Epoch]:
    """The epochs to erase, where at the ends of those of `waits` records waited for the next one: these may be in both,
    in that in which they came and in that which has had them. Or what was recorded of them is in what is kept of the
    next one."""
    found = set(erased)
    left = list(found)
    while left:
        epoch = left.pop()
        linked = [epoch_after(epoch)] if epoch in waits else []
        if epoch > FIRST_EPOCH and epoch_before(epoch) in waits:
            linked.append(epoch_before(epoch))
        new = [each for each in linked if each not in found]
        found.update(new)
        left += new
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class NotThere:
    """The epochs that an instance lacks, while another one has something of them."""

    open: frozenset[Epoch]  # it had not come to them, or not to their end
    missing: tuple[MissingEpochs, ...]

    @property
    def epochs(self) -> frozenset[Epoch]:
        gone = {Epoch(epoch) for each in self.missing for epoch in range(each.first, each.last + 1)}
        return self.open | gone


def not_there(keeps: InstanceKeeps, others: AbstractSet[Epoch], ended: AbstractSet[Epoch]) -> NotThere:
    """Of an instance of the operator whose key is erased. Of erased epochs, which it has, it is known that nothing is
    left. `others` are those of which other instances have anything that may be the key's, and `ended` those that ended
    in any."""
    last = max(keeps.has, default=NO_EPOCH)
    lacks = others - keeps.has
    is_open = frozenset(epoch for epoch in lacks if epoch > last and epoch not in ended)
    return NotThere(is_open, keeps.missing(lacks - is_open))


def ends_that_are_needed(archived: Iterable[Epoch], erased: AbstractSet[Epoch]) -> list[Epoch]:
    """Of an instance, the erased epochs at whose ends there has to be a state, since one follows that is kept."""
    followed = pairwise(sorted(archived))
    return [epoch for epoch, following in followed if epoch in erased and following not in erased]


def lower_bound(*bounds: Epoch | None) -> Epoch | None:
    """The last epoch that may be repeated from a state, where each of the bounds holds; None where there is none. A
    state from which a key was taken has one: where the key comes again behind the epochs that were there then, only a
    state that was stored since knows what the function found. What is stored of what was repeated from it has it, too:
    a key that is not in the one is not in the other."""
    return min((bound for bound in bounds if bound is not None), default=None)


def noted_bound(state: Epoch, noted: Iterable[Epoch]) -> Epoch | None:
    """What earlier versions have noted instead, of all states of an instance together: in those of epochs up to each of
    `noted` there may be a key less than there was. Of a state of this epoch; None where there is no bound."""
    return min((bound for bound in noted if bound >= state), default=None)


def erased(segment: ArchiveSegment, at: int) -> ArchiveSegment:
    """What is left of an epoch, of its last segment: how it ended, if it had, so that the numbers of rows behind it are
    known. At a time in microseconds since 1970."""
    return ArchiveSegment(
        origin=segment.origin,
        epoch=segment.epoch,
        fence=segment.fence,
        number=segment.number,
        written_at=segment.written_at,
        realtime=segment.realtime,
        program=segment.program,
        code=segment.code,
        intercept=segment.intercept,
        epoch_start=segment.epoch_start,
        log_start=segment.log_end,
        log=b"",
        ended=segment.ended,
        erased_at=at,
    )
