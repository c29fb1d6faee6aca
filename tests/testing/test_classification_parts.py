"""The parts of a classification by themselves: schedules, generated rows, observations, shrinking, staged answers."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import Pipe
from pathlib import Path
from random import Random
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from clonos.errors import ConfigurationError, QueryDefinitionError
from clonos.operators.types import arrow_schema
from clonos.protocol.recovery.dependence import Sensitivity
from clonos.testing.classification import schedule
from clonos.testing.classification.generated_rows import generated
from clonos.testing.classification.observation import Observation, OutputRow, difference, what_differs
from clonos.testing.classification.requests import Load, Play
from clonos.testing.classification.script import Script
from clonos.testing.classification.shrink import fewest
from clonos.testing.classification.staged_services import Stage
from clonos.testing.classification.trials import MOST, Trials
from clonos.testing.classification.worker import Worker
from clonos.testing.driver.operator_driver import OperatorDriver
from clonos.testing.driver.streams import stream
from clonos.values.canonical_text import canonical

CHANNELS = st.lists(st.integers(0, 3), min_size=1, max_size=12)
SEEDS = st.integers(0, 2**32)


# --------------------------------------------------------------- schedules


@given(CHANNELS, SEEDS, st.sampled_from([schedule.interleaving, schedule.one_after_the_other]))
def test_an_order_keeps_that_of_each_channel(channels: list[int], seed: int, drawn: Any) -> None:
    order = drawn(channels, Random(seed))
    assert sorted(order) == list(range(len(channels)))
    for channel in channels:
        of_it = [number for number in order if channels[number] == channel]
        assert of_it == sorted(of_it)


@given(CHANNELS, SEEDS)
def test_channels_one_after_the_other_are_not_mixed(channels: list[int], seed: int) -> None:
    order = [channels[number] for number in schedule.one_after_the_other(channels, Random(seed))]
    changes = sum(before != after for before, after in itertools.pairwise(order))
    assert changes == len(set(channels)) - 1


def test_every_interleaving_comes() -> None:
    drawn = {schedule.interleaving([0, 0, 1, 1], Random(seed)) for seed in range(200)}
    assert len(drawn) == 6


@given(CHANNELS, SEEDS, st.data())
def test_bundles_have_the_order_and_lose_only_what_is_left_out(
    channels: list[int], seed: int, data: st.DataObject
) -> None:
    order = schedule.interleaving(channels, Random(seed))
    kept = data.draw(st.sets(st.sampled_from(order)))
    for bundles in (schedule.one_by_one(order), schedule.together(order), schedule.cut(order, Random(seed))):
        assert [number for bundle in bundles for number in bundle] == list(order)
        left = schedule.only(bundles, sorted(kept))
        assert [number for bundle in left for number in bundle] == [n for n in order if n in kept]
        assert all(left)


# ---------------------------------------------------------------- shrinking


@given(st.sets(st.integers(0, 11), min_size=1, max_size=4))
def test_the_fewest_are_those_that_are_needed(needed: set[int]) -> None:
    assert fewest(range(12), lambda kept: needed <= set(kept)) == sorted(needed)


@given(st.integers(1, 12))
def test_no_record_can_be_left_out_of_the_fewest(count: int) -> None:
    def shows(kept: Sequence[int]) -> bool:
        return len(kept) >= count

    assert len(fewest(range(12), shows)) == count


def test_tries_are_bounded_and_what_is_left_still_shows_it() -> None:
    tried = []

    def shows(kept: Sequence[int]) -> bool:
        tried.append(list(kept))
        return len(kept) > 3

    kept = fewest(range(1000), shows, tries=7)
    assert len(tried) == 7 and shows(kept)


# ---------------------------------------------------------- generated rows

EVERY_TYPE = (
    "k string, a boolean, b tinyint, c smallint, d int, e long, f float, g double, h binary, i date, j timestamp, "
    "l timestamp_ntz, m decimal(9,2), n array<int>, o map<string,int>, p struct<x: int, y: array<string>>"
)


def test_an_operator_takes_generated_rows_of_every_type() -> None:
    schema = arrow_schema(EVERY_TYPE)
    rows = generated(schema, [0], 50, Random(5))
    seen = []
    operator = stream(EVERY_TYPE).map(lambda row, ctx: seen.append(row) or ("x",), "x string", name="look")
    with OperatorDriver(operator) as driver:
        assert len(driver.feed(rows)) == 50
    assert all(value is not None for row in seen for value in row)
    assert 1 <= len({row[0] for row in rows}) <= 3
    assert rows == generated(schema, [0], 50, Random(5)) != generated(schema, [0], 50, Random(6))


def test_a_type_without_generated_values_is_told_and_rows_of_that_type_are_taken() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.null())])
    with pytest.raises(QueryDefinitionError, match=r"'v' has\. Give rows of your own"):
        generated(schema, [0], 2, Random(0))
    assert Trials(schema, [0], [("a", None)], None).draw(Random(0)).rows == (("a", None),)


# ------------------------------------------------------------------ trials

ROWS = [(f"k{number % 5}", number) for number in range(100)]
SCHEMA = arrow_schema("k string, v long")


def test_of_given_rows_some_that_follow_one_another_are_taken() -> None:
    trials, choices, keys = Trials(SCHEMA, [0], ROWS, None), Random(1), set()
    for _ in range(100):
        trial = trials.draw(choices)
        assert 2 <= len(trial.rows) <= MOST and list(trial.rows) == sorted(trial.rows, key=lambda row: row[1])
        assert len(trial.channels) == len(trial.rows)
        keys.add(len({row[0] for row in trial.rows}))
    assert {1, 2, 5} <= keys  # rows of a few keys, and of all


def test_a_column_says_the_channel() -> None:
    trials, choices = Trials(SCHEMA, [0], None, "k"), Random(1)
    for _ in range(20):
        trial = trials.draw(choices)
        assert len({(row[0], channel) for row, channel in zip(trial.rows, trial.channels)}) == len(
            set(trial.channels)
        )


def test_what_trials_cannot_be_drawn_from() -> None:
    with pytest.raises(ConfigurationError, match="There are k, v"):
        Trials(SCHEMA, [0], None, "card")
    with pytest.raises(ConfigurationError, match="no rows are given"):
        Trials(SCHEMA, [0], [], None)


# ------------------------------------------------------------ observations


def seen(*rows: tuple[str, int], states: dict[str, str] | None = None, raised: str = "") -> Observation:
    return Observation(tuple([OutputRow(key, f"{key}{n}") for key, n in rows]), states or {}, {}, raised)


@pytest.mark.parametrize(
    ("one", "other", "found", "words"),
    [
        (seen(("a", 1)), seen(("a", 1)), Sensitivity.INSENSITIVE, ""),
        (seen(("a", 1), ("a", 2)), seen(("a", 2), ("a", 1)), Sensitivity.INSENSITIVE, ""),
        (
            seen(("a", 1), ("a", 3)),
            seen(("a", 2), ("a", 3)),
            Sensitivity.CONVERGENT,
            "the rows of key a: a1, a3 | a2, a3",
        ),
        (seen(("a", 1)), seen(("a", 1), ("a", 1)), Sensitivity.CONVERGENT, "the rows of key a: a1 | a1, a1"),
        (seen(("a", 3)), seen(("a", 2)), Sensitivity.DIVERGENT, "the last row of key a: a3 | a2"),
        (seen(("a", 3)), seen(), Sensitivity.DIVERGENT, "the last row of key a: a3 | none"),
        (
            seen(states={"a": "1", "b": "2"}),
            seen(states={"a": "1", "b": "3"}),
            Sensitivity.DIVERGENT,
            "the state of key b: 2 | 3",
        ),
        (seen(raised="no"), seen(), Sensitivity.DIVERGENT, "what is raised: no | nothing"),
        (seen(("a", 1), raised="no"), seen(raised="nor here"), Sensitivity.INSENSITIVE, ""),
    ],
)
def test_how_much_two_runs_differ(
    one: Observation, other: Observation, found: Sensitivity, words: str
) -> None:
    assert difference(one, other) is difference(other, one) is found
    assert what_differs(one, other) == words and bool(what_differs(other, one)) == bool(words)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.text(max_size=3), inside, max_size=3)
        | st.lists(inside, max_size=3).map(tuple)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), VALUES), SEEDS)
def test_canonical_text_does_not_tell_the_order_of_items(value: dict[str, Any], seed: int) -> None:
    items = list(value.items())
    Random(seed).shuffle(items)
    assert canonical(value) == canonical(dict(items))
    assert eval(canonical(value)) == value


@given(VALUES, VALUES)
def test_canonical_text_tells_values_apart(one: Any, other: Any) -> None:
    if canonical(one) == canonical(other):
        assert one == other and type(one) is type(other)


def test_canonical_text_of_sets() -> None:
    assert canonical({"b", "a"}) == "{'a', 'b'}"
    assert canonical(frozenset({2, 1})) == "frozenset({1, 2})"
    assert canonical(set()) == "set()" and canonical({}) == "{}"
    assert canonical(()) == "()" and canonical((1,)) == "(1,)"


# ------------------------------------------------------------------- stage


def test_a_question_gets_the_same_answer_in_every_run_of_a_trial() -> None:
    stage, numbers = Stage(performs_effects=False), iter(range(100))

    def ask(question: str) -> int:
        return int(stage.answer((question, "", ""), lambda: next(numbers)))

    stage.begin_run("one")
    assert [ask("rate"), ask("rate"), ask("other")] == [0, 1, 2]
    stage.begin_run("one")
    assert [ask("other"), ask("rate"), ask("rate"), ask("rate")] == [2, 0, 1, 3]
    stage.begin_run("two")
    assert ask("rate") == 4


def test_an_exception_is_an_answer() -> None:
    stage = Stage(performs_effects=False)
    errors = iter([ValueError("first"), ValueError("second")])

    def ask() -> None:
        raise next(errors)

    for _ in range(2):
        stage.begin_run("one")
        with pytest.raises(ValueError, match="first"):
            stage.answer(("rate", "", ""), ask)


# ------------------------------------------------------------------ worker


def test_a_process_whose_parent_is_gone_ends_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "drivers"
    folder.mkdir()
    ours, theirs = Pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "clonos.testing.classification.worker", str(theirs.fileno()), str(folder)],
        pass_fds=[theirs.fileno()],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    theirs.close()
    ours.close()
    assert process.wait(timeout=240) == 0
    assert not folder.exists()


def test_a_disk_that_fails_is_told_as_such(tmp_path: Path) -> None:
    """Of a module that cannot be imported `test_a_module_that_only_this_process_can_import` tells."""
    operator = stream("k string").filter(lambda row, ctx: True, name="all")
    worker = Worker(tmp_path / "removed")
    assert worker.answer(Load(cloudpickle.dumps(operator), ("k",), False)).error is None
    answer = worker.answer(Play(Script(((("a",),),), 0)))
    assert isinstance(answer.error, ConfigurationError)
    assert "the operator could not be played: FileNotFoundError" in str(answer.error)
