"""A causal stream by key and windows of event time: `groupBy(...).window(...)` and `.session_window(...)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from clonos.api.side_outputs import arrow_schemas, side_schemas
from clonos.api.streams import CausalStream, arrow, check_function
from clonos.errors import QueryDefinitionError
from clonos.operators.as_yielded import row_copier
from clonos.operators.rows import is_zoned, row_type, zone_of
from clonos.operators.window_contents import Aggregate, AllRows, Contents
from clonos.operators.window_operator import EventTimes, WindowOperator
from clonos.operators.windows import SessionWindows, TimeWindows, Windows
from clonos.protocol.versions.kind_of_version import version_of_kind
from clonos.spark.plan import Binding, OperatorFactory
from clonos.spark.types import struct_type, window_microseconds
from clonos.spark.versions import Previous, check_previous, factories, items_of

ContentsFactory: TypeAlias = Callable[[pa.Schema], Contents]
"""From the schema of the rows."""


def time_windows(spark: Any, size: str, slide: str | None, start: str | None) -> TimeWindows:
    """Raises QueryDefinitionError where Spark refuses such windows, too."""
    of_size = window_microseconds(spark, size, "the window's duration")
    of_slide = of_size if slide is None else window_microseconds(spark, slide, "the window's slide")
    offset = 0 if start is None else window_microseconds(spark, start, "the window's start")
    if of_size <= 0 or of_slide <= 0:
        raise QueryDefinitionError(f"windows of {size!r} every {slide or size!r} are not longer than nothing")
    if of_slide > of_size:
        raise QueryDefinitionError(
            f"windows of {size!r} every {slide!r} would leave rows out",
            hint="The slide is at most the duration",
        )
    if abs(offset) >= of_slide:
        raise QueryDefinitionError(
            f"windows every {slide or size!r} cannot start at {start!r}",
            hint="The start is less than the slide",
        )
    return TimeWindows(of_size, of_slide, offset)


def session_windows(spark: Any, gap: str) -> SessionWindows:
    """Raises QueryDefinitionError. A gap that a column says, or of nothing, is refused."""
    of_gap = window_microseconds(spark, gap, "the session's gap")
    if of_gap <= 0:
        raise QueryDefinitionError(f"the gap of sessions, {gap!r}, is not longer than nothing")
    return SessionWindows(of_gap)


class WindowedCausalStream:
    """A causal stream by key and window. What comes of a window comes once, when the watermark has come to its end."""

    def __init__(self, stream: CausalStream, key: tuple[str, ...], windows: Windows) -> None:
        if stream.event_time is None:
            raise QueryDefinitionError(
                "windows are of event time, and the stream has no watermark",
                hint="Call withWatermark(column, delay) on the stream that is grouped, behind causal(...) or the "
                "operator whose rows it has",
            )
        self._stream = stream
        self._key = key
        self._windows = windows
        self._column = stream.event_time.column

    def process(
        self,
        fn: Callable[..., Any],
        output: Any,
        *,
        name: str,
        version: str = "1",
        parallelism: int | None = None,
        standby: str | None = None,
        recovery: str | None = None,
        on_poison: str = "fail",
        previous: Previous = None,
        side_outputs: Mapping[str, Any] | None = None,
        late: str | None = None,
    ) -> CausalStream:
        """`fn(key, window, rows, ctx)` gives an iterable of output rows, or None: once for each window that has rows.

        `window` has `start` and `end`, as the rows have their event time; `rows` are in the order of their arrival.
        `ctx.state` is the key's, for all of its windows. With `late="name"` rows for which no window is open any more,
        and those without event time, are the side output of that name; otherwise they are dropped.

        With a new `version`, `previous={"1": old_fn}` repeats what the old one has begun; `(old_fn, old)` where the
        windows were others, too, `old` being what `.window(...)` had given. Windows that are open end where they would.
        """
        binding = Binding(name, version, parallelism, standby=standby, recovery=recovery, on_poison=on_poison)
        zone = zone_of(self._stream.timezone)

        def contents(functions: tuple[Any, ...]) -> ContentsFactory:
            (function,) = functions
            return lambda schema: AllRows(function, schema, zone, name)

        return self._then((fn,), contents, output, binding, previous, side_outputs, late)

    def aggregate(
        self,
        add: Callable[..., Any],
        finish: Callable[..., Any],
        output: Any,
        *,
        name: str,
        merge: Callable[[Any, Any], Any] | None = None,
        version: str = "1",
        parallelism: int | None = None,
        standby: str | None = None,
        recovery: str | None = None,
        on_poison: str = "fail",
        previous: Previous = None,
        side_outputs: Mapping[str, Any] | None = None,
        late: str | None = None,
    ) -> CausalStream:
        """As `process`, but rows are not kept: `add(kept, row, ctx)` gives what is kept after a row (`kept` is None at
        first), `finish(key, window, kept, ctx)` the output rows. Sessions need `merge(one, other)`, too: what is kept
        of two that a row has made one, the earlier one first. `previous={"1": (old_add, old_finish, old_merge)}`.
        """
        binding = Binding(name, version, parallelism, standby=standby, recovery=recovery, on_poison=on_poison)
        functions = (add, finish) if merge is None else (add, finish, merge)
        return self._then(functions, _adding_up, output, binding, previous, side_outputs, late)

    def count(
        self,
        *,
        name: str | None = None,
        version: str = "1",
        parallelism: int | None = None,
        standby: str | None = None,
        recovery: str | None = None,
        previous: Mapping[str, WindowedCausalStream] | None = None,
        late: str | None = None,
    ) -> CausalStream:
        """How many rows each window has: the columns of the key, `window` (of sessions `session_window`), `count`."""
        from pyspark.sql.types import LongType, StructField, StructType

        keys = [self._stream.schema[column] for column in self._key]
        output = StructType([*keys, self._window_field(), StructField("count", LongType(), False)])
        functions = (_counted, _with_count, _sum)
        return self._added_up(
            functions,
            output,
            previous,
            called="count",
            name=name,
            version=version,
            parallelism=parallelism,
            standby=standby,
            recovery=recovery,
            late=late,
        )

    def agg(
        self,
        *exprs: Any,
        name: str | None = None,
        version: str = "1",
        parallelism: int | None = None,
        standby: str | None = None,
        recovery: str | None = None,
        previous: Mapping[str, WindowedCausalStream] | None = None,
        late: str | None = None,
    ) -> CausalStream:
        """Aggregates of each window, given as PySpark takes them: the columns of the key, `window` (of sessions
        `session_window`), and one for each. Those that are known are the same as without windows."""
        from clonos.operators.window_fold import WindowFold
        from clonos.spark.aggregation import aggregation

        stream, window = self._stream, self._window_field()
        made, output = aggregation(
            stream._spark_columns, stream.columns, self._key, lambda grouped: grouped.agg(*exprs), window
        )
        fold = WindowFold(made)
        functions = (fold.add, fold.finish, fold.merge)
        return self._added_up(
            functions,
            output,
            previous,
            called="agg",
            name=name,
            version=version,
            parallelism=parallelism,
            standby=standby,
            recovery=recovery,
            late=late,
        )

    def _added_up(
        self,
        functions: tuple[Any, Any, Any],
        output: Any,
        previous: Mapping[str, WindowedCausalStream] | None,
        *,
        called: str,
        name: str | None,
        version: str,
        parallelism: int | None,
        standby: str | None,
        recovery: str | None,
        late: str | None,
    ) -> CausalStream:
        """`aggregate` with functions of the library's own, the same in all versions: of older ones only the windows are
        given."""
        binding = Binding.after(called, name, version, parallelism, standby=standby, recovery=recovery)
        with_functions = {each: (*functions, old) for each, old in (previous or {}).items()}
        return self._then(functions, _adding_up, output, binding, with_functions or None, None, late)

    def _window_field(self) -> Any:
        """The column of the window."""
        from pyspark.sql.types import StructField, StructType

        kind = self._stream.schema[self._column].dataType
        called = "session_window" if isinstance(self._windows, SessionWindows) else "window"
        return StructField(called, StructType([StructField("start", kind), StructField("end", kind)]), False)

    def _then(
        self,
        functions: tuple[Any, ...],
        contents: Callable[[tuple[Any, ...]], ContentsFactory],
        output: Any,
        binding: Binding,
        previous: Previous,
        side_outputs: Mapping[str, Any] | None,
        late: str | None,
    ) -> CausalStream:
        """Of each version's functions `contents` makes what keeps the rows of a window."""
        count = (1,) if len(functions) == 1 else (2, 3)
        versions = {
            _version(version, self._parts(given, binding, count)[0]): given
            for version, given in items_of(previous, binding)
        }
        binding = binding.of_functions(*self._parts(functions, binding, count)[1])
        binding = replace(binding, version=_version(binding.version, self._windows))
        check_previous(versions, binding)
        stream, columns, zone = self._stream, struct_type(output), self._stream.timezone
        sides = side_schemas(side_outputs, binding.name)
        if late is not None:
            if late in sides:
                raise QueryDefinitionError(f"{binding.name!r} has two side outputs {late!r}")
            sides |= side_schemas({late: stream.schema}, binding.name)

        def of(given: Any) -> OperatorFactory:
            windows, own = self._parts(given, binding, count)
            made = contents(own)
            return lambda rows, _: partial(
                WindowOperator,
                windows,
                made(rows),
                arrow(columns),
                times=self._times(rows),
                late=late,
                copy=_copier(rows),
                name=binding.name,
                tz=zone,
                side_outputs=arrow_schemas(sides),
            )

        return stream._then(
            self._key,
            of(functions),
            columns,
            binding,
            previous=factories(versions, of),
            side_outputs=sides,
        )

    def _times(self, given: pa.Schema) -> EventTimes:
        column = given.get_field_index(self._column)
        return EventTimes(column, not is_zoned(given.field(column).type), zone_of(self._stream.timezone))

    def _parts(self, given: Any, binding: Binding, count: tuple[int, ...]) -> tuple[Windows, tuple[Any, ...]]:
        """The windows and the functions of one version."""
        functions = list(given) if isinstance(given, tuple) else [given]
        windows = self._windows
        if functions and isinstance(functions[-1], WindowedCausalStream):
            windows = functions.pop()._windows
        if len(functions) not in count:
            raise QueryDefinitionError(
                f"a version of {binding.name!r} has {' or '.join(map(str, count))} functions, not {len(functions)}",
                hint="docs/upgrading.md says what belongs to one",
            )
        if isinstance(windows, SessionWindows) and len(functions) == 2:
            raise QueryDefinitionError(
                f"{binding.name!r} adds up sessions, and two of them become one when a row comes between them",
                hint="Give merge=, a function of what is kept of the two",
            )
        for function in functions:
            check_function(function, binding.name)
        return windows, tuple(functions)


def _adding_up(functions: tuple[Any, ...]) -> ContentsFactory:
    return lambda schema: Aggregate(*functions)


def _counted(kept: int | None, row: Any, ctx: Any) -> int:
    return (kept or 0) + 1


def _with_count(key: tuple[Any, ...], window: Any, kept: int, ctx: Any) -> list[Any]:
    return [(*key, window, kept)]


def _sum(one: int, other: int) -> int:
    return one + other


def _copier(schema: pa.Schema) -> Callable[[Any], Any] | None:
    copy, kind = row_copier(schema), row_type(tuple(schema.names))
    return None if copy is None else lambda row: tuple.__new__(kind, copy(row))


def _version(said: str, windows: Windows) -> str:
    """The windows are part of the version: what was begun with others is repeated with those."""
    return version_of_kind(said, str(windows))
