"""Held output: what a sink's instance has been sent and may not show yet.

Rows may be seen as soon as no permitted failure can put the recovery line before them (Elnozahy et al., "A Survey of
Rollback-Recovery Protocols in Message-Passing Systems", 2002, section 2.4: output commit). With coordinated checkpoints
that is when their round is complete, with uncoordinated ones when the safe line has them; with both, when their epoch
has committed. Until then they are part of the checkpoint of the
sink's instance, so that they can be shown after a failure: the operators that made them do not make the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from clonos.protocol.engine.output_commit import Write
from clonos.protocol.ids import Epoch
from clonos.protocol.recovery.rollback.rounds import StoredRound


@dataclass(frozen=True, slots=True)
class HeldWrite:
    """It came in an epoch, and before a checkpoint, if one was taken since."""

    write: Write
    epoch: Epoch
    before: StoredRound | None = None

    def may_be_seen(self, committed: Epoch, safe: StoredRound) -> bool:
        """`safe` is the last checkpoint of the sink's instance that no failure leads behind."""
        if self.epoch <= committed:
            return True
        return self.before is not None and self.before <= safe


@dataclass(frozen=True, slots=True)
class SinkCheckpoint:
    """The checkpoint of a sink's instance. `shown` is by channel the last position that was visible, `covered` the last
    that is visible or held."""

    epoch: Epoch
    shown: Mapping[int, int] = field(default_factory=dict)
    covered: Mapping[int, int] = field(default_factory=dict)
    held: Sequence[HeldWrite] = ()

    def reached(self, cursors: Mapping[int, int]) -> dict[int, int]:
        """How far the instance comes with it where the sink's store has `cursors`. What the store has lost of what was
        visible is not made good by what is held."""
        lost = any(cursors.get(channel, -1) < at for channel, at in self.shown.items())
        return dict(cursors if lost else self.covered)


class HeldOutput:
    """See the module. In the order in which the rows came."""

    def __init__(self, held: Iterable[HeldWrite] = ()) -> None:
        self._held = list(held)

    @property
    def writes(self) -> tuple[HeldWrite, ...]:
        return tuple(self._held)

    @property
    def rows(self) -> int:
        return sum(len(held.write.rows) for held in self._held)

    def hold(self, write: Write, epoch: Epoch) -> None:
        self._held.append(HeldWrite(write, epoch))

    def mark(self, marked: StoredRound) -> None:
        """A checkpoint is taken: what is held comes before it."""
        self._held = [
            held if held.before is not None else replace(held, before=marked) for held in self._held
        ]

    def seen(self, cursors: Mapping[int, int]) -> None:
        """The sink's store has come so far. What was shown together before a failure is there as a whole, or not at
        all."""
        self._held = [
            held
            for held in self._held
            if any(at > cursors.get(channel, -1) for channel, at in held.write.cursors.items())
        ]

    def take(self, committed: Epoch, safe: StoredRound) -> Write | None:
        """What may be seen now, as one."""
        visible = (held.may_be_seen(committed, safe) for held in self._held)
        count = next((at for at, may_be_seen in enumerate(visible) if not may_be_seen), len(self._held))
        due, self._held = self._held[:count], self._held[count:]
        return _joined([held.write for held in due]) if due else None

    def take_all(self) -> Write | None:
        """The recovery line has been drawn behind it: all of it is to be seen."""
        due, self._held = self._held, []
        return _joined([held.write for held in due]) if due else None


def _joined(writes: Sequence[Write]) -> Write:
    cursors: dict[int, int] = {}
    for write in writes:
        cursors.update(write.cursors)
    return Write(
        [row for write in writes for row in write.rows],
        [identity for write in writes for identity in write.ids],
        cursors,
        [delta for write in writes for delta in write.deltas],
        [ingested for write in writes for ingested in write.ingested],
    )
