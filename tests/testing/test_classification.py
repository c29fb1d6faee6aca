"""Functions of every class are classified right, whatever the seed, and what shows it is as small as it can be."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import classified_functions as functions
import pytest
from classified_functions import DOUBLES, LONGS, keyed

import clonos
from clonos.api.streams import CausalStream
from clonos.errors import ConfigurationError, QueryDefinitionError, UserFunctionError
from clonos.protocol.recovery.dependence import Determinism, Sensitivity, Service
from clonos.protocol.recovery.sufficient import Recovery, Visibility
from clonos.testing.classification import Classification, Laboratory, Requirement, classify
from clonos.testing.classification.laboratory import Place
from clonos.testing.driver import stream

RUNS = 12
DETERMINISTIC, RECORDED, HIDDEN = Determinism
INSENSITIVE, CONVERGENT, DIVERGENT = Sensitivity


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    with Laboratory() as started:
        yield started


@dataclass(frozen=True)
class Known:
    """What is known of an operator."""

    operator: Callable[[], CausalStream]
    determinism: Determinism = DETERMINISTIC
    order: Sensitivity | None = INSENSITIVE
    bundles: Sensitivity | None = INSENSITIVE
    services: frozenset[Service] = frozenset()
    place: Place | None = None
    runs: int = RUNS


def hidden(operator: Callable[[], CausalStream], place: Place) -> Known:
    return Known(operator, HIDDEN, None, None, place=place)


KNOWN = {
    "running_sum": Known(lambda: keyed(functions.running_sum), order=CONVERGENT),
    "running_max": Known(lambda: keyed(functions.running_max), order=CONVERGENT),
    "count": Known(lambda: keyed(functions.count)),
    "last_writer": Known(lambda: keyed(functions.last_writer), order=DIVERGENT),
    # Three doubles or more whose sum is not the same in every order: not one run in four has them.
    "float_sum": Known(lambda: keyed(functions.float_sum, DOUBLES), order=DIVERGENT, runs=50),
    "dedupe": Known(lambda: keyed(functions.dedupe)),
    "enrich": Known(lambda: LONGS.map(functions.enrich, functions.OUTPUT, name="enrich")),
    "stamp": Known(lambda: keyed(functions.stamp), RECORDED, services=frozenset({Service.CLOCK})),
    "draw": Known(lambda: keyed(functions.draw), RECORDED, DIVERGENT, services=frozenset({Service.RANDOM})),
    "ask": Known(lambda: keyed(functions.ask), RECORDED, DIVERGENT, services=frozenset({Service.CALL})),
    "tell": Known(lambda: keyed(functions.tell), RECORDED, services=frozenset({Service.EFFECT})),
    "remind": Known(
        lambda: keyed(functions.remind, on_timer=functions.reminded),
        RECORDED,
        services=frozenset({Service.CLOCK, Service.TIMER}),
    ),
    "wall_clock": hidden(lambda: keyed(functions.wall_clock), Place.SAME_PROCESS),
    "wall_clock_in_state": hidden(lambda: keyed(functions.wall_clock_in_state), Place.SAME_PROCESS),
    "global_counter": hidden(lambda: keyed(functions.global_counter), Place.SAME_PROCESS),
    "global_cache": hidden(lambda: keyed(functions.global_cache), Place.OTHER_PROCESS),
    "first_of_set": Known(lambda: keyed(functions.first_of_set), HIDDEN, place=Place.OTHER_HASH_SEED),
    "bundle_size": Known(lambda: LONGS.mapInArrow(functions.bundle_size, "n long"), bundles=DIVERGENT),
    "pandas_sum": Known(functions.pandas_sums, order=CONVERGENT, bundles=CONVERGENT),
    "pandas_sum_per_batch": Known(lambda: functions.pandas_sums("batch")),
}


@pytest.mark.parametrize(
    "seed", [0, 1, *[pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12)]]
)
@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_is_found(laboratory: Laboratory, name: str, seed: int) -> None:
    known = KNOWN[name]
    found = classify(known.operator(), runs=known.runs, seed=seed, laboratory=laboratory)
    assert found.determinism is known.determinism, found.examples
    assert (found.order, found.bundles) == (known.order, known.bundles), found.examples
    assert found.services == known.services
    assert (found.replay_example.place if found.replay_example else None) is known.place


@pytest.mark.parametrize(
    "name", [name for name, known in KNOWN.items() if known.order in (CONVERGENT, DIVERGENT)]
)
def test_two_records_show_what_depends_on_their_order(laboratory: Laboratory, name: str) -> None:
    example = classified(laboratory, name).order_example
    assert example is not None and example.second is not None
    assert example.records == (3 if name == "float_sum" else 2)  # a sum of two is the same in both orders
    records = [
        [record for bundle in side.bundles for record in bundle] for side in (example.first, example.second)
    ]
    assert records[0] != records[1] and sorted(records[0]) == sorted(records[1])
    assert example.what


def test_two_records_show_what_depends_on_bundles(laboratory: Laboratory) -> None:
    example = classified(laboratory, "bundle_size").bundles_example
    assert example is not None and example.second is not None and example.records == 2
    assert [len(bundle) for bundle in example.first.bundles] == [1, 1]
    assert [len(bundle) for bundle in example.second.bundles] == [2]
    assert (example.first.rows, example.second.rows) == (("Row(n=1)", "Row(n=1)"), ("Row(n=2)",))


@pytest.mark.parametrize("name", [name for name, known in KNOWN.items() if known.determinism is HIDDEN])
def test_one_record_shows_what_is_hidden(laboratory: Laboratory, name: str) -> None:
    example = classified(laboratory, name).replay_example
    assert example is not None and example.records == 1 and "the replay" in example.what


def classified(laboratory: Laboratory, name: str) -> Classification:
    return classify(KNOWN[name].operator(), runs=KNOWN[name].runs, laboratory=laboratory)


SPARK, BATCH, CAUSAL = Recovery.EPOCH_AGAIN, Recovery.BATCH, Recovery.CAUSAL


@pytest.mark.parametrize(
    ("name", "requirements", "with_epoch", "at_once"),
    [
        ("dedupe", {"deterministic", "recorded", "order_insensitive", "convergent"}, SPARK, SPARK),
        ("running_max", {"deterministic", "recorded", "convergent"}, SPARK, CAUSAL),
        ("last_writer", {"deterministic", "recorded"}, BATCH, CAUSAL),
        ("stamp", {"recorded", "order_insensitive", "convergent"}, BATCH, CAUSAL),
        ("wall_clock", set[str](), BATCH, Recovery.EAGER),
    ],
)
def test_what_each_class_meets_and_needs(
    laboratory: Laboratory,
    name: str,
    requirements: set[str],
    with_epoch: Recovery | None,
    at_once: Recovery | None,
) -> None:
    found = classified(laboratory, name)
    assert {requirement.value for requirement in Requirement if found.meets(requirement)} == requirements
    assert found.recovery(Visibility.WITH_EPOCH) is with_epoch
    assert found.recovery(Visibility.AT_ONCE) is at_once


def test_rows_of_one_channel_keep_their_order(laboratory: Laboratory) -> None:
    """Of a topic that is partitioned by the key, the last record of a key is the same in every order."""
    operator = keyed(functions.last_writer)
    assert classify(operator, runs=RUNS, channel="k", laboratory=laboratory).order is INSENSITIVE


def test_given_rows_are_taken(laboratory: Laboratory) -> None:
    """By position or by name. Rows that are all alike show nothing."""
    operator = keyed(functions.last_writer)
    alike = [("a", 5), {"v": 5, "k": "a"}] * 3
    assert classify(operator, alike, runs=RUNS, laboratory=laboratory).order is INSENSITIVE
    assert classify(operator, [*alike, ("a", 6)], runs=RUNS, laboratory=laboratory).order is DIVERGENT
    with pytest.raises(ConfigurationError, match=r"has no 'v'\. A null is None"):
        classify(operator, [{"k": "a"}], laboratory=laboratory)
    nothing = keyed(lambda key, row, ctx: None)
    assert classify(nothing, [{"k": "a", "v": None}], runs=1, laboratory=laboratory).order is INSENSITIVE


def test_the_same_seed_finds_the_same(laboratory: Laboratory) -> None:
    said = [
        classify(keyed(functions.running_sum), runs=4, seed=seed, laboratory=laboratory).as_json()
        for seed in (3, 3, 4)
    ]
    assert said[0] == said[1] and said[0]["examples"] != said[2]["examples"]


# ----------------------------------------------------------- what goes wrong


def picky(key: Any, row: Any, ctx: Any) -> None:
    if row.v != 5:
        raise ValueError(f"unexpected {row.v}")


def sometimes(key: Any, row: Any, ctx: Any) -> None:
    if row.v == 9:
        raise ValueError("nine")


def ends_its_process(key: Any, row: Any, ctx: Any) -> None:
    os._exit(3)


def hangs(key: Any, row: Any, ctx: Any) -> None:
    threading.Event().wait()


def test_a_function_that_raises_is_told_and_rows_that_it_takes_help(laboratory: Laboratory) -> None:
    operator = keyed(picky)
    with pytest.raises(UserFunctionError, match=r"raised in all 3 runs; .*unexpected"):
        classify(operator, runs=3, laboratory=laboratory)
    assert classify(operator, [("a", 5)] * 3, runs=3, laboratory=laboratory).determinism is DETERMINISTIC


def test_runs_that_raise_are_counted_and_the_others_examined(laboratory: Laboratory) -> None:
    found = classify(keyed(sometimes), runs=30, laboratory=laboratory)
    assert 0 < len(found.raised) < 30 and "nine" in found.raised[0]
    assert found.determinism is DETERMINISTIC and found.order is INSENSITIVE


def test_a_record_that_raises_in_one_order_alone_is_a_difference(laboratory: Laboratory) -> None:
    def rising(key: Any, row: Any, ctx: Any) -> None:
        if row.v < ctx.state.get("v", row.v):
            raise ValueError("it fell")
        ctx.state["v"] = row.v

    found = classify(keyed(rising), runs=RUNS, laboratory=laboratory)
    assert found.order is DIVERGENT and found.order_example is not None
    assert found.order_example.records == 2 and "what is raised: " in found.order_example.what
    assert "it fell" in found.order_example.what and "nothing" in found.order_example.what


def test_a_function_that_ends_its_process_or_hangs_leaves_the_laboratory_usable() -> None:
    with Laboratory(deadline_s=10) as patient:
        with pytest.raises(UserFunctionError, match="has ended, with exit code 3"):
            classify(keyed(ends_its_process), runs=1, laboratory=patient)
        with pytest.raises(UserFunctionError, match="did not come back within 10 s"):
            classify(keyed(hangs), runs=1, laboratory=patient)
        assert classify(keyed(functions.count), runs=1, laboratory=patient).order is INSENSITIVE


def test_an_error_leaves_the_laboratory_usable(laboratory: Laboratory) -> None:
    with pytest.raises(UserFunctionError):
        classify(keyed(picky), runs=1, laboratory=laboratory)
    assert classify(keyed(functions.count), runs=1, laboratory=laboratory).order is INSENSITIVE


def test_a_module_that_only_this_process_can_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, laboratory: Laboratory
) -> None:
    (tmp_path / "far_away.py").write_text("def fn(key, row, ctx):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("far_away")
    with pytest.raises(ConfigurationError, match=r"cannot be played in another process: .*far_away"):
        classify(keyed(module.fn), runs=1, laboratory=laboratory)  # its processes were started before
    assert classify(keyed(module.fn), runs=1).determinism is DETERMINISTIC


def test_operators_that_cannot_be_classified(laboratory: Laboratory) -> None:
    with pytest.raises(QueryDefinitionError, match="one operator"):
        classify(LONGS, laboratory=laboratory)
    two = clonos.connect(LONGS, DOUBLES).groupBy("k")
    with pytest.raises(QueryDefinitionError, match="has two inputs"):
        classify(
            two.process(
                left=functions.last_writer, right=functions.float_sum, output="k string", name="both"
            ),
            laboratory=laboratory,
        )
    lock = threading.Lock()
    with pytest.raises(QueryDefinitionError, match="cannot be pickled"):
        classify(keyed(lambda key, row, ctx: lock and None), laboratory=laboratory)
    with pytest.raises(ConfigurationError, match="0 runs"):
        classify(keyed(functions.count), runs=0, laboratory=laboratory)


def test_effects_are_carried_out_where_that_is_asked_for(laboratory: Laboratory, tmp_path: Path) -> None:
    told = tmp_path / "told"

    def tell(key: Any, row: Any, ctx: Any) -> None:
        ctx.effect(told.touch, key="touch")

    classify(keyed(tell), runs=1, laboratory=laboratory)
    assert not told.exists()
    classify(keyed(tell), runs=1, performs_effects=True, laboratory=laboratory)
    assert told.exists()


def test_windows_depend_on_the_order_in_which_event_time_comes(laboratory: Laboratory) -> None:
    """A late row is dropped, or not, as rows of the other channel have come before it, or not."""
    rows = stream("k string, at timestamp").withWatermark("at", "1 second")
    operator = (
        rows.groupBy("k")
        .window("1 minute")
        .process(lambda key, window, rows, ctx: [(key[0], len(rows))], "k string, n long", name="windows")
    )
    found = classify(operator, runs=RUNS, laboratory=laboratory)
    assert found.determinism is DETERMINISTIC and found.order is DIVERGENT
    assert found.services == {Service.EVENT_TIMER}


def rarely_hidden(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    yield key[0], time.time_ns() if row.v == 1_000_000 else 0


def test_what_no_record_shows_is_not_found(laboratory: Laboratory) -> None:
    operator = keyed(rarely_hidden)
    assert classify(operator, runs=RUNS, laboratory=laboratory).determinism is DETERMINISTIC
    shown = [("a", 1), ("a", 1_000_000)]
    assert classify(operator, shown, runs=RUNS, laboratory=laboratory).determinism is HIDDEN


def test_without_columns_of_the_key_the_last_row_of_all_counts(laboratory: Laboratory) -> None:
    def highest(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["v"] = max(ctx.state.get("v", row.v), row.v)
        yield (ctx.state["v"],)

    rows = LONGS.groupBy("k").process(highest, "n long", name="highest")
    two_keys = [("a", 1), ("a", 2), ("b", 5), ("b", 6)]
    found = classify(rows, two_keys, runs=RUNS, channel="v", laboratory=laboratory)
    assert found.order is DIVERGENT and found.order_example is not None
    assert found.order_example.what.startswith("the last row of key (): ")
    assert (
        classify(keyed(functions.running_max), two_keys, runs=RUNS, laboratory=laboratory).order is CONVERGENT
    )


def test_timers_that_are_due_later_are_compared_and_do_not_fire(laboratory: Laboratory) -> None:
    def remind_at(key: Any, row: Any, ctx: Any) -> None:
        ctx.timer(24 * 3600 + row.v % 2, name="last" if ctx.state else "first")
        ctx.state["seen"] = True

    found = classify(
        keyed(remind_at, on_timer=functions.reminded), [("a", 1), ("a", 2)], runs=RUNS, laboratory=laboratory
    )
    assert found.order is DIVERGENT and found.order_example is not None
    assert found.order_example.what.startswith("the timers of key 'a': ")
    assert found.order_example.first.rows == ()


def test_async_functions_and_side_outputs_are_taken(laboratory: Laboratory) -> None:
    async def ask(key: Any, row: Any, ctx: Any) -> Any:
        answer = await ctx.call(str, row.v)
        ctx.side_output("told", (key[0], answer))

    operator = keyed(ask, side_outputs={"told": "k string, answer string"})
    found = classify(operator, runs=4, laboratory=laboratory)
    assert found.services == {Service.CALL} and found.order is INSENSITIVE
    assert found.meets(Requirement.RECORDED) and not found.raised
