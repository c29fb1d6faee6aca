"""Nothing is left of a query that was stopped, or that has failed: no process, thread, socket or temporary file.

What a killed driver leaves is looked at where one is killed (`test_driver`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bad_functions import Raises
from command_lines import processes_of
from driver import until
from ledger_job import Run, await_, await_end, running
from modes import in_turns, mostly

from clonos.errors import UserFunctionError
from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = pytest.mark.spark

SOON = 120.0  # the ends of tasks and of dead connections are noticed, not waited for


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this process puts temporary files; short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="ct-", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    yield path
    shutil.rmtree(path)


def python_threads() -> set[str]:
    return {
        thread.name for thread in threading.enumerate() if not thread.name.startswith(("Thread-", "py4j"))
    }


def jvm_threads(spark: Any) -> set[str]:
    names = {str(thread.getName()) for thread in spark._jvm.java.lang.Thread.getAllStackTraces().keySet()}
    return {name for name in names if name.startswith("clonos")}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def arrow_bytes(spark: Any) -> int:
    return int(spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator().getAllocatedMemory())


def assert_nothing_left(spark: Any, setup: Run, temporary: Path) -> None:
    assert not processes_of(str(setup.checkpoint))
    assert list(temporary.iterdir()) == []
    assert not {name for name in python_threads() if name.startswith("clonos")}
    until(lambda: not jvm_threads(spark), SOON, f"no thread of the plugin: {jvm_threads(spark)}")
    until(lambda: arrow_bytes(spark) == 0, SOON, "no Arrow memory")
    assert not list((setup.data / "spill").glob("*"))


@pytest.mark.parametrize(("moment", "mode"), in_turns(["at work", "at rest", "at once"]))
def test_a_stopped_query(spark: Any, tmp_path: Path, temporary: Path, mode: str, moment: str) -> None:
    setup = Run(tmp_path, mode=mode)
    with running(spark, setup) as query:
        if moment == "at work":
            await_(query, setup, lambda: setup.visible() > 0)
            assert len(processes_of(str(setup.checkpoint))) >= 5
            assert len(list(temporary.rglob("*"))) == 2  # a directory and the socket in it
        elif moment == "at rest":
            await_end(query, setup)
    assert not query.isActive
    assert_nothing_left(spark, setup, temporary)


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_query_that_fails(spark: Any, tmp_path: Path, temporary: Path, mode: str) -> None:
    setup = Run(tmp_path, mode=mode, first=Raises("411"))
    with running(spark, setup) as query:
        with pytest.raises(UserFunctionError):
            query.awaitTermination(setup.deadline)
        assert_nothing_left(spark, setup, temporary)


def test_a_query_that_is_stopped_in_the_middle_of_its_recovery(
    spark: Any, tmp_path: Path, temporary: Path
) -> None:
    """The replica hangs there, and does not hear that it shall end."""
    faults = [
        Fault(point=Point.INPUT, strike=Strike.REPLICA, operator="first", after=60),
        Fault(point=Point.RECOVERY, strike=Strike.STOP, operator="first"),
    ]
    setup = Run(tmp_path, mode="realtime", faults=script(*faults))
    with running(spark, setup) as query:
        await_(query, setup, lambda: len(setup.fired()) == 2)
    assert_nothing_left(spark, setup, temporary)


@pytest.mark.parametrize(
    "ending",
    [
        "raises",
        "loses-jvm",
        *(pytest.param(each, marks=pytest.mark.soak) for each in ("returns", "stops-spark")),
    ],
)
def test_a_program_that_does_not_stop_its_query(
    plugin_jar: Path, tmp_path: Path, temporary: Path, ending: str
) -> None:
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("careless.py")), str(tmp_path), ending],
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == (1 if ending == "raises" else 0), ended.stderr
    if ending in (
        "stops-spark",
        "loses-jvm",
    ):  # the query has ended with it, without an attempt to start again
        assert ended.stdout.split() == ["SessionStopped", "[]"]
    until(lambda: not processes_of(str(tmp_path)), SOON, "the end of every process of the query")
    until(lambda: not list(temporary.glob("clonos-*")), SOON, "no socket directory left")


def test_descriptors_do_not_add_up(spark: Any, tmp_path: Path) -> None:
    """One per query would be too many. The gateway to the JVM may keep another connection now and then."""
    counts = []
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        setup = Run(tmp_path / str(number), mode="realtime", count=50, feed_seconds=0.1)
        with running(spark, setup) as query:
            await_(query, setup, lambda setup=setup: setup.visible() == setup.count)
        counts.append(descriptors())
    assert counts[-1] < counts[0] + len(counts) - 1, counts
