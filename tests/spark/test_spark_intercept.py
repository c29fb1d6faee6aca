"""Interception on real Spark: functions as they are pickled, replicas that die, and the setting over a checkpoint."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import datetime
from random import randint, random
from typing import Any
from uuid import uuid4

import pytest
from numpy.random import normal
from streams import Place

from clonos.errors import CheckpointMismatch, ConfigurationError
from clonos.spark.checkpoint import Checkpoint

pytestmark = pytest.mark.spark

INTERCEPT = "spark.clonos.intercept"
SCHEMA = "k string, n long"
SAID = "k string, n long, said string"


def asking() -> Any:
    """A function that is pickled by value: the names that its module has bound go with it."""

    def ask(key: Any, row: Any, ctx: Any, now: Any = datetime.now, clock: Any = time.time) -> Iterator[Any]:
        said = [random(), randint(1, 10**9), normal(), str(uuid4()), str(now()), clock()]
        ctx.state["said"] = [*ctx.state.get("said", []), *said]
        yield key[0], row.n, repr(ctx.state["said"])

    return ask


def stream(place: Place) -> Any:
    return place.causal(SCHEMA).groupBy("k").process(asking(), SAID, name="ask", parallelism=1)


def fed(place: Place, upto: int) -> list[dict[str, Any]]:
    """Two more rows, in all so many."""
    place.write([{"k": "a", "n": upto - 1}, {"k": "a", "n": upto}])
    return place.await_rows(upto)


def assert_one_history(rows: list[dict[str, Any]]) -> None:
    """Each row says what the one before it said, and more: nothing was said otherwise in between."""
    said = sorted((eval(row["said"]) for row in rows), key=len)
    assert [len(each) for each in said] == [6 * (number + 1) for number in range(len(rows))]
    assert all(longer[: len(each)] == each for each, longer in itertools.pairwise(said))
    assert len(set(said[-1])) == len(said[-1])


@pytest.mark.parametrize("mode", ["microbatch", "realtime"])
def test_functions_that_are_pickled_by_value_are_repeated(place: Place, mode: str) -> None:
    place.spark.conf.set(INTERCEPT, "true")
    place.start(stream(place), mode, **{"clonos.faults": ""})
    fed(place, 2)
    for count in (4, 6, 8):
        place.kill()
        rows = fed(place, count)
    assert not place.query.restarts
    assert_one_history(rows)


def test_interception_is_switched_when_an_epoch_is_over(place: Place) -> None:
    place.spark.conf.set(INTERCEPT, "true")
    place.query = place.writer(stream(place)).trigger(realTime="10 minutes").start()
    fed(place, 2)
    place.stop()  # in the middle of the epoch
    place.spark.conf.set(INTERCEPT, "false")
    with pytest.raises(CheckpointMismatch, match=r"only when that epoch is over.*availableNow") as refused:
        place.start(stream(place))
    assert "spark.clonos.intercept of the session was 'true' and is '' now" in str(refused.value)
    place.spark.conf.set(INTERCEPT, "true")
    assert place.writer(stream(place)).trigger(availableNow=True).start().awaitTermination(60)
    place.spark.conf.set(INTERCEPT, "false")
    place.start(stream(place))
    fed(place, 4)
    history = Checkpoint(str(place.checkpoint)).history()
    assert [INTERCEPT in (one.program.settings or {}) for one in history.bindings] == [True, False]


def test_it_is_on_or_off(place: Place) -> None:
    place.spark.conf.set(INTERCEPT, "sometimes")
    with pytest.raises(ConfigurationError, match="must be true or false"):
        place.start(stream(place))
