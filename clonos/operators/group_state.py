"""`applyInPandasWithState`, with PySpark's signature and rules, over causal services.

What differs from Spark follows from one thing: a call covers a *bundle*, not a micro-batch. In a bundle each key is
processed once, with all of its rows, in the order in which keys first appear; a micro-batch is several bundles. The
processing time is the bundle clock, a recorded value, so it is the same when the call is repeated. A timeout fires
as soon as it is due instead of at the next trigger.

As in Spark a call clears the key's timeout unless it sets one, and a timed-out call is given one frame without rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import pyarrow as pa

from clonos.errors import InputError, QueryDefinitionError, StateError
from clonos.operators import current
from clonos.operators.batches import BUNDLE, Batches, Groups
from clonos.operators.context import LAST_MOMENT, Context
from clonos.operators.frames import FrameMaker, FrameReader
from clonos.operators.migration import by_name, migrate_all
from clonos.operators.outputs import RAISED, failed
from clonos.operators.pyspark_rows import array_key
from clonos.operators.rows import instant, seen_as, zone_of
from clonos.operators.spark_errors import spark_error
from clonos.operators.types import arrow_schema, columns_of
from clonos.operators.values import Codec
from clonos.protocol.engine.given_rows import rows_told
from clonos.protocol.operator import Services
from clonos.protocol.topology import StateVariable
from clonos.protocol.versions.state_evolution import Fields
from clonos.values.key_codec import kept_under, pack, unpack

NO_TIMEOUT, PROCESSING_TIME, EVENT_TIME = "NoTimeout", "ProcessingTimeTimeout", "EventTimeTimeout"
_UNITS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_SPAN = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+?)s?(?=\s|$)", re.IGNORECASE)


def duration_ms(text: str) -> int:
    """Milliseconds of an interval such as "1 hour 30 minutes"."""
    return round(duration_us(text) / 1000)


def duration_us(text: str, days_per_month: int = 0) -> int:
    """Microseconds. Without days to a month there are no months."""
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    units = _UNITS | ({"month": days_per_month * _UNITS["day"]} if days_per_month else {})
    total, at = 0.0, 0
    while match := _SPAN.match(rest, at):
        unit = units.get(match[2].lower())
        if unit is None:
            break
        total, at = total + float(match[1]) * unit, match.end()
    if at == 0 or rest[at:].strip():
        raise QueryDefinitionError(
            f"the duration {text!r} cannot be read",
            hint="Use milliseconds or text such as '1 hour 30 minutes'",
        )
    return round(total)


class GroupState:
    """One key's state during one call, with the public methods of PySpark's `GroupState`."""

    NO_TIMESTAMP: ClassVar[int] = -1
    __slots__ = ("_codec", "_conf", "_has_watermark", "_removed", "_services", "_timed_out", "_timeout", "_updated",
                 "_value", "_was", "_zone")  # fmt: skip

    def __init__(self, operator: GroupStateOperator, services: Services, kept: Any, timed_out: bool) -> None:
        self._services = services
        self._codec = operator.codec
        self._conf = operator.timeout
        self._has_watermark = operator.has_watermark
        self._zone = operator.zone
        self._value: tuple[Any, ...] | None = None if kept is None else kept[0]
        self._was: int = -1 if kept is None else kept[1]
        self._timeout = self.NO_TIMESTAMP
        self._timed_out = timed_out
        self._updated = self._removed = False

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For `isinstance(state, GroupState)`, without importing pyspark into processes that do not need it."""
        return seen_as("pyspark.sql.streaming.state", "GroupState", type(self))

    @property
    def exists(self) -> bool:
        """Whether the key has state."""
        return self._value is not None

    @property
    def get(self) -> tuple[Any, ...]:
        """The state; `PySparkValueError` if there is none."""
        if self._value is None:
            raise spark_error(ValueError, "STATE_NOT_EXISTS")
        return self._codec.load(self._value)

    @property
    def getOption(self) -> tuple[Any, ...] | None:
        """The state, or None."""
        return None if self._value is None else self._codec.load(self._value)

    @property
    def hasTimedOut(self) -> bool:
        """Whether this call is for a timeout and not for rows."""
        return self._timed_out

    @property
    def oldTimeoutTimestamp(self) -> int:
        """The key's timeout before this call, in milliseconds; -1 if it had none."""
        return self._was

    def update(self, newValue: tuple[Any, ...]) -> None:
        """Set the state."""
        current.only_here("state.update")
        if newValue is None:
            raise spark_error(TypeError, "CANNOT_BE_NONE", arg_name="newValue")
        self._value = self._codec.store(newValue)
        self._updated, self._removed = True, False

    def remove(self) -> None:
        """Remove the state."""
        current.only_here("state.remove")
        self._value = None
        self._updated, self._removed = False, True

    def setTimeoutDuration(self, durationMs: float | str) -> None:
        """Time out this long after the bundle clock: milliseconds, or text such as "1 hour"."""
        self._demand(PROCESSING_TIME, "set timeout duration", "processing time")
        span = duration_ms(durationMs) if isinstance(durationMs, str) else durationMs
        self._positive(span, "durationMs")
        self._timeout = int(self.getCurrentProcessingTimeMs() + span)  # Spark, too, cuts fractions off

    def setTimeoutTimestamp(
        self, timestampMs: float | datetime, additionalDuration: str | None = None
    ) -> None:
        """Time out when the watermark passes this time: milliseconds, or a datetime."""
        current.only_here("state.setTimeoutTimestamp")
        self._demand(EVENT_TIME, "set timeout timestamp", "event time")
        if isinstance(timestampMs, datetime):
            timestampMs = instant(timestampMs, self._zone) // 1000
        if additionalDuration is not None:
            timestampMs += duration_ms(additionalDuration)
        self._positive(timestampMs, "timestampMs")
        watermark = self._services.watermark
        if watermark is not None and timestampMs < watermark // 1000:
            raise spark_error(
                ValueError,
                "INVALID_TIMEOUT_TIMESTAMP",
                timestamp=str(timestampMs),
                watermark=str(watermark // 1000),
            )
        self._timeout = int(timestampMs)

    def getCurrentWatermarkMs(self) -> int:
        """The watermark in milliseconds; 0 before the first one."""
        watermark = self._services.watermark
        if watermark is None and not self._has_watermark:
            raise spark_error(
                RuntimeError,
                "CANNOT_WITHOUT",
                condition1="get event time watermark timestamp",
                condition2="setting watermark before applyInPandasWithState",
            )
        return 0 if watermark is None else watermark // 1000

    def getCurrentProcessingTimeMs(self) -> int:
        """The bundle clock in milliseconds: constant during the call, and the same when it is repeated."""
        current.only_here("the processing time")
        return self._services.clock() // 1000

    def _demand(self, conf: str, what: str, family: str) -> None:
        if self._conf != conf:
            raise spark_error(
                RuntimeError,
                "CANNOT_WITHOUT",
                condition1=what,
                condition2=f"enabling {family} timeout in applyInPandasWithState",
            )

    @staticmethod
    def _positive(value: float, name: str) -> None:
        if value <= 0:
            raise spark_error(ValueError, "VALUE_NOT_POSITIVE", arg_name=name, arg_value=str(value))

    def __str__(self) -> str:
        return "GroupState(<undefined>)" if self._value is None else f"GroupState({self.get})"

    def outcome(self) -> tuple[bool, list[Any] | None, int]:
        """(whether to write, what to keep or None to delete, the timeout)."""
        if self._value is None and self._timeout < 0:
            return self._removed or self._was >= 0, None, -1
        write = self._updated or self._removed or self._timeout != self._was
        return write, [self._value, self._timeout], self._timeout


class GroupStateOperator:
    """`fn(key, pdfs, state)` gives an iterator of frames."""

    form = "applyInPandasWithState"
    record_at_a_time = False

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        input: pa.Schema,
        key: Sequence[str] = (),
        output: Any,
        state: Any,
        output_mode: str = "update",
        timeout: str = NO_TIMEOUT,
        name: str,
        tz: str | None = "UTC",
        has_watermark: bool = False,
        migrate: Callable[..., Any] | None = None,
        event_time: str | None = None,
        per: str = BUNDLE,
    ) -> None:
        if not isinstance(output_mode, str) or output_mode.lower() not in ("append", "update"):
            raise QueryDefinitionError(
                f"the output mode {output_mode!r} is not supported", hint="Use update or append"
            )
        if timeout not in (NO_TIMEOUT, PROCESSING_TIME, EVENT_TIME):
            raise QueryDefinitionError(
                f"the timeout {timeout!r} is unknown",
                hint=f"Use {NO_TIMEOUT}, {PROCESSING_TIME} or {EVENT_TIME}",
            )
        self.zone = zone_of(tz)
        self.timeout = timeout
        self.has_watermark = has_watermark
        self.codec = Codec(arrow_schema(state), self.zone, f"the state of {name!r}")
        self._batches = Batches(input, tz, event_time if timeout == EVENT_TIME else None, per)
        self.per, self.per_epoch = per, self._batches.per_epoch
        self._fn = fn
        self._migrate = migrate
        self.migrates = frozenset([""] if migrate is not None else [])
        self._name = name
        self._frames = FrameMaker(input, tz)
        self._key_of = array_key([input.field(name).type for name in key])
        self._reader = FrameReader(arrow_schema(output), tz, name)

    def open(self, services: Services) -> None:
        self._services = services
        self._ctx = Context(services, self.zone)
        self._port = services.event_timers if self.timeout == EVENT_TIME else services.timers

    def bundle(self, keys: list[tuple[Any, ...]], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        pairs = self._batches.on_time(keys, rows, self._services)
        return self._process(self._batches.take(pairs), keys)

    def gathered(self) -> list[tuple[Any, ...]]:
        return self._process(self._batches.gathered(), [])

    def _process(self, groups: Groups, keys: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """`keys` are those of the records in hand, to say which one failed."""
        made: list[tuple[Any, ...]] = []
        if not groups:
            return made
        if (sets := self._services.input_sets) is not None:
            sets.rows_go_to(made)
        before = self._ctx.begin()
        try:
            for key, frame in zip(groups, self._frames.split(list(groups.values()))):
                data = pack(key)
                if sets is not None:
                    sets.rows_are_of_key(data)
                self._call(key, data, self._kept(key, data), iter((frame,)), False, made)
        except RAISED as error:
            at = keys.index(self._ctx.key) if self._ctx.key in keys else None
            raise failed(error, self._name, self._services, at, f", key {self._ctx.key!r}") from error
        finally:
            current.leave(before)
            self._ctx.key = None
        return made

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[tuple[Any, ...]]:
        made: list[tuple[Any, ...]] = []
        tell = rows_told(self._services)
        before = self._ctx.begin()
        try:
            for moment, data, _ in due:
                key = unpack(data)
                kept = self._kept(key, data)
                if kept is not None and self._due(kept[1]) == moment:
                    self._call(key, data, kept, [self._frames.empty()], True, made)
                if tell is not None:
                    tell(len(made))
        except RAISED as error:
            what = f" at its timeout, key {self._ctx.key!r}"
            raise failed(error, self._name, self._services, None, what) from error
        finally:
            current.leave(before)
            self._ctx.key = None
        return made

    def kept(self, key: tuple[Any, ...]) -> dict[bytes, Any]:
        return kept_under(self._services, pack(key))

    def user_state(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The state of a key as the function knows it, between two bundles."""
        kept = self._kept(key, pack(key))
        return None if kept is None or kept[0] is None else self.codec.load(kept[0])

    def declared(self) -> tuple[StateVariable, ...]:
        return (StateVariable("", "value", columns_of(self.codec.schema)),)

    def migrate(self, before: str, moved: Mapping[str, Fields]) -> None:
        """Bring every key's state up to date from that of another version; timeouts stay. `moved` is the fields as they
        were, where they have other places and no function was given."""
        fn = self._migrate or (by_name(moved[""], self.codec.schema.names) if "" in moved else None)
        if fn is None:
            return

        def migrated(kept: Any, version: str) -> Any:
            return kept if kept[0] is None else [self.codec.store(fn(kept[0], version)), kept[1]]

        migrate_all(self._services, self._name, b"", before, migrated, lambda kept: kept)

    def close(self) -> None:
        pass

    def _kept(self, key: tuple[Any, ...], data: bytes) -> Any:
        """[state or None, timeout in ms or -1] of a key, or None."""
        kept = self._services.state.get(data)
        if kept is None:
            return None
        if not isinstance(kept, list) or len(kept) != 2 or type(kept[1]) is not int:
            raise StateError(
                f"what is kept for key {key!r} of {self._name!r} is no state of applyInPandasWithState",
                hint="The checkpoint was written by another operator; start from a new one",
            )
        if kept[0] is not None:
            self.codec.load(kept[0])
        return kept

    def _call(
        self,
        key: Any,
        data: bytes,
        kept: Any,
        frames: Iterable[Any],
        timed_out: bool,
        made: list[tuple[Any, ...]],
    ) -> None:
        self._ctx.key = key
        state = GroupState(self, self._services, kept, timed_out)
        result = self._fn(self._key_of(key), frames, state)
        if not hasattr(type(result), "__iter__") or type(result).__name__ == "DataFrame":
            raise InputError(
                f"{self._name!r} returned a {type(result).__name__}, not an iterator of pandas.DataFrames",
                hint="Yield frames",
            )
        for frame in result:
            made += self._reader.rows(frame)
        self._keep(data, state, timed_out)

    def _keep(self, data: bytes, state: GroupState, timed_out: bool) -> None:
        write, value, timeout = state.outcome()
        if not write:
            return
        if value is None:
            self._services.state.delete(data)
        else:
            self._services.state.put(data, value)
        was = state.oldTimeoutTimestamp
        if was == timeout and not timed_out:
            return
        if was >= 0 and not timed_out:
            self._port.cancel(self._due(was), data, "")
        if timeout >= 0:
            self._port.set(self._due(timeout), data, "")

    def _due(self, timeout: int) -> int:
        """As in Spark, an event-time timeout fires when the watermark, in milliseconds, is *past* it."""
        return min((timeout + (self.timeout == EVENT_TIME)) * 1000, LAST_MOMENT)
