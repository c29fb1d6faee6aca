"""Which of an instance's snapshots count, and which may go: their names say all that it takes.

A name holds the epoch, the fence of the incarnation that took the snapshot, and a number that the instance counts on
with. Names compare as snapshots supersede each other, so a successor's snapshot of an epoch wins over one that its
predecessor was still writing. An incarnation drops only snapshots of its own fence or a lower one.

As a text it is `<epoch>-<fence>-<sequence>-<final|mid|from>.manifest`, of fixed width. Names from when fences had 64
bits (`protocol.fence`) have 16 digits for it instead of 32; they are `narrow`, and keep their text.

Three kinds: *final*, at the end of an epoch; inside one; and one inside that a task attempt has *resumed* from, written
again as the attempt's own, with which the epoch begins for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from clonos.protocol.fence import Fence, Generation, generation_of, of_same_attempt
from clonos.protocol.ids import Epoch
from clonos.protocol.recovery.causal.replacement import binds

KEPT_INSIDE: Final = 2
OLDEST_KEPT: Final = 32
MARKED_EVERY: Final = 16
_NARROW_DIGITS: Final = 16
_TEXT: Final = re.compile(r"(\d{20})-([0-9a-f]{16}|[0-9a-f]{32})-(\d{20})-(final|mid|from)\.manifest")


@dataclass(frozen=True, slots=True, order=True)
class SnapshotName:
    """See the module."""

    epoch: Epoch
    fence: Fence
    sequence: int
    final: bool
    resumed: bool = False
    narrow: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        kind = "final" if self.final else "from" if self.resumed else "mid"
        fence = Fence(self.fence)
        text = f"{fence.narrowed:016x}" if self.narrow else fence.text
        return f"{self.epoch:020d}-{text}-{self.sequence:020d}-{kind}.manifest"

    def begins(self, fence: Fence) -> bool:
        """Whether the task attempt of `fence` has resumed here."""
        return self.resumed and of_same_attempt(self.fence, fence)

    @classmethod
    def parse(cls, text: str) -> SnapshotName | None:
        """The name that `text` is, or None."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return None
        epoch, text, sequence, kind = match.groups()
        fence, narrow = read_fence(text)
        return cls(Epoch(int(epoch)), fence, int(sequence), kind == "final", kind == "from", narrow)


Names = Iterable[SnapshotName]


def sequence_after(text: str) -> int:
    """The number of the snapshot that the same instance takes behind the one of that name."""
    name = SnapshotName.parse(text)
    return name.sequence + 1 if name is not None else 0


def read_fence(text: str) -> tuple[Fence, bool]:
    """The fence that stands in the name of a file, and whether it was written when fences had 64 bits."""
    narrow = len(text) == _NARROW_DIGITS
    return (Fence.widened(int(text, 16)) if narrow else Fence.parse(text)), narrow


def in_epoch(names: Names, epoch: Epoch) -> list[SnapshotName]:
    """Of whatever kind and attempt, the newest first: from one of these a replacement may start."""
    return sorted((name for name in names if name.epoch == epoch), reverse=True)


@dataclass(frozen=True, slots=True)
class Since:
    """A start of the query, for one instance: the first epoch that it runs, and how the instance stood before that."""

    generation: Generation
    epoch: Epoch
    base: SnapshotName | None

    def counts(self, name: SnapshotName) -> bool:
        """Whether an epoch that ended like this has happened. What an earlier start made of an epoch that this one runs
        again has not, also where this one finds nothing to do for the instance and leaves no snapshot of it."""
        own = generation_of(name.fence) == self.generation and name.epoch >= self.epoch
        return own or name == self.base


def ends(names: Names, epoch: Epoch, since: Since | None) -> list[SnapshotName]:
    """How the instance stood at the end of `epoch`, the one to believe first: by the highest fence, of the last epoch
    that it ran. Spark runs no task of a stage that it knows to have no input; such an epoch leaves no snapshot."""
    return sorted(
        (name for name in names if name.final and name.epoch <= epoch and (not since or since.counts(name))),
        reverse=True,
    )


def binding(names: Names, epoch: Epoch, fence: Fence) -> list[SnapshotName]:
    """How attempts before that of `fence` have ended `epoch`, where it has to end alike; the one to believe first."""
    ended = sorted((name for name in names if name.final and name.epoch == epoch), reverse=True)
    return [name for name in ended if binds(name.fence, fence)]


def resumed(names: Names, epoch: Epoch, fence: Fence) -> list[SnapshotName]:
    """Where the task attempt of `fence` resumed inside `epoch`: one, or none."""
    return [name for name in names if name.epoch == epoch and name.begins(fence)]


def of_newest_attempt(names: Names, epoch: Epoch, claimed: Fence) -> list[SnapshotName]:
    """Inside `epoch`, oldest first, of the newest task attempt to claim the instance alone: whether what others did has
    happened is not known."""
    return sorted(
        name
        for name in names
        if name.epoch == epoch and not name.final and of_same_attempt(name.fence, claimed)
    )


def of_all_attempts(names: Names, epoch: Epoch) -> list[SnapshotName]:
    """Inside `epoch`, oldest first: which of them have happened, a recovery line says (`RecoveryLine.counting`). What a
    lost process stored has not where another one has begun in its place before, and has stored as much: that one counts
    on from where it began."""
    inside = sorted(name for name in names if name.epoch == epoch and not name.final)
    happened: list[SnapshotName] = []
    for name in reversed(inside):
        if not happened or name.fence == happened[-1].fence or name.sequence < happened[-1].sequence:
            happened.append(name)
    return happened[::-1]


def superseded(names: Names, newest: SnapshotName, kept_from: int | None = None) -> list[SnapshotName]:
    """What may go when `newest` has become durable. Of those inside an epoch a replacement needs the last, and the one
    before may just be being restored; some older ones are kept for a recovery line, and the one that the attempt began
    with. Where it is known from which number on a line may begin with them, `kept_from`, all marked ones are kept."""
    inside = sorted(
        name
        for name in names
        if name.epoch == newest.epoch and not name.final and not name.resumed and name.fence <= newest.fence
    )
    if kept_from is not None:
        newest_two = inside[-KEPT_INSIDE:]
        return [
            name
            for name in inside
            if name.sequence < kept_from or not (is_marked(name.sequence) or name in newest_two)
        ]
    return [name for name in inside[:-KEPT_INSIDE] if not is_kept(name.sequence, newest.sequence)]


def is_marked(sequence: int) -> bool:
    """Whether a snapshot of an instance that may go back counts for the safe line, and so is kept until that has passed
    it. One that stores before it sends takes many between two of these."""
    return sequence % MARKED_EVERY == 0


def marked_from(sequence: int) -> int:
    """The first number from this one on that is marked."""
    return -(-sequence // MARKED_EVERY) * MARKED_EVERY


def is_kept(sequence: int, newest: int) -> bool:
    """Whether a snapshot inside an epoch, not one of the newest two, is kept for a recovery line: the older, the fewer.

    A receiver's snapshot may be much older than its sender's, so the newest of each do not make a line. Of snapshots
    that are 2..3, 4..7, 8..15 and 16..31 older than the newest, one each stays.
    """
    age = newest - sequence
    return 0 < age < OLDEST_KEPT and sequence % (1 << (age.bit_length() - 1)) == 0


def overtaken(names: Names, epoch: Epoch, fence: Fence) -> list[SnapshotName]:
    """What may go when the attempt of `fence` runs `epoch`, which was not committed: all but how an attempt that binds
    has ended it, and where this one resumed."""
    return [
        name
        for name in names
        if name.epoch >= epoch
        and name.fence <= fence
        and not (name.final and binds(name.fence, fence))
        and not name.begins(fence)
    ]


def outlived(names: Names, epoch: Epoch, fence: Fence, since: Since | None) -> list[SnapshotName]:
    """What may go when `epoch` has committed: all before it, but how the instance stood at its end, even if it has not
    run since an earlier one."""
    names = list(names)
    kept = ends(names, epoch, since)[:1]
    return [name for name in names if name.epoch < epoch and name not in kept and name.fence <= fence]
