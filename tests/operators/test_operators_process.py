"""The record-at-a-time operators: state, services, timers, outputs and errors."""

from __future__ import annotations

import pickle
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from surface_services import START, FakeServices, advance, advance_watermark, opened, store_kinds

import clonos.operators.current as running
from clonos.errors import (
    ConfigurationError,
    InputError,
    PurityError,
    QueryDefinitionError,
    StateError,
    UserFunctionError,
)
from clonos.operators.process import FilterOperator, FlatMapOperator, MapOperator, ProcessOperator, Timer
from clonos.operators.rows import make_row
from clonos.protocol.side_output import output_of
from clonos.values.key_codec import pack

__all__ = ["store_kinds"]

OUT = pa.schema([("key", pa.string()), ("n", pa.int64())])


def rows(*values: Any) -> tuple[list[Any], list[Any]]:
    """(keys, rows) of (card, amount) pairs."""
    made = [make_row(("card", "amount"), v) for v in values]
    return [(r.card,) for r in made], made


def counting(key: Any, row: Any, ctx: Any) -> Any:
    n = ctx.state["n"] = ctx.state.get("n", 0) + row.amount
    yield (key[0], n)


def test_state_lives_per_key_and_is_handed_back_once_per_bundle() -> None:
    services = FakeServices()
    operator = opened(ProcessOperator(counting, OUT, name="count"), services)
    assert operator.bundle(*rows(("a", 1), ("b", 10), ("a", 2))) == [("a", 1), ("b", 10), ("a", 3)]
    assert operator.bundle(*rows(("a", 4))) == [("a", 7)]
    assert services.state.data == {pack(("a",)): {"n": 7}, pack(("b",)): {"n": 10}}
    assert services.state.writes == [pack(("a",)), pack(("b",)), pack(("a",))]


def test_what_is_kept_for_a_key() -> None:
    services = FakeServices()

    def fn(key: Any, row: Any, ctx: Any) -> None:
        ctx.state["n"] = row.amount

    operator = opened(ProcessOperator(fn, OUT, name="p"), services)
    operator.bundle(*rows(("a", 1), ("b", 2)))
    assert operator.kept(("a",)) == {pack(("a",)): {"n": 1}}
    assert operator.kept(("c",)) == {}


def test_empty_state_is_never_kept_and_emptying_removes_it() -> None:
    services = FakeServices()

    def touchy(key: Any, row: Any, ctx: Any) -> Any:
        if row.amount == 0:
            ctx.state.get("n")
        elif row.amount < 0:
            del ctx.state
        else:
            ctx.state = {"n": row.amount}

    operator = opened(ProcessOperator(touchy, OUT, name="touchy"), services)
    operator.bundle(*rows(("a", 0)))
    assert services.state.data == {}
    operator.bundle(*rows(("a", 5), ("b", 6)))
    operator.bundle(*rows(("a", -1)))
    assert services.state.data == {pack(("b",)): {"n": 6}}
    with pytest.raises(StateError, match="must be a dict"):
        opened(ProcessOperator(lambda k, r, c: setattr(c, "state", 5), OUT, name="x"), services).bundle(
            *rows(("a", 1))
        )
    services.state.data[pack(("z",))] = [1]
    with pytest.raises(StateError, match="not a dict"):
        operator.bundle(*rows(("z", 1)))


def test_clock_is_one_reading_per_bundle_and_utc() -> None:
    services = FakeServices()
    seen: list[Any] = []

    def look(key: Any, row: Any, ctx: Any) -> None:
        seen.append((ctx.now(), ctx.now_us(), ctx.now(exact=True)))

    operator = opened(ProcessOperator(look, OUT, name="look"), services)
    operator.bundle(*rows(("a", 1), ("a", 2)))
    assert seen[0][0] is seen[1][0]
    assert seen[0][0] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert seen[0][2] < seen[1][2]
    services.time += 10_000_000
    operator.bundle(*rows(("a", 1)))
    assert seen[2][0] > seen[0][0]


def test_random_and_uuid_come_from_the_recorded_generator() -> None:
    def draw(key: Any, row: Any, ctx: Any) -> Any:
        return [(str(ctx.uuid4()), ctx.random.getrandbits(40))]

    first = opened(ProcessOperator(draw, OUT, name="draw"), FakeServices(3)).bundle(*rows(("a", 1), ("b", 2)))
    again = opened(ProcessOperator(draw, OUT, name="draw"), FakeServices(3)).bundle(*rows(("a", 1), ("b", 2)))
    assert first == again
    assert first[0][0][14] == "4"


def test_a_skipped_closure_shifts_nothing() -> None:
    def fn(key: Any, row: Any, ctx: Any) -> Any:
        value = ctx.call(lambda: (ctx.random.random(), ctx.now(), ctx.call(int, "7")))
        yield (repr(value[2]), ctx.random.getrandbits(60))

    live = FakeServices()
    outputs = opened(ProcessOperator(fn, OUT, name="fn"), live).bundle(*rows(("a", 1)))
    assert live.clock_reads == 0
    replay = FakeServices()
    replay.replies = [(0.1, None, 7)]
    assert opened(ProcessOperator(fn, OUT, name="fn"), replay).bundle(*rows(("a", 1))) == outputs


@pytest.mark.parametrize(
    "act",
    [
        lambda c: c.state,
        lambda c: c.timer(1),
        lambda c: c.effect(print, key="k"),
        lambda c: setattr(c, "state", {}),
    ],
)
def test_closures_cannot_reach_what_is_repeated(act: Any) -> None:
    def fn(key: Any, row: Any, ctx: Any) -> Any:
        ctx.call(act, ctx)

    operator = opened(ProcessOperator(fn, OUT, name="fn"), FakeServices())
    with pytest.raises(UserFunctionError, match="out of reach"):
        operator.bundle(*rows(("a", 1)))
    # the context is whole again
    operator._fn = counting
    assert operator.bundle(*rows(("a", 1))) == [("a", 1)]


def test_effect_needs_a_key_and_gives_the_result() -> None:
    services = FakeServices()

    def fn(key: Any, row: Any, ctx: Any) -> Any:
        yield (str(ctx.effect(max, 1, 2, key="e")), 1)

    operator = opened(ProcessOperator(fn, OUT, name="e"), services)
    assert operator.bundle(*rows(("a", 1))) == [("2", 1)]
    assert services.calls == [("e", (1, 2))]
    with pytest.raises(QueryDefinitionError, match="needs key="):
        opened(ProcessOperator(lambda k, r, c: c.effect(max, 1, 2, key=""), OUT, name="e"), services).bundle(
            *rows(("a", 1))
        )


Pair = namedtuple("Pair", "n key")


@dataclass
class Out:
    n: int
    key: str


@pytest.mark.parametrize(
    "made",
    [("a", 1), ["a", 1], {"n": 1, "key": "a"}, Pair(1, "a"), Out(1, "a"), make_row(("n", "key"), (1, "a"))],
    ids=lambda v: type(v).__name__,
)
def test_every_shape_of_output_row(made: Any) -> None:
    operator = opened(ProcessOperator(lambda k, r, c: [made], OUT, name="o"), FakeServices())
    (out,) = operator.bundle(*rows(("a", 1)))
    assert out == ("a", 1)
    assert type(out) is tuple


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (("a", 1), "must be yielded"),
        ([("a",)], r"1 values; the fields are \(key, n\)"),
        ([{"nn": 1}], "unknown field 'nn'"),
        ([None], "NoneType is not a row"),
        (7, "returned 7, which is no iterable of rows"),
    ],
)
def test_outputs_that_are_no_rows(made: Any, says: str) -> None:
    operator = opened(ProcessOperator(lambda k, r, c: made, OUT, name="o"), FakeServices())
    with pytest.raises((InputError, UserFunctionError), match=says):
        operator.bundle(*rows(("a", 1)))


@pytest.mark.parametrize("lazily", [False, True])
def test_an_exception_names_function_and_row_and_keeps_the_cause(lazily: bool) -> None:
    def poison(key: Any, row: Any, ctx: Any) -> Any:
        ctx.state["n"] = 1
        if row.amount == 3:
            raise KeyError("boom")
        return ()

    def lazy(key: Any, row: Any, ctx: Any) -> Any:
        yield from poison(key, row, ctx)

    services = FakeServices()
    operator = opened(ProcessOperator(lazy if lazily else poison, OUT, name="poison"), services)
    with pytest.raises(UserFunctionError, match="'poison' raised KeyError: 'boom'") as caught:
        operator.bundle(*rows(("a", 1), ("a", 2), ("a", 3), ("a", 4)))
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.where is not None
    assert caught.value.where.position == 2
    assert services.state.data == {}
    with pytest.raises(QueryDefinitionError):
        running.current()


@pytest.mark.parametrize("raised", [SystemExit, GeneratorExit, KeyboardInterrupt])
def test_what_a_function_raises_does_not_end_the_replica(raised: type[BaseException]) -> None:
    def raises(key: Any, row: Any, ctx: Any) -> Any:
        yield (row.card, 1)
        raise raised

    with pytest.raises(UserFunctionError, match=raised.__name__):
        opened(ProcessOperator(raises, OUT, name="x"), FakeServices()).bundle(*rows(("a", 1)))


def timed(key: Any, row: Any, ctx: Any) -> None:
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    ctx.timer(timedelta(seconds=row.amount), name="late")


def on_timer(key: Any, timer: Timer, ctx: Any) -> Any:
    n = ctx.state["seen"]
    del ctx.state
    return [(f"{key[0]}-{timer.name}-{timer.event}", n)]


def test_processing_timers_fire_with_their_key_and_state() -> None:
    services = FakeServices()
    operator = opened(ProcessOperator(timed, OUT, name="t", on_timer=on_timer), services)
    assert operator.bundle(*rows(("a", 2), ("b", 1))) == []
    assert advance(operator, services, 1_000_000) == [("b-late-False", 1)]
    assert advance(operator, services, 1_000_000) == [("a-late-False", 1)]
    assert services.state.data == {}


def test_event_timers_cancelling_and_naive_times() -> None:
    services = FakeServices()
    fired: list[Any] = []

    def fn(key: Any, row: Any, ctx: Any) -> None:
        if row.amount == 1:
            ctx.timer(at=datetime(2024, 1, 1, 1), event=True, name="x")
            ctx.timer(at=datetime(2024, 1, 1, tzinfo=UTC), event=True, name="y")
        else:
            ctx.cancel_timer(datetime(2024, 1, 1, tzinfo=UTC), "y", event=True)

    def fire(key: Any, timer: Timer, ctx: Any) -> None:
        fired.append((key, timer.name, timer.at, ctx.watermark))
        ctx.cancel_timer(timer.due_us, "y", event=True)

    operator = opened(ProcessOperator(fn, OUT, name="t", on_timer=fire, tz="+01:00"), services)
    operator.bundle(*rows(("a", 1), ("b", 1), ("b", 2)))
    midnight = datetime(2024, 1, 1, tzinfo=UTC)
    advance_watermark(operator, services, int(midnight.timestamp() * 1e6))
    assert [f[:2] for f in fired] == [
        (("a",), "x"),
        (("b",), "x"),
    ]  # y of a: cancelled by x while both were due
    assert fired[0][2] == fired[0][3] == midnight


def test_a_timer_may_be_at_an_integer_of_numpys() -> None:
    services = FakeServices()
    when = np.int64(START + 5)

    def fn(key: Any, row: Any, ctx: Any) -> None:
        assert type(ctx.timer(at=when)) is int
        if row.amount == 2:
            ctx.cancel_timer(when)

    operator = opened(ProcessOperator(fn, OUT, name="t", on_timer=print), services)
    operator.bundle(*rows(("a", 1), ("b", 2)))
    assert [due for due, *_ in services.timers.entries] == [START + 5]


def test_timers_that_make_no_sense() -> None:
    def run(act: Any, **more: Any) -> None:
        opened(ProcessOperator(lambda k, r, c: act(c), OUT, name="t", **more), FakeServices()).bundle(
            *rows(("a", 1))
        )

    for act, says in (
        (lambda c: c.timer(), "either a delay or at="),
        (lambda c: c.timer(-1), "negative"),
        (lambda c: c.timer(1, at=5), "either a delay or at="),
        (lambda c: c.timer(1, event=True), "watermark"),
    ):
        with pytest.raises(QueryDefinitionError, match=says):
            run(act, on_timer=print)
    with pytest.raises(QueryDefinitionError, match="on_timer"):
        run(lambda c: c.timer(at=START))


def test_current_is_the_context() -> None:
    def fn(key: Any, row: Any, ctx: Any) -> Any:
        assert running.current() is ctx
        return ()

    opened(ProcessOperator(fn, OUT, name="c"), FakeServices()).bundle(*rows(("a", 1)))
    with pytest.raises(QueryDefinitionError, match="outside a running"):
        running.current()


def test_map_flat_map_and_filter() -> None:
    _, data = rows(("a", 1), ("b", 2))
    keys = [()] * 2
    services = FakeServices()
    mapped = opened(
        MapOperator(lambda r, c: {"key": r["card"], "n": c.now_us()}, OUT, name="m", pure=False), services
    )
    assert mapped.bundle(keys, data) == [("a", START), ("b", START)]
    kept = opened(FilterOperator(lambda r: r.amount > 1, OUT, name="f", pure=True), services)
    assert kept.bundle(keys, data) == [("b", 2)]
    kept = opened(FilterOperator(lambda r, c: c.random.random() < 2, OUT, name="f", pure=False), services)
    assert len(kept.bundle(keys, data)) == 2
    flat = opened(FlatMapOperator(lambda r: [tuple(r)] * r.amount, OUT, name="f", pure=True), services)
    assert flat.bundle(keys, data) == [("a", 1), ("b", 2), ("b", 2)]
    with pytest.raises(InputError, match="gave no row"):
        opened(MapOperator(lambda r: None, OUT, name="m", pure=True), services).bundle(keys, data)


@pytest.mark.parametrize("kind", [MapOperator, FlatMapOperator, FilterOperator])
def test_pure_functions_have_no_context(kind: Any) -> None:
    _, data = rows(("a", 1))
    operator = opened(kind(lambda r: running.current().now(), OUT, name="p", pure=True), FakeServices())
    with pytest.raises(PurityError, match="declared pure"):
        operator.bundle([()], data)
    with pytest.raises(UserFunctionError, match="ZeroDivisionError") as caught:
        opened(kind(lambda r: 1 / 0, OUT, name="p", pure=True), FakeServices()).bundle([()], data)
    assert caught.value.where is not None
    assert caught.value.where.position == 0


def test_stateless_contexts_have_no_state() -> None:
    _, data = rows(("a", 1))
    with pytest.raises(UserFunctionError, match="state"):
        opened(MapOperator(lambda r, c: c.state, OUT, name="m", pure=False), FakeServices()).bundle(
            [()], data
        )


def test_an_unknown_zone_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="Mars"):
        ProcessOperator(counting, OUT, name="c", tz="Mars/Olympus")


def test_rows_travel_through_pickle() -> None:
    row = make_row(("a", "b"), (1, make_row(("c",), (2,))))
    assert pickle.loads(pickle.dumps(row)) == row
    assert pickle.loads(pickle.dumps(row)).b.c == 2


# Side outputs

SIDES = {"small": pa.schema([("amount", pa.int64())]), "listed": pa.schema([("many", pa.list_(pa.int64()))])}


def said(made: list[Any]) -> list[tuple[str, Any]]:
    return [(output_of(row), tuple(row)) for row in made]


def split(row: Any, ctx: Any) -> Any:
    """The main row of each amount, and before it a row of a side output."""
    if row.amount < 10:
        ctx.side_output("small", {"amount": row.amount})
    return row.card, row.amount


def test_rows_of_side_outputs_stand_where_they_were_given() -> None:
    def process(key: Any, row: Any, ctx: Any) -> Any:
        yield row.card, 1
        ctx.side_output("small", (row.amount,))
        yield row.card, 2

    def flat(row: Any, ctx: Any) -> Any:
        return process((), row, ctx)

    given = rows(("a", 1), ("b", 20))
    each = [("", ("a", 1)), ("small", (1,)), ("", ("a", 2)), ("", ("b", 1)), ("small", (20,)), ("", ("b", 2))]
    for kind, fn in ((ProcessOperator, process), (FlatMapOperator, flat)):
        more = {} if kind is ProcessOperator else {"pure": False}
        operator = opened(kind(fn, OUT, name="op", side_outputs=SIDES, **more), FakeServices())
        assert said(operator.bundle(*given)) == each
        assert said(operator.bundle(*given)) == each, "nothing is left over from a bundle"
    mapped = opened(MapOperator(split, OUT, name="op", pure=False, side_outputs=SIDES), FakeServices())
    assert said(mapped.bundle(*given)) == [("small", (1,)), ("", ("a", 1)), ("", ("b", 20))]

    def keeps(row: Any, ctx: Any) -> bool:
        return row.amount >= 10 or ctx.side_output("small", [row.amount])

    kept = opened(FilterOperator(keeps, OUT, name="op", pure=False, side_outputs=SIDES), FakeServices())
    assert said(kept.bundle(*given)) == [("small", (1,)), ("", ("b", 20))]


def test_a_timer_gives_rows_of_side_outputs() -> None:
    services = FakeServices()

    def process(key: Any, row: Any, ctx: Any) -> None:
        ctx.timer(1.0)

    def fire(key: Any, timer: Any, ctx: Any) -> Any:
        ctx.side_output("small", (7,))
        return [(key[0], 8)]

    operator = ProcessOperator(process, OUT, name="op", on_timer=fire, side_outputs=SIDES)
    opened(operator, services).bundle(*rows(("a", 1)))
    assert said(advance(operator, services, 2_000_000)) == [("small", (7,)), ("", ("a", 8))]


def test_a_row_of_a_side_output_is_what_it_was_when_it_was_given() -> None:
    def process(key: Any, row: Any, ctx: Any) -> None:
        many = [row.amount]
        ctx.side_output("listed", (many,))
        many.append(99)

    operator = opened(ProcessOperator(process, OUT, name="op", side_outputs=SIDES), FakeServices())
    assert said(operator.bundle(*rows(("a", 1)))) == [("listed", ([1],))]


def test_side_outputs_are_declared_and_their_rows_fit() -> None:
    def give(name: str, row: Any) -> Any:
        def process(key: Any, _: Any, ctx: Any) -> None:
            ctx.side_output(name, row)

        return opened(ProcessOperator(process, OUT, name="op", side_outputs=SIDES), FakeServices())

    with pytest.raises(
        QueryDefinitionError, match=r"'op' has no side output 'late'; it has 'small', 'listed'"
    ):
        give("late", (1,)).bundle(*rows(("a", 1)))
    with pytest.raises(InputError, match="of 'op, side output small' is not a row"):
        give("small", (1, 2)).bundle(*rows(("a", 1)))
    with pytest.raises(InputError, match="of 'op' is not a row"):
        operator = ProcessOperator(
            lambda key, row, ctx: [split(row, ctx)[:1]], OUT, name="op", side_outputs=SIDES
        )
        opened(operator, FakeServices()).bundle(*rows(("a", 1)))
    with pytest.raises(QueryDefinitionError, match="it has none"):
        opened(
            ProcessOperator(lambda k, r, ctx: ctx.side_output("x", ()), OUT, name="op"), FakeServices()
        ).bundle(*rows(("a", 1)))


def test_a_recorded_call_gives_no_rows_of_side_outputs() -> None:
    def process(key: Any, row: Any, ctx: Any) -> None:
        ctx.call(lambda: ctx.side_output("small", (1,)))

    operator = opened(ProcessOperator(process, OUT, name="op", side_outputs=SIDES), FakeServices())
    with pytest.raises(UserFunctionError, match=r"side outputs are out of reach inside ctx\.call"):
        operator.bundle(*rows(("a", 1)))
