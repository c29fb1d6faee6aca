"""Whatever `clonos state` shows as a key can be given to commands, and is that key alone, of every type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from streams import Place

import clonos
from clonos import cli

pytestmark = pytest.mark.spark

OUT = "operator string, n long"
TEXTS = ("1.10", "1.1", "null", None, '["a"]')
TIMES = (
    "2026-10-25 00:30:00",
    "2026-10-25 01:30:00",  # an hour later, and the same time on the clocks of Berlin
    "2026-07-01 10:00:00.123456",
    "2026-01-02 00:00:00",
    None,
)
VALUES = (TEXTS, ("", "FF00AB", "1234", None, "6162"), TIMES, (1, 5, None, -3, 0))
KEYS: dict[str, tuple[str, ...]] = {
    "by_text": ("text",),
    "by_bytes": ("raw",),
    "by_time": ("at",),
    "by_several": ("day", "flag", "amount", "number", "text"),
    "by_variable": ("text",),
}
OPENS = dict.fromkeys(KEYS, ": {") | {"by_variable": ": ("}
"""With what a line goes on behind the key."""


def count(operator: str) -> Any:
    def counted(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield operator, ctx.state["n"]

    return counted


class Variable(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, times: Any) -> Iterator[Row]:
        self.count.update((len(list(rows)),))
        yield Row(operator="by_variable", n=1)

    def close(self) -> None:
        pass


def start(place: Place) -> None:
    place.spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    frame = place.read("text string, raw string, at string, number int").selectExpr(
        "text",
        "unhex(raw) as raw",
        "cast(concat(at, 'Z') as timestamp) as at",
        "cast(at as date) as day",
        "number > 4 as flag",
        "cast(number as decimal(5,0)) as amount",
        "number",
    )
    given = clonos.causal(frame)
    made = [
        given.groupBy(*KEYS[name]).process(count(name), OUT, name=name)
        for name in KEYS
        if name != "by_variable"
    ]
    made.append(
        given.groupBy("text").transformWithState(Variable(), OUT, "update", "None", name="by_variable")
    )
    stream = made[0]
    for each in made[1:]:
        stream = stream.union(each)
    place.start(stream)


def said(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    capsys.readouterr()
    found = cli.main(list(arguments))
    told = capsys.readouterr()
    assert found == code, (arguments, told)
    return told.out if code == 0 else told.err


def test_what_is_shown_as_a_key_can_be_given(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    start(place)
    place.write(
        {"text": text, "raw": raw, "at": at, "number": number}
        for text, raw, at, number in zip(*VALUES, strict=True)
    )
    place.until(lambda: len(place.rows()) == len(KEYS) * len(TEXTS), "all rows")
    last = place.finish()
    checkpoint = str(place.checkpoint)
    for operator, columns in KEYS.items():
        state = ["state", checkpoint, "--operator", operator, "--at", str(last)]
        lines = said(capsys, 0, *state, "--json").splitlines()
        assert len(lines) == len(set(lines)) == len(TEXTS), lines
        to_be_read = said(capsys, 0, *state).splitlines()
        for at, (line, read) in enumerate(zip(lines, to_be_read, strict=True)):
            shown = json.loads(line)["key"]
            key = json.dumps(shown[: len(columns)])
            for given in (json.dumps(shown), key, read[: read.rindex(OPENS[operator])]):
                assert said(capsys, 0, *state, "--json", "--key", given).splitlines() == [line], given
            if at < 2:
                forget = ["archive", "forget", checkpoint, "--operator", operator, "--json", "--key", key]
                found = json.loads(said(capsys, 0, *forget))
                assert found["epochs"], (operator, key, found)

    of_text = ["--operator", "by_text", "--key"]
    assert "As in --key c-4711" in said(capsys, 1, "archive", "forget", checkpoint, *of_text, '["a", "b"]')
    found = json.loads(said(capsys, 0, "archive", "forget", checkpoint, "--json", *of_text, "1.0"))
    assert (found["epochs"], found["states"]) == ([], 0)
    state = ["state", checkpoint, "--operator", "by_time", "--at", str(last), "--key"]
    assert "2026-11-29T11:27:00" in said(capsys, 1, *state, "yesterday")
    assert "nothing was kept of key" in said(capsys, 1, *state, "2026-10-25T02:30:00.1+01:00")
