"""Lineage out of an archive: every row carries the number of the record that it is of, by which it is judged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lineage_command import told
from modes import mostly
from streams import Place

import clonos
from clonos import cli
from clonos.errors import ConfigurationError

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
OUT = "k string, n long, by string"
RECORDS = 90


def mirror(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.k, row.n, "mirror"


def twice(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """Of every third record nothing, of the others two rows; the first of a key sets a timer."""
    ctx.state["seen"] = seen = ctx.state.get("seen", 0) + 1
    if seen == 1:
        ctx.timer(at=ctx.now_us() + 1, name="soon")
    if row.n % 3:
        yield row.k, row.n, "twice"
        ctx.side_output("odd", (row.k, row.n, "odd"))


def soon(key: Any, timer: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield key[0], -1, "timer"


def even(row: Any, ctx: Any) -> bool:
    return bool(row.n % 2 == 0)


def together(batch: pa.RecordBatch, ctx: Any) -> pa.RecordBatch:
    return batch.set_column(2, "by", pa.array(["together"] * batch.num_rows))


def start(place: Place, mode: str) -> None:
    mirrored = place.causal(SCHEMA).map(mirror, OUT, name="mirror")
    doubled = mirrored.groupBy("k").process(
        twice, OUT, name="twice", on_timer=soon, side_outputs={"odd": OUT}
    )
    kept = doubled.where("n % 2 = 0 or n < 0").filter(even, name="even")
    odd = doubled.side_output("odd").filter(even, name="odd")
    batched = mirrored.map_batches(together, OUT, name="together")
    place.start(mirrored.union(kept).union(odd).union(batched), mode)


def run(place: Place, mode: str) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.snapshot.interval", "100ms")
    start(place, mode)
    expected = 0
    for at in range(3):
        numbers = range(at * RECORDS // 3, (at + 1) * RECORDS // 3)
        place.write({"k": f"k{n % 5}", "n": n} for n in numbers)
        expected += 2 * len(numbers) + 2 * sum(1 for n in numbers if n % 3 and n % 2 == 0)

        def are_there(expected: int = expected) -> bool:
            return len(place.rows()) >= expected

        place.until(are_there, "the rows of all")
        if at < 2:
            place.kill(2 + at, 0)
    place.finish()


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_rows_are_of_the_records_whose_number_they_carry(
    place: Place, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    run(place, mode)
    shown = {row["clonos_id"]: row for row in place.rows()}
    edges = [row.asDict() for row in clonos.lineage(place.spark, str(place.checkpoint)).collect()]
    record_of = {  # which source record has a number, by the function that shows each
        edge["input"]: shown[edge["row"]]["n"] for edge in edges if edge["operator"] == "mirror"
    }
    assert sorted(record_of.values()) == list(range(RECORDS))
    assert all(
        edge["input_source"] and edge["input_position"] is not None
        for edge in edges
        if edge["operator"] == "mirror"
    )
    exact = [edge for edge in edges if edge["made_by"] == "record"]
    inner = {edge["row"]: edge["input"] for edge in exact if edge["operator"] == "twice"}
    made = sum((2 if n % 2 == 0 else 1) for n in range(RECORDS) if n % 3)
    assert len(inner) == made, "both outputs of a record, of the one what where() lets through"
    for edge in exact:
        if edge["operator"] in ("even", "odd"):
            assert shown[inner[edge["input"]]]["n"] == shown[edge["row"]]["n"], "over two operators"
    timers = [edge for edge in edges if edge["made_by"] == "timer"]
    assert {edge["operator"] for edge in timers} == {"twice"} and len(timers) == 5
    assert {shown[edge["input"]]["k"] for edge in timers} == {f"k{at}" for at in range(5)}, "which set them"
    together = [edge for edge in edges if edge["operator"] == "together"]
    assert {edge["made_by"] for edge in together} == {"bundle"}
    for row in {edge["row"] for edge in together}:
        inputs = {shown[edge["input"]]["n"] for edge in together if edge["row"] == row}
        assert shown[row]["n"] in inputs, "all records of the call"
    over_all(place, record_of, shown)
    by_command(place, capsys, record_of, shown)


def over_all(place: Place, record_of: dict[str, int], shown: dict[str, dict[str, Any]]) -> None:
    for operator in ("even", "odd"):
        found = clonos.lineage(place.spark, str(place.checkpoint), of=operator, to="sources").collect()
        pairs = sorted((shown[row["row"]]["n"], record_of[row["input"]]) for row in found if row["input"])
        assert pairs == [(n, n) for n in range(RECORDS) if n % 3 and n % 2 == 0], operator
        found = clonos.lineage(place.spark, str(place.checkpoint), of=operator, to="mirror").collect()
        found = [row for row in found if row["input"]]
        assert {row["input_operator"] for row in found} == {"mirror"}
        assert all(shown[row["row"]]["n"] == shown[row["input"]]["n"] for row in found) and len(found) == len(
            pairs
        )
    states = clonos.state_at(
        place.spark, str(place.checkpoint), "twice", at=max(row["epoch"] for row in found)
    )
    kept = {json.loads(row["key"])[0]: json.loads(row["state"]) for row in states.collect()}
    assert kept == {f"k{at}": {"seen": RECORDS // 5} for at in range(5)}
    with pytest.raises(ConfigurationError, match="does not have epoch 999"):
        clonos.state_at(place.spark, str(place.checkpoint), "twice", at="999")
    first = clonos.lineage(place.spark, str(place.checkpoint), of="even", to="sources", upto=0).collect()
    assert {row["epoch"] for row in first} <= {0}
    with pytest.raises(ConfigurationError, match="no row of 'even' goes into one of 'mirror'"):
        clonos.lineage(place.spark, str(place.checkpoint), of="mirror", to="even")
    with pytest.raises(ConfigurationError, match="no operator 'eve'"):
        clonos.lineage(place.spark, str(place.checkpoint), of="eve")


def by_command(
    place: Place,
    capsys: pytest.CaptureFixture[str],
    record_of: dict[str, int],
    shown: dict[str, dict[str, Any]],
) -> None:
    for record, n in [*record_of.items()][:: RECORDS // 6]:
        found = told(place, capsys, record, "--forward")
        exact = {row for call in found if call["made_by_a"] == "record" for row in call["rows"]}
        assert exact & shown.keys() == {
            id for id, row in shown.items() if row["n"] == n and row["by"] != "together"
        }
        for id in exact & shown.keys():
            back = told(place, capsys, id)
            (source,) = [each for call in back for each in call["of"] if "source" in each]
            assert source["id"] == record and record.endswith(f"-{source['position']}")
        twice = told(place, capsys, record, "--forward", "--to", "twice")
        assert {call["operator"] for call in twice} <= {"mirror", "twice", "together"}
        if n % 6 in (2, 4):
            assert {call["operator"] for call in found} == {"mirror", "twice", "even", "odd", "together"}
    for refused, why in (
        (("9-0-1",), "is of no source and no operator"),
        ((f"{record.rpartition('-')[0]}-999999", "--forward"), "was given position 999999"),
        ((record,), "is a record of a source"),
        (("2-0-99999", "--forward"), "cannot be had"),
        ((record, "--forward", "--to", "mirror2"), "no operator 'mirror2'"),
        ((id, "--to", "together"), "is made of rows of 'together'"),
    ):
        assert cli.main(["lineage", str(place.checkpoint), *refused]) == 1, refused
        assert why in capsys.readouterr().err


def test_what_is_lacking_is_said_and_no_row_left_out(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    mirrored = place.causal(SCHEMA).map(mirror, OUT, name="mirror")
    stream = mirrored.groupBy("k").process(twice, OUT, name="twice", on_timer=soon, side_outputs={"odd": OUT})
    for at in range(3):
        place.write({"k": "a", "n": 3 * n + 1} for n in range(4 * at, 4 * at + 4))
        if at == 0:  # so that the first epoch has rows
            place.start(stream)
        place.until(lambda at=at: len(place.rows()) >= 4 * at + 4, "rows")  # type: ignore[misc]
        place.await_commit()
    place.stop()
    kept = place.checkpoint

    def lines(checkpoint: Path, **more: Any) -> int:
        return (
            clonos.lineage(place.spark, str(checkpoint), of="twice", to="sources", **more)
            .where("input is not null and made_by = 'record'")
            .count()
        )

    def changed(name: str) -> list[Path]:
        """A copy of the checkpoint, and the segments of `mirror` in it."""
        shutil.copytree(kept, tmp_path / name)
        return sorted((tmp_path / name / "clonos" / "archive" / "segments" / "2").glob("*/*.segment"))

    assert lines(kept) == 24
    monkeypatch.chdir(tmp_path)
    changed("relative")
    assert lines(Path("relative")) == 24
    for path in changed("first"):
        if path.name.startswith("0" * 20 + "-"):
            path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    with pytest.raises(ConfigurationError, match=r"epochs 0 to .* of mirror.* cannot be repeated"):
        lines(tmp_path / "first", since=0)
    caplog.clear()
    assert lines(tmp_path / "first") < 24 and "lineage is of epochs" in caplog.text
    for path in changed("one instance"):
        if path.parent.name == "1":
            path.unlink()
    with pytest.raises(ConfigurationError, match="nothing is archived of mirror"):
        lines(tmp_path / "one instance")
    last = max(int(path.name[:20]) for path in changed("last"))
    for path in (tmp_path / "last" / "clonos" / "archive" / "segments" / "2").glob("*/*.segment"):
        if int(path.name[:20]) == last:
            path.unlink()
    caplog.clear()
    assert lines(tmp_path / "last") < 24 and "lineage is of epochs" in caplog.text
