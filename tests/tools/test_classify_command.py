"""`clonos classify`: what it prints, its exit status, and what it says where something is missing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from clonos import cli
from clonos.testing.classification import Laboratory
from clonos.tools.classify import command

FUNCTIONS = """
import time

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

import clonos
from clonos.testing.driver import stream


def highest(key, row, ctx):
    ctx.state["v"] = max(ctx.state.get("v", row.v), row.v)
    yield key[0], ctx.state["v"]


def last(key, row, ctx):
    ctx.state["v"] = row.v


def clock(key, row, ctx):
    yield key[0], time.time_ns()


@clonos.claim("deterministic")
def clock_against_its_word(key, row, ctx):
    yield key[0], time.time_ns()


@clonos.claim("deterministic")
def asks_sometimes(key, row, ctx):
    yield key[0], ctx.now_us() if row.v % 2 else 0


@clonos.claim("deterministic")
def as_claimed(key, row, ctx):
    yield key[0], row.v


def first_of_set(key, row, ctx):
    yield key[0], list({"EUR", "USD", "CHF", "SEK"}).index("EUR")


def double(row, ctx):
    return row.k, 2 * row.v


def twice(row, ctx):
    yield row.k, row.v
    yield row.k, row.v


def is_large(row, ctx):
    return row.v > 5


def remind(key, row, ctx):
    ctx.timer(60)


def reminded(key, timer, ctx):
    yield key[0], 0


def total(key, frames, state):
    found = (state.get[0] if state.exists else 0) + sum(int(frame.v.sum()) for frame in frames)
    state.update((found,))
    yield pd.DataFrame({"k": [key[0]], "n": [found]})


class Total(StatefulProcessor):
    def init(self, handle):
        self.kept = handle.getValueState("kept", "n long")

    def handleInputRows(self, key, rows, timerValues):
        found = (self.kept.get()[0] if self.kept.exists() else 0) + sum(row.v for row in rows)
        self.kept.update((found,))
        yield key[0], found


class PandasTotal(Total):
    def handleInputRows(self, key, frames, timerValues):
        found = (self.kept.get()[0] if self.kept.exists() else 0) + sum(int(frame.v.sum()) for frame in frames)
        self.kept.update((found,))
        yield pd.DataFrame({"k": [key[0]], "n": [found]})


operator = stream("k string, v long").groupBy("k").process(last, "k string, n long", name="kept_operator")
number = 5
"""
ROWS = "--schema", "k string, v long"
KEYED = (*ROWS, "--key", "k", "--output", "k string, n long")
FEW = "--runs", "10"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a module of the user."""
    made = tmp_path_factory.mktemp("job")
    (made / "user_functions.py").write_text(FUNCTIONS)
    return made


@pytest.fixture(scope="module")
def laboratory(folder: Path) -> Iterator[Laboratory]:
    """Processes for all tests, where the command starts some each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        with Laboratory() as started:
            yield started


@pytest.fixture(autouse=True)
def in_the_folder(folder: Path, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(command, "Laboratory", lambda **_: nullcontext(laboratory))


def clonos_classify(name: str, *arguments: Any) -> int:
    return cli.main(["classify", f"user_functions:{name}", *map(str, arguments)])


def test_a_report_shows_the_two_records_that_matter(capsys: pytest.CaptureFixture[str]) -> None:
    assert clonos_classify("last", *KEYED, *FEW) == 0
    text = capsys.readouterr().out
    assert text.startswith("last: 10 runs, seed 0. What is not found may be there all the same.\n")
    assert "  replay    no difference found: deterministic\n" in text
    assert "  order     divergent: another state, or another last row of a key\n" in text
    assert (
        "  bundles   no difference found\n  recovery  causal logging, or batch where rows may be seen with their epoch"
        in text
    )
    example = text[text.index("\n2 records, in two orders:\n") :].splitlines()
    records = [re.findall(r"\([^)]*\)", line) for line in (example[2], example[4])]
    assert len(records[0]) == 2 and records[0] == records[1][::-1]
    assert example[3].startswith("    gives no rows; state ") and example[3] != example[5]
    assert example[6].startswith("  what differs is the state of key ")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "highest",
            [
                "  order     convergent: other rows on the way, then the same state and the same last row of each key",
                (
                    "  recovery  Spark's own ends the same in micro-batch, where a sink takes an epoch's rows in one "
                    "step; otherwise it needs causal logging"
                ),
            ],
        ),
        (
            "clock",
            [
                "  replay    hidden nondeterminism: a replay in another instance in the same process differs",
                "  order     not examined: two equal runs differ already",
                (
                    "  recovery  eager checkpoints, or batch where rows may be seen with their epoch, and in real time "
                    "coordinated with their round; none repeats it exactly"
                ),
                "1 record, recorded and repeated:",
                "Ask ctx for what is not in the records: ctx.now() for the clock, ctx.random and ctx.uuid4() for",
            ],
        ),
        (
            "first_of_set",
            [
                "  replay    hidden nondeterminism: a replay in another process, with another hash seed differs",
                "  order     no difference found: order_insensitive",
                "The function depends on the order of a set, or on hash(): go through sorted(...) instead.",
            ],
        ),
    ],
)
def test_what_a_report_says(name: str, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert clonos_classify(name, *KEYED, *FEW) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line not in said] == []


def test_what_is_required_decides_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    met = ("--require", "deterministic", "--require", "recorded")
    assert clonos_classify("highest", *KEYED, *FEW, *met, "--require", "convergent") == 0
    assert "REQUIRED" not in capsys.readouterr().out
    assert clonos_classify("highest", *KEYED, *FEW, *met, "--require", "order_insensitive") == 1
    assert capsys.readouterr().out.endswith("\nREQUIRED, and not so: order_insensitive\n")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert clonos_classify("highest", *KEYED, *FEW, "--json", "--require", "order_insensitive") == 1
    said = json.loads(capsys.readouterr().out)
    (example,) = said.pop("examples")
    assert said == {
        "operator": "highest",
        "runs": 10,
        "seed": 0,
        "raised": [],
        "determinism": "deterministic",
        "claimed": "recorded",
        "services": [],
        "order": "convergent",
        "sequences_same": False,
        "boundary_sensitive": False,
        "suffices": {"with_epoch": "spark", "at_once": "causal"},
        "unmet": ["order_insensitive"],
    }
    assert (example["between"], example["records"]) == ("order", 2) and example["what"]
    for run in example["runs"]:
        assert [len(bundle) for bundle in run["bundles"]] in ([1, 1], [2])
        assert len(run["rows"]) == 2 and len(run["states"]) == 1 and run["raised"] == ""
    assert clonos_classify("clock", *KEYED, "--runs", 1, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["determinism"] == "hidden" and said["order"] is said["boundary_sensitive"] is None
    assert said["suffices"] == {"with_epoch": "batch", "at_once": "eager"}
    assert said["examples"][0]["place"] == "another instance in the same process"


def found(capsys: pytest.CaptureFixture[str], name: str, *arguments: Any) -> dict[str, Any]:
    assert clonos_classify(name, *arguments, "--json") == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


@pytest.mark.parametrize(
    ("name", "arguments", "order"),
    [
        ("double", ("--api", "map", *ROWS, "--output", "k string, n long"), "order_insensitive"),
        ("twice", ("--api", "flat_map", *ROWS, "--output", "k string, n long"), "order_insensitive"),
        ("is_large", ("--api", "filter", *ROWS), "order_insensitive"),
        ("total", ("--api", "applyInPandasWithState", *KEYED, "--state", "n long"), "convergent"),
        ("Total", ("--api", "transformWithState", *KEYED), "convergent"),
        ("PandasTotal", ("--api", "transformWithStateInPandas", *KEYED), "convergent"),
        ("operator", (), "divergent"),
    ],
)
def test_every_api(
    name: str, arguments: tuple[str, ...], order: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = found(capsys, name, *arguments, *FEW)
    assert (said["order"], said["raised"]) == (order, [])


def test_timers_have_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    said = found(capsys, "remind", *KEYED, "--runs", 2, "--on-timer", "user_functions:reminded")
    assert said["services"] == ["clock", "timer"] and said["determinism"] == "recorded"


def test_rows_of_a_file_say_their_types_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"k": "a", "v": 1, "at": "2026-01-01T00:00:00Z"}\n' * 5 + '{"k": "a", "v": 2}\n')
    keyed = ("--input", rows, "--key", "k", "--output", "k string, n long", *FEW)
    said = found(capsys, "last", *keyed)
    assert said["order"] == "divergent"
    assert {record.split(",")[1].strip() for record in said["examples"][0]["runs"][0]["bundles"][0]} <= {
        "v=1",
        "v=2",
    }
    assert found(capsys, "last", *keyed, "--channel", "k")["order"] == "order_insensitive"
    typed = ("--schema", "k string, v int, at timestamp")
    assert found(capsys, "last", *keyed, *typed)["order"] == "divergent"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("gone", KEYED, "user_functions:gone cannot be loaded: "),
        ("number", KEYED, "user_functions:number is no function. Give a function, a class or an operator"),
        ("last", KEYED[2:], "a function of process needs --schema. Give it, or rows with --input"),
        ("last", (*ROWS, "--output", "k string"), "a function of process needs --key"),
        ("last", KEYED[:4], "a function of process needs --output"),
        ("total", ("--api", "applyInPandasWithState", *KEYED), "needs --state. Give the schema of its state"),
        ("last", (*KEYED, "--channel", "card"), "there is no column 'card'"),
        ("last", (*KEYED, "--input", "none.jsonl"), "none.jsonl cannot be read as rows: "),
        ("last", (*KEYED, "--input", "user_functions.py"), "It needs a JSON object per line"),
    ],
)
def test_what_is_missing_is_named(
    name: str, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert clonos_classify(name, *arguments, "--runs", 1) == 1
    assert message in capsys.readouterr().err


def test_the_program_finds_modules_of_the_current_directory(folder: Path, root: Path) -> None:
    """As the installed command does, whose own folder is the first that Python looks in."""
    start = "import sys; sys.path[0] = '/nowhere'; from clonos import cli; sys.exit(cli.main())"
    done = subprocess.run(
        [sys.executable, "-c", start, "classify", "user_functions:operator", "--runs", "1", "--json"],
        cwd=folder,
        env={"PYTHONPATH": f"{root}:{root / 'standby'}"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["operator"] == "kept_operator"


def test_a_function_that_claims_to_be_deterministic_is_taken_at_its_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert clonos_classify("as_claimed", *KEYED, *FEW) == 0
    assert "CLAIMED" not in capsys.readouterr().out
    assert clonos_classify("clock_against_its_word", *KEYED, *FEW) == 1
    assert capsys.readouterr().out.endswith("\nCLAIMED, and not so: deterministic\n")
    assert clonos_classify("asks_sometimes", *KEYED, *FEW) == 1
    assert "asks for the time" in (text := capsys.readouterr().out)
    assert text.endswith("\nCLAIMED, and not so: deterministic\n")
    assert clonos_classify("clock_against_its_word", *KEYED, *FEW, "--json") == 1
    assert json.loads(capsys.readouterr().out)["claimed"] == "deterministic"
