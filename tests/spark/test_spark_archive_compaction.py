"""Segments of many short epochs go into one file: explained, repeated, erased and gone on with as before."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streams import Place

import clonos
from clonos import cli
from clonos.protocol.archive.compaction import FEWEST

pytestmark = pytest.mark.spark
KEYS = ("ann", "bob", "eve")
OF_EVE = range(20, 24)  # the epochs in which there is a record of hers


def count(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield row.k, ctx.state["n"], ctx.random.random()


def feed(place: Place, files: range) -> None:
    """A file for each epoch."""
    folder = place.base / "files"
    folder.mkdir(exist_ok=True)
    for at in files:
        key = "eve" if at in OF_EVE else KEYS[at % 2]
        written = folder / f".{at:04d}"
        written.write_text(json.dumps({"k": key, "at": at}) + "\n")
        os.utime(written, (1_700_000_000 + at, 1_700_000_000 + at))  # by which they are read in order
        written.rename(folder / f"{at:04d}.json")


def start(place: Place) -> None:
    from pyspark.sql import functions as f

    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    source = place.spark.readStream.schema("k string, at long").option("maxFilesPerTrigger", 1)
    records = source.json(str(place.base / "files"))
    counts = clonos.causal(records, channel=f.lit(0), position=f.col("at")).groupBy("k")
    place.start(counts.process(count, "k string, n long, r double", name="count", parallelism=1))


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    capsys.readouterr()
    found = cli.main([*arguments, "--json"])
    told = capsys.readouterr()
    assert found == code, told
    return json.loads(told.out)


def epochs(place: Place, capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[int, bool]:
    """Whether each can be repeated."""
    found = said(capsys, "archive", "verify", str(place.checkpoint), code=code)
    return {each["epoch"]: each["repeated"] for each in found if "epoch" in each}


def test_many_short_epochs_leave_few_files(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    many = FEWEST + 4
    feed(place, range(many))
    start(place)
    place.await_rows(many)
    place.await_commit()
    place.stop()
    folder = Path(place.checkpoint, "clonos", "archive", "segments", "2", "0")
    assert len(list(folder.glob("*.segment"))) >= many
    before = epochs(place, capsys)
    assert len(before) >= many and all(before.values())

    # A process keeps a state at the end of its first epoch, and puts what is before it together.
    feed(place, range(many, many + 1))
    start(place)
    place.until(lambda: list(folder.glob("*.segments")), "a file of many segments")
    place.until(lambda: len(list(folder.glob("*.segment"))) < 5, "those of single ones are gone")
    place.await_rows(many + 1)
    place.await_commit()
    place.stop()
    after = epochs(place, capsys)
    assert set(before) <= set(after) and all(after.values())
    rows = sorted(place.rows(), key=lambda row: int(row["clonos_id"].rpartition("-")[2]))
    for at in (0, 5, many - 1, many):
        told = said(capsys, "explain", str(place.checkpoint), rows[at]["clonos_id"])
        assert {"clonos_id": told["id"], **told["row"]} == rows[at]

    forget = ["archive", "forget", str(place.checkpoint), "--operator", "count", "--key", "eve"]
    assert said(capsys, *forget, "--yes")["epochs"] == list(OF_EVE)
    left = epochs(place, capsys)
    assert {epoch for epoch, repeated in left.items() if repeated} == set(after) - set(OF_EVE)
    (erased,) = [row for row in rows if row["k"] == "eve" and row["n"] == 2]
    assert "erased" in str(said(capsys, "explain", str(place.checkpoint), erased["clonos_id"], code=1))
    told = said(capsys, "explain", str(place.checkpoint), rows[OF_EVE[-1] + 1]["clonos_id"])
    assert {"clonos_id": told["id"], **told["row"]} == rows[OF_EVE[-1] + 1]

    feed(place, range(many + 1, many + 3))
    start(place)
    place.await_rows(many + 3)
    place.await_commit()
    place.stop()
    counts: dict[str, int] = {}
    for row in sorted(place.rows(), key=lambda row: int(row["clonos_id"].rpartition("-")[2])):
        counts[row["k"]] = counts.get(row["k"], 0) + 1
        assert row["n"] == counts[row["k"]], "the running query has forgotten nothing"
