"""The task scheduler: functions that wait for recorded calls, many at a time, in an order that a replay repeats.

The function of a record is a coroutine. It runs until it awaits a call; then another one runs. When all of them wait,
one answer is taken, that of the call which has ended first, and its coroutine runs until it waits again. So what
happens in which order follows from one thing alone, the order of the answers, and that is recorded
(`Kind.ANSWER`): a replay takes the answers in the recorded order and comes by the same interleaving, hence by the same
draws, the same state and the same rows. Calls that had not ended when the process died are begun again.

There is no event loop and no thread here. The calls are carried out behind `CallPort`. Asynchronous external calls with
completion order as the only nondeterminism follow Flink's Async I/O (FLIP-12); there, what is under way is part of
the checkpoint, here it never outlives a bundle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterable, Mapping
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from clonos.errors import UserFunctionError
from clonos.protocol.recovery.causal.determinant import CallNumber

Place = TypeVar("Place")
Key = TypeVar("Key", bound=Hashable)
Give = Callable[[], Any]
Running = Coroutine[Any, Any, Any]


class _Request:
    """What is awaited once. `awaited` tells whether it was."""

    __slots__ = ("awaited",)
    what = ""

    def __init__(self) -> None:
        self.awaited = False

    def __await__(self) -> Generator[Any, Any, Any]:
        if self.awaited:
            raise UserFunctionError(f"{self.what} was awaited twice", hint="Keep its result in a variable")
        self.awaited = True
        return (yield self)


class CallRequest(_Request):
    """What awaits the result of a recorded call."""

    __slots__ = ("args", "fn", "kwargs")
    what = "a recorded call"

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self.fn = fn
        self.args = args
        self.kwargs = kwargs


class EffectRequest(_Request):
    """What awaits the result of a recorded effect, which the scheduler has carried out while nothing else goes on."""

    __slots__ = ("args", "fn", "key", "kwargs")
    what = "an effect"

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str
    ) -> None:
        super().__init__()
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.key = key


class Together:
    """What awaits several things at once; their results in the order of `parts`. It ends when all of them have. Then
    the first exception, in the order in which they ended, is raised, unless `returns_exceptions`."""

    __slots__ = ("awaited", "parts", "returns_exceptions")

    def __init__(self, parts: tuple[Any, ...], *, returns_exceptions: bool) -> None:
        self.parts = parts
        self.returns_exceptions = returns_exceptions
        self.awaited = False

    def __await__(self) -> Generator[Any, Any, Any]:
        self.awaited = True
        return (yield self)


@dataclass(frozen=True, slots=True)
class Ended:
    """A call that has ended. `result` returns what it has come to, or raises it; it was under way for `took`
    microseconds."""

    number: CallNumber
    name: str
    result: Give
    took: int


class CallPort(Protocol):
    """Carries out calls, some at the same time."""

    def start(self, number: CallNumber, name: str, asked: CallRequest) -> None: ...

    def wait(self) -> Ended:
        """The next one to end. Called only while some are under way."""
        ...

    def abandon(self) -> None:
        """Nothing that is under way is waited for any more; numbers begin anew."""
        ...


class CallServices(Protocol):
    """The recording services that a scheduler goes through."""

    def begin_call(self, calls: CallPort, asked: CallRequest) -> CallNumber: ...

    def next_answer(self, wait: Callable[[], Ended]) -> tuple[CallNumber, Give]: ...

    def effect(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str
    ) -> Any: ...


class _Task(Generic[Place]):
    """A coroutine, where it belongs, and whose part it is. What it sets of context variables is its own."""

    __slots__ = ("context", "coroutine", "group", "index", "place")

    def __init__(
        self,
        coroutine: Running,
        place: Place,
        context: Context,
        group: _Group[Place] | None = None,
        index: int = 0,
    ) -> None:
        self.coroutine = coroutine
        self.context = context
        self.place = place
        self.group = group
        self.index = index


class _Group(Generic[Place]):
    """The parts of a `Together`, and the task that waits for them."""

    __slots__ = ("failed", "left", "parent", "results", "returns_exceptions")

    def __init__(self, parent: _Task[Place], asked: Together) -> None:
        self.parent = parent
        self.left = len(asked.parts)
        self.results: list[Any] = [None] * self.left
        self.failed: Exception | None = None
        self.returns_exceptions = asked.returns_exceptions

    def give(self) -> list[Any]:
        if self.failed is not None and not self.returns_exceptions:
            raise self.failed
        return self.results


class TaskScheduler(Generic[Place]):
    """Runs the coroutines of one bundle. `resumed` is told to which place the one belongs that goes on now; `place` is
    where it is when an exception comes out of `run`."""

    def __init__(self, services: CallServices, calls: CallPort, resumed: Callable[[Place], None]) -> None:
        self.place: Place | None = None
        self._services = services
        self._calls = calls
        self._resumed = resumed
        self._ready: deque[tuple[_Task[Place], Give]] = deque()
        self._waiting: dict[CallNumber, _Task[Place]] = {}

    def run(self, coroutines: Iterable[tuple[Place, Running]]) -> None:
        """Until all have ended. Raises what one of them raises, or what comes of its recorded calls; the others end
        there, too."""
        self._ready = deque(
            (_Task(coroutine, place, copy_context()), _nothing) for place, coroutine in coroutines
        )
        self._waiting = {}
        try:
            while self._ready or self._waiting:
                while self._ready:
                    self._go_on(*self._ready.popleft())
                if self._waiting:
                    number, give = self._services.next_answer(self._wait)
                    self._ready.append((self._waiting.pop(number), give))
        except BaseException:
            self._abandon()
            raise

    def _wait(self) -> Ended:
        ended = self._calls.wait()
        self.place = self._waiting[ended.number].place  # to blame, if the result cannot be recorded
        return ended

    def _go_on(self, task: _Task[Place], give: Give) -> None:
        self.place = task.place
        self._resumed(task.place)
        go_on: Give
        try:
            go_on = partial(task.coroutine.send, give())
        except Exception as error:
            go_on = partial(task.coroutine.throw, error)
        try:
            asked = task.context.run(go_on)
        except StopIteration as end:
            self._ended(task, end.value)
        except Exception as error:
            if task.group is None:
                raise
            self._ended(task, error, failed=error)
        else:
            self._begin(task, asked)

    def _begin(self, task: _Task[Place], asked: Any) -> None:
        if isinstance(asked, CallRequest):
            self._waiting[self._services.begin_call(self._calls, asked)] = task
        elif isinstance(asked, EffectRequest):
            perform = partial(self._services.effect, asked.fn, asked.args, asked.kwargs, asked.key)
            self._ready.appendleft((task, perform))
        elif isinstance(asked, Together):
            group = _Group(task, asked)
            parts = [
                _Task(_run(part), task.place, task.context.copy(), group, index)
                for index, part in enumerate(asked.parts)
            ]
            self._ready.extend((part, _nothing) for part in parts)
            if not parts:
                self._ready.append((task, group.give))
        else:
            with suppress(Exception):
                task.coroutine.close()
            raise UserFunctionError(
                f"the function awaits {type(asked).__name__}, which is not recorded",
                hint="Await ctx.call(fn, ...), ctx.gather(...) or ctx.effect(...): fn may be async, and await anything",
            )

    def _ended(self, task: _Task[Place], result: Any, failed: Exception | None = None) -> None:
        group = task.group
        if group is None:
            return
        group.results[task.index] = result
        group.failed = group.failed or failed
        group.left -= 1
        if group.left == 0:
            self._ready.append((group.parent, group.give))

    def _abandon(self) -> None:
        self._calls.abandon()
        for task in (*(task for task, _ in self._ready), *self._waiting.values()):
            with suppress(BaseException):  # a function that does not let itself be ended
                task.coroutine.close()
        self._ready.clear()
        self._waiting.clear()


def lanes(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """By key the places of its records in a bundle. A lane is gone through in order, lanes at the same time."""
    found: dict[Key, list[int]] = {}
    for index, key in enumerate(keys):
        found.setdefault(key, []).append(index)
    return found


async def _run(part: Any) -> Any:
    return await part


def _nothing() -> None:
    return None
