"""The causal stream: PySpark's own names and signatures wherever PySpark has the concept.

    causal(df).groupBy("card").process(fn, "card string, total double", name="totals").writeStream.to(sink)...start()

Spark's own expressions are free before `causal`, on the source DataFrame. From there to the sink the stream is
Clonos's: a row that Spark dropped in between would drop the determinants that it carries.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from clonos.api.grouping_columns import key_columns
from clonos.api.side_outputs import arrow_schemas, side_schemas
from clonos.api.writer import CausalStreamWriter
from clonos.errors import ClonosError, QueryDefinitionError
from clonos.extras import needs
from clonos.protocol.side_output import OutputName
from clonos.spark.facts import described
from clonos.spark.identity import identify
from clonos.spark.parity import covered, tell_what_differs
from clonos.spark.plan import (
    Binding,
    EventTime,
    OperatorFactory,
    OperatorPlan,
    RightPlan,
    SideOutputPlan,
    Upstream,
)
from clonos.spark.session import require_dataframe, require_session
from clonos.spark.types import check_columns, column_named, delay_microseconds, struct_type, united
from clonos.spark.versions import Previous, check_previous, factories, parts

_SPARKS_OWN = (
    "select selectExpr where withColumn withColumns withColumnRenamed drop dropDuplicates "
    "dropDuplicatesWithinWatermark agg repartition repartitionByRange coalesce limit sort orderBy distinct "
    "explode mapInPandas mapInArrow sample intersect subtract unionByName crossJoin"
).split()
_GROUPS_OWN = "agg count sum avg mean min max pivot apply applyInPandas applyInArrow cogroup".split()


def causal(df: Any, *, channel: Any = None, position: Any = None) -> CausalStream:
    """Start a causal stream from a streaming DataFrame.

    `channel` (an integer or text column: the source's partition) and `position` (an integer column, strictly increasing
    within it, the same each time) identify a record. The embedded log and Kafka carry them, also where the query leaves
    their columns out; for any other source give both.
    Raises QueryDefinitionError, naming the source, where a record has no identity.
    """
    require_dataframe(df)
    require_session(df.sparkSession)
    check_columns(df.schema, "the source", df.sparkSession)
    _arrow(df.schema)
    plan = replace(identify(df, channel, position), described=described(df, channel, position))
    return CausalStream(df.sparkSession, (plan,), df.schema)


class CausalStream:
    """A stream whose operators recover exactly. Immutable; each method returns a new one."""

    def __init__(
        self,
        spark: Any,
        upstream: tuple[Upstream, ...],
        schema: Any,
        event_time: EventTime | None = None,
    ) -> None:
        self._spark = spark
        self._upstream = upstream
        self._event_time = event_time
        self.schema = schema

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    def groupBy(self, *columns: Any) -> GroupedCausalStream:
        """Group by key columns, given as PySpark takes them; what follows runs once per key."""
        return GroupedCausalStream(self, key_columns(self, columns))

    groupby = groupBy

    def union(self, other: CausalStream) -> CausalStream:
        """The rows of both, in the order in which they arrive; that order is recorded."""
        if not isinstance(other, CausalStream):
            raise QueryDefinitionError(
                "a causal stream is united with a causal stream", hint="Call causal() on both"
            )
        if self._event_time != other._event_time:
            raise QueryDefinitionError(
                "the two streams have different watermarks",
                hint="Call withWatermark on the united stream instead",
            )
        schema = united(self.schema, other.schema)
        return CausalStream(self._spark, self._upstream + other._upstream, schema, self._event_time)

    unionAll = union

    def join(
        self,
        other: CausalStream,
        on: str | list[str],
        how: str = "inner",
        *,
        within: str,
        name: str = "join",
        version: str = "1",
        parallelism: int | None = None,
        standby: str | None = None,
    ) -> CausalStream:
        """The pairs of rows of both with equal columns `on`, whose event times differ by no more than `within`; with
        `how="left"` also this stream's rows without such a row, when none can come any more. Both have a watermark."""
        from clonos.api.join import join

        binding = Binding(name, version, parallelism, standby=standby)
        return join(self, other, on, how, within=within, binding=binding)

    def withWatermark(
        self, eventTime: str, delayThreshold: str, *, idle_after: str | None = None
    ) -> CausalStream:
        """Event time for the operators that follow: their watermark trails the latest event time of each channel by the
        threshold, and is the minimum over channels that are not idle. Where the stream is one of several inputs of an
        operator, it holds the others back while nothing comes, unless it is idle after so much time."""
        delay = delay_microseconds(self._spark, delayThreshold)
        idle = None if idle_after is None else delay_microseconds(self._spark, idle_after)
        if idle == 0:
            raise QueryDefinitionError("a stream is not idle at once", hint="Give idle_after, say, a minute")
        return self._with_event_time(EventTime(eventTime, delay, idle))

    def _with_event_time(self, given: EventTime) -> CausalStream:
        column = given.column
        name = column_named(column, self.schema.names, self._spark)
        kind = self.schema[name].dataType.simpleString()
        if kind not in ("timestamp", "timestamp_ntz"):
            raise QueryDefinitionError(f"event time {name!r} is {kind}", hint="It must be a timestamp column")
        return CausalStream(self._spark, self._upstream, self.schema, given._replace(column=name))

    def map(
        self,
        fn: Callable[..., Any],
        output: Any,
        *,
        name: str,
        version: str = "1",
        parallelism: int | None = None,
        pure: bool = False,
        on_poison: str = "fail",
        previous: Previous = None,
        side_outputs: Mapping[str, Any] | None = None,
    ) -> CausalStream:
        """One row for each: `fn(row, ctx)`, or `fn(row)` with `pure=True`, which may not use any causal service."""
        from clonos.operators.process import MapOperator

        return self._stateless(
            MapOperator,
            fn,
            struct_type(output),
            Binding(name, version, parallelism, on_poison=on_poison),
            pure,
            previous,
            side_outputs,
        )

    def flat_map(
        self,
        fn: Callable[..., Any],
        output: Any,
        *,
        name: str,
        version: str = "1",
        parallelism: int | None = None,
        pure: bool = False,
        on_poison: str = "fail",
        previous: Previous = None,
        side_outputs: Mapping[str, Any] | None = None,
    ) -> CausalStream:
        """Any number of rows for each: `fn(row, ctx)`, or `fn(row)` with `pure=True`, gives an iterable of them."""
        from clonos.operators.process import FlatMapOperator

        return self._stateless(
            FlatMapOperator,
            fn,
            struct_type(output),
            Binding(name, version, parallelism, on_poison=on_poison),
            pure,
            previous,
            side_outputs,
        )

    def filter(
        self,
        fn: Callable[..., Any],
        *,
        name: str,
        version: str = "1",
        parallelism: int | None = None,
        pure: bool = False,
        on_poison: str = "fail",
        previous: Previous = None,
        side_outputs: Mapping[str, Any] | None = None,
    ) -> CausalStream:
        """The rows for which `fn(row, ctx)`, or `fn(row)` with `pure=True`, holds."""
        from clonos.operators.process import FilterOperator

        if not callable(fn):
            raise QueryDefinitionError(
                "filter takes a function of a row",
                hint="Use Spark's column expressions before causal(), on the source DataFrame",
            )
        kept = self._stateless(
            FilterOperator,
            fn,
            self.schema,
            Binding(name, version, parallelism, on_poison=on_poison),
            pure,
            previous,
            side_outputs,
        )
        time = None if self._event_time is None else self._event_time._replace(inherited=True)
        return CausalStream(self._spark, kept._upstream, kept.schema, time)

    def _stateless(
        self,
        kind: type,
        fn: Callable[..., Any],
        schema: Any,
        binding: Binding,
        pure: bool,
        previous: Previous,
        side_outputs: Mapping[str, Any] | None,
    ) -> CausalStream:
        _check_function(fn, binding.name)
        check_previous(previous, binding)
        zone, sides = self.timezone, side_schemas(side_outputs, binding.name)
        if sides and pure:
            raise QueryDefinitionError(
                f"{binding.name!r} is declared pure, and has side outputs",
                hint="Take (row, ctx) instead of (row): ctx.side_output gives their rows",
            )
        kept = {"pure": pure, "tz": zone, "side_outputs": arrow_schemas(sides)}

        def of(function: Callable[..., Any]) -> OperatorFactory:
            return lambda given, name: partial(kind, function, _arrow(schema), name=name, **kept)

        return self._then((), of(fn), schema, binding, previous=factories(previous, of), side_outputs=sides)

    @property
    def timezone(self) -> str:
        """The session's time zone."""
        zone: str = self._spark.conf.get("spark.sql.session.timeZone")
        return zone

    def _then(
        self,
        key: tuple[str, ...],
        operator: OperatorFactory,
        schema: Any,
        binding: Binding,
        *,
        previous: Mapping[str, OperatorFactory] | None = None,
        side_outputs: Mapping[str, Any] | None = None,
        right: RightPlan | None = None,
    ) -> CausalStream:
        """The stream of an operator's rows. The operator is made once here, so that what is wrong with it shows."""
        check_columns(schema, f"the output of {binding.name!r}", self._spark)
        for side, columns in (side_outputs or {}).items():
            check_columns(columns, f"the side output {side!r} of {binding.name!r}", self._spark)
        for made in (operator, *(previous or {}).values()):
            made(_arrow(self.schema), binding.name)()
        plan = OperatorPlan(
            self._upstream,
            self.schema,
            key,
            operator,
            schema,
            binding,
            self._event_time,
            previous or {},
            side_outputs or {},
            right,
        )
        return CausalStream(self._spark, (plan,), schema)

    def side_output(self, name: str) -> CausalStream:
        """The rows that the operator of this stream gives by `ctx.side_output(name, row)`."""
        plans = self._upstream
        plan = plans[0] if len(plans) == 1 else None
        known = list(plan.side_outputs) if isinstance(plan, OperatorPlan) else []
        if not isinstance(plan, OperatorPlan) or name not in known:
            raise QueryDefinitionError(
                f"there is no side output {name!r}; there are {', '.join(map(repr, known)) or 'none'}",
                hint="Ask the stream that an operator has returned, which declares them by side_outputs={name: schema}",
            )
        upstream = SideOutputPlan(plan, OutputName(name))
        return CausalStream(self._spark, (upstream,), plan.side_outputs[name])

    @property
    def event_time(self) -> EventTime | None:
        """Of `withWatermark`: the column, and the delay in microseconds."""
        return self._event_time

    @property
    def plan(self) -> tuple[Upstream, ...]:
        """What its rows come from: sources and operators, several after a union."""
        return self._upstream

    @property
    def writeStream(self) -> CausalStreamWriter:
        return CausalStreamWriter(self._spark, self._upstream, self.schema)

    def transform(self, func: Callable[..., CausalStream], *args: Any, **kwargs: Any) -> CausalStream:
        """`func(self, *args, **kwargs)`, to write steps in the order in which they are done."""
        made = func(self, *args, **kwargs)
        if not isinstance(made, CausalStream):
            raise QueryDefinitionError(
                f"transform takes a function that returns a causal stream, not {made!r}"
            )
        return made

    def printSchema(self, level: int | None = None) -> None:
        """Print the columns as a tree, down to a level."""
        tree = self.schema.treeString() if level is None else self.schema.treeString(level)
        sys.stdout.write(f"{tree}\n")

    def __getattr__(self, name: str) -> Any:
        if name in _SPARKS_OWN:
            raise QueryDefinitionError(
                f"{name} is Spark's own and cannot follow causal(): a row that Spark drops or makes would lose the "
                "determinants it depends on",
                hint=f"Apply {name} to the source DataFrame before causal(), or use map, filter or process",
            )
        raise AttributeError(f"a causal stream has no {name!r}")


class GroupedCausalStream:
    """A causal stream by key."""

    def __init__(self, stream: CausalStream, key: tuple[str, ...]) -> None:
        self._stream = stream
        self._key = key

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
        on_poison: str = "fail",
        previous: Previous = None,
        migrate: Callable[[dict[Any, Any], str], dict[Any, Any]] | None = None,
        side_outputs: Mapping[str, Any] | None = None,
    ) -> CausalStream:
        """Record at a time: `fn(key, row, ctx)` gives an iterable of output rows, or None.

        `on_timer(key, timer, ctx)` is called for timers set with `ctx.timer`. `name` binds state to the operator;
        raise `version` when the function changes on purpose. A record that ends every process that takes it ends the
        query, or, with `on_poison="dead_letter"`, is passed over and kept (docs/dead-letters.md). With
        `standby="hot"` or `"passive"` each instance has a standby, which takes its place when it is lost
        (docs/standbys.md).

        With a new `version`, `previous={"1": old_fn}` (or a tuple with its `on_timer` and `migrate`) repeats what the
        old one has begun, and `migrate(state, old_version)` gives the state that the new one goes on from
        (docs/upgrading.md).

        With `side_outputs={"late": schema}` the function may also call `ctx.side_output("late", row)`; these rows are
        the stream `side_output("late")` of the result.
        """
        from clonos.operators.process import ProcessOperator

        binding = Binding(
            name,
            version,
            parallelism,
            ticks=on_timer is not None,
            standby=standby,
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
        )

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
            on_poison=on_poison,
            per=covered(per),
        )
        _check_function(func, binding.name)
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
        zone, schema, state = self._stream.timezone, struct_type(output), struct_type(kept_state)

        def of(given: Any) -> OperatorFactory:
            fn, kept, brought = parts(given, state, None)
            return lambda given, name: partial(
                GroupStateOperator,
                fn,
                input=given,
                key=self._key,
                output=_arrow(schema),
                state=_arrow(struct_type(kept)),
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
        on_poison: str = "fail",
        previous: Previous = None,
        migrate: Mapping[str, Callable[[tuple[Any, ...], str], tuple[Any, ...]]] | None = None,
        per: str | None = None,
    ) -> CausalStream:
        """PySpark's: a `StatefulProcessor` over rows, once per key and bundle,
        or, with `per="batch"`, once per key and micro-batch.

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
        initial_state: Any,
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

        check_previous(previous, binding)

        def of(given: Any) -> OperatorFactory:
            function, brought = parts(given, None)
            return lambda given, name: partial(
                TransformWithStateOperator,
                function,
                input=given,
                key=self._key,
                output=_arrow(schema),
                output_mode=output_mode,
                time_mode=time_mode,
                initial_state=initial_state,
                pandas=pandas,
                name=name,
                tz=zone,
                migrate=brought,
                event_time=None if watermark is None else watermark[0],
                per=covered(per),
            )

        made = self._stream._then(
            self._key, of((processor, migrate)), schema, binding, previous=factories(previous, of)
        )
        if event_time and watermark is not None:
            made = made._with_event_time(watermark._replace(column=event_time))
        return made

    def __getattr__(self, name: str) -> Any:
        if name in _GROUPS_OWN:
            raise QueryDefinitionError(
                f"{name} is not supported on a causal stream",
                hint="Use process, applyInPandasWithState or transformWithState",
            )
        raise AttributeError(f"a grouped causal stream has no {name!r}")


def _arrow(schema: Any) -> pa.Schema:
    from clonos.operators.types import arrow_schema

    return arrow_schema(schema)


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
) -> CausalStream:
    """The stream of an operator of this kind, which takes records one by one and keeps state by key. `split` gives the
    functions of one version, `given` or one of `previous`: those that the operator takes, on_timer, and migrate."""
    *functions, on_timer, migrate = split(given)
    for function in (*functions, *(each for each in (on_timer, migrate) if each is not None)):
        _check_function(function, binding.name)
    check_previous(previous, binding)
    zone, schema = stream.timezone, struct_type(output)
    sides = side_schemas(side_outputs, binding.name)

    def of(given: Any) -> OperatorFactory:
        *functions, timer, brought = split(given)
        kept = {"name": binding.name, "on_timer": timer, "tz": zone, "migrate": brought}
        return lambda given, _: partial(
            kind, *functions, _arrow(schema), side_outputs=arrow_schemas(sides), **kept
        )

    return stream._then(
        key,
        of(given),
        schema,
        binding,
        previous=factories(previous, of),
        side_outputs=sides,
        right=right,
    )


def _check_function(fn: Any, name: str) -> None:
    if not callable(fn):
        raise QueryDefinitionError(f"{name!r} needs a function, not {fn!r}")


def _processing(time_mode: Any) -> bool:
    return isinstance(time_mode, str) and time_mode.lower() == "processingtime"


def _no_watermark(name: str, what: str) -> ClonosError:
    return QueryDefinitionError(
        f"{name!r} asks for {what}, and the stream has no watermark",
        hint="Call withWatermark(column, delay) on the stream that it reads: behind causal(...), or, where an operator "
        "with columns of its own lies between, behind that; one before causal is Spark's own",
    )
