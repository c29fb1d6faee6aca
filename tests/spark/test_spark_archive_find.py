"""Rows of the past are found by their values, of each type and output, and what could not be searched is said; what is
shown of them is the same in every time zone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streams import Place

import clonos
from clonos import cli
from clonos.archive.masking import WITHOUT_TEXT

pytestmark = pytest.mark.spark

RAISES = "TEST_FIND_RAISES"
OUT = "k string, n long, card string, at timestamp, wall timestamp_ntz, `all` map<timestamp,string>, "
OUT += "share double, inside struct<card: string>"
LATE = "k string, n string, at timestamp"
FIRST, SECOND = (
    "2026-10-25T00:30:00.000000",
    "2026-10-25T01:30:00.000000",
)  # the same on the clocks of Berlin, in UTC here
BOTH = {f"{FIRST}Z": "first", f"{SECOND}Z": "second"}


def see(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    if os.environ.get(RAISES) == str(row.n):  # where it is repeated
        raise ValueError(f"no {row.card}")
    ctx.state["last"] = row.at
    ctx.side_output("late", (row.k, str(row.n), row.at))
    both = [(row.at.replace(fold=0), "first"), (row.at.replace(fold=1), "second")]
    yield row.k, row.n, row.card, row.at, row.at, both, float("nan"), (row.card,)


def all_of_them(row: Any, ctx: Any) -> bool:
    return True


def start(place: Place) -> None:
    place.spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.parallelism", "1")
    frame = place.read("k string, n long, card string, at string", partitions=1)
    given = clonos.causal(frame.selectExpr("k", "n", "card", "cast(concat(at, 'Z') as timestamp) as at"))
    seen = given.groupBy("k", "at").process(see, OUT, name="see", side_outputs={"late": LATE})
    late = seen.side_output("late").where("n <> '77'").select("k", "n", "at")
    streams = [seen.where("n % 2 = 1").filter(all_of_them, name="odd")]
    streams.append(late.filter(all_of_them, name="late").map(widened, OUT, name="widened"))
    place.start(streams[0].union(streams[1]))


def widened(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.k, None, None, row.at, None, None, None, None


def write(place: Place, *numbers: int) -> None:
    """An epoch of these; the odd ones are an hour behind the others."""
    before = len(place.rows())
    rows = [{"k": "a", "n": n, "card": f"card-{n}", "at": SECOND if n % 2 else FIRST} for n in numbers]
    place.write(rows, partitions=1)
    more = sum(1 + n % 2 for n in numbers)
    place.until(lambda: len(place.rows()) == before + more, f"{more} more rows")
    place.await_commit()


class Asked:
    """The commands, over one checkpoint."""

    def __init__(self, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
        self._checkpoint = str(place.checkpoint)
        self._capsys = capsys
        self.errors = ""

    def __call__(self, *command: str, code: int = 0) -> str:
        first, *more = command
        self._capsys.readouterr()
        found = cli.main([*first.split(), self._checkpoint, *more])
        told = self._capsys.readouterr()
        self.errors = told.err
        assert found == code, (command, told)
        return told.out

    def found(self, *where: str, code: int = 0, operator: str = "see") -> dict[str, Any]:
        said: dict[str, Any] = json.loads(
            self("archive find", "--operator", operator, "--json", *where, code=code)
        )
        return said

    def ids(self, *where: str) -> list[str]:
        return [each["id"] for each in self.found(*where)["rows"]]


def test_rows_are_found_by_what_is_shown_of_them(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    start(place)
    write(place, 1, 2)
    write(place, 3)
    place.stop()
    asked = Asked(place, capsys)
    visible = {row.pop("clonos_id"): row for row in place.rows()}
    every = asked.found("all")["rows"]
    _outputs(every, asked)
    for one in every:
        conditions = [
            f"`{name}`={json.dumps(value)}" for name, value in one["row"].items() if value is not None
        ]
        assert one["id"] in asked.ids(*conditions)
    odd = [each for each in every if "output" not in each]
    assert asked.ids(f"at={SECOND}Z") == asked.ids("at=2026-10-25T02:30:00+01:00")
    assert asked.ids("at=2026-10-25T01:30:00Z") == asked.ids(f"at={SECOND}Z"), "with or without microseconds"
    assert {each["row"]["at"] for each in odd} == {f"{SECOND}Z"}
    assert asked.ids(f"`all`={json.dumps(BOTH)}", "wall=2026-10-25T02:30:00") == [each["id"] for each in odd]
    assert asked.ids("n=1") == [each["id"] for each in every if str(each["row"]["n"]) == "1"], "of each type"
    asked.found("n=1", "n=3", code=1)
    asked("archive find", "--operator", "see", "at=true", code=1)
    assert "is no value of the column at of operator 'see'" in asked.errors
    asked("archive find", "--operator", "late", "wall=null", code=1)
    assert "operator 'late' has no column wall. It has at, k, n" in asked.errors
    since = f"--from={epochs_of(every)['3']}"
    assert len(asked.ids("n=3", since)) == 2
    assert asked.found("n=1", since, code=1) == {"rows": [], "lacking": []}, "of an epoch before"
    for name, value in (("card", "card-1"), ("inside", '{"card": "card-1"}')):
        assert len(asked.ids(f"{name}={value}")) == 1
        asked("archive find", "--operator", "see", f"{name}={value}", "--mask", "card", code=1)
        assert f"values of {name} are not shown, nor looked for" in asked.errors
    _explained(asked, visible, odd[-1])


def _outputs(every: list[dict[str, Any]], asked: Asked) -> None:
    """By the names that users know."""
    throughs = {each.get("output"): each["through"] for each in every}
    assert throughs.keys() == {None, "late"}
    assert throughs[None].startswith("where ") and "% " in throughs[None]
    assert throughs["late"].startswith("where ") and "; select k, n, at" in throughs["late"]
    text = asked("archive find", "--operator", "see", "n=2").strip()
    assert (
        f"epoch {epochs_of(every)['2']}  late, through {throughs['late']}  k='a', n='2', at={FIRST}Z" in text
    )


def _explained(asked: Asked, visible: dict[str, Any], one: dict[str, Any]) -> None:
    """What readers got, wherever they read it; and keys and state so that the two hours are told apart."""
    said = json.loads(asked("explain", one["id"], "--json"))
    assert said["row"] == one["row"] and said["row"]["all"] == BOTH
    assert said["row"]["wall"] == "2026-10-25T02:30:00.000000"
    assert said["keys"] == [["a", f"{SECOND}Z"]] == [each["key"] for each in said["state"]]
    assert said["state"][0]["after"] == {"last": "2026-10-25T02:30:00.000000+01:00"}
    (given,) = said["inputs"]
    assert given["row"]["at"] == f"{SECOND}Z"
    (sent,) = [row for row in visible.values() if row["n"] == one["row"]["n"]]
    assert (sent["at"], sent["wall"]) == (one["row"]["at"], one["row"]["wall"]), "as a sink has it"
    assert f"at={SECOND}Z" in asked("explain", one["id"])
    state = ["--operator", "see", "--at", str(one["epoch"]), "--json", "--key"]
    for hour in (FIRST, SECOND):
        line = json.loads(asked("state", *state, f'["a", "{hour}Z"]'))
        assert line["key"] == ["a", f"{hour}Z"]
        without = hour.removesuffix(".000000")
        assert json.loads(asked("state", *state, f'["a", "{without}Z"]')) == line
    against = ["--operator", "see", "--against", "test_spark_archive_find:nothing", "--json"]
    compared = json.loads(asked("replay", *against, code=1))
    (example, *_) = compared["examples"]
    assert example["record"]["at"] == f"{SECOND}Z"
    assert {row.get("side output") for row in example["then"]} == {None, "late"}
    assert all(row["through"].startswith("where ") and row["at"] == f"{SECOND}Z" for row in example["then"])
    against[3] = "test_spark_archive_find:see_another_card"
    asked("replay", *against, code=1)
    asked("replay", *against, "--columns", "k,share,at,all")


def see_another_card(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    for one in see(key, row, ctx):
        yield (*one[:2], "another", *one[3:])


def nothing(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield from ()


def test_what_cannot_be_searched_is_said_and_the_search_goes_on(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record in an epoch. There is a state at the end of the first epoch of each start, which may be empty."""
    for numbers in ((1, 3), (5, 7)):
        start(place)
        for n in numbers:
            write(place, n)
        place.stop()
    asked = Asked(place, capsys)
    assert asked.found("card=card-7")["lacking"] == []
    epochs = epochs_of(asked.found("all")["rows"])
    monkeypatch.setenv(RAISES, "3")
    said = asked.found("all", code=1)
    assert epochs_of(said["rows"]).keys() - {"5"} == {"1", "7"}
    (lacking,) = said["lacking"]
    assert first_not_searched(lacking) == epochs["3"] and "no card-3" in lacking
    assert lacking in asked.errors
    said = asked.found("all", "--mask", "card", code=1)
    assert said["lacking"] == [f"{lacking.split(': UserFunctionError')[0]}: {WITHOUT_TEXT}"]
    assert "card-" not in json.dumps(said) + asked.errors and epochs_of(said["rows"]).keys() >= {"1", "7"}
    assert len(asked.ids("k=a", "--to", str(epochs["1"]))) == 2
    monkeypatch.setenv(RAISES, "7")
    (lacking,) = asked.found("all", f"--from={epochs['7']}", "--mask", "card", code=1)["lacking"]
    assert first_not_searched(lacking) == epochs["7"] and lacking.endswith(f" searched: {WITHOUT_TEXT}")
    for path in Path(place.checkpoint, "clonos", "archive", "segments", "2").glob("*/*.segment"):
        if int(path.name.split("-")[0]) == epochs["3"]:
            path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    monkeypatch.delenv(RAISES)
    (lacking,) = asked.found("all", "--mask", "card", code=1)["lacking"]
    assert first_not_searched(lacking) == epochs["3"]
    assert f" searched: epoch {epochs['3']}: it cannot be read" in lacking


def epochs_of(rows: list[dict[str, Any]]) -> dict[str, int]:
    """By the number of a record."""
    return {str(each["row"]["n"]): each["epoch"] for each in rows}


def first_not_searched(lacking: str) -> int:
    found = re.match(r"see\[0\]: epochs? (\d+) ((is)|(to \d+ are)) not searched: ", lacking)
    assert found is not None, lacking
    return int(found[1])
