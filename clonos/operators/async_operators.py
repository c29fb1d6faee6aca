"""`process`, `map`, `flat_map` and `filter` with async functions.

The records of a bundle are at work at the same time, those of one key one after the other, and the bundle ends when all
of them have: so state, snapshots and what leaves are as with other functions. Rows leave in the order of the records,
whatever the order in which their calls end.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from clonos.async_functions import is_async, refuse_async
from clonos.errors import ClonosError, QueryDefinitionError
from clonos.operators import current
from clonos.operators.async_context import AsyncContext, AsyncKeyedContext, RecordPlace
from clonos.operators.calls import Calls, CallsUnderWay
from clonos.operators.context import Context
from clonos.operators.outputs import Outputs, failed
from clonos.operators.process import (
    RAISED,
    ConnectOperator,
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    OfBoth,
    ProcessOperator,
    Stateless,
    Timer,
    one_row,
)
from clonos.protocol.engine.task_scheduler import TaskScheduler
from clonos.protocol.operator import Services
from clonos.values.key_codec import unpack

Row = tuple[Any, ...]
Lane = tuple[RecordPlace, Coroutine[Any, Any, None]]
DueTimer = tuple[int, bytes, str]


class AsyncProcessOperator(ProcessOperator):
    """`async def fn(key, row, ctx)` yields output rows, or returns an iterable of them or None."""

    record_at_a_time = False  # what is at work at the same time is not what it would be one by one
    _ctx: AsyncKeyedContext

    def __init__(
        self,
        fn: Callable[..., Any],
        output: pa.Schema | Sequence[str],
        *,
        calls: Calls | None = None,
        **more: Any,
    ) -> None:
        super().__init__(fn, output, **more)
        self._policy = calls or Calls()

    def open(self, services: Services) -> None:
        self._services = services
        self._calls = CallsUnderWay(self._policy)
        timed = self._on_timer is not None
        self._ctx = AsyncKeyedContext(services, self._zone, self._side_outputs, timed, self._calls)
        self._scheduler = TaskScheduler[RecordPlace](services, self._calls, self._ctx.resumed)

    def close(self) -> None:
        self._calls.close()

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        made: list[list[Row]] = []
        lanes: dict[Row, list[tuple[int, Row]]] = {}
        for index, (key, row) in enumerate(zip(keys, rows)):
            lanes.setdefault(key, []).append((index, row))
            made.append([])
        self._run([self._lane(key, records, made) for key, records in lanes.items()], "")
        return self._side_outputs.settle([row for each in made for row in each], self._outputs)

    def _lane(self, key: Row, records: list[tuple[int, Row]], made: list[list[Row]]) -> Lane:
        place = RecordPlace(key)

        async def one_by_one() -> None:
            for index, row in records:
                place.begin(index, made[index])
                self._ctx.resumed(place)
                await _collect(self._fn(key, row, self._ctx), self._outputs, place)
                place.check_awaited()

        return place, one_by_one()

    def timers(self, due: list[DueTimer], event: bool) -> list[Row]:
        if self._on_timer is None:
            return super().timers(due, event)
        made: list[list[Row]] = [[] for _ in due]
        lanes: dict[bytes, list[tuple[int, DueTimer]]] = {}
        for index, timer in enumerate(due):
            lanes.setdefault(timer[1], []).append((index, timer))
        with self._ctx.firing(due, event):
            self._run(
                [self._firing_lane(key, timers, made, event) for key, timers in lanes.items()], " in on_timer"
            )
        return self._side_outputs.settle([row for each in made for row in each], self._outputs)

    def _firing_lane(
        self, packed: bytes, timers: list[tuple[int, DueTimer]], made: list[list[Row]], event: bool
    ) -> Lane:
        fn, key = self._on_timer, unpack(packed)
        assert fn is not None
        place = RecordPlace(key)

        async def one_by_one() -> None:
            for index, timer in timers:
                if not self._ctx.still_fires(timer, event):
                    continue
                place.begin(None, made[index])
                self._ctx.resumed(place)
                await _collect(fn(key, Timer(timer[2], timer[0], event), self._ctx), self._outputs, place)
                place.check_awaited()

        return place, one_by_one()

    def _run(self, lanes: list[Lane], what: str) -> None:
        ctx = self._ctx
        before = ctx.begin()
        try:
            self._scheduler.run(lanes)
        except RAISED as error:
            ctx.forget()
            where = f"{what}, key {ctx.key!r}" if what else ""
            raise _failed(error, self._name, self._services, self._scheduler.place, where) from error
        finally:
            current.leave(before)
            ctx.key = None
        ctx.keep()


class AsyncConnectOperator(AsyncProcessOperator):
    """Either of the functions `left(key, row, ctx)` and `right(key, row, ctx)`, or both, is async."""

    form = ConnectOperator.form

    def __init__(
        self,
        left: Callable[..., Any],
        right: Callable[..., Any],
        output: pa.Schema | Sequence[str],
        **more: Any,
    ) -> None:
        super().__init__(OfBoth(left, right), output, **more)


class _AsyncStateless(Stateless):
    """Records of a bundle at the same time, each by itself."""

    record_at_a_time = False
    _ctx: Context

    def __init__(
        self,
        fn: Callable[..., Any],
        output: pa.Schema | Sequence[str],
        *,
        calls: Calls | None = None,
        **more: Any,
    ) -> None:
        super().__init__(fn, output, **more)
        self._policy = calls or Calls()

    def open(self, services: Services) -> None:
        self._services = services
        self._calls = CallsUnderWay(self._policy)
        self._async_ctx = self._ctx = AsyncContext(services, self._zone, self._side_outputs, self._calls)
        self._scheduler = TaskScheduler[RecordPlace](services, self._calls, self._async_ctx.resumed)

    def close(self) -> None:
        self._calls.close()

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
        place.made.append(self._outputs.taken(one_row(await result, self._name), place.index or 0))


class AsyncFlatMapOperator(_AsyncStateless):
    """`async def fn(row, ctx)` yields output rows, or returns an iterable of them or None."""

    form = FlatMapOperator.form

    async def _take(self, row: Row, result: Any, place: RecordPlace) -> None:
        await _collect(result, self._outputs, place)


class AsyncFilterOperator(_AsyncStateless):
    """`async def fn(row, ctx)` returns whether the row stays."""

    form = FilterOperator.form

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
