"""A recovery whose deadline has passed: the query says what it has waited for."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from modes import mostly
from streams import DEADLINE, Place

from clonos.errors import RecoveryTimeout
from clonos.spark.coordinator import Coordinator

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"


def same(key: Any, row: Any, ctx: Any) -> Any:
    yield tuple(row)


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_the_holder_that_has_not_answered_is_named(
    place: Place, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not that no replica was ready, which is what the conduit sees of it."""
    over = threading.Event()
    real = Coordinator._lookup

    def lookup(self: Coordinator, *asked: int) -> Any:
        over.wait()
        return real(self, *asked)

    monkeypatch.setattr(Coordinator, "_lookup", lookup)
    place.spark.conf.set("spark.clonos.recovery.deadline", "3s")
    place.spark.conf.set("spark.clonos.restart.limit", "0")
    try:
        place.write([{"k": "a", "n": 0}])
        place.start(place.causal(SCHEMA).groupBy("k").process(same, SCHEMA, name="same"), mode)
        with pytest.raises(
            RecoveryTimeout, match=r"no answer about the log of 2/\d within 3 s from 127\.0\.0\.1"
        ):
            assert place.query.awaitTermination(DEADLINE), "it still waits"
    finally:
        over.set()
