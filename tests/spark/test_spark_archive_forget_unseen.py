"""Records of a key that no call of the function was given, in the epoch in which they came: erasing the key finds them,
too."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from archive_bytes import places_of
from streams import Place

from clonos import cli
from clonos.values.key_codec import pack

pytestmark = pytest.mark.spark

KEY = "eve-5b1c9e7d20"
SECRET = "b7f9d02c6e1a48539"
WANTED = KEY.encode(), SECRET.encode(), pack((KEY,))
POISON = "poison"
CLEAR = "clear"


def see(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    if row.words.startswith(POISON):
        os._exit(1)
    if row.words == CLEAR:
        ctx.state.clear()
        return
    ctx.state["words"] = row.words
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield row.k, ctx.state["n"], row.words


def start(place: Place, mode: str = "microbatch", keep: str = "1 day", **trigger: str) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", keep)
    rows = place.causal("k string, words string", partitions=1).groupBy("k")
    stream = rows.process(see, "k string, n long, words string", name="see", on_poison="dead_letter")
    if trigger:
        place.query = place.writer(stream).trigger(**trigger).start()
    else:
        place.start(stream, mode)


def write(place: Place, *rows: tuple[str, str]) -> None:
    place.write([{"k": key, "words": words} for key, words in rows], partitions=1)


def forget(place: Place, capsys: pytest.CaptureFixture[str]) -> Any:
    at = str(place.checkpoint)
    capsys.readouterr()
    code = cli.main(["archive", "forget", at, "--operator", "see", "--key", KEY, "--yes", "--json"])
    told = capsys.readouterr()
    assert code == 0, told
    assert cli.main(["archive", "verify", at]) == 0
    return json.loads(told.out)


def test_a_record_that_was_passed_over(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    start(place)
    write(place, ("ann", "a"), ("bob", "b"))
    place.until(lambda: len(place.rows()) >= 2, "rows")
    place.await_commit()
    write(place, (KEY, f"{POISON} {SECRET}"), ("ann", "a"), ("bob", "b"))
    place.until(lambda: len(place.rows()) >= 4, "rows without that of the record")
    place.await_commit()
    write(place, ("ann", "a"))
    place.until(lambda: len(place.rows()) >= 5, "a row")
    place.await_commit()
    place.stop()
    assert len(place.rows()) == 5 and places_of(place.checkpoint, *WANTED)
    found = forget(place, capsys)
    assert found["erased"] and len(found["epochs"]) == 1
    assert places_of(place.checkpoint, *WANTED) == []


def test_a_record_that_came_in_an_epoch_that_came_out_shorter(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark runs an open epoch again, and does not know any more that the record was in it: it comes in the next one,
    too. (It is the source that is put back here, and forth.)"""
    place.spark.conf.set("spark.clonos.snapshot.interval", "100ms")
    source = place.base / "in"

    def kept(name: str) -> Path:
        shutil.copytree(source, place.base / name)
        return place.base / name

    def put_back(files: Path) -> None:
        for path in files.iterdir():
            if path.is_file():
                shutil.copy2(path, source / path.name)

    start(place, realTime="5 minutes")
    write(place, ("ann", "a"), ("bob", "b"), ("cy", "c"))
    place.until(lambda: len(place.rows()) >= 3, "rows")
    without = kept("without")
    write(place, (KEY, SECRET))
    place.until(lambda: len(place.rows()) >= 4, "its row")
    place.until(lambda: places_of(place.checkpoint, SECRET.encode()), "it is in the archive")
    whole = kept("whole")
    place.stop()
    put_back(without)
    start(place, "realtime")
    place.until(lambda: list((place.checkpoint / "commits").glob("[0-9]*")), "the epoch is over")
    place.stop()
    put_back(whole)
    start(place, "realtime")
    write(place, ("ann", "later"), ("bob", "later"))
    place.until(lambda: sum(row["words"] == "later" for row in place.rows()) == 2, "later rows")
    place.finish()
    assert places_of(place.checkpoint, *WANTED)
    found = forget(place, capsys)
    assert found["erased"] and len(found["epochs"]) >= 2
    assert places_of(place.checkpoint, *WANTED) == []


def test_remains_in_tables_of_states_whose_epochs_are_not_in_the_archive(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """The key came, and its state was cleared, before there was an archive; tables have it until they are merged."""
    start(place, keep="off")
    write(place, ("ann", "a"), (KEY, SECRET), ("zed", "z"))
    place.until(lambda: len(place.rows()) >= 3, "rows")
    place.await_commit()
    write(place, ("ann", "a"), (KEY, CLEAR), ("zed", "z"))
    place.until(lambda: len(place.rows()) >= 5, "rows")
    place.await_commit()
    for at in range(3):
        start(place)
        write(place, ("ann", "a"), ("zed", "z"))
        place.until(lambda at=at: len(place.rows()) >= 7 + 2 * at, "rows")  # type: ignore[misc]
        place.await_commit()
    place.stop()
    assert places_of(place.checkpoint, *WANTED)
    found = forget(place, capsys)
    assert found["states"] and len(found["epochs"]) <= 1, "the first, which nothing is in front of"
    assert places_of(place.checkpoint, *WANTED) == []


def test_epochs_without_the_key_stay(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """Also the first one of the query, and that which can never be repeated since a key was erased before it."""
    place.spark.conf.set("spark.clonos.snapshot.interval", "100ms")
    start(place)
    write(place, ("ann", "a"), ("bob", "b"))
    place.until(lambda: len(place.rows()) >= 2, "rows")
    place.await_commit()
    place.stop()
    start(place, realTime="5 minutes")
    write(place, (KEY, SECRET))
    place.until(lambda: len(place.rows()) >= 3, "its row")
    place.until(lambda: places_of(place.checkpoint, SECRET.encode()), "it is in the archive")
    place.stop()
    first = [row["clonos_id"] for row in place.rows() if row["k"] == "bob"]
    assert len(forget(place, capsys)["epochs"]) == 1
    assert cli.main(["explain", str(place.checkpoint), *first]) == 0, "its epoch is still repeated"

    start(place)
    write(place, ("ann", "a"))
    place.until(lambda: len(place.rows()) >= 4, "a row")
    place.await_commit()
    place.stop()
    assert forget(place, capsys)["epochs"], "its input has come again"
    start(place)
    write(place, ("bob", "b"))
    place.until(lambda: len(place.rows()) >= 5, "a row")
    place.await_commit()
    place.stop()
    capsys.readouterr()
    of_another = ["archive", "forget", str(place.checkpoint), "--operator", "see", "--key", "cy", "--json"]
    assert cli.main(of_another) == 0
    assert json.loads(capsys.readouterr().out)["epochs"] == []
