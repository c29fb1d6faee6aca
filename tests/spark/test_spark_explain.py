"""What makes a row is a graph: a call is repeated once, and said once, whatever ways its rows go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from streams import Place

from clonos import cli
from clonos.archive.reading import ArchivedInstance
from clonos.protocol.ids import Epoch, OutputNumber

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
LEFT, RIGHT = "k string, n long, at timestamp", "k string, m long, later timestamp"
PAIR = "k string, n long, at timestamp, m long, later timestamp"
ROWS = 9  # text shows 20 records of a call


def same(batch: Any) -> Any:
    return batch


def passes(row: Any) -> bool:
    return True


def alone(row: Any) -> tuple[Any, ...]:
    return row.k, row.n, row.at, None, None


def start(place: Place) -> None:
    """Rows that go two ways of different length, meet again, and all go into one call at the end."""
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.parallelism", "1")
    place.write([{"k": "a", "n": n} for n in range(ROWS)], partitions=1)
    first = place.causal(SCHEMA, partitions=1).map_batches(same, SCHEMA, name="first", pure=True)
    long = first.map_batches(same, SCHEMA, name="second", pure=True).filter(passes, name="third", pure=True)
    both = long.union(first.filter(passes, name="short", pure=True))
    place.start(both.map_batches(same, SCHEMA, name="last", pure=True))
    place.until(lambda: len(place.rows()) == 2 * ROWS, f"{2 * ROWS} rows")
    place.await_commit()
    place.stop()


class Asked:
    """`clonos explain` of one row, and which epochs of which instances it repeats."""

    def __init__(self, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
        self._checkpoint = str(place.checkpoint)
        self._row = place.rows()[-1]["clonos_id"]
        self._capsys = capsys
        self.repeated: list[tuple[str, Epoch]] = []

    def __call__(self, *options: str) -> str:
        self.repeated.clear()
        self._capsys.readouterr()
        assert cli.main(["explain", self._checkpoint, self._row, *options]) == 0
        return self._capsys.readouterr().out

    def counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        repeated_to_row = ArchivedInstance.repeated_to_row

        def counted(instance: ArchivedInstance, number: OutputNumber, epoch: Epoch, desk: Any) -> Any:
            self.repeated.append((str(instance), epoch))
            return repeated_to_row(instance, number, epoch, desk)

        monkeypatch.setattr(ArchivedInstance, "repeated_to_row", counted)


def documents(said: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows that are explained, in the order in which they are said."""
    yield said
    for one in said["inputs"]:
        if "made_by" in one:
            yield from documents(one["made_by"])


def records(said: dict[str, Any]) -> tuple[str, ...]:
    return tuple(one.get("id", str(one.get("position"))) for one in said["inputs"])


def check_each_once(said: dict[str, Any], inputs: int) -> None:
    """Of an operator no two calls are given the same record."""
    calls = [(one["operator"], record) for one in documents(said) for record in records(one)]
    assert len(calls) == len(set(calls)), "each call is said once"
    known: set[str] = set()

    def check(one: dict[str, Any]) -> None:
        known.add(one["id"])
        for number, each in enumerate(one["inputs"]):
            if "made_by" in each:
                check(each["made_by"])
            elif "explained_above" in each:
                assert each["explained_above"] in known
            else:
                assert "source" in each or number >= inputs

    check(said)


def test_a_call_is_repeated_and_said_once(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start(place)
    asked = Asked(place, capsys)
    asked.counts(monkeypatch)
    said = json.loads(asked("--json", f"--inputs={4 * ROWS}"))
    check_each_once(said, 4 * ROWS)
    explained = [*documents(said)]
    assert {one["operator"] for one in explained} == {"first", "second", "third", "short", "last"}
    assert "not_explained" not in said
    # Rows of `first` come by two ways, on two levels; all others on one, whatever their calls were given.
    most = {each: 2 if each[0] == "first[0]" else 1 for each in asked.repeated}
    assert all(asked.repeated.count(each) <= count for each, count in most.items()), asked.repeated
    text = asked(f"--inputs={4 * ROWS}")
    assert text.count("made by first[0]") == sum(one["operator"] == "first" for one in explained)
    assert text.count("(as above") == json.dumps(said).count("explained_above")


def test_no_more_calls_are_explained_than_there_may_be(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    start(place)
    asked = Asked(place, capsys)
    asked.counts(monkeypatch)
    whole = [*documents(json.loads(asked("--json")))]
    picture = tmp_path / "why.svg"
    for calls in (1, 2, len(whole) - 1):
        said = json.loads(asked("--json", f"--calls={calls}"))
        explained = [*documents(said)]
        assert len(explained) == calls and said["not_explained"]["calls"] == calls
        assert explained[0]["operator"] == "last" and said["not_explained"]["rows"] > 0
        text = asked(f"--calls={calls}", f"--draw={picture}")
        last = text.splitlines()[-1]
        assert last.startswith(f"not explained: {said['not_explained']['rows']} more row"), last
        assert "behind it are not explained" in picture.read_text()
        assert f"--calls {2 * calls} shows more" in last
        more = json.loads(asked("--json", f"--calls={2 * calls}"))
        assert len([*documents(more)]) == min(2 * calls, len(whole))
    assert len(whole) == len([*documents(json.loads(asked("--json", f"--calls={len(whole)}")))])
    assert "not_explained" not in json.loads(asked("--json", f"--calls={len(whole)}"))


def test_rows_of_one_call_that_are_made_of_different_records(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record that has several partners: what its call did is said once, and of each row what that is made of."""
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.parallelism", "1")
    left = place.causal(LEFT, partitions=1).withWatermark("at", "1 hour")
    right = place.causal(RIGHT, "other", 1).withWatermark("later", "1 hour")
    pair = left.join(right, "k", "inner", within="1 hour", name="pair")
    both = pair.union(left.map(alone, PAIR, name="alone", pure=True))
    place.start(both.map_batches(same, PAIR, name="last", pure=True))
    at = "2026-11-30 10:00:00"
    place.write([{"k": "a", "n": n, "at": at} for n in range(3)], partitions=1)
    place.until(lambda: len(place.rows()) == 3, "the rows without a partner")
    place.await_commit()
    place.write([{"k": "a", "m": 7, "later": at}], "other", 1)
    place.until(lambda: len(place.rows()) == 6, "those with one")
    place.await_commit()
    place.stop()
    asked = Asked(place, capsys)
    said = json.loads(asked("--json"))
    pairs = [one for one in documents(said) if one["operator"] == "pair"]
    assert [one["row"]["n"] for one in pairs] == [one["row"]["n"] for one in said["inputs"]]
    for one in pairs:
        kept = [each["row"]["n"] for each in one["inputs"] if each.get("kept")]
        assert kept == [one["row"]["n"]], "each row has its own partner"
    whole = [one for one in pairs if "asked" in one]
    assert len(whole) == 1 and len(pairs) == 3
    assert [one.get("explained_above") for one in pairs] == [None, whole[0]["id"], whole[0]["id"]]
    assert asked().count(f"      called   with row {whole[0]['id']}, as above") == 2
