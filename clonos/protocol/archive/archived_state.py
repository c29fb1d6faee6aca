"""Whether an archived state is what stands in its place: of the instance, and of the history that is archived of it.

A state may have been stored at the end of an epoch which ended once more, and otherwise, so that its history does not
count. That is no damage: it is passed over. But it has to agree with what is archived where the process that has stored
it is the one whose end of the epoch counts, or has left nothing else of the epoch: the segments up to a state are
stored before it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from clonos.protocol.archive.episode import Episode, Lacking
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.fence import Fence
from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.line.snapshot_name import SnapshotName


def log_order(name: SnapshotName) -> tuple[int, Fence]:
    """A key that sorts names of archived states as they are in the log, whose offset the sequence has; of one offset,
    the state of the last process comes last."""
    return name.sequence, name.fence


@dataclass(frozen=True, slots=True)
class EpochLog:
    """The log of an archived epoch."""

    log: bytes
    begins: LogOffset
    ends: LogOffset
    ended_by: Fence
    left_by: frozenset[Fence]  # processes that have left anything of it

    @classmethod
    def of(cls, episode: Episode | Lacking, left_by: Iterable[Fence]) -> EpochLog | None:
        """None where it is not all there."""
        if isinstance(episode, Lacking):
            return None
        ends = episode.ended.log_end
        return cls(episode.log, episode.log_start, ends, episode.ended_by, frozenset(left_by))

    def binds(self, fence: Fence) -> bool:
        """Whether a state that a process of this fence has stored must be of this history."""
        return fence == self.ended_by or fence not in self.left_by

    def has(self, state: InstanceSnapshot) -> bool:
        """Whether a state was taken where the log has come to, in the same history."""
        mark = state.history
        if mark.begins != self.begins or mark.ends > self.ends:
            return False
        # An older version kept no digest, which is 0 then.
        return mark.digest in (0, zlib.crc32(self.log[: mark.ends - mark.begins]))


@dataclass(frozen=True, slots=True)
class ArchivedState:
    """One under its name in the place of an instance; `content` is what it says itself."""

    name: SnapshotName
    content: InstanceSnapshot

    def wrong(self, origin: Origin, own: EpochLog | None) -> str:
        """Why it cannot be a state of the instance; "" where it may be one. `own`: of the epoch that it is of."""
        if (said := self.content.wrong_place(origin)) != "":
            return said
        if own is not None and own.binds(self.name.fence) and not self._agrees(own):
            return "it is not what the instance was there, by the log of that epoch"
        return ""

    def goes_on(
        self,
        origin: Origin,
        own: EpochLog | None,
        following: Episode | Lacking,
        states: Iterable[SnapshotName] = (),
    ) -> bool:
        """Whether the first epoch that is repeated from it, `following`, goes on where it was taken. Where that is not
        all there, what is missing is said of the epoch. Of several of the `states` at the end of one epoch whose log is
        not there any more, only the newest may be of its history (`protocol.archive.dropping`)."""
        if self.content.wrong_place(origin) or (own is not None and not self._agrees(own)):
            return False
        if own is None and any(self._is_older_than(name) for name in states):
            return False
        if not self.name.final or isinstance(following, Lacking):
            return True  # inside, the epoch is its own
        return self.content.log_offset == following.log_start

    def is_end_of(self, origin: Origin, own: EpochLog) -> bool:
        """Whether it is known to be what the instance was at the end of the epoch whose log this is: older versions did
        not say as much of a state."""
        mark = self.content.history
        is_told = self.content.origin == origin and (mark.digest != 0 or mark.begins == mark.ends)
        return self.name.final and is_told and self._agrees(own)

    def _is_older_than(self, other: SnapshotName) -> bool:
        return other.final and other.epoch == self.name.epoch and other.fence > self.name.fence

    def _agrees(self, own: EpochLog) -> bool:
        return own.has(self.content) and (not self.name.final or self.content.log_offset == own.ends)
