"""Recorded calls that are carried out while the function goes on: how many at once, for how long, how often.

An async function runs in an event loop in a thread of its own, any other function in a thread per call, so neither
blocks the instance. What a call has come to is handed over in the order in which calls end; what of it is recorded,
and when, is the scheduler's (`clonos.protocol.engine.task_scheduler`).
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from clonos.async_functions import is_async
from clonos.errors import QueryDefinitionError
from clonos.protocol.engine.task_scheduler import CallRequest, Ended
from clonos.protocol.recovery.causal.determinant import CallNumber

__all__ = ["Calls", "CallsUnderWay"]


@dataclass(frozen=True, slots=True)
class Calls:
    """How an operator's async functions carry out recorded calls.

    `at_once`: how many of an instance are under way at the same time. `timeout`: of one attempt, a timedelta or
    seconds; None to wait as long as it takes. `retries`: how many more attempts follow one that fails, the
    first after `pause`, a timedelta or seconds, each later one after twice as long. The outcome of the last attempt is
    that of the call: a `TimeoutError` where it has timed out. Raises QueryDefinitionError.
    """

    at_once: int = 100
    timeout: timedelta | float | None = None
    retries: int = 0
    pause: timedelta | float = 0.1

    def __post_init__(self) -> None:
        if self.at_once < 1:
            raise QueryDefinitionError(f"at_once={self.at_once} lets no call begin", hint="Give at least 1")
        if self.retries < 0:
            raise QueryDefinitionError(f"retries={self.retries} is negative", hint="Give 0 for one attempt")
        if self.timeout is not None and _seconds(self.timeout) <= 0:
            raise QueryDefinitionError(
                f"timeout={self.timeout} is over before a call begins",
                hint="Give seconds or a timedelta, or None",
            )
        if _seconds(self.pause) < 0:
            raise QueryDefinitionError(f"pause={self.pause} is negative", hint="Give seconds or a timedelta")


class CallsUnderWay:
    """A `CallPort`. Used by the thread of one instance."""

    def __init__(self, policy: Calls) -> None:
        self._policy = policy
        self._ended: queue.SimpleQueue[tuple[int, Ended]] = queue.SimpleQueue()
        self._generation = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._free: asyncio.Semaphore

    def start(self, number: CallNumber, name: str, asked: CallRequest) -> None:
        generation = self._generation
        begun: list[int] = []

        def ended(result: Callable[[], Any]) -> None:
            took = (time.monotonic_ns() - begun[0]) // 1000 if begun else 0  # it was cancelled in the queue
            self._ended.put((generation, Ended(number, name, result, took)))

        call = partial(asked.fn, *asked.args, **asked.kwargs)
        self._submit(self._limited(call, lambda: begun.append(time.monotonic_ns())), ended)

    def wait(self) -> Ended:
        while True:
            generation, ended = self._ended.get()
            if generation == self._generation:
                return ended

    def abandon(self) -> None:
        self._generation += 1
        if self._loop is not None:
            # What still comes is of no generation
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop)

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """One call, alone: returns what it comes to, or raises it."""
        ended: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._submit(self._tried(partial(fn, *args, **kwargs)), ended.put)
        return ended.get()()

    def close(self) -> None:
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(_end(), self._loop)
            self._loop = None

    def _submit(self, work: Any, ended: Callable[[Callable[[], Any]], None]) -> None:
        if self._loop is None:
            self._loop, self._free = asyncio.new_event_loop(), asyncio.Semaphore(self._policy.at_once)
            threading.Thread(target=_serve, args=(self._loop,), name="clonos-calls", daemon=True).start()
        self._loop.call_soon_threadsafe(_begin, self._loop, work, ended)

    async def _limited(self, call: Callable[[], Any], begins: Callable[[], None]) -> Any:
        async with self._free:
            begins()
            return await self._tried(call)

    async def _tried(self, call: Callable[[], Any]) -> Any:
        policy, pause = self._policy, _seconds(self._policy.pause)
        for _ in range(policy.retries):
            try:
                return await self._attempt(call)
            except Exception:  # which kinds of failure pass is the service's knowledge
                await asyncio.sleep(pause)
                pause *= 2
        return await self._attempt(call)

    async def _attempt(self, call: Callable[[], Any]) -> Any:
        timeout = self._policy.timeout
        if timeout is None:
            return await _carried_out(call)
        try:
            async with asyncio.timeout(_seconds(timeout)) as limit:
                return await _carried_out(call)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"no answer within {_seconds(timeout):g} s") from None


async def _carried_out(call: Callable[[], Any]) -> Any:
    if is_async(call.func if isinstance(call, partial) else call):
        return await call()
    result = await _in_a_thread(call)
    return await result if inspect.isawaitable(result) else result


async def _in_a_thread(call: Callable[[], Any]) -> Any:
    """A thread of its own, which a call that never ends keeps from nothing but ending itself."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Callable[[], Any]] = loop.create_future()

    def tell(result: Callable[[], Any]) -> None:
        if not done.done():  # it has timed out
            done.set_result(result)

    def work() -> None:
        try:
            result = partial(_given, call())
        except BaseException as error:
            result = partial(_raised, error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, result)

    threading.Thread(target=work, name="clonos-call", daemon=True).start()
    return (await done)()


def _begin(loop: asyncio.AbstractEventLoop, work: Any, ended: Callable[[Callable[[], Any]], None]) -> None:
    loop.create_task(_settled(work)).add_done_callback(lambda done: ended(done.result()))


async def _settled(work: Any) -> Callable[[], Any]:
    """What returns the result of `work`, or raises it. No exception reaches the loop: one that exits would end it."""
    try:
        return partial(_given, await work)
    except asyncio.CancelledError:  # by itself, or after `abandon`, when this is heard by nothing any more
        return partial(_raised, RuntimeError("the call was cancelled"))
    except (Exception, SystemExit) as error:
        return partial(_raised, error)
    except BaseException as error:
        return partial(_raised, RuntimeError(f"the call ended with {type(error).__name__}: {error}"))


async def _cancel_all() -> None:
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    others = [task for task in asyncio.all_tasks(loop) if task is not this]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _end() -> None:
    await _cancel_all()
    asyncio.get_running_loop().stop()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _given(result: Any) -> Any:
    return result


def _raised(error: BaseException) -> Any:
    raise error


def _seconds(span: timedelta | float) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else float(span)
