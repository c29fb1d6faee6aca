"""Keyed state around the call that made a row, judged by what the rows before it say that their calls have kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from streams import Place

import clonos
from clonos import cli
from clonos.errors import ConfigurationError, StateError

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
COUNTED = "k string, n long, turn long"
RECORDS = 60
KEYS = 5
RUNG = -1
"""What the row of a timer has for `n`."""


def count(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """Each call gives one row, and changes the state; every seventh record empties it."""
    if not ctx.state:
        ctx.timer(at=ctx.now_us() + 1, name="ring")
    turn = ctx.state["turn"] = ctx.state.get("turn", 0) + 1
    ctx.state["last"] = [row.n]
    if row.n % 7 == 6:
        ctx.state.clear()
    yield row.k, row.n, turn


def ring(key: Any, timer: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["rung"] = ctx.state.get("rung", 0) + 1
    yield key[0], RUNG, ctx.state["rung"]


def kept_behind(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What these calls of an instance have kept, by key, as their rows say it."""
    kept: dict[str, dict[str, Any]] = {}
    for row in rows:
        state = kept.setdefault(row["k"], {})
        if row["n"] == RUNG:
            state["rung"] = row["turn"]
        elif row["n"] % 7 == 6:
            state.clear()
        else:
            state |= {"turn": row["turn"], "last": [row["n"]]}
    return {key: state for key, state in kept.items() if state}


def found(place: Place, capsys: pytest.CaptureFixture[str], operator: str) -> list[dict[str, Any]]:
    """Its rows, with their ids and epochs, in the order of each instance."""
    capsys.readouterr()
    command = ["archive", "find", str(place.checkpoint), "--operator", operator, "--limit", "1000", "--json"]
    assert cli.main([*command, "all"]) == 0
    rows = [
        {**one["row"], "id": one["id"], "epoch": one["epoch"]}
        for one in json.loads(capsys.readouterr().out)["rows"]
    ]
    return sorted(rows, key=lambda row: [int(each) for each in row["id"].split("-")])


def states(
    place: Place, capsys: pytest.CaptureFixture[str], operator: str, at: object, *more: str
) -> dict[str, Any]:
    capsys.readouterr()
    command = ["state", str(place.checkpoint), "--operator", operator, "--at", str(at), "--json", *more]
    assert cli.main(command) == 0, capsys.readouterr().err
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {one["key"][-1]: one["state"] for one in said}


def run(place: Place, mode: str, stream: Any) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.start(stream, mode)
    for at in range(0, RECORDS, 20):
        place.write({"k": f"k{n % KEYS}", "n": n} for n in range(at, at + 20))

        def are_there(upto: int = at + 20) -> bool:
            return len({row["n"] for row in place.rows() if row["n"] != RUNG}) == upto

        place.until(are_there, "the rows of all records")
        if at == 20:
            place.kill(2, 0)
    place.finish()


@pytest.mark.parametrize("mode", ["microbatch", "realtime"])
def test_state_before_and_behind_the_call_that_made_a_row(
    place: Place, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    run(place, mode, place.causal(SCHEMA).groupBy("k").process(count, COUNTED, name="count", on_timer=ring))
    rows = found(place, capsys, "count")
    assert sorted(row["n"] for row in rows if row["n"] != RUNG) == list(range(RECORDS))
    assert any(row["n"] == RUNG for row in rows)
    by_instance = [[row for row in rows if row["id"].startswith(f"2-{at}-")] for at in range(2)]
    for own in by_instance:
        for at in sorted({0, len(own) // 3, len(own) // 2, len(own) - 2, len(own) - 1}):
            row = own[at]["id"]
            assert states(place, capsys, "count", row, "--before") == kept_behind(own[:at]), own[at]
            assert states(place, capsys, "count", row) == kept_behind(own[: at + 1]), own[at]
    as_a_frame(place, by_instance)
    refused(place, capsys, by_instance)


def as_a_frame(place: Place, by_instance: list[list[dict[str, Any]]]) -> None:
    checkpoint = str(place.checkpoint)
    for instance, own in enumerate(by_instance):
        at = next(at for at in range(1, len(own)) if kept_behind(own[:at]) and kept_behind(own[: at + 1]))
        for before in (False, True):
            lines = clonos.state_at(
                place.spark, checkpoint, "count", at=own[at]["id"], before=before
            ).collect()
            said = {json.loads(line["key"])[0]: json.loads(line["state"]) for line in lines}
            assert said == kept_behind(own[: at + (not before)])
            assert {(line["operator"], line["instance"], line["epoch"]) for line in lines} == {
                ("count", instance, own[at]["epoch"])
            }
    with pytest.raises(StateError, match="its epoch is not in the archive"):
        clonos.state_at(place.spark, checkpoint, "count", at="2-0-999999")
    with pytest.raises(ConfigurationError, match="no id of a row"):
        clonos.state_at(place.spark, checkpoint, "count", at=0, before=True)
    with pytest.raises(StateError, match="no operator's instance"):
        clonos.state_at(place.spark, checkpoint, "count", at="1-0-1")


def refused(
    place: Place, capsys: pytest.CaptureFixture[str], by_instance: list[list[dict[str, Any]]]
) -> None:
    one, other = by_instance
    (others_key, *_) = {row["k"] for row in other}
    row = one[-1]["id"]

    def lacks(operator: str, at: str, *more: str) -> str:
        capsys.readouterr()
        assert cli.main(["state", str(place.checkpoint), "--operator", operator, "--at", at, *more]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        return said.err

    said = lacks("count", row, "--key", others_key)
    assert f'nothing was kept of key "{others_key}" by count[0], which made the row' in said
    assert "is no id of a row" in lacks("count", "0", "--before")
    assert "does not have what ended before 2001-01-01" in lacks("count", "2001-01-01")
    assert "neither an epoch nor a time" in lacks("count", "99-0-1")
    assert "the row is of query" in lacks("count", f"{'0' * 32}/{row}")


def test_a_row_of_another_operator_is_refused_and_what_is_advised_answers(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the end of an epoch many keys are one call, whose state is that of the epoch's end."""

    def grouped(key: Any, frames: Any, kept: Any) -> Iterator[Any]:
        import pandas as pd

        rows = pd.concat(frames)
        total = (kept.get[0] if kept.exists else 0) + int(rows["n"].sum())
        kept.update((total,))
        yield pd.DataFrame({"k": [key[0]] * len(rows), "n": rows["n"], "total": [total] * len(rows)})

    mirrored = place.causal(SCHEMA).groupBy("k").process(count, COUNTED, name="count", on_timer=ring)
    records = mirrored.where(f"n <> {RUNG}").groupBy("k")
    summed = records.applyInPandasWithState(
        grouped, "k string, n long, total long", "total long", "update", "NoTimeout", name="sum"
    )
    run(place, "microbatch", summed)
    rows = found(place, capsys, "sum")
    (row, *_) = [one for one in rows if one["epoch"] == max(each["epoch"] for each in rows)]
    instance = row["id"].split("-")[1]
    capsys.readouterr()
    command = ["state", str(place.checkpoint), "--at", row["id"], "--json", "--operator"]
    assert cli.main([*command, "count"]) == 1
    said = capsys.readouterr().err
    assert "was made by 'sum', not by 'count'" in said
    advised = said.rpartition("operator ")[2].strip().strip("'")
    behind, before = (states(place, capsys, advised, row["id"], *more) for more in ((), ("--before",)))
    assert behind != before
    for told, epoch in ((behind, row["epoch"]), (before, row["epoch"] - 1)):
        whole = clonos.state_at(place.spark, str(place.checkpoint), "sum", at=epoch)
        lines = whole.where(f"instance = {instance}").collect()
        assert told == {json.loads(line["key"])[-1]: json.loads(line["state"]) for line in lines}
