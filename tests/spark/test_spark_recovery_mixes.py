"""What does not go together in one query is refused when it starts, and what the message advises works."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from streams import Place

import clonos
from clonos.errors import QueryDefinitionError

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
DRAWN = "k string, n long, drawn double"
TOTAL = "k string, n long, total long"


def draw(key: Any, row: Any, ctx: Any) -> Any:
    yield row.k, row.n, ctx.random.random()


@clonos.claim("hidden")
def hide(key: Any, row: Any, ctx: Any) -> Any:
    """A replay would say something else."""
    yield row.k, row.n, random.random()


def total(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["total"] = ctx.state.get("total", 0) + row.n
    yield (*row, ctx.state["total"])


def totals(place: Place, **how: Any) -> Any:
    return place.causal(SCHEMA).groupBy("k").process(total, TOTAL, name="total", **how)


@pytest.mark.parametrize(
    ("conf", "hidden", "why"),
    [
        (
            {},
            {"recovery": "uncoordinated"},
            "'hide' has recovery='uncoordinated'.*eager and event_log ones, and beside them causal .*Set .* to unc",
        ),
        (
            {},
            {"recovery": "batch"},
            "'hide' has recovery='batch'.*eager and event_log ones, and beside them causal ones.*Set .* or batch,",
        ),
        ({"recovery": "coordinated"}, {"recovery": "causal"}, "'hide' has recovery='causal'.*coordinated"),
        (
            {"onGap": "at_least_once"},
            {},
            "is about determinants that are gone: what .* have kept.*begin anew",
        ),
        ({}, {"standby": "hot"}, "'hide' has a standby.*Leave standby out"),
    ],
)
def test_what_does_not_go_together_is_refused(
    place: Place, conf: dict[str, str], hidden: dict[str, str], why: str
) -> None:
    for name, value in conf.items():
        place.spark.conf.set(f"spark.clonos.{name}", value)
    drawn = place.causal(SCHEMA).groupBy("k").process(draw, DRAWN, name="draw", standby="hot")
    seen = drawn.groupBy("k").process(hide, DRAWN, name="hide", **{"recovery": "eager", **hidden})
    with pytest.raises(QueryDefinitionError, match=why):
        place.start(seen.select("k", "n").groupBy("k").process(total, TOTAL, name="total"), "realtime")


def test_neighbours_that_do_not_go_together_are_named(place: Place) -> None:
    place.spark.conf.set("spark.clonos.recovery", "eager")

    def kept(recovery: str) -> Any:
        drawn = place.causal(SCHEMA).groupBy("k").process(draw, DRAWN, name="draw", recovery=recovery)
        return drawn.filter(lambda row, ctx: True, name="kept", recovery="uncoordinated")

    with pytest.raises(
        QueryDefinitionError,
        match=r"'draw' has recovery='causal', and operator 'kept' has 'unc.*what the other",
    ):
        place.start(kept("causal"), "realtime")
    place.spark.conf.set("spark.clonos.recovery.interval", "100ms")
    place.write([{"k": "a", "n": 1}])
    place.start(kept("uncoordinated"), "realtime")  # as the hint says
    place.await_rows(1)


@pytest.mark.parametrize(
    ("recovery", "own", "instead"),
    [
        ("coordinated", "uncoordinated", "uncoordinated, eager, event_log or batch"),
        ("coordinated", "unaligned", "unaligned, eager or event_log"),
        ("coordinated", "batch", "uncoordinated, communication_induced, eager, event_log or batch"),
        ("coordinated", "causal", "causal, eager or event_log"),
        ("communication_induced", "uncoordinated", "uncoordinated, eager, event_log or batch"),
        ("communication_induced", "coordinated", "coordinated, eager or event_log"),
        ("causal", "communication_induced", "communication_induced, eager, event_log or batch"),
    ],
)
def test_recoveries_that_leave_something_else_in_a_checkpoint_do_not_go_together(
    place: Place, recovery: str, own: str, instead: str
) -> None:
    place.spark.conf.set("spark.clonos.recovery", recovery)
    with pytest.raises(
        QueryDefinitionError,
        match=rf"'total' has recovery='{own}'.*Set spark.clonos.recovery to {instead}, or leave",
    ):
        place.start(totals(place, recovery=own), "realtime")
    choices = re.split(", | or ", instead)
    place.spark.conf.set("spark.clonos.recovery", choices[-2])  # as the hint says
    place.spark.conf.set("spark.clonos.recovery.interval", "100ms")
    place.write([{"k": "a", "n": 1}])
    place.start(totals(place, recovery=own), "realtime")
    place.await_rows(1)


def test_two_operators_that_go_with_that_of_the_query_go_with_each_other(place: Place) -> None:
    place.spark.conf.set("spark.clonos.recovery", "eager")
    place.spark.conf.set("spark.clonos.recovery.interval", "100ms")

    def made(first: str, second: str) -> Any:
        before = place.causal(SCHEMA).groupBy("k").process(total, TOTAL, name="first", recovery=first)
        return before.select("k", "n").groupBy("k").process(total, TOTAL, name="second", recovery=second)

    says = r"'first' has recovery='coordinated', and operator 'second' has 'uncoordinated'.*either what the other"
    with pytest.raises(QueryDefinitionError, match=says):
        place.start(made("coordinated", "uncoordinated"), "realtime")
    place.write([{"k": "a", "n": 1}])
    place.start(made("coordinated", "coordinated"), "realtime")  # as the hint says
    place.await_rows(1)


def test_a_recovery_that_there_is_not_is_refused(place: Place) -> None:
    with pytest.raises(
        QueryDefinitionError, match=r"'total' has recovery='luck'.*Say one of causal, coordinated"
    ):
        totals(place, recovery="luck")
