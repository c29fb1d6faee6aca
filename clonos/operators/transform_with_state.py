"""`transformWithState` and `transformWithStateInPandas` over causal services.

A user's subclass of PySpark's `StatefulProcessor` runs unchanged: it meets a handle, variables, timer values and rows
with PySpark's methods. As in `clonos.operators.group_state`, a call covers one key's rows of one bundle; the processing
time is the bundle clock; timers fire as soon as they are due.

Timers are kept twice: in the runtime's queue, which says when, and per key in the state, which answers `listTimers`
and tells whether a timer that has been taken off the queue still stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from clonos.async_functions import refuse_async
from clonos.errors import InputError, QueryDefinitionError, StateError
from clonos.operators import current
from clonos.operators.batches import BUNDLE, Batches, Groups
from clonos.operators.context import LAST_MOMENT, Context
from clonos.operators.frames import FrameMaker, FrameReader
from clonos.operators.initial_state import TIMER as INITIAL_STATE_TIMER, InitialState, RowsByInstance
from clonos.operators.migration import Migrate
from clonos.operators.outputs import RAISED, Outputs, failed
from clonos.operators.pyspark_rows import PySparkRows, arrow_key, frame_key, naive_as_utc
from clonos.operators.rows import zone_of
from clonos.operators.spark_errors import spark_error
from clonos.operators.state_variables import TTL_TIMER, ListState, MapState, ValueState, purge_unused
from clonos.operators.types import arrow_schema
from clonos.operators.values import Codec
from clonos.protocol.engine.given_rows import rows_told
from clonos.protocol.operator import Services
from clonos.protocol.topology import StateVariable
from clonos.protocol.versions.state_evolution import Fields
from clonos.values.key_codec import kept_under, pack, unpack

_TIMERS = pack("\x00timers")
_MODES = {"none": "None", "processingtime": "ProcessingTime", "eventtime": "EventTime"}


class TimerValues:
    """The times of a call, as PySpark's `TimerValues`; reading the clock records it, so it is read only if asked."""

    __slots__ = ("_mode", "_services")

    def __init__(self, services: Services, mode: str) -> None:
        self._services = services
        self._mode = mode

    def getCurrentProcessingTimeInMs(self) -> int:
        """The bundle clock; -1 with time mode None."""
        if self._mode == "None":
            return -1
        current.only_here("the processing time")
        return self._services.clock() // 1000

    def getCurrentWatermarkInMs(self) -> int:
        """The watermark; 0 before the first one, -1 where there is none."""
        if self._mode == "None":
            return -1
        watermark = self._services.watermark
        if watermark is None:
            return 0 if self._mode == "EventTime" else -1
        return watermark // 1000


class ExpiredTimerInfo:
    """Which timer has expired, as PySpark's `ExpiredTimerInfo`."""

    __slots__ = ("_expiry",)

    def __init__(self, expiryTimeInMs: int = -1) -> None:
        self._expiry = expiryTimeInMs

    def getExpiryTimeInMs(self) -> int:
        return self._expiry


class StatefulProcessorHandle:
    """What `init` is given: state variables (only there) and the timers of the current key (only later)."""

    def __init__(self, services: Services, mode: str, tz: str | None, name: str) -> None:
        self.services = services
        self.variables: dict[str, Any] = {}
        self.phase = "init"
        self.firing = False
        self._mode = mode
        self._zone = zone_of(tz)
        self._operator = name
        self._key: bytes | None = None
        self._deleted: set[str] = set()

    def set_key(self, data: bytes | None) -> None:
        self._key = data

    def key_bytes(self, what: str) -> bytes:
        """The current key's bytes, for the variables and timers that belong to it."""
        if self._key is None:
            raise QueryDefinitionError(
                f"{what} of {self._operator!r} was used without a key",
                hint="Use it in handleInputRows and handleExpiredTimer",
            )
        current.only_here(what)
        return self._key

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ValueState:
        """Declare a variable with one value per key."""
        ttl = self._declared(stateName, ttlDurationMs)
        made = self.variables[stateName] = ValueState(self, stateName, self._codec(stateName, schema), ttl)
        return made

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ListState:
        """Declare a variable with a list of values per key."""
        ttl = self._declared(stateName, ttlDurationMs)
        made = self.variables[stateName] = ListState(self, stateName, self._codec(stateName, schema), ttl)
        return made

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> MapState:
        """Declare a variable with a map per key."""
        ttl = self._declared(stateName, ttlDurationMs)
        keys, values = self._codec(stateName, userKeySchema, " (key)"), self._codec(stateName, valueSchema)
        made = self.variables[stateName] = MapState(self, stateName, keys, values, ttl)
        return made

    def deleteIfExists(self, stateName: str) -> None:
        """Remove a variable, of every key, that an earlier version of the processor declared."""
        self._only_in_init("deleteIfExists")
        declared = self.variables.pop(stateName, None)
        if declared is not None:
            declared.delete()
        self._deleted.add(stateName)
        for slot in [slot for slot, _ in self.services.state.scan(pack(stateName))]:
            self.services.state.delete(slot)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        """Call `handleExpiredTimer` for this key at this time. Registering one again changes nothing."""
        self._timed()
        if not _is_whole(expiryTimestampMs):
            raise StateError(f"a timer needs milliseconds since the epoch, not {expiryTimestampMs!r}")
        expiryTimestampMs = int(expiryTimestampMs)  # of numpy's
        key = self.key_bytes("registerTimer")
        due = min(expiryTimestampMs * 1000, LAST_MOMENT)
        if self.firing:  # else a handler could keep itself busy for ever
            now = self.services.watermark if self._mode == "EventTime" else self.services.clock()
            due = due if now is None else max(due, now + 1)
        timers = self._timers(key)
        if expiryTimestampMs not in timers:
            timers[expiryTimestampMs] = due
            self.services.state.put(_TIMERS + key, timers)
            self._port().set(due, key, str(expiryTimestampMs))

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Take back a timer of this key, if it is set."""
        self._timed()
        key = self.key_bytes("deleteTimer")
        timers = self._timers(key)
        due = timers.pop(expiryTimestampMs, None)
        if due is None:
            return
        if timers:
            self.services.state.put(_TIMERS + key, timers)
        else:
            self.services.state.delete(_TIMERS + key)
        self._port().cancel(due, key, str(expiryTimestampMs))

    def listTimers(self) -> Iterator[int]:
        """The timers of this key in milliseconds, earliest first."""
        self._timed()
        return iter(sorted(self._timers(self.key_bytes("listTimers"))))

    def stands(self, due: int, name: str) -> bool:
        """Whether a timer of the current key that was taken off the queue is still set."""
        return bool(self._timers(self.key_bytes("timers")).get(int(name)) == due)

    def _timers(self, key: bytes) -> dict[int, int]:
        return self.services.state.get(_TIMERS + key) or {}

    def _port(self) -> Any:
        return self.services.event_timers if self._mode == "EventTime" else self.services.timers

    def _timed(self) -> None:
        if self._mode == "None":
            raise spark_error(RuntimeError, "UNSUPPORTED_OPERATION", operation="Timers with timeMode None")

    def _codec(self, name: str, schema: Any, part: str = "") -> Codec:
        return Codec(arrow_schema(schema), self._zone, f"state variable {name!r}{part} of {self._operator!r}")

    def _declared(self, name: str, ttl_ms: int | None) -> int | None:
        """Check a declaration; the time to live in microseconds."""
        self._only_in_init(f"state variable {name!r}")
        if not isinstance(name, str) or not name or name.startswith("\x00"):
            raise QueryDefinitionError(f"a state variable needs a name, not {name!r}")
        if name in self.variables:
            raise QueryDefinitionError(f"state variable {name!r} of {self._operator!r} is declared twice")
        if name in self._deleted:  # else every replica that takes over would begin with an empty one
            raise QueryDefinitionError(
                f"state variable {name!r} of {self._operator!r} is deleted and declared in the same init()",
                hint="Give the new variable another name",
            )
        if ttl_ms is None:
            return None
        if self._mode != "ProcessingTime":
            raise QueryDefinitionError(
                f"state variable {name!r} has a time to live, which needs timeMode ProcessingTime, not {self._mode}"
            )
        if not _is_whole(ttl_ms) or ttl_ms <= 0:
            raise QueryDefinitionError(
                f"the time to live of {name!r} must be a positive number of milliseconds: {ttl_ms!r}"
            )
        return int(ttl_ms) * 1000

    def _only_in_init(self, what: str) -> None:
        if self.phase != "init":
            raise QueryDefinitionError(f"{what} of {self._operator!r} can only be declared in init()")


def _is_whole(value: Any) -> bool:
    """Whether it is an integer to Spark, too: numpy's are, which come of a frame's or a column's maximum."""
    return isinstance(value, Integral) and not isinstance(value, bool)


class TransformWithStateOperator:
    """Runs a `StatefulProcessor`. With `pandas` its rows and outputs are frames (transformWithStateInPandas)."""

    form = "transformWithState"
    record_at_a_time = False

    def __init__(
        self,
        processor: Any,
        *,
        input: pa.Schema,
        key: Sequence[str] = (),
        output: Any,
        output_mode: str = "update",
        time_mode: str = "None",
        initial_state: pa.Schema | None = None,
        pandas: bool = False,
        name: str,
        tz: str | None = "UTC",
        migrate: Mapping[str, Migrate] | None = None,
        event_time: str | None = None,
        per: str = BUNDLE,
        tables: RowsByInstance | None = None,
    ) -> None:
        """`initial_state` is the columns of the rows that keys begin with, which are in `tables`."""
        if not isinstance(output_mode, str) or output_mode.lower() not in ("append", "update"):
            raise QueryDefinitionError(
                f"the output mode {output_mode!r} is not supported", hint="Use update or append"
            )
        if not isinstance(time_mode, str) or time_mode.lower() not in _MODES:
            raise QueryDefinitionError(
                f"the time mode {time_mode!r} is unknown", hint=f"Use {', '.join(_MODES.values())}"
            )
        needed = ("init", "handleInputRows") + (("handleInitialState",) if initial_state is not None else ())
        for method in needed:
            if isinstance(processor, type) or not callable(getattr(processor, method, None)):
                raise QueryDefinitionError(
                    f"{name!r} needs an instance of a StatefulProcessor with {', '.join(needed)}, not {processor!r}"
                )
        for method in ("init", "handleInitialState", "handleInputRows", "handleExpiredTimer"):
            refuse_async(getattr(processor, method, None), f"{name!r}, {method},")
        self._processor = processor
        self._migrate = dict(migrate or {})
        self.migrates = frozenset(self._migrate)
        self._mode = self.timeout = _MODES[time_mode.lower()]
        self._name = name
        self._tz = tz
        self._batches = Batches(input, tz, event_time if self._mode == "EventTime" else None, per)
        self.per, self.per_epoch = per, self._batches.per_epoch
        schema = arrow_schema(output)
        self._outputs = Outputs(schema, name)
        self._pandas = pandas
        self._input = _Shown(input, tz, pandas=pandas)
        kinds = [input.field(name).type for name in key]
        self._key_of = frame_key(kinds) if pandas else arrow_key(kinds, tz)
        self._placed = naive_as_utc(schema)
        self._reader = FrameReader(schema, tz, name)
        self._initial_state = None if initial_state is None else _Shown(initial_state, tz, pandas=pandas)
        self._tables = tables
        self._initial: InitialState | None = None

    def open(self, services: Services) -> None:
        self._services = services
        self._ctx = Context(services, zone_of(self._tz))
        self._handle = StatefulProcessorHandle(services, self._mode, self._tz, self._name)
        try:
            self._processor.init(self._handle)
        except RAISED as error:
            raise failed(error, self._name, services, None, " in init") from error
        self._handle.phase = "running"
        if self._initial_state is not None:
            assert self._tables is not None, "they are given when the query starts"
            self._initial = InitialState(self._tables, services, self._name)

    def bundle(self, keys: list[tuple[Any, ...]], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        pairs = self._batches.on_time(keys, rows, self._services)
        return self._process(self._batches.take(pairs), keys)

    def gathered(self) -> list[tuple[Any, ...]]:
        return self._process(self._batches.gathered(), [])

    def _process(self, groups: Groups, keys: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """`keys` are those of the records in hand, to say which one failed."""
        self._begin_keys()
        if not groups:
            return []
        inputs = map(iter, self._input.calls(list(groups.values())))
        made: list[Any] = []
        if (sets := self._services.input_sets) is not None:
            sets.rows_go_to(made)
        values = TimerValues(self._services, self._mode)
        before = self._ctx.begin()
        try:
            for key, given in zip(groups, inputs):
                self._switch(key, pack(key))
                if sets is not None:
                    sets.rows_are_of_key(pack(key))
                self._take(self._processor.handleInputRows(self._key_of(key), given, values), made)
        except RAISED as error:
            at = keys.index(self._ctx.key) if self._ctx.key in keys else None
            raise failed(error, self._name, self._services, at, f", key {self._ctx.key!r}") from error
        finally:
            current.leave(before)
            self._switch(None, None)
        return self._settled(made)

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[tuple[Any, ...]]:
        self._begin_keys()
        made: list[Any] = []
        tell = rows_told(self._services)
        values = TimerValues(self._services, self._mode)
        before = self._ctx.begin()
        self._handle.firing = True
        try:
            for moment, data, name in due:
                if name == INITIAL_STATE_TIMER:
                    continue  # they have begun by now
                self._switch(unpack(data), data)
                if name.startswith(TTL_TIMER):
                    self._purge(name[len(TTL_TIMER) :])
                elif self._handle.stands(moment, name):
                    self._fire(int(name), values, made)
                if tell is not None:
                    tell(len(made))
        except RAISED as error:
            what = f" in handleExpiredTimer, key {self._ctx.key!r}"
            raise failed(error, self._name, self._services, None, what) from error
        finally:
            self._handle.firing = False
            current.leave(before)
            self._switch(None, None)
        return self._settled(made)

    def kept(self, key: tuple[Any, ...]) -> dict[bytes, Any]:
        data = pack(key)
        found = kept_under(self._services, _TIMERS + data)
        for variable in self._handle.variables:
            found.update(self._services.state.scan(pack(variable) + data))
        return found

    def user_state(self, key: tuple[Any, ...]) -> dict[str, Any] | None:
        """What the variables of a key hold, between two bundles. What has expired counts until its timer fires."""
        found: dict[str, Any] = {}
        for name, variable in self._handle.variables.items():
            kept = self._services.state.get(pack(name) + pack(key))
            if kept is not None:
                found[name] = variable.values_of(kept)
        return found or None

    def declared(self) -> tuple[StateVariable, ...]:
        """The variables that `init` declares, found by calling it with a handle that keeps nothing."""
        services: Any = SimpleNamespace(state=SimpleNamespace(scan=lambda prefix: iter(())))
        handle = StatefulProcessorHandle(services, self._mode, self._tz, self._name)
        self._processor.init(handle)
        return tuple(variable.declared() for variable in handle.variables.values())

    def migrate(self, before: str, moved: Mapping[str, Fields]) -> None:
        """Bring the variables that a function was given for up to date from those of another version, and those whose
        fields have `moved`, by the names that these had; timers stay."""
        for variable, fields in moved.items():
            declared = self._handle.variables.get(variable)
            if declared is not None and variable not in self._migrate:
                declared.keep_by_name(fields, before)
        for variable, fn in self._migrate.items():
            declared = self._handle.variables.get(variable)
            if declared is None:
                raise QueryDefinitionError(
                    f"migrate of {self._name!r} names {variable!r}, which init() does not declare"
                )
            declared.migrate(fn, before)

    def close(self) -> None:
        self._handle.phase = "closed"
        close = getattr(self._processor, "close", None)
        if close is None:
            return
        try:
            close()
        except RAISED as error:
            raise failed(error, self._name, self._services, None, " in close") from error

    def _begin_keys(self) -> None:
        """With their initial rows, if that has not been done."""
        groups = self._initial.take() if self._initial is not None else {}
        if not groups:
            return
        assert self._initial_state is not None
        values = TimerValues(self._services, self._mode)
        before = self._ctx.begin()
        try:
            for key, given in zip(groups, self._initial_state.calls(list(groups.values())), strict=True):
                self._switch(key, pack(key))
                for rows in given:
                    self._processor.handleInitialState(self._key_of(key), rows, values)
        except RAISED as error:
            what = f" in handleInitialState, key {self._ctx.key!r}"
            raise failed(error, self._name, self._services, None, what) from error
        finally:
            current.leave(before)
            self._switch(None, None)

    def _settled(self, made: list[Any]) -> list[tuple[Any, ...]]:
        settled = self._outputs.settle(made)
        return settled if self._pandas else self._placed(settled)

    def _switch(self, key: tuple[Any, ...] | None, data: bytes | None) -> None:
        self._ctx.key = key
        self._handle.set_key(data)

    def _purge(self, variable: str) -> None:
        declared = self._handle.variables.get(variable)
        if declared is not None:
            declared.purge()
        else:
            purge_unused(self._handle, variable)

    def _fire(self, expiry: int, values: TimerValues, made: list[Any]) -> None:
        handler = getattr(self._processor, "handleExpiredTimer", None)
        if handler is not None:
            assert self._ctx.key is not None
            self._take(handler(self._key_of(self._ctx.key), values, ExpiredTimerInfo(expiry)), made)
        self._handle.deleteTimer(expiry)  # after the call, as in Spark: the handler still sees it

    def _take(self, result: Any, made: list[Any]) -> None:
        if result is None:
            return
        if not hasattr(type(result), "__iter__") or type(result).__name__ == "DataFrame":
            due = "pandas.DataFrames" if self._pandas else "rows"
            raise InputError(
                f"{self._name!r} returned a {type(result).__name__}, not an iterator of {due}",
                hint=f"Yield {due}",
            )
        if self._pandas:
            for frame in result:
                made.extend(self._reader.rows(frame))
        else:
            self._outputs.collect(result, made)


class _Shown:
    """Rows as the processor gets them: one by one, or a frame for each key."""

    def __init__(self, schema: pa.Schema, tz: str | None, *, pandas: bool) -> None:
        self._frames = FrameMaker(schema, tz, widened=True) if pandas else None
        self._rows = PySparkRows(schema, tz)

    def calls(self, groups: Sequence[list[tuple[Any, ...]]]) -> Iterator[Sequence[Any]]:
        """For each key, its rows, or its frame alone."""
        if self._frames is None:
            return (self._rows.rows(group) for group in groups)
        return ([frame] for frame in self._frames.split(groups))
