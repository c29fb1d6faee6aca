"""What is done about a record that may have ended the process before this one.

After a death that may be the function's doing, an instance goes into quarantine (`protocol.recovery.quarantine`): it
takes one record at a time, each written down before it is run and saved before the next, until it has got past the
first bundle in which a record had to be run. A record that has ended too many processes ends the query, or is kept in
a dead letter and passed over, where nothing else can have been deadly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from clonos.errors import ClonosError
from clonos.protocol.engine.instance import Bundle
from clonos.protocol.recovery.quarantine import CandidateRecord


class QuarantinePorts(ABC):
    """What the runtime knows of deaths, and where it keeps dead letters."""

    @property
    @abstractmethod
    def is_suspect(self) -> bool:
        """Whether the process before this one may have died of a record."""

    @abstractmethod
    def about_to_run(self, candidate: CandidateRecord) -> bool:
        """Write down that the record is about to be run. False where it has ended too many processes."""

    @property
    @abstractmethod
    def keeps_dead_letters(self) -> bool:
        """Whether the user wants such records passed over."""

    @abstractmethod
    def died_in_timers(self, candidate: CandidateRecord) -> bool:
        """Whether the last process died of timers that fired after the record."""

    @abstractmethod
    def poison(self, candidate: CandidateRecord, advice: str | None = None) -> ClonosError:
        """The error that names the record."""

    @abstractmethod
    def write_dead_letter(self, candidate: CandidateRecord) -> None:
        """It is durable when this returns."""

    @abstractmethod
    def got_past(self) -> None:
        """No record is held to be deadly any more."""


class RecordQuarantine:
    """See the module. An instance asks it before each record while it is in quarantine."""

    def __init__(self, ports: QuarantinePorts) -> None:
        self._ports = ports
        self._asked = False

    def begin(self) -> bool:
        """A conduit has connected; whether the instance goes into quarantine."""
        self._asked = False
        return self._ports.is_suspect

    def may_run(self, candidate: CandidateRecord) -> bool:
        """For the instance: False where the record is passed over. Raises what ends the query."""
        self._asked = True
        if self._ports.about_to_run(candidate):
            return True
        if not self._ports.keeps_dead_letters:
            raise self._ports.poison(candidate)
        if not candidate.alone:
            raise self._no_letter(candidate, "its bundle, of which a part is recorded,")
        if self._ports.died_in_timers(candidate):
            raise self._no_letter(candidate, "timers after it")
        self._ports.write_dead_letter(candidate)
        return False

    def _no_letter(self, candidate: CandidateRecord, suspect: str) -> ClonosError:
        advice = f"No letter can help, since {suspect} may be what kills: mend the function"
        return self._ports.poison(candidate, advice)

    def is_over(self) -> bool:
        """A bundle has been taken; whether the instance leaves quarantine."""
        if not self._asked:
            return False
        self._asked = False
        self._ports.got_past()
        return True


def singly(records: Bundle) -> Iterator[Bundle]:
    """A bundle's records, one by one."""
    for at, row in enumerate(records.rows):
        channel, position = int(records.channels[at]), int(records.positions[at])
        yield Bundle([channel], [position], [row], records.deltas if at == 0 else ())
