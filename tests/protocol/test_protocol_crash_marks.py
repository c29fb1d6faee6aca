"""Marks of records that were being run when a process died."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from clonos.errors import Where
from clonos.protocol.fence import Fence
from clonos.protocol.roles.crash_marks import CrashMarks, Marks
from clonos.protocol.roles.death import REPORTED, Death

CRASH = Death("signal", "died of SIGSEGV", 2, 0, pid=0, at=0.0, uptime=1.0, signal="SIGSEGV", stderr="in f")
KILL = replace(CRASH, signal="SIGKILL")
WANTED = replace(KILL, kind="replaced")


class Kept:
    """A mark store in memory."""

    def __init__(self) -> None:
        self.marks: Marks | None = None

    def read(self) -> Marks | None:
        return self.marks

    def write(self, marks: Marks) -> None:
        self.marks = marks

    def remove(self) -> None:
        self.marks = None


class Instance:
    """Its processes, one after another."""

    def __init__(self) -> None:
        self.kept = Kept()
        self._pids: Iterator[int] = count(1)
        self._pid = 0

    def process(
        self, previous: Death | None = CRASH, *, start: str = "s", fresh: bool = False, replacement: int = 1
    ) -> CrashMarks:
        """The next one; `previous` is how the last one died, as far as the server knows."""
        died = replace(previous, pid=self._pid, at=float(self._pid)) if previous is not None else None
        self._pid = next(self._pids)
        marks = CrashMarks(self.kept, start=start, pid=self._pid)
        marks.warn(Fence.of(1, 1, replacement), fresh=fresh, previous=died)
        return marks

    def dies_at(self, *positions: int, previous: Death | None = CRASH) -> CrashMarks:
        """A process runs these records, and dies at the last one."""
        marks = self.process(previous)
        for position in positions:
            marks.about_to_run(at(position))
        return marks


def at(position: int) -> Where:
    return Where("op", 0, 5, 1, position)


def test_the_record_that_two_processes_died_at_is_poison() -> None:
    instance = Instance()
    instance.dies_at(1, 2, 3)
    instance.dies_at(3)
    third = instance.process(fresh=True)
    assert not third.about_to_run(at(3))
    assert re.search(r"ended 2 processes.*position 3.*died of SIGSEGV\s+in f", str(third.poison(at(3))))


def test_what_is_told_is_how_the_record_ended_a_process() -> None:
    """The replica that told of the record has ended, too, and the query may ask once more."""
    instance = Instance()
    instance.dies_at(3)
    instance.dies_at(3)
    third = instance.process(replace(KILL, message="was killed by SIGKILL"), fresh=True)
    assert not third.about_to_run(at(3))
    told = replace(
        CRASH, kind="exit", message="ended by itself with exit code 70", signal=None, code=REPORTED
    )
    fourth = instance.process(told, fresh=True)
    assert not fourth.about_to_run(at(3))
    for each in (third, fourth):
        said = str(each.poison(at(3)))
        assert "The last end: was killed by SIGKILL" in said and "exit code 70" not in said


def test_records_before_it_do_not_hide_the_mark() -> None:
    instance = Instance()
    instance.dies_at(1, 2, 3)
    instance.dies_at(1, 2, 3)
    third = instance.process()
    assert [third.about_to_run(at(position)) for position in (1, 2, 3, 4)] == [True, True, False, True]


def test_a_record_that_was_passed_over_stays_known_until_the_bundle_is_behind() -> None:
    """The process may die before the log says that it was passed over."""
    instance = Instance()
    instance.dies_at(3)
    instance.dies_at(3)
    last = instance.dies_at(3, 4)
    assert not instance.process().about_to_run(at(3))
    last.passed()
    assert instance.process().about_to_run(at(3))


def test_another_record_at_the_same_position_is_not_the_suspect() -> None:
    instance = Instance()
    for _ in range(2):
        assert instance.process().about_to_run(at(3), row=7)
    assert not instance.process().about_to_run(at(3), row=7)
    assert instance.process().about_to_run(at(3), row=8)


def test_how_processes_died_is_kept_with_the_record() -> None:
    instance = Instance()
    instance.dies_at(1, 2)
    instance.dies_at(2)
    third = instance.process(replace(CRASH, stderr="x" * 9000))
    assert not third.about_to_run(at(2))
    assert [(death.pid, death.signal, len(death.stderr)) for death in third.deaths(at(2))] == [
        (1, "SIGSEGV", 4),
        (2, "SIGSEGV", 4000),
    ]


@pytest.mark.parametrize(
    "end",
    [WANTED, None, replace(CRASH, kind="exit", signal=None, code=REPORTED)],
    ids=["wanted by its server", "together with its server", "because it had something to report"],
)
def test_ends_that_are_not_the_records_doing_do_not_count(end: Death | None) -> None:
    instance = Instance()
    instance.dies_at(3)
    for _ in range(4):
        again = instance.process(end)
        assert again.about_to_run(at(3)) and not again.deaths(at(3))
    instance.dies_at(3)
    assert not instance.process().about_to_run(at(3))


def test_a_process_whose_conduit_has_gone_is_not_dead() -> None:
    """It serves the next connection, which hears of the death before it once more."""
    instance = Instance()
    instance.dies_at(3)
    served = instance.process()
    earlier = replace(CRASH, pid=1)
    for _ in range(4):
        served.warn(Fence.of(1, 1, 2), fresh=False, previous=earlier)
        assert served.careful and served.about_to_run(at(3)) and len(served.deaths(at(3))) == 1


def test_the_death_before_the_first_mark_does_not_count_against_it() -> None:
    instance = Instance()
    careful = instance.process()
    careful.about_to_run(at(3))
    careful.warn(Fence.of(1, 1, 2), fresh=False, previous=CRASH)
    assert careful.about_to_run(at(3)) and not careful.deaths(at(3))


def test_death_in_timers_after_the_record_is_not_the_records() -> None:
    instance = Instance()
    for _ in range(2):
        instance.dies_at(3).timers_fire()
    third = instance.process()
    assert not third.about_to_run(at(3))
    assert not third.by_itself(at(3))


def test_what_was_passed_is_forgotten() -> None:
    instance = Instance()
    instance.dies_at(3)
    instance.dies_at(3, 4).passed()
    assert instance.kept.marks is None
    assert not instance.process(fresh=True).careful


def test_another_start_of_the_query_knows_nothing_of_it() -> None:
    instance = Instance()
    instance.dies_at(3)
    instance.dies_at(3)
    assert instance.process(start="another").about_to_run(at(3))


@pytest.mark.parametrize(
    ("previous", "fresh", "replacement", "careful"),
    [
        (None, False, 1, False),
        (CRASH, False, 1, True),
        (CRASH, True, 1, False),
        (KILL, False, 1, False),
        (KILL, False, 2, True),
        (replace(KILL, kind="hang"), False, 2, True),
        (replace(KILL, kind="exit", signal=None, code=REPORTED), False, 1, False),
        (replace(KILL, kind="exit", signal=None, code=3), False, 1, True),
        (WANTED, False, 1, False),
    ],
)
def test_care_is_taken_after_what_may_be_the_functions_doing(
    previous: Death | None, fresh: bool, replacement: int, careful: bool
) -> None:
    assert Instance().process(previous, fresh=fresh, replacement=replacement).careful is careful
