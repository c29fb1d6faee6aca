"""`ctx`: the causal services as user functions see them.

One object per instance serves every record; a record switches it by one attribute. What a record does not ask for
costs it nothing.

Inside a recorded closure (`ctx.call`, `ctx.effect`) the rules turn round: the closure's *result* is recorded, and at
replay the closure does not run at all. So it must leave no trace in anything that is repeated: there, `ctx.random` and
`ctx.now()` are the outside world's, not the function's recorded streams, and state and timers are out of reach. The
context changes its class for the time of the call; nothing is checked per record.

All of it belongs to one thread (`clonos.operators.current`). Two things that are used for each record are not checked
for that: `ctx.random`, and a reading or a state that the bundle has already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from operator import index
from random import Random, SystemRandom
from typing import Any
from uuid import UUID

from clonos.errors import QueryDefinitionError, StateError, UserFunctionError
from clonos.operators import current
from clonos.operators.rows import instant
from clonos.operators.side_outputs import SideOutputs
from clonos.protocol.operator import Services
from clonos.values.bundle_state import BundleState
from clonos.values.key_codec import pack, unpack

LAST_MOMENT = 2**63 - 1
"""In microseconds. Spark's timers are of milliseconds, some of which are later: they never come in Spark either."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_OUTSIDE = SystemRandom()
_PACKED_KEYS = 50_000


class Context:
    """The services every operator function has: clock, random numbers, recorded calls, effects, watermark."""

    __slots__ = ("_now", "_now_us", "_services", "_side_outputs", "_zone", "key", "random")

    key: tuple[Any, ...] | None
    """The key of the record or timer being processed."""
    random: Random
    """The instance's own generator; its draws are repeated exactly after a failure."""

    def __init__(
        self, services: Services, zone: tzinfo | None, side_outputs: SideOutputs | None = None
    ) -> None:
        self._services = services
        self._zone = zone
        self._side_outputs = side_outputs
        self._now: datetime | None = None
        self._now_us: int | None = None
        self.key = None
        self.random = services.random  # type: ignore[assignment]

    def begin(self) -> Any:
        """A bundle begins: forget its predecessor's clock. Returns what `current.leave` must be given."""
        self._now = self._now_us = None
        self.random = self._services.random  # type: ignore[assignment]
        return current.enter(self)

    def now(self, exact: bool = False) -> datetime:
        """The time, UTC. All records of a bundle share one reading unless `exact`, which records every call."""
        if exact:
            return _EPOCH + timedelta(microseconds=self.now_us(exact=True))
        now = self._now
        if now is None:
            now = self._now = _EPOCH + timedelta(microseconds=self.now_us())
        return now

    def now_us(self, exact: bool = False) -> int:
        """As `now`, in microseconds since the epoch."""
        now = None if exact else self._now_us
        if now is not None:
            return now
        current.only_here("ctx.now")
        if exact:
            return self._services.exact_clock()
        now = self._now_us = self._services.clock()
        return now

    @property
    def watermark(self) -> datetime | None:
        """The event-time watermark, UTC, not before the year 1; None while there is none."""
        watermark = self._services.watermark
        return None if watermark is None else _EPOCH + timedelta(microseconds=max(watermark, _FIRST_US))

    def _drop_late(self) -> None:
        """Nothing comes of the row: it is late."""
        self._services.drop_late(1)

    def uuid4(self) -> UUID:
        """A random UUID, drawn from `ctx.random`."""
        current.only_here("ctx.uuid4")
        return UUID(int=self.random.getrandbits(128), version=4)

    def call(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run `fn` once and record its result, or the exception it raised; at replay only give that again."""
        current.only_here("ctx.call")
        kind, random = type(self), self.random
        self.__class__, self.random = kind._closed(), _OUTSIDE
        try:
            return self._services.call(fn, args, kwargs)
        finally:
            self.__class__, self.random = kind, random

    def effect(self, fn: Callable[..., Any], /, *args: Any, key: str, **kwargs: Any) -> Any:
        """An action on the outside world. All it depends on is made stable first; `key` names it there, so that the
        other side can recognise an action whose result was lost on the way back."""
        current.only_here("ctx.effect")
        if not isinstance(key, str) or not key:
            raise QueryDefinitionError("ctx.effect needs key=, a non-empty string that names the action")
        kind, random = type(self), self.random
        self.__class__, self.random = kind._closed(), _OUTSIDE
        try:
            return self._services.effect(fn, args, kwargs, key)
        finally:
            self.__class__, self.random = kind, random

    def side_output(self, name: str, row: Any) -> None:
        """Give a row of a side output that the operator declares: of `stream.side_output(name)`."""
        current.only_here("ctx.side_output")
        if self._side_outputs is None:
            raise QueryDefinitionError(
                "this form of operator has no side outputs",
                hint="process, map, flat_map, filter and map_batches have",
            )
        self._side_outputs.add(name, row)

    @classmethod
    def _closed(cls) -> type[Context]:
        return _ClosedContext


class KeyedContext(Context):
    """With state and timers, for functions that have no other way to them."""

    __slots__ = ("_firing", "_in_timers", "_loaded", "_packed", "_states", "_timed")

    def __init__(
        self,
        services: Services,
        zone: tzinfo | None,
        side_outputs: SideOutputs | None = None,
        timed: bool = True,
    ) -> None:
        super().__init__(services, zone, side_outputs)
        self._timed = timed
        self._in_timers = False
        self._states = BundleState()
        self._loaded = self._states.loaded
        self._packed: dict[Any, bytes] = {}
        self._firing: set[tuple[int, bytes, str, bool]] = set()

    @property
    def state(self) -> dict[Any, Any]:
        """The key's state: a dict, empty at first, kept from then on. Emptying it removes it.

        What is kept is what it is when the bundle ends. The next bundle gets a copy of that, as it would after a
        failure: objects that were one there are two, and a set is built anew.
        """
        state = self._loaded.get(self.key)
        return self._load() if state is None else state

    @state.setter
    def state(self, value: dict[Any, Any]) -> None:
        current.only_here("ctx.state")
        if not isinstance(value, dict):
            raise StateError(f"the state of key {self.key!r} must be a dict, not {type(value).__name__}")
        self.state  # noqa: B018 - remembers what is kept now
        self._loaded[self.key] = value

    @state.deleter
    def state(self) -> None:
        self.state = {}

    def _load(self) -> dict[Any, Any]:
        current.only_here("ctx.state")
        if self.key is None:
            raise QueryDefinitionError("ctx.state needs a key", hint="Use groupBy(...).process(...)")
        return self._states.load(self._services.state, self.key, self._key_bytes())

    def _key_bytes(self) -> bytes:
        data = self._packed.get(self.key)
        if data is None:
            if len(self._packed) >= _PACKED_KEYS:
                self._packed.clear()
            data = self._packed[self.key] = pack(self.key)
        return data

    def keep(self) -> None:
        """The bundle is done: hand every state that was asked for back, once."""
        if self._loaded:
            self._states.keep(self._services.state)

    def forget(self) -> None:
        self._states.forget()

    def loaded(self, key: tuple[Any, ...]) -> dict[Any, Any] | None:
        """The state of a key as the bundle has it, if it has asked for it."""
        return self._loaded.get(key)

    def timer(
        self,
        delay: timedelta | float | None = None,
        *,
        at: datetime | int | None = None,
        name: str = "",
        event: bool = False,
    ) -> int:
        """Call `on_timer` for this key later; returns the due time in microseconds, which `cancel_timer` takes.

        `delay` is from the bundle clock (with `event`, from the watermark), as a timedelta or in seconds. `at` is a
        datetime (a naive one in the session's zone, as rows have it) or microseconds since the epoch. Set from within
        `on_timer`, a timer is due a microsecond from now at the earliest.
        """
        current.only_here("ctx.timer")
        if not self._timed:
            raise QueryDefinitionError("ctx.timer needs a function to call", hint="Declare it with on_timer=")
        if event and self._services.watermark is None and not self._services.has_event_time:
            raise QueryDefinitionError(
                "a timer of event time would never fire: no input of the operator has a watermark",
                hint="Call withWatermark(column, delay) on the stream that it reads",
            )
        due = self._due(delay, at, event)
        if self._in_timers:
            # one that is due at once would be fired at once, and might set itself again, for ever
            now = self._services.watermark if event else self._services.clock()
            due = due if now is None else max(due, now + 1)
        port = self._services.event_timers if event else self._services.timers
        port.set(due, self._timer_key(), name)
        return due

    def cancel_timer(self, due: int | datetime, name: str = "", event: bool = False) -> None:
        """Take back a timer of this key; nothing happens if there is none."""
        current.only_here("ctx.cancel_timer")
        moment = self._moment(due)
        data = self._timer_key()
        (self._services.event_timers if event else self._services.timers).cancel(moment, data, name)
        self._firing.discard((moment, data, name, event))

    def _moment(self, at: datetime | int) -> int:
        """In microseconds. An integer may be one of numpy's."""
        return instant(at, self._zone) if isinstance(at, datetime) else index(at)

    def _timer_key(self) -> bytes:
        if self.key is None:
            raise QueryDefinitionError("a timer needs a key", hint="Use groupBy(...).process(...)")
        return self._key_bytes()

    def _due(self, delay: timedelta | float | None, at: datetime | int | None, event: bool) -> int:
        if (delay is None) == (at is None):
            raise QueryDefinitionError("ctx.timer needs either a delay or at=")
        if at is not None:
            return self._moment(at)
        assert delay is not None
        span = (
            delay // timedelta(microseconds=1) if isinstance(delay, timedelta) else round(delay * 1_000_000)
        )
        if span < 0:
            raise QueryDefinitionError(f"the delay of a timer must not be negative: {delay}")
        if not event:
            return self._services.clock() + span
        if self._services.watermark is None:
            raise QueryDefinitionError("a delay in event time needs a watermark", hint="Use at= instead")
        return self._services.watermark + span

    @classmethod
    def _closed(cls) -> type[Context]:
        return _ClosedKeyedContext

    def fire(self, due: list[tuple[int, bytes, str]], event: bool) -> Any:
        """The timers of `due` one by one, each with `ctx.key` set, without those cancelled by an earlier one."""
        with self.firing(due, event):
            for timer in due:
                if self.still_fires(timer, event):
                    self.key = unpack(timer[1])
                    yield timer

    @contextmanager
    def firing(self, due: list[tuple[int, bytes, str]], event: bool) -> Iterator[None]:
        """While the timers of `due` are fired."""
        self._firing = {(*timer, event) for timer in due}
        self._in_timers = True
        try:
            yield
        finally:
            self._in_timers = False

    def still_fires(self, timer: tuple[int, bytes, str], event: bool) -> bool:
        """Whether a timer that is fired now was not cancelled by an earlier one. It is not cancelled any more."""
        if (*timer, event) not in self._firing:
            return False
        self._firing.discard((*timer, event))
        return True


def _refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise UserFunctionError(
        "state, timers, effects and side outputs are out of reach inside ctx.call and ctx.effect",
        hint="At replay the closure does not run, only its result is given: return a value and use it outside",
    )


def _outside_now(self: Any, exact: bool = False) -> datetime:
    current.only_here("ctx.now")
    return datetime.now(UTC)


def _outside_now_us(self: Any, exact: bool = False) -> int:
    current.only_here("ctx.now")
    return time.time_ns() // 1000


def _outside_call(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    current.only_here("ctx.call")
    return fn(*args, **kwargs)  # already inside a recorded call


class _ClosedContext(Context):
    __slots__ = ()
    now, now_us, call, effect = _outside_now, _outside_now_us, _outside_call, _refuse
    side_output = _refuse


class _ClosedKeyedContext(KeyedContext):
    __slots__ = ()
    now, now_us, call, effect = _outside_now, _outside_now_us, _outside_call, _refuse
    timer, cancel_timer, side_output = _refuse, _refuse, _refuse
    state = property(_refuse, _refuse, _refuse)
