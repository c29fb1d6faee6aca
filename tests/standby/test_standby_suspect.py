"""Marks of records that were being run when a process died, and the watch over functions that get nowhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from clonos.errors import Where
from clonos.protocol.fence import Fence
from clonos.wire.messages import Hello
from clonos_standby.replica.watchdog import STUCK
from clonos_standby.server.crash_marks import REPORTED, CrashMarks

CRASH = {"kind": "signal", "signal": "SIGSEGV", "code": None, "message": "died of SIGSEGV", "stderr": "in f"}
KILL = {**CRASH, "signal": "SIGKILL"}


def hello(fresh: bool = False, replacement: int = 1) -> Hello:
    return Hello(
        token="t",
        generation=1,
        node=2,
        instance=0,
        epoch=5,
        fence=Fence.of(1, 1, replacement),
        fresh=fresh,
        stage_attempt=0,
        task_attempt=0,
        mode="realtime",
    )


def at(position: int) -> Where:
    return Where("op", 0, 5, 1, position)


def life(path: Path, *positions: int, start: str = "s", previous: Any = CRASH, **said: Any) -> CrashMarks:
    """A process that ran these records and died at the last."""
    suspect = CrashMarks(path, start)
    suspect.warn(hello(**said), previous)
    for position in positions:
        suspect.about_to_run(at(position))
    return suspect


def test_the_record_that_two_processes_died_at_is_poison(tmp_path: Path) -> None:
    path = tmp_path / "m"
    life(path, 1, 2, 3)
    life(path, 3)
    third = life(path, fresh=True)
    assert not third.about_to_run(at(3))
    assert re.search(r"ended 2 processes.*position 3.*died of SIGSEGV\s+in f", str(third.poison(at(3))))


def test_records_before_it_do_not_hide_the_mark(tmp_path: Path) -> None:
    path = tmp_path / "m"
    life(path, 1, 2, 3)
    life(path, 1, 2, 3)
    third = life(path)
    assert [third.about_to_run(at(position)) for position in (1, 2, 3, 4)] == [True, True, False, True]


def test_a_record_that_was_passed_over_stays_known_until_the_bundle_is_behind(tmp_path: Path) -> None:
    """The process may die before the log says that it was passed over."""
    path = tmp_path / "m"
    life(path, 3)
    life(path, 3)
    last = life(path, 3, 4)
    assert not life(path).about_to_run(at(3))
    last.passed()
    assert life(path).about_to_run(at(3))


def test_another_record_at_the_same_position_is_not_the_suspect(tmp_path: Path) -> None:
    path = tmp_path / "m"
    for _ in range(2):
        assert life(path).about_to_run(at(3), row=7)
    assert not life(path).about_to_run(at(3), row=7)
    assert life(path).about_to_run(at(3), row=8)


def test_how_processes_died_is_kept_with_the_record(tmp_path: Path) -> None:
    path = tmp_path / "m"
    life(path, 1, 2)
    life(path, 2, previous={**CRASH, "pid": 7, "at": 1.0})
    third = life(path, previous={**CRASH, "pid": 8, "at": 2.0, "stderr": "x" * 9000})
    assert not third.about_to_run(at(2))
    assert [(death["pid"], death["signal"], len(death["stderr"])) for death in third.deaths(at(2))] == [
        (7, "SIGSEGV", 4),
        (8, "SIGSEGV", 4000),
    ]


def test_ends_that_others_wanted_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "m"
    life(path, 3)
    for pid in range(4):
        ended = {**CRASH, "kind": "replaced", "pid": pid, "at": 1.0 + pid}
        assert life(path, previous=ended).about_to_run(at(3))
    life(path, previous={**CRASH, "pid": 9, "at": 9.0}).about_to_run(at(3))
    last = life(path, previous={**CRASH, "pid": 10, "at": 10.0})
    assert not last.about_to_run(at(3))


def test_death_in_timers_after_the_record_is_not_the_records(tmp_path: Path) -> None:
    path = tmp_path / "m"
    for _ in range(2):
        life(path, 3).timers_fire()
    third = life(path)
    assert not third.about_to_run(at(3))
    assert not third.by_itself(at(3))


def test_what_was_passed_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "m"
    life(path, 3)
    life(path, 3, 4).passed()
    assert not path.exists()
    assert not life(path, fresh=True).careful


def test_another_start_of_the_query_knows_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "m"
    life(path, 3)
    life(path, 3)
    assert life(path, start="another").about_to_run(at(3))


@pytest.mark.parametrize(
    ("previous", "said", "careful"),
    [
        (None, {}, False),
        (CRASH, {}, True),
        (CRASH, {"fresh": True}, False),
        (KILL, {}, False),
        (KILL, {"replacement": 2}, True),
        ({**CRASH, "kind": "hang", "signal": "SIGKILL"}, {"replacement": 2}, True),
        ({**CRASH, "kind": "exit", "signal": None, "code": REPORTED}, {}, False),
        ({**CRASH, "kind": "exit", "signal": None, "code": 3}, {}, True),
        ({**CRASH, "kind": "replaced"}, {}, False),
    ],
)
def test_care_is_taken_after_what_may_be_the_functions_doing(
    tmp_path: Path, previous: Any, said: Any, careful: bool
) -> None:
    assert life(tmp_path / "m", previous=previous, **said).careful is careful


def test_a_mark_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "m").write_text('{"start": "s", "marks": [[1')
    assert not life(tmp_path / "m", fresh=True).careful


class Slow:
    """Takes its time for every row, and too much of it for one."""

    def open(self, services: Any) -> None: ...

    def close(self) -> None: ...

    def bundle(self, keys: list[Any], rows: list[Any]) -> list[Any]:
        for (seconds,) in rows:
            time.sleep(seconds)
        return rows

    def timers(self, due: list[Any], event: bool) -> list[Any]:
        time.sleep(sum(moment for moment, _, _ in due))
        return []


STUCK_PROGRAM = """
import threading, time, sys
from test_standby_suspect import Slow
from clonos_standby.replica.watchdog import Watchdog
dog = Watchdog({deadline})
dog.on_stuck = lambda row, why: print(row, why, flush=True)
def look():
    while True:
        time.sleep(0.05)
        dog.look()
threading.Thread(target=look, daemon=True).start()
watched = dog.watch(Slow())
{call}
print("done", flush=True)
"""


def program(call: str, deadline: float = 1.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", STUCK_PROGRAM.format(call=call, deadline=deadline)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )


def test_progress_in_a_long_bundle_is_progress() -> None:
    ended = program("watched.bundle([], [(0.1,)] * 35); time.sleep(3.2)", deadline=3.0)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


@pytest.mark.parametrize(
    ("call", "row"),
    [
        ("watched.bundle([], [(0.0,), (60.0,), (0.0,)])", "1"),
        (
            "watched.bundle([], [(0.0,), (60.0,)])",
            "None",
        ),  # the last: it may also be what comes after the rows
        ("watched.timers([(60.0, b'', '')], False)", "None"),
    ],
)
def test_a_function_that_gets_nowhere_ends_its_process(call: str, row: str) -> None:
    ended = program(call)
    assert ended.returncode == STUCK
    assert ended.stdout == f"{row} the function has made no progress for 1 s\n"
    assert "Slow" in ended.stderr or "in bundle" in ended.stderr or "in timers" in ended.stderr
