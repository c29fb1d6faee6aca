"""Functions that wait for calls, many at a time: what is recorded of them, and that it is repeated (I2, I10)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from harness import Bench, Died, Program, chunk_ends
from hypothesis import given, settings, strategies as st
from test_protocol_replay import feed, interleaved, records_of

from clonos.errors import DivergenceError, UserFunctionError
from clonos.protocol.engine.instance import Row
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.engine.task_scheduler import CallRequest, Ended, TaskScheduler, Together, lanes
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.determinant import CallNumber
from clonos.protocol.recovery.causal.longest_prefix import RecoveryState
from clonos.sim.calls import CallsUnderWay
from clonos.sim.fake_services import Refused

USES = ("clock", "draw", "call", "state", "effect", "await", "await refused", "together", "nested", "emit")
uses = st.lists(st.sampled_from(USES), min_size=1, max_size=6).map(lambda items: (*items, "emit"))
programs = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"), uses), min_size=1, max_size=10)


def asked(fn: Callable[..., Any], *args: Any) -> CallRequest:
    return CallRequest(fn, args, {})


class Waiting(Program):
    """An operator whose records are at work at the same time, those of a key one after the other."""

    record_at_a_time = False

    def open(self, services: CausalServices) -> None:
        super().open(services)
        self._scheduler = TaskScheduler[str](
            services, CallsUnderWay(self._bench.nature.randrange), lambda key: None
        )

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        made: list[list[Row]] = [[] for _ in rows]
        of_key = lanes([key for (key,) in keys])

        async def one_by_one(key: str) -> None:
            for index in of_key[key]:
                _, number, what = rows[index]
                made[index] = await self._record(key, number, what)

        self._scheduler.run((key, one_by_one(key)) for key in of_key)
        return [row for each in made for row in each]

    async def _record(self, key: str, number: int, what: tuple[str, ...]) -> list[Row]:
        notes: list[Any] = []
        produced: list[Row] = []
        for index, use in enumerate(what):
            if use == "emit":
                produced.append((key, number, tuple(notes)))
            elif use in ("await", "await refused", "together", "nested"):
                notes.append(await self._waits(use))
            else:
                notes.append(self._use(use, key, f"{number}-{index}"))
        self._services.state.setdefault("order", []).append((number, tuple(map(str, notes))))
        return produced

    async def _waits(self, use: str) -> Any:
        bench = self._bench
        try:
            if use == "await":
                return await asked(bench.ask)
            if use == "await refused":
                return await asked(bench.refuse)
            parts = (asked(bench.ask), self._twice() if use == "nested" else asked(bench.refuse))
            return tuple(map(str, await Together(parts, returns_exceptions=True)))
        except Refused as error:
            return str(error)

    async def _twice(self) -> tuple[float, float]:
        first = await asked(self._bench.ask)
        return first, self._services.random.random() + await asked(self._bench.ask)


def bench_of(seed: int, program: type[Program] = Waiting) -> Bench:
    return Bench(random.Random(seed), program, record_at_a_time=False)


@settings(max_examples=60, deadline=None)
@given(programs, st.integers(0, 10**6))
def test_every_prefix_of_the_log_is_repeated_and_gone_on_from(program: Any, seed: int) -> None:
    records = records_of(program)
    rng = random.Random(seed)
    first = bench_of(seed + 1)
    first.open()
    feed(first, records, rng)
    log = first.log
    for cut in chunk_ends(log):
        again = bench_of(seed + 2 + cut)
        again.restore(log[:cut])
        again.open()
        feed(again, interleaved(records, rng), rng, ticks=False)
        steps = codec.decode_steps(log[:cut], 0)
        repeated = sum(step.outputs for step in steps)
        assert again.rows[:repeated] == first.rows[:repeated]
        assert again.log[:cut] == log[:cut]
        assert again.instance.state is RecoveryState.LIVE
        assert sorted(number for number, _ in again.services.state["order"]) == list(range(len(records)))
        if cut == len(log):
            assert again.services.state == first.services.state
            assert again.services.random.getstate() == first.services.random.getstate()
            assert again.rows == first.rows
            assert not again.performed


@settings(max_examples=40, deadline=None)
@given(programs, st.integers(0, 10**6))
def test_a_call_whose_answer_is_recorded_is_not_made_again(program: Any, seed: int) -> None:
    records = records_of(program)
    first = bench_of(seed)
    first.open()
    feed(first, records, random.Random(seed))

    again = bench_of(seed + 1)
    again.restore(first.log)
    again.open()
    calls: list[Any] = []
    start = CallsUnderWay.start

    def started(self: Any, *given: Any) -> None:
        calls.append(given)
        start(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CallsUnderWay, "start", started)
        feed(again, records, random.Random(seed), ticks=False)
    assert not calls
    assert again.rows == first.rows


def test_what_was_not_answered_when_the_process_died_is_asked_again_and_nothing_else() -> None:
    records = records_of([(0, "a", ("await", "effect", "emit")), (1, "b", ("await", "await", "emit"))])
    for seed in range(20):  # whichever is answered first
        first = bench_of(seed)
        first.dies_at = "0-1"
        first.open()
        with pytest.raises(Died):
            first.take(records)
        known = codec.decode_steps(first.log, 0)[-1].answers
        again = bench_of(seed + 100)
        numbers: list[CallNumber] = []
        start = CallsUnderWay.start

        def started(
            self: Any, number: CallNumber, *given: Any, numbers: Any = numbers, start: Any = start
        ) -> None:
            numbers.append(number)
            start(self, number, *given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CallsUnderWay, "start", started)
            again.restore(first.log)
            again.open()
            again.take(records)
        assert len(numbers) + len(known) == 3
        assert not set(numbers) & {answer.number for answer in known}
        assert len(again.rows) == 2


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (("await refused", "emit"), "of Bench.ask: asked for was a call of Bench.refuse"),
        (("await", "await", "emit"), "the recorded step holds no further ANSWER outcome"),
        (("emit",), "1 recorded answer\\(s\\) were not asked for"),
    ],
)
def test_a_function_that_asks_for_something_else_is_found_out(other: tuple[str, ...], said: str) -> None:
    first = bench_of(1)
    first.open()
    first.take(records_of([(0, "a", ("await", "emit"))]))
    again = bench_of(2)
    again.restore(first.log)
    again.open()
    with pytest.raises(DivergenceError, match=said):
        again.take(records_of([(0, "a", other)]))


class Port:
    """Answers in the order that the test says."""

    def __init__(self, order: list[int]) -> None:
        self.order = order
        self.asked: dict[int, CallRequest] = {}
        self.abandoned = False

    def start(self, number: CallNumber, name: str, asked: CallRequest) -> None:
        self.asked[number] = asked

    def wait(self) -> Ended:
        number = CallNumber(self.order.pop(0))
        return Ended(number, "fn", self.asked[number].fn, 7)

    def abandon(self) -> None:
        self.abandoned = True


class Unrecorded:
    """The services of a step that is not recorded."""

    def __init__(self) -> None:
        self.begun = 0

    def begin_call(self, calls: Any, asked: CallRequest) -> CallNumber:
        self.begun += 1
        calls.start(CallNumber(self.begun - 1), "fn", asked)
        return CallNumber(self.begun - 1)

    def next_answer(self, wait: Callable[[], Ended]) -> tuple[CallNumber, Callable[[], Any]]:
        ended = wait()
        return ended.number, ended.result


def scheduled(order: list[int], *functions: Any) -> tuple[TaskScheduler[int], Port, list[int]]:
    port, resumed = Port(order), list[int]()
    scheduler = TaskScheduler[int](Unrecorded(), port, resumed.append)
    scheduler.run((index, fn()) for index, fn in enumerate(functions))
    return scheduler, port, resumed


def fails(text: str) -> Any:
    def fail() -> None:
        raise ValueError(text)

    return fail


def test_functions_go_on_in_the_order_in_which_their_calls_end() -> None:
    done: list[Any] = []

    def waits(name: str) -> Any:
        async def fn() -> None:
            done.append((name, await asked(lambda: 1)))
            done.append((name, await asked(lambda: 2)))

        return fn

    _, _, resumed = scheduled([1, 2, 0, 3], waits("a"), waits("b"))
    assert done == [("b", 1), ("b", 2), ("a", 1), ("a", 2)]
    assert resumed == [0, 1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("order", "first"), [([1, 0, 2], "second"), ([2, 1, 0], "second"), ([0, 1, 2], "first")]
)
def test_of_several_that_fail_the_first_one_to_end_is_raised_when_all_have(
    order: list[int], first: str
) -> None:
    ended: list[str] = []

    async def fn() -> None:
        parts = (asked(fails("first")), asked(fails("second")), asked(lambda: ended.append("third")))
        with pytest.raises(ValueError, match=first):
            await Together(parts, returns_exceptions=False)
        assert ended == ["third"]
        ended.append("done")

    scheduled(order, fn)
    assert ended == ["third", "done"]


def test_nothing_at_once_is_a_list_without_items() -> None:
    seen: list[Any] = []

    async def fn() -> None:
        seen.append(await Together((), returns_exceptions=False))

    scheduled([], fn)
    assert seen == [[]]


def test_what_is_awaited_and_not_recorded_is_refused_where_it_is() -> None:
    class Foreign:
        def __await__(self) -> Any:
            yield "something"

    async def fn() -> None:
        await Foreign()

    with pytest.raises(UserFunctionError, match="awaits str, which is not recorded"):
        scheduled([], fn)


def test_a_call_is_awaited_once() -> None:
    async def fn() -> None:
        call = asked(lambda: 1)
        await call
        await call

    with pytest.raises(UserFunctionError, match="awaited twice"):
        scheduled([0], fn)


def test_what_one_function_raises_ends_the_others_and_says_whose_it_is() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asked(lambda: 1)
        finally:
            ended.append("waits")

    async def raises() -> None:
        await asked(lambda: 1)
        raise ValueError("mine")

    port, resumed = Port([1]), list[int]()
    scheduler = TaskScheduler[int](Unrecorded(), port, resumed.append)
    with pytest.raises(ValueError, match="mine"):
        scheduler.run((index, fn()) for index, fn in enumerate((waits, raises)))
    assert (scheduler.place, ended, port.abandoned) == (1, ["waits"], True)
