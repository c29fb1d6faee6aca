"""An editor that attaches to a past call stops in the user's function, however the operator calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from streams import Place

import clonos
from clonos import cli

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
OUT = "k string, n long, by string"


async def awaits(key: Any, row: Any, ctx: Any) -> list[tuple[Any, ...]]:
    return [(row.k, row.n, "awaits")]


def left(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield row.k, row.n, "left"


def right(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield row.k, row.n, "right"


def batched(batch: Any, ctx: Any) -> Any:
    return batch


def grouped(key: Any, frames: Any, kept: Any) -> Iterator[Any]:
    import pandas as pd

    yield pd.DataFrame({"k": [key[0]], "n": [sum(len(frame) for frame in frames)], "by": ["grouped"]})


class Processor(StatefulProcessor):
    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, times: Any) -> Iterator[Row]:
        yield Row(k=key[0], n=len(list(rows)), by="processor")

    def close(self) -> None:
        pass


STOPS = {  # of each operator: the function that stops, and of what it is given
    "awaits": ("awaits", "row.n in range(4)"),
    "both": ("right", "row.n in range(4)"),
    "batched": ("batched", "batch.num_rows > 0"),
    "grouped": ("grouped", "key[0] in ('k0', 'k1')"),
    "processor": ("handleInputRows", "key[0] in ('k0', 'k1')"),
    "summed": ("bundle", "len(rows) > 0"),  # has no function of the user's
}


def test_it_stops_in_whatever_the_user_has_given(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    records = place.causal(SCHEMA)
    awaited = records.groupBy("k").process(awaits, OUT, name="awaits")
    both = clonos.connect(awaited, records).groupBy("k").process(left, right, OUT, name="both")
    frames = both.groupBy("k").applyInPandasWithState(
        grouped, OUT, "total long", "update", "NoTimeout", name="grouped"
    )
    processed = both.groupBy("k").transformWithState(Processor(), OUT, "update", "None", name="processor")
    summed = both.groupBy("k").count(name="summed").selectExpr("k", "count as n", "'summed' as by")
    place.start(both.map_batches(batched, OUT, name="batched").union(frames).union(processed).union(summed))
    place.write({"k": f"k{n % 2}", "n": n} for n in range(4))

    def all_are_there() -> bool:
        return {row["by"] for row in place.rows()} == {"left", "right", "grouped", "processor", "summed"}

    place.until(all_are_there, "rows of all operators")
    place.await_commit()
    place.stop()
    for operator, (function, expression) in STOPS.items():
        capsys.readouterr()
        of = ["by=right"] if operator == "both" else ["all"]
        command = ["archive", "find", str(place.checkpoint), "--operator", operator, "--limit", "1", "--json"]
        assert cli.main([*command, *of]) == 0
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        assert stopped(place, row["id"], expression) == (function, "True"), operator


def stopped(place: Place, row: str, expression: str) -> tuple[str, str]:
    """The innermost function, and what the expression is in it; the command ends well behind that."""
    from debug_client import DebugClient  # the command imports this module, too, and has no helpers of tests

    command = [sys.executable, "-m", "clonos.cli", "replay", str(place.checkpoint), "--row", row]
    with subprocess.Popen(
        [*command, "--debugpy", "0"], cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert row in process.stdout.readline()
        with DebugClient(process.stdout.readline().split()[-1]) as editor:
            editor.attach(just_my_code=True)
            frame, *_ = editor.stopped()
            said = str(frame["name"]), editor.evaluate(frame, expression)
            editor.go_on()
        assert process.wait(timeout=300) == 0
    return said
