"""The causal services belong to the thread that runs the function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pandas as pd
import pytest
from surface_services import FakeServices, opened

import clonos.operators.current as running
from clonos.errors import QueryDefinitionError
from clonos.operators.group_state import PROCESSING_TIME, GroupStateOperator
from clonos.operators.process import ProcessOperator
from clonos.operators.rows import make_row
from clonos.operators.transform_with_state import TransformWithStateOperator
from clonos.operators.types import arrow_schema

IN = arrow_schema("k string, i int")
OUT = arrow_schema("k string, got string")
DATA = [make_row(("k", "i"), ("a", i)) for i in range(3)]
KEYS = [("a",)] * 3
REFUSED = "used in another thread than the one that runs the function.*inside one recorded call"


def elsewhere(act: Callable[[], Any]) -> Any:
    """What another thread gets."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result()


def processing(fn: Callable[..., Any], services: FakeServices | None = None) -> list[Any]:
    operator = ProcessOperator(fn, OUT, name="p", on_timer=lambda *given: ())
    return list(opened(operator, services or FakeServices()).bundle(KEYS, DATA))


SERVICES: dict[str, Callable[[Any], Any]] = {
    "ctx.call": lambda ctx: ctx.call(int, "7"),
    "ctx.effect": lambda ctx: ctx.effect(int, "7", key="k"),
    "ctx.now, exact": lambda ctx: ctx.now(exact=True),
    "ctx.now, in microseconds": lambda ctx: ctx.now_us(exact=True),
    "ctx.now": lambda ctx: ctx.now(),
    "ctx.now_us": lambda ctx: ctx.now_us(),
    "ctx.uuid4": lambda ctx: ctx.uuid4(),
    "ctx.timer": lambda ctx: ctx.timer(timedelta(seconds=1)),
    "ctx.cancel_timer": lambda ctx: ctx.cancel_timer(7),
    "ctx.state": lambda ctx: ctx.state,
    "ctx.state, set": lambda ctx: setattr(ctx, "state", {}),
    "clonos.current()": lambda ctx: running.current(),
}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_refused_in_another_thread(service: str) -> None:
    services = FakeServices()
    reached: list[Any] = []

    def fn(key: Any, row: Any, ctx: Any) -> None:
        elsewhere(lambda: SERVICES[service](ctx))
        reached.append(service)

    with pytest.raises(QueryDefinitionError, match=REFUSED) as caught:
        processing(fn, services)
    assert caught.value.where is not None
    assert caught.value.where.position == 0
    assert not reached
    assert (services.calls, services.clock_reads, services.timers.entries) == ([], 0, [])


@pytest.mark.parametrize("service", ["ctx.call", "ctx.now", "ctx.now_us", "ctx.uuid4", "clonos.current()"])
def test_a_thread_inside_a_recorded_call_has_no_services_either(service: str) -> None:
    """It cannot be told from one that the function has left behind."""

    def fn(key: Any, row: Any, ctx: Any) -> None:
        ctx.call(lambda: elsewhere(lambda: SERVICES[service](ctx)))

    with pytest.raises(QueryDefinitionError, match=REFUSED):
        processing(fn)


def lookup(value: int) -> str:
    return f"answer for {value}"


def test_parallel_work_inside_one_recorded_call() -> None:
    """What the error says to do, live and repeated."""

    def fn(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        with ThreadPoolExecutor(3) as pool:
            values = [row.i * 10 + j for j in range(3)]
            got = ctx.call(lambda: list(pool.map(lookup, values)))
        yield key[0], ", ".join(got)

    live = FakeServices()
    made = processing(fn, live)
    assert made[1] == ("a", "answer for 10, answer for 11, answer for 12")
    assert len(live.calls) == 3
    replay = FakeServices()
    replay.replies = [row[1].split(", ") for row in made]
    assert processing(fn, replay) == made


def test_a_thread_that_the_function_left_behind_is_refused_in_later_bundles() -> None:
    with ThreadPoolExecutor(1) as pool:

        def fn(key: Any, row: Any, ctx: Any) -> None:
            pool.submit(lambda: ctx.call(lookup, row.i)).result()

        operator = opened(ProcessOperator(fn, OUT, name="p"), FakeServices())
        for _ in range(2):
            with pytest.raises(QueryDefinitionError, match=REFUSED):
                operator.bundle(KEYS, DATA)


def test_the_thread_may_be_another_one_for_another_bundle() -> None:
    operator = opened(
        ProcessOperator(lambda k, r, ctx: [(k[0], str(ctx.call(lookup, r.i)))], OUT, name="p"), FakeServices()
    )
    first = operator.bundle(KEYS, DATA)
    assert elsewhere(lambda: operator.bundle(KEYS, DATA)) == first


STATE: dict[str, Callable[[Any], Any]] = {
    "update": lambda state: state.update((1,)),
    "remove": lambda state: state.remove(),
    "timeout": lambda state: state.setTimeoutDuration(5),
    "time": lambda state: state.getCurrentProcessingTimeMs(),
}


@pytest.mark.parametrize("what", STATE)
def test_group_state(what: str) -> None:
    def fn(key: Any, pdfs: Any, state: Any) -> Iterator[Any]:
        elsewhere(lambda: STATE[what](state))
        yield pd.DataFrame({"k": ["a"], "got": ["reached"]})

    made = GroupStateOperator(fn, input=IN, output=OUT, state="n int", timeout=PROCESSING_TIME, name="g")
    with pytest.raises(QueryDefinitionError, match=REFUSED):
        opened(made, FakeServices()).bundle(KEYS, DATA)


PROCESSOR: dict[str, Callable[[Any, Any], Any]] = {
    "read": lambda processor, times: processor.count.get(),
    "write": lambda processor, times: processor.count.update((1,)),
    "timer": lambda processor, times: processor.handle.registerTimer(5),
    "time": lambda processor, times: times.getCurrentProcessingTimeInMs(),
}


@pytest.mark.parametrize("what", PROCESSOR)
def test_transform_with_state(what: str) -> None:
    class Processor:
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.count = handle.getValueState("count", "n int")

        def handleInputRows(self, key: Any, rows: Any, times: Any) -> Iterator[Any]:
            elsewhere(lambda: PROCESSOR[what](self, times))
            yield "a", "reached"

    made = TransformWithStateOperator(Processor(), input=IN, output=OUT, time_mode="ProcessingTime", name="t")
    with pytest.raises(QueryDefinitionError, match=REFUSED):
        opened(made, FakeServices()).bundle(KEYS, DATA)


def test_what_is_not_checked_for_each_record() -> None:
    """As the documentation says."""

    def fn(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["now"] = ctx.now()
        unchecked = lambda: (ctx.random.random(), ctx.state["now"], ctx.now(), ctx.key)  # noqa: E731
        yield key[0], str(elsewhere(unchecked)[1] == ctx.now())

    assert processing(fn) == [("a", "True")] * 3
