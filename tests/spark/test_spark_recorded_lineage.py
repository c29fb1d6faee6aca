"""Lineage that is recorded while a query runs: it is what repeating finds, and what the rows themselves say, and takes
no code of the functions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from modes import MODES
from pyspark.errors import PySparkException
from streams import Place

import clonos
from clonos import cli
from clonos.errors import QueryDefinitionError
from clonos.storage.segment_codec import decode_segment, encode_segment

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
OUT = "k string, n long, by string"
PART = 40
"""Records that are written at a time."""


def spread(row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """Of record n as many rows as n has left over by 3."""
    for _ in range(row.n % 3):
        yield row.k, row.n, "spread"


def mirror(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.k, row.n, "mirror"


def twice(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """Two rows in two outputs; the first record of a key sets two timers, of which the first one cancels neither."""
    ctx.state["seen"] = seen = ctx.state.get("seen", 0) + 1
    if seen == 1:
        for name in ("soon", "later"):
            ctx.timer(at=ctx.now_us() + 1, name=name)
    yield row.k, row.n, "twice"
    ctx.side_output("odd", (row.k, row.n, "odd"))


def fires(key: Any, timer: Any, ctx: Any) -> None:
    """Gives nothing."""


def tells(key: Any, timer: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield key[0], -1, timer.name


def even(row: Any, ctx: Any) -> bool:
    return bool(row.n % 2 == 0)


async def waits(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.k, await ctx.call(int, row.n), "waits"


def together(batch: pa.RecordBatch, ctx: Any) -> pa.RecordBatch:
    return batch.set_column(2, "by", pa.array(["together"] * batch.num_rows))


def start(place: Place, mode: str, *, standby: str = "none", lineage: bool = True) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.snapshot.interval", "100ms")
    place.spark.conf.set("spark.clonos.archive.lineage", str(lineage).lower())
    place.spark.conf.set("spark.clonos.standby", standby)
    mirrored = place.causal(SCHEMA).map(mirror, OUT, name="mirror")
    spreads = mirrored.flat_map(spread, OUT, name="spread")
    doubled = spreads.groupBy("k").process(
        twice, OUT, name="twice", on_timer=fires, side_outputs={"odd": OUT}
    )
    low = doubled.where("n < 20").select("k", "n", "by").filter(even, name="low")
    kept = doubled.where("n % 2 = 0").filter(even, name="even")
    odd = doubled.side_output("odd").filter(even, name="odd")
    batched = mirrored.map_batches(together, OUT, name="together")
    late = mirrored.map(waits, OUT, name="waits")
    place.start(mirrored.union(kept).union(low).union(odd).union(batched).union(late), mode)


def due(numbers: range) -> int:
    """Rows that records of these numbers come to."""
    inner = sum(n % 3 * (2 + (n < 20)) for n in numbers if n % 2 == 0)
    return 3 * len(numbers) + inner


def feed(place: Place, first: int, count: int) -> int:
    """So many records, and all that is made of them; the number behind them."""
    place.write({"k": f"k{n % 5}", "n": n} for n in range(first, first + count))

    place.until(lambda: len(place.rows()) >= due(range(first + count)), "the rows of all")
    return first + count


def without_lineage(checkpoint: Path, to: Path) -> Path:
    """A copy of the checkpoint, in whose archive none was recorded."""
    shutil.copytree(checkpoint, to)
    stripped = 0
    for path in (to / "clonos" / "archive" / "segments").glob("*/*/*.segment"):
        segment = decode_segment(path.read_bytes(), path.name)
        stripped += segment.lineage is not None
        path.write_bytes(encode_segment(replace(segment, lineage=None)))
    assert stripped
    return to


def without_code(checkpoint: Path, to: Path) -> Path:
    """A copy of the checkpoint, in whose archive there is no function."""
    shutil.copytree(checkpoint, to)
    for path in (to / "clonos" / "archive" / "programs").iterdir():
        path.unlink()
    return to


def edges(place: Place, checkpoint: Path, **more: Any) -> list[tuple[Any, ...]]:
    lines = clonos.lineage(place.spark, str(checkpoint), **more).collect()
    return sorted((tuple(line) for line in lines), key=str)


def told(capsys: pytest.CaptureFixture[str], checkpoint: Path, *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert cli.main(["lineage", str(checkpoint), *arguments, "--json"]) == 0, capsys.readouterr().err
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def judged(place: Place, checkpoint: Path, records: int) -> None:
    """By the numbers that rows carry."""
    shown = {row["clonos_id"]: row for row in place.rows()}
    lines = [line.asDict() for line in clonos.lineage(place.spark, str(checkpoint)).collect()]
    assert shown.keys() <= {line["row"] for line in lines}
    number_of = {line["input"]: shown[line["row"]]["n"] for line in lines if line["operator"] == "mirror"}
    assert sorted(number_of.values()) == list(range(records))
    exact = {line["row"]: line["input"] for line in lines if line["made_by"] == "record"}

    def source(row: str) -> int:
        while row in exact:
            row = exact[row]
        return number_of[row]

    assert all(source(id) == row["n"] for id, row in shown.items() if id in exact)
    assert len(
        [line for line in lines if line["made_by"] == "record" and line["operator"] == "spread"]
    ) == sum(n % 3 for n in range(records))
    by_call = [line for line in lines if line["made_by"] == "bundle"]
    assert {line["operator"] for line in by_call} == {"together", "waits"}
    for id, row in shown.items():
        if row["by"] in ("together", "waits"):
            assert row["n"] in {shown[line["input"]]["n"] for line in by_call if line["row"] == id}
    assert any(line["row"] != line["given_as"] for line in lines), "where() and select() make other forms"


@pytest.mark.parametrize(("mode", "standby"), list(zip(MODES, ("none", "hot"), strict=True)))
def test_what_is_recorded_is_what_repeating_finds(
    place: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path, mode: str, standby: str
) -> None:
    start(place, mode, standby=standby)
    written = 0
    for node in (2, 3, 4):
        written = feed(place, written, PART)
        place.kill(node, 0)
        written = feed(place, written, PART)
    place.finish()
    start(place, mode, standby=standby)
    written = feed(place, written, PART)
    place.finish()
    repeated = without_lineage(place.checkpoint, tmp_path / "repeated")
    read = without_code(place.checkpoint, tmp_path / "read")
    found = edges(place, read)
    assert found == edges(place, repeated)
    judged(place, read, written)
    assert edges(place, read, of="even", to="sources") == edges(place, repeated, of="even", to="sources")
    rows = [row["clonos_id"] for row in place.rows()]
    for id in rows[:: len(rows) // 12]:
        assert told(capsys, read, id) == told(capsys, repeated, id), id
    sources = sorted({line[6] for line in found if line[8] is not None})
    for id in sources[:: len(sources) // 6]:
        assert told(capsys, read, id, "--forward") == told(capsys, repeated, id, "--forward"), id
    forms = [line[0] for line in found if line[0] != line[1]]
    assert told(capsys, read, forms[0], "--forward") == told(capsys, repeated, forms[0], "--forward")


def test_it_may_be_turned_on_and_off(
    place: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Epochs that were recorded are read, the others are repeated."""
    written = 0
    first = {}
    for lineage in (False, True, False, True):
        start(place, "microbatch", lineage=lineage)
        first[lineage, written] = len(list((place.checkpoint / "commits").glob("[0-9]*")))
        written = feed(place, written, PART)
        place.finish()
    _, on, off, again = first.values()
    assert edges(place, place.checkpoint) == edges(
        place, without_lineage(place.checkpoint, tmp_path / "repeated")
    )
    judged(place, place.checkpoint, written)
    read = without_code(place.checkpoint, tmp_path / "read")
    whole = edges(place, place.checkpoint)
    for since, upto in ((on, off - 1), (again, None)):
        part = edges(place, read, since=since, upto=upto)
        assert part == [line for line in whole if since <= line[4] and (upto is None or line[4] <= upto)]
        assert part
    for since, upto in ((0, on - 1), (off, again - 1), (on, again)):
        with pytest.raises(PySparkException, match=r"its program .* is not in the archive"):
            edges(place, read, since=since, upto=upto)
    row = next(line[0] for line in whole if line[4] < on)
    assert cli.main(["lineage", str(read), row]) == 1
    assert "is not in the archive" in capsys.readouterr().err


def test_where_there_was_no_state_yet_it_is_read(place: Place, tmp_path: Path) -> None:
    """An archive that begins inside the life of a query has epochs that cannot be repeated."""
    start(place, "microbatch")
    written = 0
    for _ in range(3):
        written = feed(place, written, PART)
        place.await_commit()
    place.finish()
    whole = edges(place, place.checkpoint)
    later = without_code(place.checkpoint, tmp_path / "later")
    shutil.rmtree(later / "clonos" / "archive" / "state")
    for path in (later / "clonos" / "archive" / "segments").glob("*/*/*.segment"):
        if path.name.startswith("0" * 20 + "-"):
            path.unlink()
    found = edges(place, later)
    assert found and found == [line for line in whole if line[4] > 0]
    gone = without_code(place.checkpoint, tmp_path / "gone")
    with_rows = sorted({line[4] for line in whole if line[2] == "mirror" and line[3] == 0})
    lost = with_rows[1]
    others = set()
    for path in (gone / "clonos" / "archive" / "segments" / "2" / "0").iterdir():
        if (epoch := int(path.name[:20])) == lost:
            path.unlink()  # in as many parts as it has
        else:
            others.add(epoch)
    # An epoch without rows may stand between two that have some.
    before, behind = max(each for each in others if each < lost), min(each for each in others if each > lost)
    with pytest.raises(PySparkException, match=f"between epochs {before} and {behind} that are not in the"):
        edges(place, gone)


def test_what_rows_of_timers_are_of_is_found_by_repeating(
    place: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.archive.lineage", "true")
    doubled = place.causal(SCHEMA).groupBy("k")
    place.start(doubled.process(twice, OUT, name="twice", on_timer=tells, side_outputs={"odd": OUT}))
    place.write([{"k": "a", "n": 1}])
    place.await_rows(3)
    place.finish()
    rows = {row["by"]: row["clonos_id"] for row in place.rows()}
    lines = {line["row"]: line for line in clonos.lineage(place.spark, str(place.checkpoint)).collect()}
    (record,) = {line["input"] for line in lines.values()}
    assert record is not None
    assert {by: lines[id]["made_by"] for by, id in rows.items()} == {
        "twice": "record",
        "soon": "timer",
        "later": "timer",
    }
    forward = told(capsys, place.checkpoint, record, "--forward")
    assert {row for line in forward for row in line["rows"]} >= set(rows.values())
    read = without_code(place.checkpoint, tmp_path / "read")
    assert told(capsys, read, rows["twice"]) == told(capsys, place.checkpoint, rows["twice"])
    for asked in ([rows["soon"]], [record, "--forward"]):
        assert cli.main(["lineage", str(read), *asked]) == 1
        assert "is not in the archive" in capsys.readouterr().err


def test_without_an_archive_it_is_refused(place: Place) -> None:
    place.spark.conf.set("spark.clonos.archive.lineage", "true")
    stream = place.causal(SCHEMA).map(mirror, OUT, name="mirror")
    with pytest.raises(QueryDefinitionError, match="there is no archive") as refused:
        place.start(stream)
    assert refused.value.hint is not None and "spark.clonos.archive.keep, as 30 days" in refused.value.hint
    place.spark.conf.set("spark.clonos.archive.keep", "30 days")
    place.start(stream)
    place.write([{"k": "a", "n": 1}])
    place.await_rows(1)
    place.await_commit()
    place.stop()
    (line,) = clonos.lineage(place.spark, str(place.checkpoint)).collect()
    assert line["made_by"] == "record" and line["input_position"] is not None
