"""From a lazy plan to a topology, the replicas' node specs, and a Spark plan.

    sources -> identify -> pack -> exchange -> layer 1 -> exchange -> layer 2 -> ... -> layer n

A source's rows become blocks where the query begins (`PackingStage`), and only blocks pass through exchanges: rows of
two columns, the partition of the next layer and the block. Operators and sinks run in layers (`clonos.spark.layers`),
each of which is one stage of the plugin (`CausalStage`). The Spark plan is built anew for every
generation, since a conduit carries its generation and token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import pyarrow as pa

from clonos.errors import QueryDefinitionError
from clonos.operators.initial_state import RowsByInstance
from clonos.operators.table_join import Tables
from clonos.operators.types import arrow_schema
from clonos.protocol.engine.channel_watermarks import EventInput
from clonos.protocol.ids import NODE_BITS, NODE_MAX, NodeId
from clonos.protocol.recovery.choice import PolicyChoice
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.side_output import MAIN, OutputName
from clonos.protocol.topology import Node, NodeKind, SecondInput, Topology
from clonos.protocol.versions.upgrade import History
from clonos.sinks.batch_sink import BatchSink
from clonos.sinks.log_sink import LogSink
from clonos.spark import facts, routing
from clonos.spark.back_edges import check_event_time, with_back_edges
from clonos.spark.broadcasts import Broadcasts
from clonos.spark.conduit_address import Address
from clonos.spark.derived_outputs import DerivedOf, derived_inputs, output_said
from clonos.spark.function_pickler import pickled
from clonos.spark.kafka_topics import KafkaSource, kafka_sources
from clonos.spark.layers import Forwarder, Layer, Layers
from clonos.spark.plan import (
    EventTime,
    OperatorPlan,
    PlanNode,
    RightPlan,
    SinkPlan,
    SourcePlan,
    TablePlan,
    Upstream,
    base_output,
    in_order,
    node_of,
    output_read,
    waits,
)
from clonos.spark.plugin_stages import (
    CHANNEL,
    DESTINATION,
    NAME,
    NUMBER,
    POSITION,
    TimedReader,
    exchanged,
    numbered,
    packed,
    stage as plugin_stage,
    ticking,
)
from clonos.spark.recovery_choice import check_recovery, own_recoveries, tell_who_goes_back
from clonos.spark.settings import Settings
from clonos.spark.types import check_intervals, quoted
from clonos.storage.table_versions import TableVersions
from clonos_standby.cluster.spec import EventColumn, NodeSpec, RightInput, Route, RouteKind

_STARTING_SECONDS = 30.0
"""A recovery begins when its process has been started and has imported the functions. A conduit waits for so much
longer than a recovery may take, so that the replica's error, which says what it has waited for, comes first."""
SINK = "sink"
"""The name of a sink that was given none."""
_OF_A_SINK = 'Give each one, .to(sink, name="..."): it binds the sink to what it has shown'
_OF_BATCHES = 'Give each one, and write foreachBatch(fn) as .to(clonos.sinks.batches(fn), name="...")'


@dataclass(frozen=True, slots=True)
class Target:
    """What is downstream of a node, as its rows are routed."""

    key: tuple[str, ...]  # empty: by channel or instance
    parallelism: int
    output: OutputName = MAIN
    has_event_time: bool = False  # it is told how far event time has come
    event_time: EventTime | None = None  # by the rows' own; else as the sender has it


class Compiled:
    """A query with numbered nodes."""

    def __init__(
        self,
        sinks: Sequence[SinkPlan],
        settings: Settings,
        zone: str,
        session: Mapping[str, str] | None = None,
        *,
        idle_batches: bool = True,
    ) -> None:
        """`session` is what of the session's settings changes values. `idle_batches`: timers make micro-batches also
        while nothing arrives. A sink is told the columns of its rows, and where the checkpoint is; so that it can be
        given to several queries, each has a copy of its own."""
        self._session = session
        self._idle_batches = idle_batches
        self._checkpoint = ""
        self.broadcasts = Broadcasts()
        sinks = with_back_edges(sinks)
        self._sinks = [replace(plan, sink=copy(plan.sink)) for plan in sinks]
        self._settings = settings
        self._zone = zone
        self._nodes = in_order(tuple(node for sink in sinks for node in sink.upstream))
        if len(self._nodes) + len(self._sinks) > NODE_MAX:
            raise QueryDefinitionError(f"a query has at most {NODE_MAX} sources, operators and sinks")
        numbered = enumerate([*self._nodes, *self._sinks], 1)
        self._numbers = {id(node): NodeId(number) for number, node in numbered}
        self._names = self._named()
        self._check()
        for node in self._nodes:
            if isinstance(node, OperatorPlan) and node.zone not in (None, zone):
                raise QueryDefinitionError(
                    f"{self._name(node)!r} was defined while spark.sql.session.timeZone was {node.zone!r}, and the "
                    f"query starts with {zone!r}",
                    hint="Set the time zone before the query is defined",
                )
            check_intervals(node.df.schema if isinstance(node, SourcePlan) else node.schema, self._name(node))
            for side, schema in getattr(node, "side_outputs", {}).items():
                check_intervals(schema, f"{self._name(node)}, side output {side}")
        for sink in self._sinks:
            sink.sink.validate(arrow_schema(sink.input))
        self.node_specs()  # what cannot be pickled is refused before anything is written

    def _named(self) -> dict[int, str]:
        """Names by node number. Those that are derived are numbered, in an order that is the same at every start."""
        names: dict[int, str] = {}
        count: dict[str, int] = {}
        for node in self._nodes:
            number = self._numbers[id(node)]
            if isinstance(node, SourcePlan):
                names[number] = f"source-{number}"
            elif node.binding.named:
                names[number] = node.binding.name
            else:
                count[node.binding.name] = count.get(node.binding.name, 0) + 1
                names[number] = f"{node.binding.name}-{count[node.binding.name]}"
        for sink in self._sinks:
            shown = [plan for plan in self._sinks if not plan.is_back_edge]
            if sink.name is None and len(shown) > 1:
                raise QueryDefinitionError(
                    f"the query has {len(shown)} sinks, and {sink.sink!r} has no name",
                    hint=_OF_BATCHES if isinstance(sink.sink, BatchSink) else _OF_A_SINK,
                )
            names[self._numbers[id(sink)]] = sink.name or SINK
        return names

    def _check(self) -> None:
        names = list(self._names.values())
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise QueryDefinitionError(
                f"two operators or sinks are called {twice[0]!r}",
                hint="Names bind state to operators; give each its own",
            )
        for node in [*self._nodes, *self._sinks]:
            if not isinstance(node, SourcePlan):
                self._check_reads(node)
            if isinstance(node, OperatorPlan):
                check_event_time(node, self._name(node))
        for one, other in combinations(self._sinks, 2):
            if isinstance(one.sink, LogSink) and one.sink.target == other.sink.target:
                raise QueryDefinitionError(
                    f"{self._name(one)} and {self._name(other)} would both write to {one.sink!r}",
                    hint="A partition of a log has one writer; give each sink, and each loop, a folder of its own",
                )
            both = [up for up in one.upstream if any(_is_same(up, known) for known in other.upstream)]
            if both and one.sink.target == other.sink.target:
                raise QueryDefinitionError(
                    f"{one.sink!r} would get the rows of {self._name(node_of(both[0]))} twice, "
                    f"from {self._name(one)} and {self._name(other)}",
                    hint="An id is visible once in a place; give each sink a table, folder or function of its own",
                )

    def _check_reads(self, node: OperatorPlan | SinkPlan) -> None:
        """That it reads one output of an upstream node, once. Its rows come by channels, and a channel is an upstream
        instance, whichever output the rows are of."""
        pairs = [pair for pair in combinations(node.all_upstream, 2) if node_of(pair[0]) is node_of(pair[1])]
        if not pairs:
            return
        one, other = next((pair for pair in pairs if _is_same(*pair)), pairs[0])
        reader, read = self._name(node), self._name(node_of(one))
        if _is_same(one, other):
            rows = read if output_read(one) == MAIN else f"the {output_said(one)} of {read}"
            raise QueryDefinitionError(
                f"{reader} would get rows of {rows} twice",
                hint="Let one of them go through an operator of its own, such as map()",
            )
        said = [f"its {output_said(each)}" for each in (one, other)]
        raise QueryDefinitionError(
            f"{reader} would read two outputs of {read}: {' and '.join(said)}",
            hint="An operator or a sink reads only one output of an operator. Let one of the two go through an "
            'operator of its own, such as .filter(lambda row, ctx: True, name="...")',
        )

    def bind(self, checkpoint: str) -> None:
        """Tell sinks and tables where the query's checkpoint is."""
        self._checkpoint = checkpoint
        for plan in self._sinks:
            plan.sink.bind(checkpoint)

    @property
    def sink_plans(self) -> list[SinkPlan]:
        """Ends of loops among them."""
        return list(self._sinks)

    def back_edges(self) -> set[NodeId]:
        """The sinks that are ends of loops."""
        return {self._numbers[id(plan)] for plan in self._sinks if plan.is_back_edge}

    def batch_sinks(self) -> list[tuple[NodeId, SinkPlan]]:
        """Those whose rows go to a function of this driver."""
        return [(self._numbers[id(plan)], plan) for plan in self._sinks if isinstance(plan.sink, BatchSink)]

    @property
    def tables(self) -> dict[NodeId, TablePlan]:
        """By the node that uses it."""
        operators = (node for node in self._nodes if isinstance(node, OperatorPlan))
        return {self._numbers[id(node)]: node.table for node in operators if node.table is not None}

    @property
    def sinks(self) -> dict[NodeId, Any]:
        """By node."""
        return {self._numbers[id(plan)]: plan.sink for plan in self._sinks}

    def _name(self, node: PlanNode | SinkPlan) -> str:
        return self._names[self._numbers[id(node)]]

    def _parallelism(self, node: OperatorPlan) -> int:
        return node.binding.parallelism or self._settings.parallelism

    def _standby(self, node: OperatorPlan) -> str:
        """The setting is of those operators of a query that can have one."""
        recoveries = self.recoveries
        can_have = recoveries.repeats(self._numbers[id(node)]) or not (
            recoveries.default.repeats or recoveries.some_repeat
        )
        return node.binding.standby or (self._settings.standby if can_have else "none")

    def _has_standby(self, node: OperatorPlan) -> bool:
        return self._standby(node) != "none"

    def check_recovery(self, *, realtime: bool) -> None:
        """Raises QueryDefinitionError where the query asks for what its recovery does not offer."""
        holding = [sink for sink in self._sinks if self.recoveries.holds(self._numbers[id(sink)])]
        nodes = {self._numbers[id(node)]: node for node in self._nodes}
        check_recovery(self._settings, nodes, holding, self.recoveries, realtime=realtime)
        tell_who_goes_back(self.recoveries, self.topology())

    @cached_property
    def recoveries(self) -> Recoveries:
        """Of the operators and the sinks."""
        own = own_recoveries({self._numbers[id(node)]: node for node in self._nodes})
        return Recoveries.of(self.topology(), self._settings.recovery, own)

    def has_standbys(self) -> bool:
        return any(isinstance(node, OperatorPlan) and self._has_standby(node) for node in self._nodes)

    def _places(self, node: OperatorPlan, others: int, *, spread: bool) -> list[list[int]]:
        """By instance, on which servers it may be, the most wanted one first: the driver's is number 0, then come so
        many others. Where tasks are on several hosts (`spread`), any of them, since one may be near the conduit."""
        if not self._has_standby(node) or not others:
            return [[0]] * self._parallelism(node)
        begin = self._numbers[id(node)]
        turns = [
            [1 + (begin + instance + step) % others for step in range(others if spread else 1)]
            for instance in range(self._parallelism(node))
        ]
        return [[0, *turn] for turn in turns]

    def instances_on_remote_servers(self, others: int, *, spread: bool) -> tuple[int, ...]:
        """How many instances may have a replica on each of the servers but the first."""
        placed = [
            place
            for node in self._nodes
            if isinstance(node, OperatorPlan)
            for places in self._places(node, others, spread=spread)
            for place in places
        ]
        return tuple(placed.count(1 + other) for other in range(others))

    # -------------------------------------------------------------- topology

    def topology(self, *, realtime: bool | None = None) -> Topology:
        nodes = []
        for node in self._nodes:
            number = self._numbers[id(node)]
            if isinstance(node, SourcePlan):
                schema = node.df.schema
                nodes.append(
                    Node(
                        number,
                        NodeKind.SOURCE,
                        self._name(node),
                        0,
                        output=schema.simpleString(),
                        columns=facts.columns(schema),
                        source=node.described,
                    )
                )
            else:
                nodes.append(self._operator_node(node))
        nodes += map(self._sink_node, self._sinks)
        return Topology(tuple(nodes), self._zone, self._session, realtime)

    def _sink_node(self, sink: SinkPlan) -> Node:
        return Node(
            self._numbers[id(sink)],
            NodeKind.SINK,
            self._name(sink),
            sink.instances,
            self._upstream(sink),
            reads=self._reads(sink),
            derived=derived_inputs(sink, self._number_of),
            columns=facts.columns(sink.input),
        )

    def _number_of(self, upstream: Upstream) -> NodeId:
        return self._numbers[id(node_of(upstream))]

    def _upstream(self, node: OperatorPlan | SinkPlan) -> tuple[NodeId, ...]:
        return tuple(map(self._number_of, node.all_upstream))

    def _reads(self, node: OperatorPlan | SinkPlan) -> dict[int, OutputName]:
        """Which side outputs."""
        read = {self._number_of(up): base_output(up) for up in node.all_upstream}
        return {number: output for number, output in read.items() if output != MAIN}

    def _right_numbers(self, node: OperatorPlan) -> tuple[NodeId, ...]:
        return tuple(map(self._number_of, node.right.upstream if node.right is not None else ()))

    def _right_of(self, node: OperatorPlan) -> SecondInput | None:
        right = node.right
        if right is None:
            return None
        types = tuple(right.input[name].dataType.simpleString() for name in right.key)
        watermark = _watermark(right.event_time) or ("", 0)
        return SecondInput(self._right_numbers(node), right.key, types, watermark)

    def _operator_node(self, node: OperatorPlan) -> Node:
        given = arrow_schema(node.input)
        operator = node.operator(given, self._name(node))()
        return Node(
            self._numbers[id(node)],
            NodeKind.OPERATOR,
            self._name(node),
            self._parallelism(node),
            self._upstream(node),
            node.binding.version,
            node.key,
            node.schema.simpleString(),
            key_types=tuple(node.input[name].dataType.simpleString() for name in node.key),
            columns=facts.columns(node.schema),
            reads=self._reads(node),
            derived=derived_inputs(node, self._number_of),
            side_outputs={name: facts.columns(schema) for name, schema in node.side_outputs.items()},
            right=self._right_of(node),
            form=facts.form_of(operator),
            timeout=facts.timeout_of(operator),
            per=facts.per_of(operator),
            initial_state=facts.initial_state_of(node.table),
            watermark=_watermark(node.event_time) or ("", 0),
            state=facts.state_of(operator, self._name(node)),
            migrates=facts.migrates(operator),
            previous=frozenset(node.previous),
            previous_migrates=frozenset(
                (version, variable)
                for version, make in node.previous.items()
                for variable in facts.migrates(make(given, self._name(node))())
            ),
        )

    def slots_needed(self) -> int:
        """Tasks of all stages together; a source of unknown size counts as one."""
        sources = [node.partitions or 1 for node in self._nodes if isinstance(node, SourcePlan)]
        return sum(sources) + sum(len(stage.partitions) for stage in Layers(self.topology()).stages)

    def targets_of(self, node: PlanNode) -> list[Target]:
        """Where a node's rows go, by its readers in the order of their numbers."""
        return [
            Target((), other.instances, output_read(up))
            if isinstance(other, SinkPlan)
            else Target(
                other.key_for(up),
                self._parallelism(other),
                output_read(up),
                other.hears_of_event_time(up),
                other.event_time_for(up),
            )
            for other in [*self._nodes, *self._sinks]
            if not isinstance(other, SourcePlan)
            for up in other.all_upstream
            if node_of(up) is node
        ]

    # ------------------------------------------------------------ node specs

    def node_specs(self, history: History | None = None) -> dict[int, bytes]:
        """What replicas need of each node, pickled; with a history, which version of its function runs which epoch."""
        specs: dict[int, bytes] = {}
        for node in self._nodes:
            if isinstance(node, OperatorPlan):
                specs[self._numbers[id(node)]] = self._pickled(
                    self._operator_spec(node, history), self._name(node)
                )
        for sink in self._sinks:
            number, name = self._numbers[id(sink)], self._name(sink)
            spec = NodeSpec(
                number=number,
                name=name,
                input=arrow_schema(sink.input),
                zone=self._zone,
                sink=sink.sink,
                policy=self._policy(number),
            )
            specs[number] = self._pickled(spec, name)
        return specs

    def _pickled(self, spec: NodeSpec, name: str) -> bytes:
        return pickled(spec, name, lambda variable: self.broadcasts.shared(variable, self._checkpoint))

    def _operator_spec(self, node: OperatorPlan, history: History | None) -> NodeSpec:
        number, name = self._numbers[id(node)], self._name(node)
        return replace(
            operator_spec(
                node,
                number,
                name,
                self._zone,
                self.targets_of(node),
                right_upstream=self._right_numbers(node),
                event_inputs=self._event_inputs(node),
                tables=None
                if node.table is None
                else given_to(
                    node.table, TableVersions(self._checkpoint, number), self._parallelism(node), self._zone
                ),
                derived=self._derived_of(node),
            ),
            depth=self._settings.depth,
            recording=self._settings.recording,
            policy=self._policy(number),
            schedule=history.schedule(number) if history is not None else None,
        )

    def _policy(self, number: NodeId) -> PolicyChoice:
        return PolicyChoice.of(self.topology(), self.recoveries, number)

    def _derived_of(self, node: OperatorPlan) -> DerivedOf:
        readers = [*self._nodes, *self._sinks]
        read = [up for each in readers if not isinstance(each, SourcePlan) for up in each.all_upstream]
        found = DerivedOf(node, self._name(node), [up for up in read if node_of(up) is node])
        found.check_zone(self._zone)
        return found

    def _event_inputs(self, node: OperatorPlan) -> list[EventInput]:
        inputs = []
        for up in node.all_upstream:
            if node.hears_of_event_time(up):
                sender, own = node_of(up), node.event_time_for(up)
                channels = self._parallelism(sender) if isinstance(sender, OperatorPlan) else None
                idle_after = own.idle_after if own is not None else None
                inputs.append(EventInput(self._number_of(up), channels, idle_after))
        return inputs

    # ------------------------------------------------------------ Spark plan

    def dataframe(self, spark: Any, session: Any, address: Address, mode: str, spill: str | None) -> Any:
        """The whole query as a DataFrame that yields no rows, in the query's own `session`, the plugin's object."""
        layers, reports = Layers(self.topology()), session.events().accumulator()
        sources = []
        for node in self._nodes:
            if isinstance(node, SourcePlan):
                blocks = self._source(spark, session.session(), node, address, layers)
                ticks = self.has_ticks(realtime=mode == "realtime")
                sources.append(blocks.union(ticking(spark, blocks)) if ticks else blocks)
        frame = sources[0]
        for source in sources[1:]:
            frame = frame.union(source)
        for stage in layers.stages:
            given = exchanged(frame, len(stage.partitions))
            frame = plugin_stage(spark, given, self._stage(stage, layers, address, mode, spill), reports)
        return frame

    def has_ticks(self, *, realtime: bool) -> bool:
        """Whether a source of ticks stands beside each source, for timers and inputs that may be found idle. In real
        time conduits ask for the time themselves."""
        operators = [node for node in self._nodes if isinstance(node, OperatorPlan)]
        return not realtime and any(
            (node.binding.ticks and self._idle_batches)
            or any(each.idle_after is not None for each in self._event_inputs(node))
            for node in operators
        )

    def timed_operators(self) -> set[NodeId]:
        """Those that are told how far event time has come."""
        operators = (node for node in self._nodes if isinstance(node, OperatorPlan))
        return {self._numbers[id(node)] for node in operators if self._event_inputs(node)}

    def source_plans(self) -> list[tuple[NodeId, SourcePlan]]:
        """With their nodes, in the order of Spark's plan."""
        return [(self._numbers[id(node)], node) for node in self._nodes if isinstance(node, SourcePlan)]

    def only_named(self) -> list[int]:
        """The source nodes whose channels have names and no numbers of their own."""
        return [at for at, node in self.source_plans() if node.channel is None]

    def kafka_sources(self) -> list[KafkaSource]:
        """What is read from Kafka."""
        nodes = self.source_plans()
        return [each for at, node in nodes for each in kafka_sources(node.df, at, f"source-{at}")]

    def _source(self, spark: Any, session: Any, node: SourcePlan, address: Address, layers: Layers) -> Any:
        from pyspark.sql import DataFrame, functions as f

        number = self._numbers[id(node)]
        moved = spark._jvm.org.clonos.spark.QuerySession.moved(node.identified._jdf, session)
        given, channel, position = DataFrame(moved, spark), node.channel, node.position
        table = address.tables.get(number)
        if table is not None:
            given = numbered(given.select("*", node.name.alias(NAME), position.alias(POSITION)), table)
            channel, position = f.col(NUMBER), f.col(POSITION)
        channel = channel.cast("bigint")
        readers = layers.topology.downstream(number)
        partitions = []
        timed = []
        for at, (target, reader) in enumerate(zip(self.targets_of(node), readers, strict=True)):
            if target.key:
                instance = routing.by_key(node.df.schema, target.key, target.parallelism)
            else:
                instance = routing.by_channel(channel, target.parallelism)
            first = layers.first_partition(number, reader.number)
            partitions.append(instance + f.lit(first))
            if target.event_time is not None:
                timed.append(TimedReader(at, first, target.parallelism, target.event_time))
        identified = given.select(
            f.shiftleft(channel, NODE_BITS).bitwiseOR(f.lit(number).cast("bigint")).alias(CHANNEL),
            position.cast("bigint").alias(POSITION),
            *[partition.alias(f"{DESTINATION}_{at}") for at, partition in enumerate(partitions)],
            *[each.column for each in timed],
            *[f.col(quoted(name)) for name in node.df.columns],
        )
        return packed(identified, len(partitions), timed, self._settings)

    def _stage(
        self, stage: Layer, layers: Layers, address: Address, mode: str, spill: str | None
    ) -> dict[str, Any]:
        """What the plugin is told of a layer."""
        nodes = []
        for node in stage.nodes:
            spec = {
                **self._node(node),
                **address.to_json(mode, spill),
                "route": layers.partitions_of(node.number),
            }
            if node.kind is NodeKind.OPERATOR:
                plan = self.operator_plan(node.number)
                spec["places"] = self._places(plan, len(address.servers) - 1, spread=address.spread)
                spec["passive_standbys"] = self._standby(plan) == "passive"
            nodes.append(spec)
        numbers = [node.number for node in stage.nodes]
        partitions = [
            [-1, at.to] if isinstance(at, Forwarder) else [numbers.index(at.node), at.instance]
            for at in stage.partitions
        ]
        return {"nodes": nodes, "partitions": partitions}

    def operator_plan(self, number: NodeId) -> OperatorPlan:
        plan = self._nodes[number - 1]
        assert isinstance(plan, OperatorPlan)
        return plan

    def _node(self, node: Node) -> dict[str, Any]:
        settings = self._settings
        return {
            "node": node.number,
            "name": node.name,
            "parallelism": node.parallelism,
            "tick_ms": max(1, round(settings.tick * 1000)),
            "flush_ms": round(settings.flush * 1000),
            "bundle_rows": settings.bundle_rows,
            "bundle_bytes": settings.bundle_bytes,
            "inflight_bytes": settings.inflight_memory,
            "heartbeat_ms": round(settings.heartbeat * 1000),
            "connect_ms": round((settings.recovery_deadline + _STARTING_SECONDS) * 1000),
            "attempts": settings.attempts,
        }


def _is_same(one: Upstream, other: Upstream) -> bool:
    return node_of(one) is node_of(other) and output_read(one) == output_read(other)


def operator_spec(
    node: OperatorPlan,
    number: int,
    name: str,
    zone: str,
    targets: Sequence[Target],
    *,
    right_upstream: Sequence[int] = (),
    event_inputs: Sequence[EventInput] = (),
    tables: Tables | RowsByInstance | None = None,
    derived: DerivedOf | None = None,
) -> NodeSpec:
    """What the replicas of an operator are told of it; what depends on settings and history is as by default. `tables`
    is what `given_to` makes of those of the operator."""

    def with_tables(make: Callable[..., Any]) -> Callable[..., Any]:
        return make if tables is None else partial(make, tables=tables)

    derived = derived or DerivedOf(node, name, ())
    given = arrow_schema(node.input)
    output = arrow_schema(node.schema)
    sides = {OutputName(side): arrow_schema(schema) for side, schema in node.side_outputs.items()}
    schemas = {MAIN: output, **sides, **derived.schemas}
    operator: Callable[..., Any] = node.operator(given, name)
    routes = [
        Route(
            RouteKind.KEY if target.key else RouteKind.INSTANCE,
            target.parallelism,
            tuple(schemas[target.output].get_field_index(column) for column in target.key),
            target.output,
            target.has_event_time,
            _event_column(schemas[target.output], target.event_time),
            node.output_trails,
            None if target.event_time is None else waits(node, target.event_time),
        )
        for target in targets
    ]
    return NodeSpec(
        number=number,
        name=name,
        input=given,
        zone=zone,
        operator=derived.around(with_tables(operator)),
        key=tuple(given.get_field_index(column) for column in node.key),
        right=_right_input(node.right, right_upstream),
        output=output,
        side_outputs=sides,
        derived=derived.schemas,
        routes=tuple(routes),
        event_time=_event_column(given, node.event_time),
        event_inputs=tuple(event_inputs),
        version=node.binding.version,
        previous={
            version: derived.around(with_tables(make(given, name))) for version, make in node.previous.items()
        },
        dead_letters=node.binding.on_poison == "dead_letter",
    )


def given_to(table: TablePlan, tables: Tables, parallelism: int, zone: str) -> Tables | RowsByInstance:
    """What an operator that uses a table is given of its versions."""
    if not table.key:
        return tables
    key = [table.schema.get_field_index(column) for column in table.key]
    return RowsByInstance(tables, table.schema, key, parallelism, zone)


def _right_input(right: RightPlan | None, upstream: Sequence[int]) -> RightInput | None:
    if right is None:
        return None
    schema = arrow_schema(right.input)
    return RightInput(
        schema,
        tuple(schema.get_field_index(column) for column in right.key),
        frozenset(upstream),
        _event_column(schema, right.event_time),
    )


def _event_column(schema: pa.Schema, event_time: EventTime | None) -> EventColumn | None:
    return None if event_time is None else (schema.get_field_index(event_time.column), event_time.delay)


def _watermark(event_time: EventTime | None) -> tuple[str, int] | None:
    return None if event_time is None else (event_time.column, event_time.delay)


__all__ = ["Address", "Compiled", "Target", "operator_spec"]
