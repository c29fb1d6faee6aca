"""`clonos bench` on Spark: one cell with its failure; at length, the smoke preset as the command runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from streams import Place

from clonos.tools.bench.cell import Cell, Failure, Mode, Pattern, Protection
from clonos.tools.bench.presets import PRESETS
from clonos.tools.bench.results import Results
from clonos.tools.bench.run import run_cell

pytestmark = pytest.mark.spark


def test_a_query_that_fails_between_two_tasks(place: Place) -> None:
    """The failures of a cell strike for real, and are judged and accounted for."""
    cell = Cell(
        query="q12",
        mode=Mode.REALTIME,
        protection=Protection.CLONOS,
        failure=Failure.QUERY,
        rate=100,
        seconds=4,
        warm_up=1,
    )
    # Else a fast machine is through before the work is worth a snapshot.
    place.spark.conf.set("spark.clonos.snapshot.interval", "200ms")
    figures, samples = run_cell(place.spark, cell, 0, Path(place.base, "bench"))
    assert figures["judgement"]["lost"] == 0 and figures["rows"] == len(samples.at) == figures["events"]
    assert len(figures["strikes"]) == len(figures["restarts"]) == 1
    assert figures["restart_ms"] and figures["recovery"]["silent_s"] > 0
    assert figures["done_again"] > 0  # all that the instances did since their snapshots
    assert 0 < figures["delta_bytes"] < figures["output_bytes"] and figures["snapshots"] > 0
    assert not Path(place.base, "bench").exists()


@pytest.mark.soak
def test_everything_once(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "clonos.cli",
        "bench",
        "run",
        "--preset",
        "smoke",
        "--out",
        str(tmp_path),
    ]
    subprocess.run(command, check=True)
    known = Results(tmp_path).known()
    assert {(cell.name, 0) for cell in PRESETS["smoke"].cells} <= known.keys()
    for line in known.values():
        if line["cell"]["protection"] != "none" and not line["cell"]["probe"]:
            assert line["exact"], line["judgement"]
            cell = line["cell"]
            expected = (
                0 if cell["failure"] == "none" else 3 if cell["pattern"] == Pattern.STAGGERED.value else 1
            )
            assert len(line["strikes"]) == expected
