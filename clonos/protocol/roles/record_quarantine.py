"""What is done about a record that may have ended the process before this one.

After a death that may be the function's doing, an instance goes into quarantine (`protocol.recovery.quarantine`): it
takes one record at a time, each written down before it is run and saved before the next, until it has got past the
first bundle in which a record had to be run. A record that has ended too many processes ends the query, or is kept in
a dead letter and passed over, where nothing else can have been deadly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from clonos.errors import ClonosError, Where
from clonos.protocol.engine.instance import Bundle
from clonos.protocol.fence import Fence
from clonos.protocol.recovery.quarantine import CandidateRecord
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.crash_marks import CrashMarks
from clonos.protocol.roles.death import Death


class QuarantinePorts(ABC):
    """What the runtime knows of records, and where it keeps dead letters."""

    @property
    @abstractmethod
    def keeps_dead_letters(self) -> bool:
        """Whether the user wants deadly records passed over."""

    @abstractmethod
    def checksum(self, candidate: CandidateRecord) -> int:
        """Of the record's content."""

    @abstractmethod
    def write_dead_letter(self, candidate: CandidateRecord, where: Where, deaths: Sequence[Death]) -> None:
        """With how processes died of it. It is durable when this returns."""

    @abstractmethod
    def tell_passed_over(self) -> None:
        """PASSED_OVER, to the conduit: a record is passed over for the first time here."""


class RecordQuarantine:
    """See the module. An instance asks it before each record while it is in quarantine."""

    def __init__(self, ports: QuarantinePorts, marks: CrashMarks, where: Callable[[], Where]) -> None:
        """`where` is the instance, and its epoch."""
        self._ports = ports
        self._marks = marks
        self._where = where
        self._asked = False
        self.in_hand: CandidateRecord | None = None
        """The record that was run last."""

    def begin(self, request: AttachRequest) -> bool:
        """A conduit has connected; whether the instance goes into quarantine."""
        self._asked, self.in_hand = False, None
        self._marks.warn(Fence(request.fence), fresh=request.fresh, previous=request.previous)
        return self._marks.careful

    def may_run(self, candidate: CandidateRecord) -> bool:
        """For the instance: False where the record is passed over. Raises what ends the query."""
        self._asked = True
        where = replace(self._where(), channel=candidate.channel, position=candidate.position)
        if self._marks.about_to_run(where, self._ports.checksum(candidate)):
            self.in_hand = candidate
            return True
        if not self._ports.keeps_dead_letters:
            raise self._marks.poison(where)
        if not candidate.is_whole_step:
            raise self._no_letter(where, "its bundle, of which a part is recorded,")
        if not self._marks.by_itself(where):
            raise self._no_letter(where, "timers after it")
        self._ports.write_dead_letter(candidate, where, self._marks.deaths(where))
        if self._marks.pass_over(where):
            self._ports.tell_passed_over()
        return False

    def _no_letter(self, where: Where, suspect: str) -> ClonosError:
        advice = f"No letter can help, since {suspect} may be what kills: mend the function"
        return self._marks.poison(where, advice)

    def is_over(self) -> bool:
        """A bundle has been taken; whether the instance leaves quarantine."""
        if not self._asked:
            return False
        self._asked, self.in_hand = False, None
        self._marks.passed()
        return True

    def timers_fire(self) -> None:
        """The record in hand is done, and timers fire after it."""
        self._marks.timers_fire()

    def is_stuck(self, where: Where) -> None:
        """The process is about to be ended, because the function does not come back from a record."""
        self._marks.blame(where)


def singly(records: Bundle, known: int) -> Iterator[Bundle]:
    """A bundle's records, one by one but for the first ones: of so many it is recorded what came of them."""
    if known:
        yield Bundle(
            records.channels[:known], records.positions[:known], records.rows[:known], records.deltas
        )
    for at, row in enumerate(records.rows[known:], known):
        channel, position = int(records.channels[at]), int(records.positions[at])
        yield Bundle([channel], [position], [row], records.deltas if at == 0 else ())
    if records.watermarks:
        yield Bundle([], [], [], watermarks=records.watermarks)
