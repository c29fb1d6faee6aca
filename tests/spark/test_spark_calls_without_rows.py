"""The call that made a row is found among others that made none: its state is shown, and a debugger stops in it."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from streams import Place

from clonos import cli
from clonos.api.streams import CausalStream

pytestmark = pytest.mark.spark


def of_two(key: Any, window: Any, rows: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["ended"] = ctx.state.get("ended", 0) + 1
    if len(rows) > 1:
        yield key[0], len(rows)


def from_three_on(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    import pandas as pd

    total = (state.get[0] if state.exists else 0) + sum(int(n) for frame in frames for n in frame["n"])
    state.update((total,))
    if total >= 3:
        yield pd.DataFrame({"k": [key[0]], "n": [total]})


def windows(records: CausalStream) -> CausalStream:
    ended = records.withWatermark("at", "0 seconds").groupBy("k").window("10 seconds")
    return ended.process(of_two, "k string, n long", name="calls", parallelism=1)


def windows_of_which_few_are_kept(records: CausalStream) -> CausalStream:
    from pyspark.sql import functions as f

    ended = records.withWatermark("at", "0 seconds").groupBy("k").window("10 seconds")
    counts = ended.agg(f.count("*").alias("n"), name="calls", parallelism=1)
    return counts.where("n > 1").select("k", "n")


def batches(records: CausalStream) -> CausalStream:
    return records.groupBy("k").applyInPandasWithState(
        *(from_three_on, "k string, n long", "n long", "update", "NoTimeout"),
        name="calls",
        parallelism=1,
        per="batch",
    )


def asked_first_answered_last(folder: Path, key: str) -> str:
    while key == "a" and not all((folder / other).exists() for other in "bc"):
        time.sleep(0.01)
    (folder / key).touch()
    return key


async def sets_a_timer(key: Any, row: Any, ctx: Any) -> list[Any]:
    ctx.state["n"] = row.n
    ctx.timer(at=row.at + dt.timedelta(seconds=5), name="t", event=True)
    return []


async def asks(folder: Path, key: Any, timer: Any, ctx: Any) -> AsyncIterator[tuple[Any, ...]]:
    if await ctx.call(asked_first_answered_last, folder, key[0]) == "b":
        yield key[0], ctx.state["n"]


def timers_at_once(folder: Path, records: CausalStream) -> CausalStream:
    fires = partial(asks, folder)
    return (
        records.withWatermark("at", "0 seconds")
        .groupBy("k")
        .process(sets_a_timer, "k string, n long", name="calls", on_timer=fires, parallelism=1)
    )


def guarded(row: Any, ctx: Any) -> tuple[Any, ...]:
    try:
        found = row.n + 1
    except Exception:
        found = -1
    return row.k, found


def each_by_itself(records: CausalStream) -> CausalStream:
    return records.map(guarded, "k string, n long", name="calls", parallelism=1)


def run(place: Place, made: Any, inputs: list[list[str]]) -> str:
    """The id of the row that it makes: each input is one batch, of which the last has come much later."""
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.start(made(place.causal("k string, n long, at timestamp", partitions=1)))
    for at, keys in enumerate(inputs):
        place.write(({"k": k, "n": 1, "at": f"2026-01-01 0{at}:00:00"} for k in keys), partitions=1)
        place.until(partial(are_over, place, at + 1), "the batch is over")
    place.await_rows(1)
    place.await_commit()
    place.stop()
    (row,) = place.rows()
    return str(row["clonos_id"])


def are_over(place: Place, batches: int) -> bool:
    return sum(each.name.isdigit() for each in (place.checkpoint / "commits").glob("*")) >= batches


def around(place: Place, capsys: pytest.CaptureFixture[str], row: str, *more: str) -> dict[str, Any]:
    capsys.readouterr()
    command = ["state", str(place.checkpoint), "--operator", "calls", "--at", row, "--json", *more]
    assert cli.main(command) == 0, capsys.readouterr()
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {"/".join(map(str, one["key"])): one["state"] for one in said}


def stopped(place: Place, row: str, asked: str, *, times: int = 1) -> str:
    """What pdb says where it stops, and that it stops so many times."""
    command = [sys.executable, "-m", "clonos.cli", "replay", str(place.checkpoint), "--row", row, "--pdb"]
    ran = subprocess.run(
        command,
        input=f"p 'stopped', {asked}\nc\n" * times + "p 'again'\nc\n",
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'again'" not in ran.stdout, ran.stdout
    return ran.stdout


@pytest.mark.parametrize("made", [windows, windows_of_which_few_are_kept])
def test_among_windows_that_end_together(place: Place, capsys: pytest.CaptureFixture[str], made: Any) -> None:
    row = run(place, made, [["a", "b", "b"], ["z"]])
    before, behind = around(place, capsys, row, "--before"), around(place, capsys, row)
    assert "b/windows" in before and "a/windows" not in before, "that of a had ended before"
    assert "b/windows" not in behind and "z/windows" in behind
    if made is windows:
        assert (before.get("a"), before.get("b")) == ({"ended": 1}, None)
        assert behind["b"] == {"ended": 1}
        said = stopped(place, row, "key, len(rows)")
        assert "in the timer 'ends' of key 'b'" in said and "('stopped', ('b',), 2)" in said, said


def test_among_batches(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    row = run(place, batches, [["a"], ["a"], ["a"]])
    assert around(place, capsys, row, "--before")["a"][0] == [2]
    said = stopped(place, row, "key, state.getOption")
    assert "epoch 2, at the end of the epoch" in said and "('stopped', ('a',), (2,))" in said, said


def test_among_timers_whose_function_waits(
    place: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """They are at work at the same time, so they are repeated together."""
    row = run(place, partial(timers_at_once, tmp_path), [["a", "b", "c"], ["z"]])
    assert {"a", "b", "c"} <= around(place, capsys, row).keys()
    assert cli.main(["lineage", str(place.checkpoint), row]) == 0
    assert cli.main(["explain", str(place.checkpoint), row]) == 0
    said = stopped(place, row, "key", times=3)
    assert "in 3 timers that fired together" in said and "('stopped', ('b',))" in said, said


def test_who_quits_the_debugger_has_found_no_error(place: Place) -> None:
    row = run(place, each_by_itself, [["a"]])
    command = [sys.executable, "-m", "clonos.cli", "replay", str(place.checkpoint), "--row", row, "--pdb"]
    for typed in ("n\nn\nq\n", "q\n", ""):
        ran = subprocess.run(
            command, input=typed, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
        assert "in the call for" in ran.stdout and "keys" not in ran.stdout.splitlines()[0], ran.stdout
        assert not ran.stderr, ran.stderr
