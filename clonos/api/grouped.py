"""A causal stream by key: `process`, and the stateful functions with PySpark's signatures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from clonos.api.initial_state import initial_table
from clonos.api.instead import NotHere
from clonos.api.side_outputs import arrow_schemas, side_schemas
from clonos.api.streams import CausalStream, arrow, check_function
from clonos.api.windowed import WindowedCausalStream, session_windows, time_windows
from clonos.errors import ClonosError, QueryDefinitionError
from clonos.extras import needs
from clonos.spark.parity import covered, tell_what_differs
from clonos.spark.plan import Binding, OperatorFactory, RightPlan
from clonos.spark.types import struct_type
from clonos.spark.versions import Previous, check_previous, factories, parts

if TYPE_CHECKING:
    from clonos.operators.calls import Calls

_GROUPS_OWN = "pivot apply applyInPandas applyInArrow cogroup".split()


class GroupedCausalStream:
    """A causal stream by key."""

    def __init__(self, stream: CausalStream, key: tuple[str, ...]) -> None:
        self._stream = stream
        self._key = key

    def window(
        self, windowDuration: str, slideDuration: str | None = None, startTime: str | None = None
    ) -> WindowedCausalStream:
        """By windows of event time, too: tumbling, or sliding with a `slideDuration`, as PySpark's `functions.window`
        has them. Then `process`, `aggregate` or `count`. The stream has a watermark."""
        windows = time_windows(self._stream._spark, windowDuration, slideDuration, startTime)
        return WindowedCausalStream(self._stream, self._key, windows)

    def session_window(self, gapDuration: str) -> WindowedCausalStream:
        """By sessions, too, which end where nothing has come for so long in event time, as PySpark's
        `functions.session_window` has them. Then `process`, `aggregate` or `count`. The stream has a watermark."""
        windows = session_windows(self._stream._spark, gapDuration)
        return WindowedCausalStream(self._stream, self._key, windows)

    def process(
        self,
        fn: Callable[..., Any],
        output: Any,
        *,
        name: str,
        version: str = "1",
        parallelism: int | None = None,
        on_timer: Callable[..., Any] | None = None,
        standby: str | None = None,
        recovery: str | None = None,
        on_poison: str = "fail",
        previous: Previous = None,
        migrate: Callable[[dict[Any, Any], str], dict[Any, Any]] | None = None,
        side_outputs: Mapping[str, Any] | None = None,
        calls: Calls | None = None,
    ) -> CausalStream:
        """Record at a time: `fn(key, row, ctx)` gives an iterable of output rows, or None.

        `on_timer(key, timer, ctx)` is called for timers set with `ctx.timer`. `name` binds state to the operator;
        raise `version` when the function changes on purpose. A record that ends every process that takes it ends the
        query, or, with `on_poison="dead_letter"`, is passed over and kept (docs/dead-letters.md). With
        `standby="hot"` or `"passive"` each instance has a standby, which takes its place when it is lost
        (docs/standbys.md). With `recovery="eager"`, say, it has another one than the rest of the query; which go
        together docs/recoveries.md says.

        With a new `version`, `previous={"1": old_fn}` (or a tuple with its `on_timer` and `migrate`) repeats what the
        old one has begun, and `migrate(state, old_version)` gives the state that the new one goes on from
        (docs/upgrading.md).

        With `side_outputs={"late": schema}` the function may also call `ctx.side_output("late", row)`; these rows are
        the stream `side_output("late")` of the result.

        `fn` and `on_timer` may be async: other keys go on while one awaits `ctx.call(...)` or `ctx.gather(...)`.
        `calls` says how such calls are carried out (`clonos.Calls`).
        """
        from clonos.operators.process import ProcessOperator

        binding = Binding(
            name,
            version,
            parallelism,
            ticks=on_timer is not None,
            standby=standby,
            recovery=recovery,
            on_poison=on_poison,
        )
        return keyed(
            self._stream,
            self._key,
            ProcessOperator,
            lambda given: parts(given, on_timer, None),
            (fn, on_timer, migrate),
            output,
            binding,
            previous=previous,
            side_outputs=side_outputs,
            calls=calls,
            may_wait=True,
        )

    def agg(
        self,
        *exprs: Any,
        name: str | None = None,
        version: str = "1",
        parallelism: int | None = None,
        standby: str | None = None,
        recovery: str | None = None,
        per: str | None = None,
    ) -> CausalStream:
        """Aggregates, given as PySpark takes them: `agg(f.sum("amount").alias("spent"), f.max("at"))`, `agg({"amount":
        "sum"})`. A row for each key that has had rows, with its results as they are then: once per bundle, or, with
        `per="batch"`, once per micro-batch, as in Spark's update mode. Known are count, sum, avg, min, max, first and
        last, with conditions, of expressions and in expressions; distinct values are not."""
        return self._aggregated(
            lambda grouped: grouped.agg(*exprs),
            called="agg",
            name=name,
            version=version,
            parallelism=parallelism,
            standby=standby,
            recovery=recovery,
            per=per,
        )

    def count(self, **more: Any) -> CausalStream:
        """How many rows each key has had, with the parameters of `agg`."""
        return self._aggregated(lambda grouped: grouped.count(), called="count", **more)

    def sum(self, *cols: str, **more: Any) -> CausalStream:
        """Sums of columns, with the parameters of `agg`."""
        return self._aggregated(lambda grouped: grouped.sum(*cols), called="sum", **more)

    def avg(self, *cols: str, **more: Any) -> CausalStream:
        """Averages of columns, with the parameters of `agg`."""
        return self._aggregated(lambda grouped: grouped.avg(*cols), called="avg", **more)

    mean = avg

    def min(self, *cols: str, **more: Any) -> CausalStream:
        """The least values of columns, with the parameters of `agg`."""
        return self._aggregated(lambda grouped: grouped.min(*cols), called="min", **more)

    def max(self, *cols: str, **more: Any) -> CausalStream:
        """The greatest values of columns, with the parameters of `agg`."""
        return self._aggregated(lambda grouped: grouped.max(*cols), called="max", **more)

    def _aggregated(self, own: Any, **more: Any) -> CausalStream:
        from clonos.api.aggregated import aggregated

        return aggregated(self._stream, self._key, own, **more)

    def applyInPandasWithState(
        self,
        func: Callable[..., Any],
        outputStructType: Any,
        stateStructType: Any,
        outputMode: str,
        timeoutConf: str,
        *,
        name: str | None = None,
        version: str = "1",
        parallelism: int | None = None,
        standby: str | None = None,
        recovery: str | None = None,
        on_poison: str = "fail",
        previous: Previous = None,
        migrate: Callable[[tuple[Any, ...], str], tuple[Any, ...]] | None = None,
        per: str | None = None,
    ) -> CausalStream:
        """PySpark's: `func(key, pdfs, state)` gives an iterator of frames, once per key and bundle,
        or, with `per="batch"`, once per key and micro-batch.

        Without a `name` the operator is called after the function. With a new `version`, `previous={"1": old_func}`
        (or a pair with its state's schema) repeats what the old one has begun, and `migrate(state, old_version)` gives
        the state that the new one goes on from (docs/upgrading.md).
        """
        from clonos.operators.group_state import EVENT_TIME, PROCESSING_TIME

        binding = Binding.after(
            func,
            name,
            version,
            parallelism,
            ticks=timeoutConf == PROCESSING_TIME,
            standby=standby,
            recovery=recovery,
            on_poison=on_poison,
            per=covered(per),
        )
        check_function(func, binding.name)
        check_previous(previous, binding)
        if timeoutConf == EVENT_TIME and self._stream._event_time is None:
            raise _no_watermark(binding.name, EVENT_TIME)
        tell_what_differs(binding, per)
        given = (func, outputStructType, stateStructType, outputMode, timeoutConf)
        return self._with_group_state(binding, *given, previous=previous, migrate=migrate, per=covered(per))

    def _with_group_state(
        self,
        binding: Binding,
        func: Callable[..., Any],
        output: Any,
        kept_state: Any,
        output_mode: str,
        timeout: str,
        *,
        previous: Previous,
        migrate: Callable[[tuple[Any, ...], str], tuple[Any, ...]] | None,
        per: str,
    ) -> CausalStream:
        from clonos.operators.group_state import GroupStateOperator

        needs("pandas", "applyInPandasWithState")
        event_time = self._stream._event_time
        binding = binding.of_functions(func)
        zone, schema, state = self._stream.timezone, struct_type(output), struct_type(kept_state)

        def of(given: Any) -> OperatorFactory:
            fn, kept, brought = parts(given, state, None)
            return lambda given, name: partial(
                GroupStateOperator,
                fn,
                input=given,
                key=self._key,
                output=arrow(schema),
                state=arrow(struct_type(kept)),
                output_mode=output_mode,
                timeout=timeout,
                name=name,
                tz=zone,
                has_watermark=event_time is not None,
                migrate=brought,
                event_time=None if event_time is None else event_time[0],
                per=per,
            )

        made = of((func, state, migrate))
        return self._stream._then(self._key, made, schema, binding, previous=factories(previous, of))

    def transformWithState(
        self,
        statefulProcessor: Any,
        outputStructType: Any,
        outputMode: str,
        timeMode: str,
        initialState: Any = None,
        eventTimeColumnName: str = "",
        *,
        name: str | None = None,
        version: str = "1",
        parallelism: int | None = None,
        standby: str | None = None,
        recovery: str | None = None,
        on_poison: str = "fail",
        previous: Previous = None,
        migrate: Mapping[str, Callable[[tuple[Any, ...], str], tuple[Any, ...]]] | None = None,
        per: str | None = None,
    ) -> CausalStream:
        """PySpark's: a `StatefulProcessor` over rows, once per key and bundle,
        or, with `per="batch"`, once per key and micro-batch.

        `initialState` is `df.groupBy(...)` of a DataFrame that is no stream, or `table.group_by(...)` of a PyArrow
        table; it is read through the driver, when the query starts for the first time.

        Without a `name` the operator is called after the processor's class. `eventTimeColumnName` is the output's
        event time, with the delay of the input's watermark. With a new `version`, `previous={"1": old_processor}`
        repeats what the old one has begun, and `migrate={"variable": fn(value, old_version)}` gives the values that
        the new one goes on from (docs/upgrading.md).
        """
        binding = Binding.after(
            statefulProcessor,
            name,
            version,
            parallelism,
            ticks=_processing(timeMode),
            standby=standby,
            recovery=recovery,
            on_poison=on_poison,
            per=covered(per),
        )
        given = (statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName)
        return self._transform(binding, *given, pandas=False, previous=previous, migrate=migrate, per=per)

    def transformWithStateInPandas(
        self,
        statefulProcessor: Any,
        outputStructType: Any,
        outputMode: str,
        timeMode: str,
        initialState: Any = None,
        eventTimeColumnName: str = "",
        *,
        name: str | None = None,
        version: str = "1",
        parallelism: int | None = None,
        standby: str | None = None,
        recovery: str | None = None,
        on_poison: str = "fail",
        previous: Previous = None,
        migrate: Mapping[str, Callable[[tuple[Any, ...], str], tuple[Any, ...]]] | None = None,
        per: str | None = None,
    ) -> CausalStream:
        """As `transformWithState`, with pandas frames for rows."""
        binding = Binding.after(
            statefulProcessor,
            name,
            version,
            parallelism,
            ticks=_processing(timeMode),
            standby=standby,
            recovery=recovery,
            on_poison=on_poison,
            per=covered(per),
        )
        given = (statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName)
        return self._transform(binding, *given, pandas=True, previous=previous, migrate=migrate, per=per)

    def _transform(
        self,
        binding: Binding,
        processor: Any,
        output: Any,
        output_mode: str,
        time_mode: str,
        initial: Any,
        event_time: str,
        *,
        pandas: bool,
        previous: Previous,
        migrate: Mapping[str, Any] | None,
        per: str | None,
    ) -> CausalStream:
        from clonos.operators.transform_with_state import TransformWithStateOperator

        needs("pandas", "transformWithStateInPandas" if pandas else "transformWithState")
        watermark = self._stream._event_time
        by_event_time = isinstance(time_mode, str) and time_mode.lower() == "eventtime"
        if by_event_time and watermark is None:
            raise _no_watermark(binding.name, "timeMode EventTime")
        if event_time and not by_event_time:
            raise QueryDefinitionError(
                f"{binding.name!r} names an event time column, which needs timeMode EventTime"
            )
        tell_what_differs(binding, per)
        zone, schema = self._stream.timezone, struct_type(output)

        binding = binding.of_functions(processor)
        check_previous(previous, binding)
        table = None if initial is None else initial_table(initial, self._stream, self._key, binding.name)

        def of(given: Any) -> OperatorFactory:
            function, brought = parts(given, None)
            return lambda given, name: partial(
                TransformWithStateOperator,
                function,
                input=given,
                key=self._key,
                output=arrow(schema),
                output_mode=output_mode,
                time_mode=time_mode,
                initial_state=None if table is None else table.schema,
                pandas=pandas,
                name=name,
                tz=zone,
                migrate=brought,
                event_time=None if watermark is None else watermark[0],
                per=covered(per),
            )

        made = self._stream._then(
            self._key,
            of((processor, migrate)),
            schema,
            binding,
            previous=factories(previous, of),
            table=table,
        )
        if event_time and watermark is not None:
            made = made._with_event_time(watermark._replace(column=event_time, inherited=False, follows=True))
        return made

    def __getattr__(self, name: str) -> Any:
        if name in _GROUPS_OWN:
            raise NotHere(
                f"{name} is not supported on a causal stream",
                hint="Use process, applyInPandasWithState or transformWithState",
            )
        raise AttributeError(f"a grouped causal stream has no {name!r}")


def keyed(
    stream: CausalStream,
    key: tuple[str, ...],
    kind: type,
    split: Callable[[Any], tuple[Any, ...]],
    given: Any,
    output: Any,
    binding: Binding,
    *,
    previous: Previous,
    side_outputs: Mapping[str, Any] | None,
    right: RightPlan | None = None,
    output_trails: int = 0,
    calls: Calls | None = None,
    may_wait: bool = False,
) -> CausalStream:
    """The stream of an operator of this kind, which takes records one by one and keeps state by key. `split` gives the
    functions of one version, `given` or one of `previous`: those that the operator takes, on_timer, and migrate. They
    `may_wait`: be async, but for migrate."""
    from clonos.operators.async_operators import check_calls, kind_for

    *functions, on_timer, migrate = split(given)
    for function in (*functions, *(each for each in (on_timer,) if each is not None)):
        check_function(function, binding.name, may_wait=may_wait)
    if migrate is not None:
        check_function(migrate, binding.name)
    binding = binding.of_functions(*functions, on_timer)
    check_previous(previous, binding)
    check_calls(
        calls, (each for one in (given, *(previous or {}).values()) for each in split(one)), binding.name
    )
    zone, schema = stream.timezone, struct_type(output)
    sides = side_schemas(side_outputs, binding.name)

    def of(given: Any) -> OperatorFactory:
        *functions, timer, brought = split(given)
        made = kind_for(kind, (*functions, timer), binding.name, calls)
        kept = {"name": binding.name, "on_timer": timer, "tz": zone, "migrate": brought}
        return lambda given, _: partial(
            made, *functions, arrow(schema), side_outputs=arrow_schemas(sides), **kept
        )

    return stream._then(
        key,
        of(given),
        schema,
        binding,
        previous=factories(previous, of),
        side_outputs=sides,
        right=right,
        output_trails=output_trails,
    )


def _processing(time_mode: Any) -> bool:
    return isinstance(time_mode, str) and time_mode.lower() == "processingtime"


def _no_watermark(name: str, what: str) -> ClonosError:
    return QueryDefinitionError(
        f"{name!r} asks for {what}, and the stream has no watermark",
        hint="Call withWatermark(column, delay) on the stream that it reads: behind causal(...), or, where an operator "
        "with columns of its own lies between, behind that; one before causal is Spark's own",
    )
