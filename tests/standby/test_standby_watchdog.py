"""The watch over functions that get nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from clonos.protocol.roles.death import STUCK


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
from test_standby_watchdog import Slow
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
