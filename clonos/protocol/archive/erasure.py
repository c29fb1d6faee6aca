"""What of an archive is erased so that nothing of a key can be repeated, or read, any more.

An instance repeats an epoch whole, so an epoch goes whole. What the key's records became of in other operators happened
in the same epoch, as a rule: it goes for all instances of all operators. Only where records waited for the next epoch
does that go, too. What is not erased has to be repeated as before: it begins with a state from behind the erased
epochs, which has nothing of the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Set as AbstractSet
from itertools import pairwise

from clonos.protocol.archive.archive_segment import ArchiveSegment
from clonos.protocol.ids import Epoch, epoch_after


def with_those_that_were_waited_for(erased: Iterable[Epoch], waits: AbstractSet[Epoch]) -> frozenset[Epoch]:
    """The epochs to erase, where at the ends of those of `waits` records waited for the next one."""
    found = set(erased)
    left = list(found)
    while left:
        epoch = left.pop()
        following = epoch_after(epoch)
        if epoch in waits and following not in found:
            found.add(following)
            left.append(following)
    return frozenset(found)


def ends_that_are_needed(archived: Iterable[Epoch], erased: AbstractSet[Epoch]) -> list[Epoch]:
    """Of an instance, the erased epochs at whose ends there has to be a state, since one follows that is kept."""
    followed = pairwise(sorted(archived))
    return [epoch for epoch, following in followed if epoch in erased and following not in erased]


def serves_upto(state: Epoch, cleaned_upto: Iterable[Epoch]) -> Epoch | None:
    """The last epoch that may be repeated from a state of this epoch; None where there is no such bound. In states of
    epochs up to each of `cleaned_upto` there may be a key less than there was: where it comes again behind that, only a
    state that was stored since knows what the function found."""
    return min((bound for bound in cleaned_upto if bound >= state), default=None)


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
