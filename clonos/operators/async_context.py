"""`ctx` of an async function: its calls are awaited, and others run meanwhile.

One object serves all records of a bundle, as elsewhere; the scheduler tells it which record goes on
(`AsyncContext.resumed`). Calls are carried out in other threads, where `ctx` is refused; so what a recorded closure
may not reach is out of its reach without more.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, tzinfo
from functools import update_wrapper
from random import Random
from typing import Any

from clonos.errors import QueryDefinitionError, UserFunctionError
from clonos.operators import current
from clonos.operators.calls import CallsUnderWay
from clonos.operators.context import Context, KeyedContext
from clonos.operators.side_outputs import SideOutputs
from clonos.protocol.engine.task_scheduler import CallRequest, EffectRequest, Together
from clonos.protocol.operator import Services

Row = tuple[Any, ...]
_STATE: Any = KeyedContext.__dict__["state"]


class RecordPlace:
    """Where a record or timer is at work: its key, its index in the bundle, its rows, and what it has asked for."""

    __slots__ = ("asked", "given", "index", "key", "made")

    def __init__(self, key: tuple[Any, ...] | None) -> None:
        self.key = key
        self.index: int | None = None
        self.given: Any = None  # what its function returned
        self.made: list[Row] = []
        self.asked: list[CallRequest | EffectRequest | Together] = []

    def begin(self, index: int | None, made: list[Row]) -> None:
        self.index, self.made, self.asked, self.given = index, made, [], None

    def check_awaited(self) -> None:
        """Raises UserFunctionError where the function has ended and left something that it asked for."""
        left = [each for each in self.asked if not each.awaited]
        if left:
            first = left[0]
            what = (
                f"a call of {_name(first.fn)}"
                if isinstance(first, CallRequest)
                else f"the effect {first.key!r}"
                if isinstance(first, EffectRequest)
                else "ctx.gather"
            )
            raise UserFunctionError(
                f"{what} was not awaited, so it did not take place",
                hint="Write await ctx.call(fn, ...), await ctx.effect(fn, ..., key=...), await ctx.gather(...)",
            )


class _Awaiting(Context):
    """What the contexts of async functions share. `_calls`, `_place`, `_random` and `_side_outputs` are theirs."""

    _calls: CallsUnderWay
    _place: RecordPlace
    _random: Random
    _key: tuple[Any, ...] | None

    @property
    def key(self) -> tuple[Any, ...] | None:
        """The key of the record or timer that goes on."""
        current.only_here("ctx.key")
        return self._key

    @key.setter
    def key(self, value: tuple[Any, ...] | None) -> None:
        self._key = value

    def now_us(self, exact: bool = False) -> int:
        current.only_here("ctx.now")
        return super().now_us(exact)

    def now(self, exact: bool = False) -> datetime:
        current.only_here("ctx.now")
        return super().now(exact)

    @property
    def watermark(self) -> datetime | None:
        """The event-time watermark, UTC; None while there is none."""
        current.only_here("ctx.watermark")
        return super().watermark

    @property
    def random(self) -> Random:
        """The instance's own generator; its draws are repeated exactly after a failure."""
        current.only_here("ctx.random")
        return self._random

    @random.setter
    def random(self, value: Random) -> None:
        self._random = value

    def resumed(self, place: RecordPlace) -> None:
        """This record goes on now."""
        self._place = place
        self.key = place.key
        if self._side_outputs is not None:
            self._side_outputs.into(place.made)

    def call(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> CallRequest:
        """To be awaited: `fn`, async or not, is run once and its result, or the exception it raised, recorded; at
        replay only that is given again. Other records go on meanwhile, and those of the same key wait."""
        current.only_here("ctx.call")
        asked = CallRequest(fn, args, kwargs)
        self._place.asked.append(asked)
        return asked

    def gather(self, *awaitables: Any, return_exceptions: bool = False) -> Together:
        """To be awaited: calls and coroutines at the same time; the list of their results, in the order given.

        It ends when all of them have. If some have failed, it raises the exception of the first one that did; with
        `return_exceptions` their exceptions stand in the list.
        """
        current.only_here("ctx.gather")
        together = Together(awaitables, returns_exceptions=return_exceptions)
        self._place.asked.append(together)
        return together

    def effect(self, fn: Callable[..., Any], /, *args: Any, key: str, **kwargs: Any) -> EffectRequest:
        """To be awaited: an action on the outside world, `fn` async or not. All it depends on is made stable first;
        `key` names it there. No other record of the instance goes on meanwhile."""
        current.only_here("ctx.effect")
        if not isinstance(key, str) or not key:
            raise QueryDefinitionError("ctx.effect needs key=, a non-empty string that names the action")

        def perform(*args: Any, **kwargs: Any) -> Any:
            return self._calls.run(fn, args, kwargs)

        asked = EffectRequest(update_wrapper(perform, fn), args, kwargs, key)
        self._place.asked.append(asked)
        return asked


class AsyncContext(_Awaiting):
    """Without a key."""

    def __init__(
        self, services: Services, zone: tzinfo | None, side_outputs: SideOutputs | None, calls: CallsUnderWay
    ) -> None:
        super().__init__(services, zone, side_outputs)
        self._calls = calls


class AsyncKeyedContext(_Awaiting, KeyedContext):
    """With state and timers."""

    def _held_state(self) -> dict[Any, Any]:
        """The key's state, as elsewhere. It may be held over an await: no other record of the key goes on meanwhile."""
        current.only_here("ctx.state")
        state: dict[Any, Any] = _STATE.__get__(self)
        return state

    state = property(_held_state, _STATE.__set__, _STATE.__delete__)

    def __init__(
        self,
        services: Services,
        zone: tzinfo | None,
        side_outputs: SideOutputs | None,
        timed: bool,
        calls: CallsUnderWay,
    ) -> None:
        KeyedContext.__init__(self, services, zone, side_outputs, timed)
        self._calls = calls


def _name(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__
