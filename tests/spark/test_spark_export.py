"""Calls that functions were given in a query that ran are exported, and pytest tries them again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import decisions
import pyarrow as pa
import pytest
from modes import mostly
from streams import Place

import clonos
from clonos import cli
from clonos.storage import recorded_calls

pytestmark = pytest.mark.spark

DECIDED = "k string, n long, turn long, drawn double, at long, told string, paid string"
LARGE = {"large": "k string, drawn double"}
SUMMED = "k string, side string, total long"
HELPERS = Path(decisions.__file__).parent


def export(place: Place, folder: Path, *rows: str, more: tuple[str, ...] = (), code: int = 0) -> None:
    named = [argument for row in rows for argument in ("--row", row)]
    assert cli.main(["export", str(place.checkpoint), *named, "--to", str(folder), *more]) == code


def tried(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """By pytest, as a user has it."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HELPERS), *sys.path]), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def write(place: Place, numbers: range) -> None:
    place.write({"k": f"k{n % 4}", "n": n} for n in numbers)


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_what_is_exported_is_tried_again(
    place: Place, tmp_path: Path, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    decided = (
        place.causal("k string, n long")
        .groupBy("k")
        .process(
            decisions.decide,
            DECIDED,
            name="decide",
            on_timer=decisions.late,
            side_outputs={"large": "k string, drawn double"},
        )
    )
    scaled = decided.map(decisions.scale, "k string, n long, scaled long", name="scale")
    large = (
        decided.side_output("large")
        .groupBy("k")
        .process(lambda key, row, ctx: iter([(key[0], "large", 1)]), SUMMED, name="large")
    )
    both = (
        clonos.connect(decided, scaled)
        .groupBy("k")
        .process(left=decisions.left, right=decisions.right, output=SUMMED, name="both")
    )
    place.start(both.union(large), mode)

    def are_there(count: int) -> bool:
        return sum(1 for row in place.rows() if row["side"] != "large") >= 2 * count

    for at in range(2):
        write(place, range(at * 20, at * 20 + 20))
        place.until(lambda at=at: are_there(at * 20 + 20), "rows")  # type: ignore[misc]
        place.kill(2, 0)
    last = max(int(each["epoch"]) for each in place.query.replicas())
    assert place.query.wait_for_epoch(last, 120)
    place.stop()
    edges = clonos.lineage(place.spark, str(place.checkpoint)).collect()

    def rows_of(operator: str) -> list[str]:
        return sorted({edge["row"] for edge in edges if edge["operator"] == operator})

    folder = tmp_path / "decisions"
    wanted = [row for operator in ("decide", "scale", "both") for row in rows_of(operator)]
    assert len({edge["input"] for edge in edges if edge["operator"] == "decide"}) == 40
    export(place, folder, *wanted)
    said = capsys.readouterr().out
    assert said.count("decisions:decide") >= 40 and "decisions:right" in said and "decisions:left" in said
    result = tried(folder)
    assert result.returncode == 0 and f"{len(wanted)} passed" in result.stdout, result.stdout
    changed(folder, rows_of("decide"), rows_of("scale"))
    capsys.readouterr()
    export(place, folder, rows_of("large")[0], code=1)
    assert "has no name by which a test could import it" in capsys.readouterr().err
    export(place, folder, rows_of("large")[0], more=("--function", "decisions:left"))
    assert tried(folder).returncode == 1, "another function"


def changed(folder: Path, decide: list[str], scale: list[str]) -> None:
    """Another limit makes other rows of `scale`, and side outputs of `decide` come and go."""
    for path in folder.glob("both-*"):
        path.unlink()
    result = tried(folder, DECISIONS_LIMIT="0.9")
    assert result.returncode == 1
    calls = [recorded_calls.decode(path.read_bytes()) for path in folder.glob("decide-*.call")]
    drawn = [pa.ipc.open_stream(call.outputs[-1][1]).read_all()["drawn"][0].as_py() for call in calls]
    differ = sum(1 for one in drawn if 0.5 < one <= 0.9)
    same = len(decide) - differ + 1  # n=0 is scaled to 0
    assert f"{differ + len(scale) - 1} failed, {same} passed" in result.stdout, result.stdout
    assert "- side output 'large': k=" in result.stdout
    assert "decisions:scale says something else than in epoch" in result.stdout


def test_what_cannot_be_tried_by_itself_is_said(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.intercept", "true")
    causal = place.causal("k string, n long")
    own = causal.groupBy("k").process(decisions.unmodified, "k string, at double, id string", name="own")
    batched = own.map_batches(as_it_is, "k string, at double, id string", name="batched")
    place.start(own.union(batched))
    write(place, range(8))
    place.await_rows(16)
    place.await_commit()
    place.stop()
    rows = [row["clonos_id"] for row in place.rows()]
    bundled = [row for row in rows if row.startswith("3-")]
    single = [row for row in rows if row.startswith("2-")]

    def exported(*rows: str, code: int) -> str:
        """In a process that intercepts before it loads the functions' module."""
        named = [argument for row in rows for argument in ("--row", row)]
        command = [sys.executable, "-m", "clonos.cli", "export", str(place.checkpoint), *named]
        path = os.pathsep.join([str(HELPERS), str(Path(__file__).parent), *sys.path])
        result = subprocess.run(
            [*command, "--to", str(tmp_path / "own")],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == code, result.stdout + result.stderr
        return result.stdout + result.stderr

    assert "was made by a call for" in exported(bundled[0], code=1)
    assert exported(*single, code=0).count("decisions:unmodified") == 8
    result = tried(tmp_path / "own")
    assert result.returncode == 0 and "8 passed" in result.stdout, result.stdout
    (tmp_path / "own" / "cut.call").write_bytes(b"CLRC and then nothing of it")
    (tmp_path / "own" / "foreign.call").write_bytes(b"of another program")
    result = tried(tmp_path / "own")
    assert "1 failed, 8 passed" in result.stdout and "cut.call" in result.stdout, result.stdout


def as_it_is(batch: pa.RecordBatch, ctx: Any) -> pa.RecordBatch:
    return batch
