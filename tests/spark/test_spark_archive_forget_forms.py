"""Whatever kind of operator keeps something of a key: when the key is erased, no archived state has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from archive_bytes import places_in_states, places_of
from pyspark.sql import Row, functions as f
from pyspark.sql.streaming import StatefulProcessor
from streams import Place

from clonos import cli
from clonos.archive.reading import ArchivedQuery
from clonos.values.key_codec import pack

pytestmark = pytest.mark.spark

SECRET = "9d41f0c7be2a6583"
KEY = "eve-5b1c9e7d20"
SCHEMA = "k string, words string, at timestamp"
THEIRS = "k string, theirs string, their_at timestamp"
OUT = "k string, words string"
KEEPERS = ("window", "session", "running", "pair", "grouped", "processor", "both")


def as_given(row: Any, ctx: Any) -> Any:
    return row


def in_window(key: Any, window: Any, rows: list[Any], ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield key[0], rows[0].words


def remember(key: Any, row: Any, ctx: Any) -> None:
    ctx.state.setdefault("words", []).append(row.words)
    ctx.timer(at=ctx.now_us() + 3_600_000_000, name="late")


def remember_theirs(key: Any, row: Any, ctx: Any) -> None:
    ctx.state.setdefault("words", []).append(row.theirs)


def late(key: Any, timer: Any, ctx: Any) -> None:
    """Never comes."""


def grouped(key: Any, frames: Any, kept: Any) -> Iterator[Any]:
    for frame in frames:
        kept.update((frame["words"].iloc[0],))
        yield frame[["k", "words"]]


class Processor(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "words string")
        self.all = handle.getListState("all", "words string")
        self.by_word = handle.getMapState("by word", "words string", "n int")

    def handleInputRows(self, key: Any, rows: Any, times: Any) -> Iterator[Row]:
        for row in rows:
            self.last.update((row.words,))
            self.all.appendValue((row.words,))
            self.by_word.updateValue((row.words,), (1,))
            yield Row(k=key[0], words=row.words)
        self.handle.registerTimer(times.getCurrentProcessingTimeInMs() + 3_600_000)

    def close(self) -> None:
        pass


def start(place: Place) -> None:
    import clonos

    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    fed = place.causal(SCHEMA).map(as_given, SCHEMA, name="fed").withWatermark("at", "1 hour")
    by_key = fed.groupBy("k")
    window = by_key.window("1 hour").process(in_window, OUT, name="window")
    session = by_key.session_window("1 hour").agg(f.max("words").alias("words"), name="session")
    running = by_key.agg(f.max("words").alias("words"), name="running")
    other = (
        place.causal(THEIRS, "others")
        .map(as_given, THEIRS, name="others")
        .withWatermark("their_at", "1 hour")
    )
    pair = fed.join(other, "k", "inner", within="1 hour", name="pair")
    frames = by_key.applyInPandasWithState(
        grouped, OUT, "words string", "update", "NoTimeout", name="grouped"
    )
    processor = by_key.transformWithState(Processor(), OUT, "update", "ProcessingTime", name="processor")
    connected = clonos.connect(fed, other).groupBy("k")
    both = connected.process(remember, remember_theirs, OUT, name="both", on_timer=late)
    shown = [each.selectExpr("k", "words") for each in (session, running, pair)]
    stream = window
    for each in (*shown, frames, processor, both):
        stream = stream.union(each)
    place.start(stream)


def keeping(place: Place, operator: str) -> list[str]:
    """What of an operator's archived states has the key, or what its records said, in whatever form."""
    wanted = SECRET.encode(), KEY.encode(), pack((KEY,))
    instances = ArchivedQuery(str(place.checkpoint)).instances(operator)
    return [found for each in instances for found in places_in_states(each, *wanted)]


def test_no_operator_keeps_a_key_that_was_erased(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    start(place)
    for at, keys in enumerate(((KEY, "ann"), ("bob",), (KEY, "bob"))):
        before = len(place.rows())
        words = [f"{SECRET}-{at}" if key == KEY else key for key in keys]
        moment = "2024-01-01 00:00:00"
        theirs = [
            {"k": key, "theirs": each, "their_at": moment} for key, each in zip(keys, words, strict=True)
        ]
        place.write(theirs, "others")
        place.write([{"k": key, "words": each, "at": moment} for key, each in zip(keys, words, strict=True)])
        place.until(lambda before=before: len(place.rows()) > before, "rows")
        place.await_commit()
        place.stop()  # so that there is a state
        start(place)
    place.stop()
    for operator in KEEPERS:
        assert keeping(place, operator), operator
    for operator in KEEPERS:
        command = ["archive", "forget", str(place.checkpoint), "--operator", operator, "--key", KEY]
        capsys.readouterr()
        assert cli.main([*command, "--yes", "--json"]) == 0, capsys.readouterr()
        assert json.loads(capsys.readouterr().out)["states"] > 0, operator
        assert keeping(place, operator) == [], operator
    assert cli.main(["archive", "verify", str(place.checkpoint)]) == 0
    assert places_of(place.checkpoint, SECRET.encode(), KEY.encode()) == []
