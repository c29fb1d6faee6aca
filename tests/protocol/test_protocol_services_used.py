"""Which services a log says that a function has used."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from clonos.protocol.ids import LOG_BEGIN
from clonos.protocol.recovery.causal.determinant import Answer, CallNumber, Effect, Kind, Outcome, Step
from clonos.protocol.recovery.causal.services_used import services_used
from clonos.protocol.recovery.dependence import Service


def step(**outcomes: Any) -> Step:
    return Step(Kind.ORDER, LOG_BEGIN, **{name: deque([value]) for name, value in outcomes.items()})


@pytest.mark.parametrize(
    ("outcomes", "used"),
    [
        ({}, set()),
        ({"clocks": 5}, {Service.CLOCK}),
        ({"instants": 5}, {Service.CLOCK}),
        ({"calls": Outcome("rate", True, b"")}, {Service.CALL}),
        ({"answers": Answer(CallNumber(0), Outcome("rate", True, b""))}, {Service.CALL}),
        ({"effects": Effect("pay-1")}, {Service.EFFECT}),
    ],
)
def test_by_outcome(outcomes: dict[str, Any], used: set[Service]) -> None:
    assert services_used([step(), step(**outcomes)]) == used
