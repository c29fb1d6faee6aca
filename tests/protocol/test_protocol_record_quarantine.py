"""What is done about a record that may have ended a process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from clonos.errors import PoisonRecord, Where
from clonos.protocol.engine.instance import Bundle
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.quarantine import CandidateRecord
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.crash_marks import CrashMarks, Marks
from clonos.protocol.roles.death import Death
from clonos.protocol.roles.record_quarantine import QuarantinePorts, RecordQuarantine, singly

HERE = Where("op", 0, 5)
RECORD = CandidateRecord(1, 7, ("row",), b"")
PART = CandidateRecord(1, 7, ("row",), b"", is_whole_step=False)


@dataclass
class Host(QuarantinePorts):
    """One host, on which processes of an instance follow each other; its marks are in memory."""

    keeps_dead_letters: bool = True  # type: ignore[assignment]
    dead_letters: list[CandidateRecord] = field(default_factory=list)
    deaths: Sequence[Death] = ()
    marks: Marks | None = None
    pid: int = 0
    told: int = 0

    def checksum(self, candidate: CandidateRecord) -> int:
        return hash(candidate.row)

    def write_dead_letter(self, candidate: CandidateRecord, where: Where, deaths: Sequence[Death]) -> None:
        assert (where.channel, where.position) == (candidate.channel, candidate.position)
        self.dead_letters.append(candidate)
        self.deaths = deaths

    def tell_passed_over(self) -> None:
        self.told += 1

    def read(self) -> Marks | None:
        return self.marks

    def write(self, marks: Marks) -> None:
        self.marks = marks

    def remove(self) -> None:
        self.marks = None

    def next_process(self) -> RecordQuarantine:
        self.pid += 1
        return RecordQuarantine(self, CrashMarks(self, start="q", pid=self.pid), lambda: HERE)

    def after_a_crash(self) -> RecordQuarantine:
        """The next process, which knows how the one before it died."""
        quarantine = self.next_process()
        assert quarantine.begin(attach(crash(self.pid - 1)))
        return quarantine


def crash(pid: int) -> Death:
    return Death("signal", "died", 2, 0, pid, at=0.0, uptime=0.0, signal="SIGSEGV")


def attach(previous: Death | None) -> AttachRequest:
    return AttachRequest(
        origin=Origin(2, 0),
        epoch=5,
        fence=Fence.of(1),
        fresh=False,
        is_retry=False,
        emitted_output=0,
        log_start=0,
        log=b"",
        previous=previous,
    )


def test_without_a_death_there_is_none() -> None:
    assert not Host().next_process().begin(attach(None))


def test_it_is_over_behind_the_first_bundle_in_which_a_record_had_to_be_run() -> None:
    host = Host()
    quarantine = host.after_a_crash()
    assert not quarantine.is_over()  # all of it was repeated
    assert quarantine.may_run(RECORD) and quarantine.in_hand == RECORD and host.marks is not None
    assert quarantine.is_over() and quarantine.in_hand is None and host.marks is None
    assert not quarantine.is_over()


def test_another_conduit_has_another_bundle_in_doubt() -> None:
    host = Host()
    quarantine = host.after_a_crash()
    assert quarantine.may_run(RECORD)
    assert quarantine.begin(attach(None))
    assert not quarantine.is_over()


def deadly(host: Host, *, in_timers: bool = False) -> RecordQuarantine:
    """Two processes have died of the record."""
    for _ in range(2):
        quarantine = host.after_a_crash()
        assert quarantine.may_run(RECORD)
        if in_timers:
            quarantine.timers_fire()
    return host.after_a_crash()


def test_a_deadly_record_is_kept_in_a_letter_and_passed_over() -> None:
    host = Host()
    assert not deadly(host).may_run(RECORD)
    assert host.dead_letters == [RECORD]
    assert [death.pid for death in host.deaths] == [1, 2]
    assert host.told == 1


def test_a_record_that_is_passed_over_again_is_no_further_progress() -> None:
    """The process died at another record of the same step, and nothing of the step was recorded."""
    host = Host()
    behind = CandidateRecord(1, 8, ("another",), b"")
    quarantine = deadly(host)
    for _ in range(2):
        assert not quarantine.may_run(RECORD) and quarantine.may_run(behind)
        quarantine = host.after_a_crash()
    assert not quarantine.may_run(RECORD) and host.told == 1
    assert not quarantine.may_run(behind) and host.told == 2


@pytest.mark.parametrize(
    ("host", "candidate", "in_timers", "advice"),
    [
        (Host(keeps_dead_letters=False), RECORD, False, "Mend the function or the record"),
        (Host(), RECORD, True, "timers after it"),
        (Host(), PART, False, "its bundle, of which a part is recorded"),
    ],
)
def test_where_a_letter_cannot_help_the_query_ends(
    host: Host, candidate: CandidateRecord, in_timers: bool, advice: str
) -> None:
    with pytest.raises(PoisonRecord, match=advice):
        deadly(host, in_timers=in_timers).may_run(candidate)
    assert not host.dead_letters


def test_records_come_singly_and_deltas_with_the_first() -> None:
    bundle = Bundle([1, 2], [5, 6], [("a",), ("b",)], [b"delta"])
    assert list(singly(bundle, 2)) == [bundle], "of all of them it is recorded what came of them"
    known, new = singly(bundle, 1)
    assert (known.rows, known.deltas, new.rows, new.deltas) == ([("a",)], [b"delta"], [("b",)], ())
    pieces = list(singly(bundle, 0))
    assert pieces == [Bundle([1], [5], [("a",)], [b"delta"]), Bundle([2], [6], [("b",)], ())]
