"""`process`, `map`, `flat_map` and `filter` with async functions.

The records of a bundle are at work at the same time, those of one key one after the other, and the bundle ends when all
of them have: so state, snapshots and what leaves are as with other functions. Rows leave in the order of the records,
whatever the order in which their calls end.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from clonos.async_functions import is_async, refuse_async, refuse_generators
from clonos.errors import ClonosError, QueryDefinitionError
from clonos.operators import current
from clonos.operators.async_context import AsyncContext, AsyncKeyedContext, RecordPlace
from clonos.operators.calls import Calls, CallsUnderWay
from clonos.operators.context import Context
from clonos.operators.outputs import RAISED, Outputs, failed
from clonos.operators.process import (
    ConnectOperator,
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
    Stateless,
    Timer,
    one_row,
)
from clonos.protocol.engine.given_rows import rows_told
from clonos.protocol.engine.task_scheduler import TaskScheduler, lanes
from clonos.protocol.operator import Services
from clonos.values.key_codec import unpack

Row = tuple[Any, ...]
Lane = tuple[RecordPlace, Coroutine[Any, Any, None]]
Call = Callable[[], Any]
DueTimer = tuple[int, bytes, str]


class _Waiting:
    """What operators with async functions share, in front of the class of operators that they are of."""

    record_at_a_time = False  # what is at work at the same time is not what it would be one by one

    def __init__(self, *given: Any, calls: Calls | None = None, **more: Any) -> None:
        super().__init__(*given, **more)
        self._policy = calls or Calls()

    def close(self) -> None:
        self._calls.close()

    def _calls_of(self, services: Services) -> CallsUnderWay:
        self._services = services
        self._calls = CallsUnderWay(self._policy)
        return self._calls

    def _scheduler_of(self, ctx: AsyncContext | AsyncKeyedContext) -> TaskScheduler[RecordPlace]:
        return TaskScheduler(self._services, self._calls, ctx.resumed)


class AsyncProcessOperator(_Waiting, ProcessOperator):
    """`async def fn(key, row, ctx)` yields output rows, or returns an iterable of them or None."""

    _ctx: AsyncKeyedContext

    def open(self, services: Services) -> None:
        calls, timed = self._calls_of(services), self._on_timer is not None
        self._ctx = AsyncKeyedContext(services, self._zone, self._side_outputs, timed, calls)
        self._scheduler = self._scheduler_of(self._ctx)

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        fn, ctx = self._fn, self._ctx

        def work(index: int) -> tuple[int, Call]:
            return index, lambda: fn(keys[index], rows[index], ctx)

        return self._done(keys, keys, work, "")

    def timers(self, due: list[DueTimer], event: bool) -> list[Row]:
        fn, ctx = self._on_timer, self._ctx
        if fn is None:
            return super().timers(due, event)
        keys = [unpack(timer[1]) for timer in due]

        def fire(index: int) -> Any:
            moment, _, name = due[index]
            return (
                fn(keys[index], Timer(name, moment, event), ctx)
                if ctx.still_fires(due[index], event)
                else None
            )

        with ctx.firing(due, event):
            packed = [timer[1] for timer in due]
            return self._done(packed, keys, lambda index: (None, partial(fire, index)), " in on_timer")

    def _done(
        self,
        lane_of: Sequence[Any],
        keys: list[Row],
        work: Callable[[int], tuple[int | None, Call]],
        what: str,
    ) -> list[Row]:
        """The rows of all records or timers. `lane_of` says which of them come one after the other, `work` of each its
        index in the bundle, and what to call."""
        made: list[list[Row]] = [[] for _ in keys]

        async def one_by_one(place: RecordPlace, lane: list[int]) -> None:
            for at in lane:
                index, call = work(at)
                place.begin(index, made[at])
                self._ctx.resumed(place)
                await _collect(call(), self._outputs, place)
                place.check_awaited()

        places = [(RecordPlace(keys[lane[0]]), lane) for lane in lanes(lane_of).values()]
        self._run([(place, one_by_one(place, lane)) for place, lane in places], what)
        if (tell := rows_told(self._services)) is not None:
            for upto in accumulate(map(len, made)):
                tell(upto)
        return self._side_outputs.settle([row for each in made for row in each], self._outputs)

    def _run(self, work: list[Lane], what: str) -> None:
        ctx = self._ctx
        before = ctx.begin()
        try:
            self._scheduler.run(work)
        except RAISED as error:
            ctx.forget()
            where = f"{what}, key {ctx.key!r}" if what else ""
            raise _failed(error, self._name, self._services, self._scheduler.place, where) from error
        finally:
            current.leave(before)
            ctx.key = None
        ctx.keep()


class AsyncConnectOperator(ConnectOperator, AsyncProcessOperator):
    """Either of the functions `left(key, row, ctx)` and `right(key, row, ctx)`, or both, is async."""


class _AsyncStateless(_Waiting, Stateless):
    """Records of a bundle at the same time, each by itself."""

    _ctx: Context

    def open(self, services: Services) -> None:
        ctx = AsyncContext(services, self._zone, self._side_outputs, self._calls_of(services))
        self._ctx, self._scheduler = ctx, self._scheduler_of(ctx)

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        before = self._ctx.begin()
        made: list[list[Row]] = [[] for _ in rows]
        try:
            self._scheduler.run([self._lane(index, row, made[index]) for index, row in enumerate(rows)])
        except RAISED as error:
            raise _failed(error, self._name, self._services, self._scheduler.place) from error
        finally:
            current.leave(before)
        return self._side_outputs.settle([row for each in made for row in each], self._outputs)

    def _lane(self, index: int, row: Row, made: list[Row]) -> Lane:
        place = RecordPlace(None)
        place.begin(index, made)

        async def alone() -> None:
            await self._take(row, self._fn(row, self._ctx), place)
            place.check_awaited()

        return place, alone()

    async def _take(self, row: Row, result: Any, place: RecordPlace) -> None:
        raise NotImplementedError


class AsyncMapOperator(_AsyncStateless):
    """`async def fn(row, ctx)` returns exactly one output row."""

    form = MapOperator.form

    async def _take(self, row: Row, result: Any, place: RecordPlace) -> None:
        place.made.append(self._outputs.taken(one_row(await result, self._name), range(place.index or 0)))


class AsyncFlatMapOperator(_AsyncStateless):
    """`async def fn(row, ctx)` yields output rows, or returns an iterable of them or None."""

    form = FlatMapOperator.form

    async def _take(self, row: Row, result: Any, place: RecordPlace) -> None:
        await _collect(result, self._outputs, place)


class AsyncFilterOperator(_AsyncStateless):
    """`async def fn(row, ctx)` returns whether the row stays."""

    form = FilterOperator.form
    column_flow = FilterOperator.column_flow

    async def _take(self, row: Row, result: Any, place: RecordPlace) -> None:
        if await result:
            copy = self._outputs.copier
            place.made.append(row if copy is None else copy(row))


_ASYNC: Mapping[type, type] = {
    ProcessOperator: AsyncProcessOperator,
    ConnectOperator: AsyncConnectOperator,
    MapOperator: AsyncMapOperator,
    FlatMapOperator: AsyncFlatMapOperator,
    FilterOperator: AsyncFilterOperator,
}


_RETURNING: dict[type, str] = {
    MapOperator: "map takes the row that a function returns. Return it, or use flat_map(fn, output, name=...)",
    FilterOperator: "filter asks what a function returns. Return True or False, or use flat_map(fn, output, name=...)",
}
"""What becomes of a function's result, by the kinds of operators that take one, and what to do in place of yield."""


def check_calls(calls: Calls | None, functions: Iterable[Any], name: str) -> None:
    """Raises QueryDefinitionError where `calls` is said, and none of the functions of all versions is async."""
    if calls is not None and not any(map(is_async, functions)):
        raise QueryDefinitionError(
            f"{name!r} says how its calls are carried out, and its function is not async",
            hint="Write async def and await ctx.call(fn, ...), or leave calls= out",
        )


def kind_for(
    kind: type, functions: Iterable[Any], name: str, calls: Calls | None, *, pure: bool = False
) -> Callable[..., Any]:
    """What makes an operator of this kind for the functions of one version. Raises QueryDefinitionError where one is
    async and that cannot be."""
    functions = tuple(functions)
    if kind in _RETURNING:
        for each in functions:
            refuse_generators(each, name, _RETURNING[kind])
    if kind not in _ASYNC:
        for each in functions:
            refuse_async(each, repr(name))
    if not any(map(is_async, functions)):
        return kind
    if pure:
        raise QueryDefinitionError(
            f"{name!r} is async, and declared pure: it has nothing that it could wait for",
            hint="Take (row, ctx) instead of (row): await ctx.call(fn, ...) is recorded",
        )
    return partial(_ASYNC[kind], calls=calls)


async def _collect(result: Any, outputs: Outputs, place: RecordPlace) -> None:
    """What the function gives: rows by `yield`, or an iterable of them or None by `return`."""
    if hasattr(type(result), "__aiter__"):
        async for row in result:
            outputs.collect((row,), place.made)
        return
    place.given = given = await result if inspect.isawaitable(result) else result
    if given is not None:
        outputs.collect(given, place.made)


def _failed(
    error: BaseException, name: str, services: Services, place: RecordPlace | None, what: str = ""
) -> ClonosError:
    index, given = (None, None) if place is None else (place.index, place.given)
    needs_loop = isinstance(error, RuntimeError) and "no running event loop" in str(error)
    hint = "Await what needs an event loop inside a recorded call: await ctx.call(async_function, ...)"
    return failed(error, name, services, index, what, given, hint if needs_loop else None)
