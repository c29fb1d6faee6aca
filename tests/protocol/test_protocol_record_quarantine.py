"""What is done about a record that may have ended a process."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from clonos.errors import ClonosError, PoisonRecord
from clonos.protocol.engine.instance import Bundle
from clonos.protocol.recovery.quarantine import CandidateRecord
from clonos.protocol.roles.record_quarantine import QuarantinePorts, RecordQuarantine, singly

RECORD = CandidateRecord(1, 7, ("row",), b"")
PART = CandidateRecord(1, 7, ("row",), b"", alone=False)


@dataclass
class Deaths(QuarantinePorts):
    is_suspect: bool = True  # type: ignore[assignment]
    keeps_dead_letters: bool = True  # type: ignore[assignment]
    is_deadly: bool = False
    in_timers: bool = False
    letters: list[CandidateRecord] = field(default_factory=list)
    passed: int = 0

    def about_to_run(self, candidate: CandidateRecord) -> bool:
        return not self.is_deadly

    def died_in_timers(self, candidate: CandidateRecord) -> bool:
        return self.in_timers

    def poison(self, candidate: CandidateRecord, advice: str | None = None) -> ClonosError:
        return PoisonRecord("deadly", hint=advice or "Mend it")

    def write_dead_letter(self, candidate: CandidateRecord) -> None:
        self.letters.append(candidate)

    def got_past(self) -> None:
        self.passed += 1


def test_it_is_over_behind_the_first_bundle_in_which_a_record_had_to_be_run() -> None:
    deaths = Deaths()
    quarantine = RecordQuarantine(deaths)
    assert quarantine.begin()
    assert not quarantine.is_over()  # all of it was repeated
    assert quarantine.may_run(RECORD)
    assert quarantine.is_over() and deaths.passed == 1
    assert not quarantine.is_over() and deaths.passed == 1


def test_another_conduit_has_another_bundle_in_doubt() -> None:
    quarantine = RecordQuarantine(Deaths())
    assert quarantine.begin() and quarantine.may_run(RECORD)
    assert quarantine.begin()
    assert not quarantine.is_over()


def test_a_deadly_record_is_kept_in_a_letter_and_passed_over() -> None:
    deaths = Deaths(is_deadly=True)
    assert not RecordQuarantine(deaths).may_run(RECORD)
    assert deaths.letters == [RECORD]


@pytest.mark.parametrize(
    ("deaths", "candidate", "advice"),
    [
        (Deaths(is_deadly=True, keeps_dead_letters=False), RECORD, "Mend it"),
        (Deaths(is_deadly=True, in_timers=True), RECORD, "timers after it"),
        (Deaths(is_deadly=True), PART, "its bundle, of which a part is recorded"),
    ],
)
def test_where_a_letter_cannot_help_the_query_ends(
    deaths: Deaths, candidate: CandidateRecord, advice: str
) -> None:
    with pytest.raises(PoisonRecord, match=advice):
        RecordQuarantine(deaths).may_run(candidate)
    assert not deaths.letters


def test_records_come_singly_and_deltas_with_the_first() -> None:
    pieces = list(singly(Bundle([1, 2], [5, 6], [("a",), ("b",)], [b"delta"])))
    assert pieces == [Bundle([1], [5], [("a",)], [b"delta"]), Bundle([2], [6], [("b",)], ())]
