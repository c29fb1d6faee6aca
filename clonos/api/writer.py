"""`stream.writeStream`: where a query gets its sink, options and trigger, and starts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from clonos.api.batch_functions import console, memory, table
from clonos.api.instead import NotHere
from clonos.api.query import CausalQuery, Ending, SessionPorts
from clonos.api.query_error import CONDITION, described
from clonos.api.query_parts import QueryParts
from clonos.api.query_progress import QueryProgress
from clonos.api.trigger import check_trigger
from clonos.environment import check_real_time
from clonos.errors import ClonosError, ConfigurationError, QueryDefinitionError
from clonos.sinks.batch_sink import BatchSink
from clonos.spark import source_progress
from clonos.spark.back_edges import with_back_edges
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.compile import Compiled
from clonos.spark.coordinator import Coordinator
from clonos.spark.dataflow import dataflow_of
from clonos.spark.executors import executor_services
from clonos.spark.facts import session_settings
from clonos.spark.failure import translate
from clonos.spark.location import check_same, checkpoint_location
from clonos.spark.openlineage.lineage import QueryLineage
from clonos.spark.parity import check_append, check_streams
from clonos.spark.plan import SinkPlan, Upstream
from clonos.spark.session import is_stopped, require_plugin, require_session, tell_of_slow_exchanges
from clonos.spark.settings import PREFIX, Settings, read_settings
from clonos.spark.tab import show_in_tab
from clonos.spark.upgrade import UpgradeReport, explain

# A checkpoint of the older format cannot go on in real time. The query takes it with it when it starts.
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"

_IDLE_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"

_SPARKS_OWN = frozenset("foreach table partitionBy clusterBy".split())
_FORMATS = ("console", "memory")
_NUMBERED = "the source's channels have names, for whose numbers tasks ask the driver"
_REALTIME: WeakKeyDictionary[CausalQuery, tuple[Any, int]] = WeakKeyDictionary()
"""Queries that were started in Real-Time Mode, with their SparkContext and the slots that each needs."""

FAULTS = "clonos.faults"
SAME_SOURCE = "clonos.sameSource"
CHECKPOINT = "checkpointLocation"
REGISTRATION_SECONDS = 30.0  # how long executors may take to register


class Stream(Protocol):
    """A causal stream, as far as a sink is concerned."""

    @property
    def plan(self) -> tuple[Upstream, ...]: ...

    schema: Any


class CausalStreamWriter:
    """Options in Spark's manner; each method returns the writer."""

    def __init__(self, spark: Any, upstream: tuple[Upstream, ...], schema: Any) -> None:
        self._spark = spark
        self._upstream = upstream
        self._schema = schema
        self._options: dict[str, str] = {}
        self._trigger: dict[str, Any] = {}
        self._sinks: list[SinkPlan] = []
        self._query_name: str | None = None
        self._output_mode: str | None = None
        self._format: str | None = None

    def to(
        self,
        sink: Any,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        stream: Stream | None = None,
    ) -> CausalStreamWriter:
        """Where rows go; see `clonos.sinks`. Called again, the query has one more sink, which gets the rows of another
        `stream` of the same dataflow, or the same rows. Each needs a `name` then, which binds it to what it shows."""
        if not hasattr(sink, "writer"):
            raise QueryDefinitionError(
                f"{sink!r} is not a sink", hint="Use clonos.sinks.sql(...), .jsonl(...) or .call(...)"
            )
        if stream is not None and not hasattr(stream, "plan"):
            raise QueryDefinitionError(
                f"{stream!r} is not a causal stream", hint="Give stream= what an operator has returned"
            )
        upstream, schema = (self._upstream, self._schema) if stream is None else (stream.plan, stream.schema)
        self._sinks.append(SinkPlan(upstream, schema, sink, name, parallelism))
        return self

    def foreachBatch(self, func: Callable[[Any, int], object]) -> CausalStreamWriter:
        """`func(df, batch_id)` is called on the driver with the rows that have come since the batch before, after an
        epoch has committed, as `.to(clonos.sinks.batches(func))` does; see docs/sinks.md."""
        return self.to(BatchSink(func))

    def format(self, source: str) -> CausalStreamWriter:
        """`"console"` shows rows, `"memory"` makes them a temporary view that is called as the query: to try things."""
        if source.lower() not in _FORMATS:
            raise QueryDefinitionError(
                f"a causal query does not write {source!r} by itself",
                hint="Use .to(sink) with clonos.sinks.sql(...), .jsonl(...), .log(...) or .call(...), foreachBatch(fn) "
                "or toTable(name)",
            )
        self._format = source.lower()
        return self

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> CausalQuery:
        """Start, and append to a table of Spark's catalog behind each commit. A batch whose end is not known is
        appended again (docs/sinks.md)."""
        self._say(outputMode, queryName, options)
        columns = [partitionBy] if isinstance(partitionBy, str) else partitionBy or []
        own = (CHECKPOINT, FAULTS, SAME_SOURCE)
        more = {key: value for key, value in self._options.items() if key not in own}
        self._to_function(table(tableName, format, columns, more), tableName)
        return self.start()

    def option(self, key: str, value: Any) -> CausalStreamWriter:
        known = (one for one in (CHECKPOINT, FAULTS, SAME_SOURCE) if one.lower() == key.lower())
        self._options[next(known, key)] = str(value)  # Spark does not mind the case
        return self

    def options(self, **options: Any) -> CausalStreamWriter:
        for key, value in options.items():
            self.option(key, value)
        return self

    def trigger(self, **trigger: Any) -> CausalStreamWriter:
        """As Spark's: processingTime=, availableNow=, once=, realTime=."""
        check_trigger(self._spark, trigger)
        self._trigger = trigger
        return self

    def outputMode(self, mode: str) -> CausalStreamWriter:
        if mode.lower() not in ("update", "append"):
            raise QueryDefinitionError(
                f"output mode {mode!r} is not supported",
                hint="A causal query shows rows as they come: 'update'",
            )
        self._output_mode = mode.lower()
        return self

    def queryName(self, name: str) -> CausalStreamWriter:
        self._query_name = name
        return self

    def explain_upgrade(self, location: str | None = None) -> UpgradeReport:
        """What the query would change if it were started over a checkpoint (else its own), of which nothing is touched.
        Asked while no query runs there."""
        compiled, settings = self._compiled()
        realtime = "realTime" in self._trigger
        checkpoint = Checkpoint(
            checkpoint_location(self._spark, location or self._options.get(CHECKPOINT, ""))
        )
        return explain(
            checkpoint,
            compiled.topology(realtime=realtime),
            compiled.sinks,
            settings,
            same_source=self._same_source,
        )

    @property
    def _same_source(self) -> bool:
        return self._options.get(SAME_SOURCE, "").lower() == "true"

    def _of_format(self) -> None:
        """The sink of `format`, now that all options are known."""
        if self._format == "console":
            self._to_function(console(self._options), "console")
        elif self._format == "memory":
            if self._query_name is None:
                raise QueryDefinitionError(
                    "a view in memory is called as the query, which has no name",
                    hint='Call .queryName("name")',
                )
            self._to_function(memory(self._spark, self._query_name, self._schema), self._query_name)
        self._format = None

    def _to_function(self, fn: Callable[[Any, int], object], name: str) -> None:
        """A sink of the writer's own, which the user cannot name: it has this name where there are others."""
        self.to(BatchSink(fn), name=name.replace("/", "_") if self._sinks else None)

    def _read(self) -> tuple[Upstream, ...]:
        """What sinks read, loops among them."""
        return tuple(node for sink in with_back_edges(self._sinks) for node in sink.upstream)

    def _compiled(self) -> tuple[Compiled, Settings]:
        self._of_format()
        if not self._sinks:
            raise QueryDefinitionError(
                "the query has no sink", hint="Call .writeStream.to(sink) before .start()"
            )
        if self._output_mode == "append":
            check_append(self._read())
        settings = read_settings(_given(self._spark))
        zone = self._spark.conf.get("spark.sql.session.timeZone")
        idle = str(self._spark.conf.get(_IDLE_BATCHES)).lower() == "true"
        session = session_settings(self._spark, intercept=settings.intercept)
        made = Compiled(self._sinks, settings, zone, session, idle_batches=idle)
        return made, settings

    def start(
        self,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> CausalQuery:
        """Compile and start. Raises at once where something is not supported or does not fit."""
        if path is not None or partitionBy is not None:
            said = f"start({path!r})" if path is not None else f"start(partitionBy={partitionBy!r})"
            raise QueryDefinitionError(
                f"{said}: a causal query does not write files by itself",
                hint="Use .to(clonos.sinks.jsonl(path)), or toTable(name, format, partitionBy=..., path=...)",
            )
        self._say(outputMode, queryName, options)
        if format is not None:
            self.format(format)
        return self._start_compiled()

    def _say(self, output_mode: str | None, query_name: str | None, options: Mapping[str, Any]) -> None:
        if output_mode is not None:
            self.outputMode(output_mode)
        if query_name is not None:
            self.queryName(query_name)
        self.options(**options)

    def _start_compiled(self) -> CausalQuery:
        from pyspark import inheritable_thread_target

        jvm = require_session(self._spark)
        compiled, settings = self._compiled()
        session = jvm.org.clonos.spark.QuerySession(self._spark._jsparkSession, dataflow_of(compiled))
        session.session().conf().set(_FORMAT, "2")
        if CHECKPOINT not in self._options:
            raise QueryDefinitionError(
                "the query has no checkpoint",
                hint='Call .option("checkpointLocation", path): it is what survives',
            )
        location = checkpoint_location(self._spark, self._options[CHECKPOINT])
        mode = "realtime" if "realTime" in self._trigger else "microbatch"
        compiled.check_recovery(realtime=mode == "realtime")
        if mode == "realtime":
            self._check_real_time(compiled)
        if compiled.only_named():
            require_plugin(self._spark, _NUMBERED)
        coordinator = self._coordinator(jvm, compiled, settings, location, mode)
        show_in_tab(self._spark, location)
        ending = Ending()
        parts = QueryParts(self._spark, compiled, coordinator, location, ending.tell)
        coordinator.start(ending.tell)
        lineage = QueryLineage()

        def launch() -> Any:
            address = coordinator.next_generation()
            session.events().keepSources(os.path.join(coordinator.data, source_progress.FILE))
            frame = compiled.dataframe(self._spark, session, address, mode, coordinator.spill_directory())
            query = self._start(jvm, frame, location)
            lineage.launched()
            return query

        def ended(last: Any, error: ClonosError | None) -> None:
            said = (None, None) if error is None else (described(error), CONDITION)
            try:
                session.ended(last._jsq, *said)
            finally:
                lineage.ended(error)

        try:
            parts.start()
            if settings.openlineage is not None:
                recent, name = session.events().recent, self._query_name
                lineage.begin(self._spark, compiled, coordinator, settings.openlineage, recent, name)
            ports = SessionPorts(
                launch,
                lambda: is_stopped(self._spark),
                parts.drain,
                parts.is_here,
                parts.close,
                ended,
                QueryProgress(session.events()),
                inheritable_thread_target(self._spark),
                reads_all="availableNow" in self._trigger,
            )
            query = CausalQuery(coordinator, ports, settings, ending)
            if mode == "realtime":
                _REALTIME[query] = self._spark.sparkContext, compiled.slots_needed()
            return query
        except BaseException as error:
            parts.close()
            coordinator.stop()
            session.events().terminated(str(error), CONDITION)  # listeners may have heard of its start
            lineage.ended(translate(error))
            raise

    def _coordinator(
        self, jvm: Any, compiled: Compiled, settings: Settings, location: str, mode: str
    ) -> Coordinator:
        return Coordinator(
            compiled,
            location,
            settings,
            driver_pids=(int(jvm.ProcessHandle.current().pid()), os.getpid()),
            faults=self._options.get(FAULTS, ""),
            driver_host=str(self._spark.sparkContext.getConf().get("spark.driver.host")),
            spread=is_spread(self._spark),
            realtime=mode == "realtime",
            executors=executor_services(self._spark, jvm, settings),
            same_source=self._same_source,
            numbering=jvm.org.clonos.spark.executor.Numbering,
        )

    def __getattr__(self, name: str) -> Any:
        if name in _SPARKS_OWN:
            raise NotHere(
                f"{name} is Spark's own: a causal query shows its rows by .to(sink)",
                hint="Use clonos.sinks.sql(...), .jsonl(...), or .call(write), to which each row comes with its id, or "
                "foreachBatch(fn)",
            )
        raise AttributeError(f"a causal stream's writer has no {name!r}")

    def _start(self, jvm: Any, frame: Any, location: str) -> Any:
        writer = frame.writeStream.outputMode("update")
        writer._jwrite = writer._jwrite.foreach(jvm.org.clonos.spark.DiscardingWriter())
        for key, value in {**self._options, CHECKPOINT: location}.items():
            if key not in (FAULTS, SAME_SOURCE):
                writer = writer.option(key, value)
        if self._trigger:
            writer = writer.trigger(**self._trigger)
        if self._query_name:
            writer = writer.queryName(self._query_name)
        query = writer.start()
        try:
            check_same(query, location)
        except ConfigurationError:
            query.stop()
            raise
        return query

    def _check_real_time(self, compiled: Compiled) -> None:
        check_real_time()
        self._check_slots(compiled)
        tell_of_slow_exchanges(self._spark)
        check_streams(self._read())

    def _check_slots(self, compiled: Compiled) -> None:
        needed, taken, there = compiled.slots_needed(), taken_slots(self._spark), slots(self._spark)
        until = time.monotonic() + (REGISTRATION_SECONDS if is_spread(self._spark) else 0)
        while there < needed + taken and time.monotonic() < until:
            time.sleep(0.2)
            there = slots(self._spark)
        if there < needed + taken:
            others = f", of which other real-time queries have {taken}" if taken else ""
            raise ConfigurationError(
                f"a real-time query runs all its tasks at once: this one needs {needed} slots, there are "
                f"{there}{others}",
                hint="Raise the cores of the cluster (or N of local[N]), or lower the operators' parallelism",
            )


def _given(spark: Any) -> Mapping[str, str]:
    conf = dict(spark.sparkContext.getConf().getAll())
    found = {key: value for key, value in conf.items() if key.startswith(PREFIX)}
    session = dict(spark.conf.getAll)
    return found | {key: value for key, value in session.items() if key.startswith(PREFIX)}


def is_spread(spark: Any) -> bool:
    """Whether tasks run in other processes than the driver's, on whatever host."""
    return not spark.sparkContext._jsc.sc().isLocal()


def taken_slots(spark: Any) -> int:
    """Tasks of the causal real-time queries that run in the application. Nothing tells of others."""
    return sum(
        needed
        for query, (context, needed) in list(_REALTIME.items())
        if context is spark.sparkContext and query.isActive
    )


def slots(spark: Any) -> int:
    """Tasks that can run at once, as Spark's scheduler counts them."""
    context = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))
