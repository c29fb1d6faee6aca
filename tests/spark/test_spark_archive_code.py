"""What a function depends on beside its records has changed since: that is said, and no wrong state is shown."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from streams import Place

pytestmark = pytest.mark.spark

KEPT: Final = """
import json
from pathlib import Path

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

import kept_weights

RATE = 2
READ = json.loads(Path(__file__).with_name("read.json").read_text())


def as_given(row, ctx):
    return row


def keep(key, row, ctx):
    ctx.state["paid"] = ctx.state.get("paid", 0) + row.n * RATE
    ctx.state["weight"] = ctx.state.get("weight", 0) + kept_weights.weight(row.n)
    yield row.k, row.n


def keep_read(key, row, ctx):
    ctx.state["read"] = READ
    yield row.k, row.n


def set_timer(key, row, ctx):
    ctx.timer(at=ctx.now_us() + 3_600_000_000 * READ, name="later")
    yield row.k, row.n


def late(key, timer, ctx):
    pass


def add(kept, row, ctx):
    return (kept or 0) + READ


def finish(key, window, kept, ctx):
    yield key[0], 0


class Variable(StatefulProcessor):
    def init(self, handle):
        self.last = handle.getValueState("last", "n long")

    def handleInputRows(self, key, rows, times):
        for row in rows:
            self.last.update((row.n * READ,))
            yield Row(k=key[0], n=row.n)

    def close(self):
        pass
"""
WEIGHTS: Final = "def weight(n):\n    return n * 2 + 2\n"
OUT: Final = "k string, n long"
AT: Final = "2024-01-01 00:00:00"


class Modules:
    """Of a job, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.write()

    def write(self, kept: str = KEPT, weights: str = WEIGHTS, read: int = 2) -> None:
        (self.folder / "kept_module.py").write_text(kept)
        (self.folder / "kept_weights.py").write_text(weights)
        (self.folder / "read.json").write_text(str(read))
        shutil.rmtree(self.folder / "__pycache__", ignore_errors=True)  # times are of whole seconds there

    def ask(self, *arguments: object) -> tuple[int, str]:
        """Of `clonos`, in a process that finds these modules: its exit status, and what it says."""
        command = [sys.executable, "-m", "clonos.cli", *map(str, arguments)]
        run = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, env=dict(os.environ), check=False
        )
        return run.returncode, run.stdout + run.stderr


@pytest.fixture
def modules(tmp_path: Path) -> Iterator[Modules]:
    found = Modules(tmp_path / "modules")
    sys.path.insert(0, str(found.folder))
    importlib.invalidate_caches()
    yield found
    sys.path.remove(str(found.folder))
    for name in ("kept_module", "kept_weights"):
        sys.modules.pop(name, None)


def loaded() -> ModuleType:
    return importlib.import_module("kept_module")


def run_twice(place: Place, stream: Any, rows: int, mode: str) -> int:
    """Two epochs at least, each in a start of its own, so that there are states at their ends; the last one."""
    last = -1
    for start in range(2):
        place.start(stream(), mode)
        place.write(
            [{"k": "a", "n": start + 1, "at": AT}, {"k": "b", "n": start + 5, "at": AT}], partitions=1
        )
        place.await_rows(rows * (start + 1))
        last = place.finish()
    return last


def test_another_constant_or_another_modules_function_is_found_out(place: Place, modules: Modules) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")

    def stream() -> Any:
        by_key = place.causal(OUT, partitions=1).groupBy("k")
        return by_key.process(loaded().keep, OUT, name="keep", parallelism=1)

    last = run_twice(place, stream, 2, "microbatch")
    row = next(each["clonos_id"] for each in place.rows() if each["n"] == 2)
    state = ("state", place.checkpoint, "--operator", "keep", "--key", "a", "--at", last)
    explain, verify = ("explain", place.checkpoint, row), ("archive", "verify", place.checkpoint)

    def all_is_well() -> None:
        code, said = modules.ask(*state)
        assert code == 0 and "'paid': 6" in said and "'weight': 10" in said, said
        assert modules.ask(*explain)[0] == 0
        code, said = modules.ask(*verify)
        assert code == 0 and "repeated to the byte" in said, said

    all_is_well()
    for edit in ({"kept": KEPT.replace("RATE = 2", "RATE = 3")}, {"weights": WEIGHTS.replace("+ 2", "+ 3")}):
        modules.write(**edit)
        for asked in (state, explain, verify):
            code, said = modules.ask(*asked)
            assert code == 1, said
            assert "that of a function, class or constant of your modules that it names, has changed" in said
            assert "Bring back the modules of then" in said
        modules.write()
        all_is_well()


@pytest.mark.parametrize("mode", ["microbatch", "realtime"])
def test_what_no_code_shows_is_found_in_the_state(place: Place, modules: Modules, mode: str) -> None:
    """A module reads a file when it is imported. No row says what it has read."""
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")

    def stream() -> Any:
        job = loaded()
        columns = f"{OUT}, at timestamp"
        fed = place.causal(columns, partitions=1).map(job.as_given, columns, name="fed", parallelism=1)
        by_key = fed.withWatermark("at", "1 hour").groupBy("k")
        more: dict[str, Any] = {"parallelism": 1}
        windows = by_key.window("1 hour").aggregate(job.add, job.finish, OUT, name="windows", **more)
        timers = by_key.process(job.set_timer, OUT, name="timers", on_timer=job.late, **more)
        variable = by_key.transformWithState(job.Variable(), OUT, "update", "None", name="variable", **more)
        read = by_key.process(job.keep_read, OUT, name="read", **more)
        return read.union(windows).union(timers).union(variable)

    run_twice(place, stream, 6, mode)
    verify = ("archive", "verify", place.checkpoint)
    code, said = modules.ask(*verify)
    assert code == 0, said
    modules.write(read=3)
    code, said = modules.ask(*verify)
    assert code == 1, said
    wrong = [line for line in said.splitlines() if "CANNOT BE REPEATED" in line]
    assert {line.partition("[")[0] for line in wrong} == {"read", "windows", "timers", "variable"}, said
    assert all("its rows are as they were, and the state behind it is not: " in line for line in wrong), said
    assert any(line.startswith("read[0]") and 'key "a" has another one. What' in line for line in wrong), said
    assert any(line.startswith("timers[0]") and 'a timer of key "a"' in line for line in wrong), said
    modules.write()
    assert modules.ask(*verify)[0] == 0
