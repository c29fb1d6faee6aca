"""The causal stream: PySpark's own names and signatures wherever PySpark has the concept.

    causal(df).groupBy("card").process(fn, "card string, total double", name="totals").writeStream.to(sink)...start()

Spark's own expressions are free before `causal`, on the source DataFrame, and right behind it. From there to the sink
the stream is Clonos's: a row that Spark dropped in between would drop the determinants that it carries. So behind an
operator its replicas evaluate them (`clonos.api.expressions`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from clonos.api.batches import FunctionsOfBatches
from clonos.api.expressions import SparksExpressions, is_expression
from clonos.api.grouping_columns import key_columns
from clonos.api.instead import refused, refused_at_once
from clonos.api.side_outputs import arrow_schemas, side_schemas
from clonos.api.writer import CausalStreamWriter
from clonos.async_functions import refuse_async
from clonos.errors import QueryDefinitionError
from clonos.operators.claims import Deterministic
from clonos.protocol.recovery.dependence import Determinism
from clonos.protocol.side_output import OutputName
from clonos.spark.facts import described
from clonos.spark.identity import identify
from clonos.spark.plan import (
    Binding,
    EventTime,
    OperatorFactory,
    OperatorPlan,
    RightPlan,
    SideOutputPlan,
    TablePlan,
    Upstream,
)
from clonos.spark.session import require_dataframe, require_session
from clonos.spark.stream_columns import StreamColumns
from clonos.spark.types import check_columns, column_named, delay_microseconds, struct_type, united
from clonos.spark.versions import Previous, check_previous, factories

if TYPE_CHECKING:
    from clonos.api.grouped import GroupedCausalStream
    from clonos.operators.calls import Calls


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
    arrow(df.schema)
    plan = replace(identify(df, channel, position), described=described(df, channel, position))
    return CausalStream(df.sparkSession, (plan,), df.schema)


class CausalStream(SparksExpressions, FunctionsOfBatches):
    """A stream whose operators recover exactly. Immutable; each method returns a new one."""

    def __init__(
        self,
        spark: Any,
        upstream: tuple[Upstream, ...],
        schema: Any,
        event_time: EventTime | None = None,
        columns: StreamColumns | None = None,
    ) -> None:
        self._spark = spark
        self._upstream = upstream
        self._event_time = event_time
        self._spark_columns = columns or StreamColumns(spark, upstream, schema)
        self.schema = schema

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        """Columns with their types, as of a DataFrame."""
        return [(field.name, field.dataType.simpleString()) for field in self.schema.fields]

    @property
    def isStreaming(self) -> bool:
        """True, as of a DataFrame that reads a stream."""
        return True

    def groupBy(self, *columns: Any) -> GroupedCausalStream:
        """Group by key columns, given as PySpark takes them; what follows runs once per key."""
        from clonos.api.grouped import GroupedCausalStream

        return GroupedCausalStream(self, key_columns(self, columns))

    groupby = groupBy

    def union(self, other: CausalStream) -> CausalStream:
        """The rows of both, in the order in which they arrive; that order is recorded."""
        if not isinstance(other, CausalStream):
            raise QueryDefinitionError(
                "a causal stream is united with a causal stream", hint="Call causal() on both"
            )
        schema = united(self.schema, other.schema)
        time = _united_times(self._event_time, other._event_time)
        return CausalStream(self._spark, self._upstream + other._upstream, schema, time, self._spark_columns)

    unionAll = union

    def iterate(
        self,
        body: Callable[[CausalStream], tuple[CausalStream, CausalStream]],
        log: str,
        *,
        name: str = "loop",
        partitions: int = 1,
    ) -> CausalStream:
        """A loop. `body` takes this stream together with the rows that come back, and returns two streams: those that
        go round again, with the same columns, and the output. What goes round is kept in an embedded log of so many
        partitions, in a folder of the query's own (docs/api.md)."""
        from clonos.api.iterate import iterate

        return iterate(self, body, log, name=name, partitions=partitions)

    def join(
        self,
        other: Any,
        on: str | list[str],
        how: str = "inner",
        *,
        within: str | None = None,
        refresh: str | None = None,
        name: str = "join",
        version: str = "1",
        parallelism: int | None = None,
        standby: str | None = None,
        recovery: str | None = None,
        previous: Mapping[str, tuple[str, str]] | None = None,
    ) -> CausalStream:
        """With a causal stream: the pairs of rows of both with equal columns `on`, whose event times differ by no more
        than `within`; with `how="left"` also this stream's rows without such a row, when none can come any more.
        Both have a watermark. The event time of the pairs is this stream's column; their watermark trails that of the
        join by `within`. Where `how` or `within` changes, `previous={"1": ("inner", "10 minutes")}` repeats what was
        begun with others.

        With a table: each row with the rows of the table that have equal columns `on`, as the table is then. It is a
        DataFrame that is no stream, a function that returns one, or a PyArrow table, and is read when the query starts,
        and again every `refresh`; `how` is inner, left, left_semi or left_anti.
        """
        binding = Binding(name, version, parallelism, standby=standby, recovery=recovery)
        if within is None and not isinstance(other, CausalStream):
            from clonos.api.table_join import join_table

            return join_table(self, other, on, how, refresh=refresh, binding=binding)
        from clonos.api.join import join

        if within is None:
            raise QueryDefinitionError(
                f"{name!r} joins two streams, and does not say how far apart in event time rows may be that meet",
                hint='Give within="10 minutes"',
            )
        return join(self, other, on, how, within=within, binding=binding, previous=previous)

    def withWatermark(
        self, eventTime: str, delayThreshold: str, *, idle_after: str | None = None
    ) -> CausalStream:
        """Event time for the operators that follow: their watermark trails the latest event time of each channel by the
        threshold, and is the minimum over channels that are not idle. Where an operator before goes by a column of the
        same name, that is the same time: what one of its own channels has yet to bring is waited for. Where the stream
        is one of several inputs of an operator, it holds the others back while nothing comes, unless it is idle after
        so much time."""
        delay = delay_microseconds(self._spark, delayThreshold)
        idle = None if idle_after is None else delay_microseconds(self._spark, idle_after)
        if idle == 0:
            raise QueryDefinitionError("a stream is not idle at once", hint="Give idle_after, say, a minute")
        if self._event_time is not None and delay < self._event_time.trails:
            seconds = f"{self._event_time.trails / 1_000_000:g} seconds"
            raise QueryDefinitionError(
                f"rows of a join come up to {seconds} behind its latest ones (the delay of the left stream's watermark "
                f"and within=), and a delay of {delayThreshold!r} would make them late",
                hint=f"A join has event time: leave withWatermark out, or give at least {seconds}",
            )
        return self._with_event_time(EventTime(eventTime, delay, idle))

    def _with_event_time(self, given: EventTime) -> CausalStream:
        column = given.column
        name = column_named(column, self.schema.names, self._spark)
        kind = self.schema[name].dataType.simpleString()
        if kind not in ("timestamp", "timestamp_ntz"):
            raise QueryDefinitionError(f"event time {name!r} is {kind}", hint="It must be a timestamp column")
        time = given._replace(column=name)
        return CausalStream(self._spark, self._upstream, self.schema, time, self._spark_columns)

    def map(
        self,
        fn: Callable[..., Any],
        output: Any,
        *,
        name: str,
        version: str = "1",
        parallelism: int | None = None,
        pure: bool = False,
        recovery: str | None = None,
        on_poison: str = "fail",
        previous: Previous = None,
        side_outputs: Mapping[str, Any] | None = None,
        calls: Calls | None = None,
    ) -> CausalStream:
        """One row for each: `fn(row, ctx)`, or `fn(row)` with `pure=True`, which may not use any causal service.
        An async `fn` may await `ctx.call(...)` and `ctx.gather(...)` while other records go on; `calls` says how such
        calls are carried out (`clonos.Calls`)."""
        from clonos.operators.process import MapOperator

        return self._stateless(
            MapOperator,
            fn,
            struct_type(output),
            Binding(name, version, parallelism, recovery=recovery, on_poison=on_poison),
            pure,
            previous,
            side_outputs,
            calls,
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
        recovery: str | None = None,
        on_poison: str = "fail",
        previous: Previous = None,
        side_outputs: Mapping[str, Any] | None = None,
        calls: Calls | None = None,
    ) -> CausalStream:
        """Any number of rows for each: `fn(row, ctx)`, or `fn(row)` with `pure=True`, gives an iterable of them. It
        may be async, as in `map`."""
        from clonos.operators.process import FlatMapOperator

        return self._stateless(
            FlatMapOperator,
            fn,
            struct_type(output),
            Binding(name, version, parallelism, recovery=recovery, on_poison=on_poison),
            pure,
            previous,
            side_outputs,
            calls,
        )

    def filter(
        self,
        fn: Any,
        *,
        name: str | None = None,
        version: str = "1",
        parallelism: int | None = None,
        pure: bool = False,
        recovery: str | None = None,
        on_poison: str = "fail",
        previous: Previous = None,
        side_outputs: Mapping[str, Any] | None = None,
        calls: Calls | None = None,
    ) -> CausalStream:
        """The rows for which `fn(row, ctx)`, or `fn(row)` with `pure=True`, holds: an operator, which needs a name. It
        may be async, as in `map`. Of a Column or SQL it is `where`."""
        from clonos.operators.process import FilterOperator

        if is_expression(fn) and name is None:
            return self.where(fn)
        if not callable(fn) or is_expression(fn) or name is None:
            raise QueryDefinitionError(
                f"filter takes a function of a row and a name, or a condition of Spark's alone, not {fn!r}",
                hint='Write filter(fn, name="...") or filter("amount > 10")',
            )
        kept = self._stateless(
            FilterOperator,
            fn,
            self.schema,
            Binding(name, version, parallelism, recovery=recovery, on_poison=on_poison),
            pure,
            previous,
            side_outputs,
            calls,
        )
        time = None if self._event_time is None else self._event_time._replace(inherited=True)
        return CausalStream(self._spark, kept._upstream, kept.schema, time, self._spark_columns)

    def _stateless(
        self,
        kind: type,
        fn: Callable[..., Any],
        schema: Any,
        binding: Binding,
        pure: bool,
        previous: Previous,
        side_outputs: Mapping[str, Any] | None,
        calls: Calls | None = None,
        of_bundles: bool = False,
    ) -> CausalStream:
        """`of_bundles`: the operator makes columns of a bundle's rows, and must know of which types."""
        from clonos.operators.async_operators import check_calls, kind_for

        check_function(fn, binding.name, may_wait=True)
        binding = binding.of_functions(fn)
        check_previous(previous, binding)
        check_calls(calls, (fn, *(previous or {}).values()), binding.name)
        zone, sides = self.timezone, side_schemas(side_outputs, binding.name)
        if sides and pure:
            raise QueryDefinitionError(
                f"{binding.name!r} is declared pure, and has side outputs",
                hint="Take (row, ctx) instead of (row): ctx.side_output gives their rows",
            )
        kept = {"pure": pure, "tz": zone, "side_outputs": arrow_schemas(sides)}

        def of(function: Callable[..., Any]) -> OperatorFactory:
            made = kind_for(kind, (function,), binding.name, calls, pure=pure)

            def operator(given: pa.Schema, name: str) -> Callable[[], Any]:
                known = {**kept, "input": given} if of_bundles else kept
                return partial(made, function, arrow(schema), name=name, **known)

            return operator

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
        output_trails: int = 0,
        table: TablePlan | None = None,
        gives_updates: bool = False,
    ) -> CausalStream:
        """The stream of an operator's rows. The operator is made once here, so that what is wrong with it shows."""
        check_columns(schema, f"the output of {binding.name!r}", self._spark)
        for side, columns in (side_outputs or {}).items():
            check_columns(columns, f"the side output {side!r} of {binding.name!r}", self._spark)
        if binding.claims is Determinism.DETERMINISTIC:
            operator = _held_to_its_claim(operator)
        for made in (operator, *(previous or {}).values()):
            made(arrow(self.schema), binding.name)()
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
            output_trails,
            self.timezone,
            table,
            gives_updates,
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
        error = refused_at_once(name)
        if error is not None:
            raise error
        if "schema" in self.__dict__ and name in self.schema.names:
            return self[name]
        raise refused(name)


def _united_times(mine: EventTime | None, theirs: EventTime | None) -> EventTime | None:
    """What operators say of event time is heard in any case; what was said of the streams themselves must agree."""
    if mine is not None and theirs is not None:
        computed = mine.computed | theirs.computed
        mine, theirs = mine._replace(computed=computed), theirs._replace(computed=computed)
    if mine == theirs:
        return mine
    if any(time is not None and not time.inherited for time in (mine, theirs)):
        raise QueryDefinitionError(
            "the two streams have different watermarks",
            hint="Call withWatermark on the united stream instead",
        )
    if mine is None or theirs is None or mine.column != theirs.column:
        return None
    return mine._replace(trails=max(mine.trails, theirs.trails), idle_after=None)


def arrow(schema: Any) -> pa.Schema:
    from clonos.operators.types import arrow_schema

    return arrow_schema(schema)


def _held_to_its_claim(operator: OperatorFactory) -> OperatorFactory:
    return lambda given, name: Deterministic(operator(given, name), name)


def check_function(fn: Any, name: str, *, may_wait: bool = False) -> None:
    if not callable(fn):
        raise QueryDefinitionError(f"{name!r} needs a function, not {fn!r}")
    if not may_wait:
        refuse_async(fn, repr(name))
