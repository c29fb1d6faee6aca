"""Questions about rows that were made of what the archive does not have any more: what is known is said, and what is
lacking beside it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from modes import mostly
from pyspark.sql import functions as f
from streams import Place

import clonos
from clonos import cli
from clonos.archive.reading import ArchivedInstance, ArchivedQuery
from clonos.errors import StateError
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, Origin, OutputNumber
from clonos.storage.archive import Archive

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
RUNS = 4
GONE = "its epoch is not in the archive any more"


def same(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.k, row.n


def as_it_is(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.k, row.c


def run(place: Place, mode: str, *, shown: bool = False) -> None:
    """A record in each start; the row of each is of all records so far. Where it is `shown`, as it comes from a further
    operator."""
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.snapshot.interval", "100ms")
    for at in range(RUNS):
        base = place.causal(SCHEMA, partitions=1).map(same, SCHEMA, name="base", parallelism=1)
        counts = base.groupBy("k").agg(f.count("*").alias("c"), name="count", parallelism=1, per="bundle")
        place.start(
            counts.map(as_it_is, "k string, c long", name="shown", parallelism=1) if shown else counts, mode
        )
        place.write([{"k": "a", "n": at}], partitions=1)
        place.until(lambda at=at: len(place.rows()) >= at + 1, "rows")  # type: ignore[misc]
        place.finish()


def cut(place: Place, rows: int, *, node: int = 2) -> int:
    """The epochs in which an operator made its first rows are gone; the last one of these."""
    (instance,) = ArchivedQuery(str(place.checkpoint)).instances_of(Origin.of(node, 0).node)
    last = instance.rows.made_in(OutputNumber(rows))
    assert not isinstance(last, Lacking)
    for path in (place.checkpoint / "clonos" / "archive" / "segments" / str(node) / "0").iterdir():
        if int(path.name[:20]) <= last:
            path.unlink()
    return last


def said(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    capsys.readouterr()
    code = cli.main([*map(str, arguments)])
    return code, *capsys.readouterr()


def edges(place: Place, **asked: Any) -> dict[str, set[tuple[str | None, bool, int | None]]]:
    found: dict[str, set[tuple[str | None, bool, int | None]]] = {}
    for each in clonos.lineage(place.spark, str(place.checkpoint), **asked).collect():
        found.setdefault(each["row"], set()).add((each["input"], each["exact"], each["kept_before"]))
    return found


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_rows_of_epochs_that_are_gone_are_said_to_be_and_the_others_are_followed(
    place: Place, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    run(place, mode)
    whole = edges(place, of="count", to="sources")
    assert {row: len(of) for row, of in whole.items()} == {f"3-0-{at}": at for at in range(1, RUNS + 1)}
    source_of = {row: of for row, ((of, _, _),) in edges(place, of="base").items()}
    last = cut(place, 2)
    there = min(ArchivedQuery(str(place.checkpoint)).instances("base")[0].epochs)
    assert there == last + 1
    the_frame_has_what_is_known(place, whole, source_of, there)
    lineage_says_both(place, capsys, source_of)
    other_commands_say_it(place, capsys)


def the_frame_has_what_is_known(
    place: Place, whole: dict[str, set[Any]], source_of: dict[str, str | None], there: int
) -> None:
    gone = {source_of["2-0-1"], source_of["2-0-2"]}
    found = edges(place, of="count", to="sources")
    assert found.keys() == {"3-0-3", "3-0-4"}
    for row, of in found.items():
        assert of == {each for each in whole[row] if each[0] not in gone} | {(None, True, there)}


def lineage_says_both(
    place: Place, capsys: pytest.CaptureFixture[str], source_of: dict[str, str | None]
) -> None:
    code, out, _ = said(capsys, "lineage", place.checkpoint, "3-0-4", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    (lost,) = [line for line in lines if "lacking" in line]
    assert lost == {"operator": "base", "instance": 0, "rows": ["2-0-1", "2-0-2"], "lacking": GONE}
    known = {
        line["rows"][0]: line["of"][0]["id"] for line in lines if line["operator"] == "base" and "of" in line
    }
    assert known == {row: source_of[row] for row in ("2-0-3", "2-0-4")}
    assert {each["id"] for each in lines[0]["of"]} == source_of.keys()
    code, out, _ = said(capsys, "lineage", place.checkpoint, "3-0-4")
    assert code == 1 and f"base[0]: 2-0-1, 2-0-2\n  CANNOT BE HAD: {GONE}\n" in out
    assert said(capsys, "lineage", place.checkpoint, "3-0-4", "--to", "base")[0] == 0
    code, out, errors = said(capsys, "lineage", place.checkpoint, "2-0-1")
    assert (code, out) == (1, "") and f"2-0-1 cannot be had: {GONE}" in errors
    code, out, _ = said(capsys, "lineage", place.checkpoint, "2-0-1", "--forward", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 1 and lines[0]["lacking"] == GONE, "in which other forms readers got it"
    assert [line["rows"] for line in lines[1:]] == [[f"3-0-{at}"] for at in range(1, RUNS + 1)]


def other_commands_say_it(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = place.checkpoint
    code, out, _ = said(capsys, "explain", checkpoint, "2-0-1")
    assert code == 1 and f"  made by base[0]\n  CANNOT BE HAD: {GONE}\n" in out
    code, out, _ = said(capsys, "explain", checkpoint, "2-0-3")
    assert code == 0 and "  made by base[0], epoch " in out
    for command in (
        ("state", checkpoint, "--operator", "base", "--at", "2-0-2"),
        ("replay", checkpoint, "--row", "2-0-2", "--pdb"),
        ("export", checkpoint, "--row", "2-0-2"),
    ):
        code, _, errors = said(capsys, *command)
        assert code == 1 and GONE in errors, command
    with pytest.raises(StateError, match=GONE):
        clonos.state_at(place.spark, str(checkpoint), "base", at="2-0-1")
    cut(place, 3)
    (instance,) = ArchivedQuery(str(checkpoint)).instances("base")
    places = [instance.rows.made_in(OutputNumber(at)) for at in range(1, RUNS + 2)]
    assert [isinstance(each, Lacking) for each in places[:RUNS]] == [True, True, True, False]
    is_not_to_be_had(instance, places[RUNS])
    assert said(capsys, "lineage", checkpoint, "3-0-4", "--json")[0] == 1


def is_not_to_be_had(instance: ArchivedInstance, place: Epoch | Lacking) -> None:
    """A row behind the last one: an epoch that had not ended when the query was stopped may make it."""
    assert isinstance(place, Lacking) or not instance.has_ended(place)


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_row_behind_a_gap_is_found_and_one_in_it_is_not(place: Place, mode: str) -> None:
    run(place, mode)
    (instance,) = ArchivedQuery(str(place.checkpoint)).instances("base")
    whole = [instance.rows.made_in(OutputNumber(at)) for at in range(1, RUNS + 1)]
    for path in (place.checkpoint / "clonos" / "archive" / "segments" / "2" / "0").iterdir():
        if int(path.name[:20]) in whole[1:3]:
            path.unlink()
    (instance,) = ArchivedQuery(str(place.checkpoint)).instances("base")
    found = [instance.rows.made_in(OutputNumber(at)) for at in range(1, RUNS + 2)]
    gone = Lacking("its epoch is not in the archive")
    assert found[:RUNS] == [whole[0], gone, gone, whole[3]]
    is_not_to_be_had(instance, found[RUNS])
    assert instance.rows.placed(OutputNumber(2)) == (gone, 3)


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_what_is_behind_a_gap_is_followed_all_the_same(
    place: Place, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    """As far as there is a state behind it; the hint of the DataFrame says where."""
    run(place, mode, shown=True)
    checkpoint = str(place.checkpoint)
    (source,) = (of for ((of, _, _),) in [edges(place, of="base")["2-0-1"]])
    (instance,) = ArchivedQuery(checkpoint).instances("shown")
    gone = instance.rows.made_in(OutputNumber(2))
    assert not isinstance(gone, Lacking)
    for path in (place.checkpoint / "clonos" / "archive" / "segments" / "4" / "0").iterdir():
        if int(path.name[:20]) == gone:
            path.unlink()
    states = Archive(checkpoint).states(
        instance.origin, fence=Fence.of(99), pending=str(place.base / "pending")
    )
    states.keep_from(0)
    states.drop([name for name in instance.state_names if name.epoch == gone])
    code, out, _ = said(capsys, "lineage", checkpoint, str(source), "--forward", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    told = {line["rows"][0] for line in lines if line["operator"] == "shown" and "of" in line}
    lost = {row for line in lines if "lacking" in line for row in line["rows"]}
    assert code == 1 and {"4-0-1", "4-0-4"} <= told and "3-0-2" in lost
    assert {row.replace("4-0-", "3-0-") for row in told} ^ lost == {f"3-0-{at}" for at in range(1, RUNS + 1)}
    with pytest.raises(Exception, match="From since=") as raised:
        edges(place, of="shown", since=gone)
    again = re.search(r"From since=(\d+) on all is there again", str(raised.value))
    assert again is not None
    assert "4-0-4" in edges(place, of="shown", since=int(again[1]))
