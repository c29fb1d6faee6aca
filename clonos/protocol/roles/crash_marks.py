"""A record that ends every process that takes it.

A replica that dies takes its reason with it. After a death that may be the function's doing, the next replica goes
carefully until it has got past the first bundle that no replica has finished: it takes one record at a time and writes
down which, before it does. A record that two processes have died at that way is *poison*: it is not run a third time.
What becomes of it is the operator's policy (`on_poison`).

A death counts against a record only if a server has classified it, if it may be the record's doing, and if it is the
death of the very process that had the record in hand. So nothing counts where the server or the query wanted the
process to end, where it ended because it had something to report, where it died with its server, so that its death is
not classified, and where it lives and only its conduit has gone. A process that died while timers fired, after the
record was done, says nothing against the record; it is counted, and no letter can help.

The mark belongs to one start of the query; another start, perhaps with a mended function, knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from clonos.errors import PoisonRecord, Where
from clonos.protocol.fence import Fence
from clonos.protocol.ids import RecordId
from clonos.protocol.roles.death import KILLED, REPORTED, Death

DEADLY: Final = 2
_OWN_DOING: Final = ("exit", "signal", "oom", "hang")
_LONGEST: Final = 4000


@dataclass(frozen=True, slots=True)
class Mark:
    """What is held against a record."""

    row: int | None = None  # a checksum of the record's content, where that is known
    in_timers: bool = False  # the last process died after the record itself was done
    deaths: tuple[Death, ...] = ()
    passed_over: bool = False  # it was, by a process that may have died before that was recorded


@dataclass(frozen=True, slots=True)
class InHand:
    """A record that a process is running, or has died at."""

    record: RecordId
    pid: int


@dataclass(frozen=True, slots=True)
class Marks:
    """What the processes of an instance keep for each other, in one start of the query."""

    start: str
    in_hand: InHand | None
    marks: Mapping[RecordId, Mark]


class MarkStore(Protocol):
    """Where marks outlive a process. They need not outlive the host: nothing of it dies of a record."""

    def read(self) -> Marks | None:
        """None where there are none that can be read."""
        ...

    def write(self, marks: Marks) -> None: ...

    def remove(self) -> None: ...


class CrashMarks:
    """The marks of one instance, in one of its processes: records that were being run when a process died."""

    def __init__(self, store: MarkStore, *, start: str, pid: int) -> None:
        """`start` names the start of the query."""
        self.careful = False
        self._store = store
        self._start = start
        self._pid = pid
        self._marks: dict[RecordId, Mark] = {}
        self._running: RecordId | None = None

    def warn(self, fence: Fence, *, fresh: bool, previous: Death | None) -> None:
        """A connection begins; `previous` is how the last process that has died here did."""
        left = self._read()
        self._running = None
        if left is not None:
            if previous is not None and counts(left, previous):
                mark = self._marks[left.record]
                self._marks[left.record] = replace(mark, deaths=(*mark.deaths, _shortened(previous)))
            self._write()
        self.careful = bool(self._marks) or (
            not fresh and previous is not None and _may_be_its_doing(fence, previous)
        )

    def about_to_run(self, where: Where, row: int | None = None) -> bool:
        """Write the record down; the one before it is behind us. False where it is known too well: it must not run.

        `row` is a checksum of its content: in a history that was given up, and repeated otherwise, another record may
        have had the position.
        """
        record = _record(where)
        if self._running is not None:
            del self._marks[self._running]
            self._running = None
        mark = self._marks.setdefault(record, Mark())
        if row is not None:
            mark = Mark(row) if mark.row not in (None, row) else replace(mark, row=row)
            self._marks[record] = mark
        if len(mark.deaths) >= DEADLY:
            return False
        self._running = record
        self._marks[record] = replace(mark, in_timers=False)
        self._write()
        return True

    def timers_fire(self) -> None:
        """The record is done; what dies now is not its doing."""
        if self._running is not None and not self._marks[self._running].in_timers:
            self._marks[self._running] = replace(self._marks[self._running], in_timers=True)
            self._write()

    def pass_over(self, where: Where) -> bool:
        """The record is; whether that is new. A process that comes to it again, since the one before it died at another
        record of the same step, is no further than that one."""
        record = _record(where)
        is_new = not self._marks[record].passed_over
        if is_new:
            self._marks[record] = replace(self._marks[record], passed_over=True)
            self._write()
        return is_new

    def by_itself(self, where: Where) -> bool:
        """Whether it was the record that was deadly, and not timers that fire after it."""
        return not self._marks[_record(where)].in_timers

    def deaths(self, where: Where) -> tuple[Death, ...]:
        """How processes died with the record in hand."""
        return self._marks[_record(where)].deaths

    def poison(self, where: Where, advice: str = "Mend the function or the record") -> PoisonRecord:
        """The error that names the record, and how the last process died at it: another may have ended since, for it
        had told of the record."""
        deaths = self.deaths(where)
        said = f"{deaths[-1].message}\n{deaths[-1].stderr}".strip()
        return PoisonRecord(
            f"the function has ended {len(deaths)} processes in a row at the same record",
            where=where,
            hint=f"{advice}; the query then goes on from there. The last end: {said[:_LONGEST]}",
        )

    def blame(self, where: Where) -> None:
        """The function is stuck at a record."""
        if where.channel is not None and where.position is not None and self._running is None:
            self.about_to_run(where)

    def passed(self) -> None:
        """The bundle in doubt is behind us."""
        self.careful = False
        self._marks, self._running = {}, None
        self._store.remove()

    def _read(self) -> InHand | None:
        """Read the marks; what a process had in hand."""
        kept = self._store.read()
        if kept is None or kept.start != self._start:
            self._marks = {}
            return None
        self._marks = dict(kept.marks)
        in_hand = kept.in_hand
        return in_hand if in_hand is not None and in_hand.record in self._marks else None

    def _write(self) -> None:
        in_hand = InHand(self._running, self._pid) if self._running is not None else None
        self._store.write(Marks(self._start, in_hand, dict(self._marks)))


def _record(where: Where) -> RecordId:
    assert where.channel is not None and where.position is not None
    return RecordId(where.channel, where.position)


def _shortened(death: Death) -> Death:
    return replace(death, stderr=death.stderr[-_LONGEST:])


def counts(left: InHand, previous: Death) -> bool:
    """Whether a death counts against the record that was left in hand."""
    return previous.pid == left.pid and _own_doing(previous)


def _own_doing(death: Death) -> bool:
    return death.kind in _OWN_DOING and death.code != REPORTED


def _may_be_its_doing(fence: Fence, previous: Death) -> bool:
    # A first SIGKILL says nothing against the function: a user may have sent it. A second in a row may be its doing.
    return _own_doing(previous) and (previous.signal != KILLED or fence.replacement > 1)
