"""The plugin's list of executors and their services, in the JVM; and what is there of it without executors."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from streams import Place

import clonos
from clonos.errors import ConfigurationError
from clonos.spark import session as sessions

pytestmark = pytest.mark.spark
KEPT_MILLIS = 3_600_000


@pytest.fixture
def services(spark: Any) -> Any:
    return spark._jvm.org.clonos.spark.executor.Services("token", KEPT_MILLIS)


def test_in_a_local_session_the_plugin_is_there_and_does_nothing(place: Place) -> None:
    assert sessions.PLUGIN in place.spark.conf.get("spark.plugins")
    assert place.spark._jvm.org.clonos.spark.executor.Services.current() is None
    place.spark.conf.set("spark.clonos.replica.servers", "executors")
    query = clonos.causal(place.read("k string")).groupBy("k").process(lambda *_: None, "k string", name="o")
    with pytest.raises(ConfigurationError, match="there are none but the driver"):
        place.start(query)


def test_all_that_are_known_are_waited_for(services: Any) -> None:
    assert not services.awaitAnswers(1, 0)
    services.up("1", "a", 7001)  # it may be heard before Spark says that there is an executor
    assert not services.awaitAnswers(1, 0)
    services.added("1", "a")
    assert services.awaitAnswers(1, 0) and not services.awaitAnswers(2, 0)
    services.added("2", "b")
    assert list(services.unanswered()) == ["executor 2 on b"] and not services.awaitAnswers(2, 0)
    threading.Timer(0.1, lambda: services.down("2", "b", "no Python")).start()
    assert services.awaitAnswers(2, 60_000)
    assert list(services.refusals()) == ["executor 2 on b: no Python"]
    assert list(services.places()) == ["a:7001"]


def test_a_service_that_is_started_again_keeps_its_place(services: Any) -> None:
    services.up("1", "a", 7001)
    services.down("1", "a", "killed")
    assert list(services.places()) == ["a:7001"]
    services.up("1", "a", 7002)  # another process had the port meanwhile
    assert list(services.places()) == ["a:7002"] and not services.refusals()


def test_the_successor_on_a_host_inherits_place_and_folder(services: Any) -> None:
    for executor, host, port in (("1", "a", 7001), ("2", "b", 7002)):
        assert services.settle(executor, host) == f"0 {executor}"
        services.added(executor, host)
        services.up(executor, host, port)
    services.removed("2")
    assert list(services.places()) == ["a:7001", "b:7002"]
    assert services.settle("3", "c") == "0 3"
    assert services.settle("4", "b") == "7002 2" and services.settle("5", "b") == "0 5"
    services.removed("4")  # before it had a service
    assert services.settle("5", "b") == "7002 2"
    services.up("2", "b", 7009)  # late news of one that is gone
    assert sorted(services.places()) == ["a:7001", "b:7002"]


def test_a_place_that_no_executor_takes_is_forgotten(spark: Any) -> None:
    services = spark._jvm.org.clonos.spark.executor.Services("token", 0)
    services.up("1", "a", 7001)
    services.removed("1")
    assert not services.places() and services.settle("2", "a") == "0 2"
