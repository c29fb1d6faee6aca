"""From topic to topic over a real broker, exact through every kind of kill, for a reader of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chaos import PAUSE, striking
from kafka_broker import KafkaBroker
from kafka_job import KafkaRun
from ledger_job import LATER, SOON, assert_exact, await_, await_end, fault, run, running
from modes import MODES, in_soak, in_turns, mostly

from clonos.testing.faults import Fault, Point, Strike, script

CHAOS_SECONDS, CHAOS_RECORDS = 120.0, 8_000

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


P, REPLICA, TASK = Point, Strike.REPLICA, Strike.TASK
SCRIPTS = [
    (fault(P.BEFORE_COMMIT, REPLICA, "sink", SOON, 30),),
    (fault(P.AFTER_COMMIT, REPLICA, "sink", LATER),),
    (fault(P.BEFORE_COMMIT, TASK, "sink", LATER),),
    (fault(P.AFTER_COMMIT, TASK, "sink", LATER, 20), fault(P.INPUT, REPLICA, "first", LATER, 30)),
]
# What does not strike the sink is no other code than with another sink: with the soak tests.
ELSEWHERE = [(), (fault(P.INPUT, REPLICA, "first", SOON, 30),)]


def name_of(faults: tuple[Fault, ...]) -> str:
    return "+".join(f"{f.point.value}-{f.strike.value}-{f.operator}" for f in faults) or "nothing"


@pytest.mark.parametrize(("faults", "mode"), in_turns(SCRIPTS, name_of) + in_soak(ELSEWHERE, name_of))
def test_exact_through(
    spark: Any, tmp_path: Path, broker: KafkaBroker, mode: str, faults: tuple[Fault, ...]
) -> None:
    setup = KafkaRun(tmp_path, mode=mode, faults=script(*faults) if faults else "", broker=broker)
    query = run(spark, setup)
    assert len(setup.fired()) == len(faults)
    assert_exact(setup)
    if all(f.strike is REPLICA for f in faults):
        assert not query.restarts


@pytest.mark.parametrize(("faults", "mode"), in_turns(SCRIPTS, name_of))
def test_exact_at_once_through(
    spark: Any, tmp_path: Path, broker: KafkaBroker, mode: str, faults: tuple[Fault, ...]
) -> None:
    setup = KafkaRun(tmp_path, mode=mode, faults=script(*faults), broker=broker, sink_mode="at_once")
    query = run(spark, setup)
    assert len(setup.fired()) == len(faults)
    assert_exact(setup)
    if all(f.strike is REPLICA for f in faults):
        assert not query.restarts


@pytest.mark.parametrize("sink_mode", ["transactions", pytest.param("at_once", marks=pytest.mark.soak)])
@pytest.mark.parametrize("mode", mostly("realtime"))
def test_exact_through_the_deaths_of_the_broker(
    spark: Any, tmp_path: Path, brokers: Any, mode: str, sink_mode: str
) -> None:
    """It is source and sink, and dies while rows of both are under way."""
    with brokers() as mortal:
        setup = KafkaRun(tmp_path, mode=mode, broker=mortal, goes_on=True, sink_mode=sink_mode)
        setup.patience, setup.deadline = 240.0, 480.0
        with running(spark, setup) as query:
            for _ in range(2):
                shown = setup.visible()
                await_(query, setup, lambda shown=shown: setup.visible() > shown + 100)
                mortal.kill()
                mortal.start()
            await_end(query, setup)
        assert_exact(setup)


@pytest.mark.soak
@pytest.mark.parametrize("sink_mode", ["transactions", "at_once"])
@pytest.mark.parametrize("mode", MODES)
def test_minutes_of_random_strikes(
    spark: Any, tmp_path: Path, brokers: Any, mode: str, sink_mode: str
) -> None:
    """Any process at any time, the broker too."""
    with brokers() as mortal:
        setup = KafkaRun(tmp_path, mode=mode, broker=mortal, count=CHAOS_RECORDS, sink_mode=sink_mode)
        setup.patience = 240.0
        setup.feed_seconds, setup.deadline = CHAOS_SECONDS, 4 * CHAOS_SECONDS
        setup.settings = {"standby": "hot", "replica.deadline": "5s"}
        with running(spark, setup) as query, striking(query, 1, mortal) as chaos:
            await_end(query, setup)
        assert_exact(setup)
        assert len(chaos.struck) > CHAOS_SECONDS / PAUSE[1] / 4
