"""Calls that functions were given in a query that ran are exported, and pytest tries them again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import decisions
import pyarrow as pa
import pyspark.sql.functions as f
import pytest
from modes import mostly
from streams import Place

import clonos
from clonos.storage import recorded_calls

pytestmark = pytest.mark.spark

DECIDED = "k string, n long, turn long, drawn double, at long, told string, paid string"
LARGE = {"large": "k string, drawn double"}
SUMMED = "k string, side string, total long"
HELPERS = Path(decisions.__file__).parent


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`clonos`, in a process that has the hash seed of replicas, and intercepts before it loads modules of users."""
    path = os.pathsep.join([str(HELPERS), str(Path(__file__).parent), *sys.path])
    return subprocess.run(
        [sys.executable, "-m", "clonos.cli", *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def export(place: Place, folder: Path, *rows: str, more: tuple[str, ...] = (), code: int = 0) -> str:
    """What it says."""
    named = [argument for row in rows for argument in ("--row", row)]
    done = command("export", str(place.checkpoint), *named, "--to", str(folder), *more)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def tried(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """By pytest, as a user has it."""
    (folder / "conftest.py").write_text('pytest_plugins = ["clonos.testing.pytest_plugin"]\n')
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
def test_what_is_exported_is_tried_again(place: Place, tmp_path: Path, mode: str) -> None:
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
    place.finish()
    edges = clonos.lineage(place.spark, str(place.checkpoint)).collect()

    def rows_of(operator: str) -> list[str]:
        return sorted({edge["row"] for edge in edges if edge["operator"] == operator})

    folder = tmp_path / "decisions"
    wanted = [row for operator in ("decide", "scale", "both") for row in rows_of(operator)[::6]]
    assert len({edge["input"] for edge in edges if edge["operator"] == "decide"}) == 40
    said = export(place, folder, *wanted)
    assert all(f"decisions:{name}" in said for name in ("decide", "scale", "left", "right")), said
    result = tried(folder)
    assert result.returncode == 0 and f"{len(wanted)} passed" in result.stdout, result.stdout
    changed(folder)
    said = export(place, folder, rows_of("large")[0], code=1)
    assert "has no name by which a test could import it" in said
    said = export(place, folder, rows_of("large")[0], more=("--function", "decisions:left"), code=1)
    assert "says something else when decisions:left is given it" in said
    assert not [*folder.glob("large-*")] and not [*folder.glob("*.tried")]


def changed(folder: Path) -> None:
    """Another limit makes other rows of `scale`, and side outputs of `decide` come and go."""
    for path in folder.glob("both-*"):
        path.unlink()
    result = tried(folder, DECISIONS_LIMIT="0.0")
    calls = [recorded_calls.decode(path.read_bytes()) for path in folder.glob("*.call")]
    decided, scaled = ([call for call in calls if call.operator == name] for name in ("decide", "scale"))
    drawn = [pa.ipc.open_stream(call.outputs[-1][1]).read_all()["drawn"][0].as_py() for call in decided]
    differ = sum(one <= 0.5 for one in drawn)
    differ += sum(call.table()["n"][0].as_py() != 0 for call in scaled)  # n=0 is scaled to 0
    assert result.returncode == 1 and f"{differ} failed" in result.stdout, result.stdout
    assert any(one > 0.5 for one in drawn) or "+ side output 'large': k=" in result.stdout
    assert "decisions:scale says something else than in epoch" in result.stdout


def test_what_cannot_be_tried_by_itself_is_said(place: Place, tmp_path: Path) -> None:
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

    assert "was made by a call for" in export(place, tmp_path / "own", bundled[0], code=1)
    assert export(place, tmp_path / "own", *single).count("decisions:unmodified") == 8
    result = tried(tmp_path / "own")
    assert result.returncode == 0 and "8 passed" in result.stdout, result.stdout
    (tmp_path / "own" / "cut.call").write_bytes(b"CLRC and then nothing of it")
    result = tried(tmp_path / "own")
    assert "1 failed, 8 passed" in result.stdout and "cut.call" in result.stdout, result.stdout


RULES = [
    "amount",
    "another effect",
    "twice",
    "order",
    "no draw",
    "more draws",
    "once more",
    "exit",
    "default",
]


def test_whatever_is_said_or_asked_otherwise_is_found(place: Place, tmp_path: Path) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    columns = "k string, n long, said string"
    keyed = place.causal("k string, n long").groupBy("k")
    paid = keyed.process(decisions.pay, columns, name="pay", on_timer=decisions.late)
    first = keyed.process(decisions.first, columns, name="first").withColumn("z", f.lit(3))
    place.start(paid.withColumn("z", f.lit(3)).union(first))
    write(place, range(1, 7))
    place.await_rows(12)
    place.await_commit()
    place.stop()
    rows = {(row["n"], row["clonos_id"][0]): row for row in place.rows()}
    folder = tmp_path / "decisions"
    pays = [row["clonos_id"] for (_, node), row in rows.items() if node == "2"]
    export(place, folder, *pays)
    result = tried(folder)
    assert result.returncode == 0 and "6 passed" in result.stdout, result.stdout
    for rule in RULES:
        result = tried(folder, DECISIONS_RULE=rule)
        assert "6 failed" in result.stdout, (rule, result.stdout)
    assert result.stdout.count("it calls take(") >= 6, (
        "what was asked for, though the function does without it"
    )
    hidden = [row for (_, node), row in rows.items() if node == "3"]
    seen = [row["clonos_id"] for row in hidden if row["said"] == "seen"]
    said = export(place, folder, *seen, pays[0], code=1)
    assert len(seen) == 2 and not [*folder.glob("first-*")] and "It depends on what is neither in" in said
    assert f"pay-{pays[0]}" in said, "the others are exported"
    other = tmp_path / "other.py"
    source = Path(decisions.__file__).read_text("utf-8")
    other.write_text(source.replace('RULE = os.environ.get("DECISIONS_RULE", "")', 'RULE = "twice"'), "utf-8")
    more = ["--operator", "pay", "--json", "--against", f"{other}:pay"]
    compared = command("replay", str(place.checkpoint), *more)
    assert compared.returncode == 1, compared.stderr
    found = json.loads(compared.stdout)
    assert (found["records"], found["differ"], found["unknown"]) == (6, 6, 0), found
    assert "+ effect send(" in found["examples"][0]["effects"][0]
    (folder / f"pay-{pays[1]}.call").write_bytes(b"")
    assert "is another query's" in export(place, folder, pays[1], code=1)
    result = tried(folder)
    assert "1 failed, 5 passed" in result.stdout, "an empty one is no success"


def as_it_is(batch: pa.RecordBatch, ctx: Any) -> pa.RecordBatch:
    return batch
