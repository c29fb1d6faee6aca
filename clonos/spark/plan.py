"""A causal query before it is compiled: sources, operators and unions as values.

Built lazily, because an instance must know its downstream key and parallelism to stamp deltas per destination, which
are known only when the sink is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from clonos.errors import QueryDefinitionError
from clonos.operators.claims import claimed_by, innermost
from clonos.operators.expressions.tree import Derivation
from clonos.protocol.recovery.dependence import Determinism
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.side_output import MAIN, OutputName

OperatorFactory: TypeAlias = Callable[[pa.Schema, str], Callable[[], Any]]
"""From an operator's input schema and name to what a replica calls to get the operator."""


STANDBY = ("none", "passive", "hot")
POLICIES = ("fail", "dead_letter")


@dataclass(frozen=True, eq=False, slots=True)
class SourcePlan:
    """A streaming DataFrame whose records have an identity: a channel and a `position` in it.

    A channel is an integer column, 0 and up, or has a `name`, which the checkpoint numbers; where both are there, the
    integer counts for as long as the checkpoint has numbered none of the names.
    """

    df: Any
    identified: Any  # the same with the columns of which the others are made
    position: Any
    channel: Any = None
    name: Any = None
    partitions: int | None = None  # where that is known
    described: Mapping[str, str] = field(default_factory=dict)  # what it is, for the checkpoint
    back_edge: BackEdge | None = None  # of a loop, whose begin it is


@dataclass(eq=False, slots=True)
class BackEdge:
    """By which rows of a loop come back: a log, which is a source where the loop begins and a sink where it ends. That
    end is known when the user's function has built the loop."""

    end: SinkPlan | None = None


def check_name(name: Any, of: str) -> None:
    if not isinstance(name, str) or not name or "/" in name or name.startswith("_clonos"):
        raise QueryDefinitionError(
            f"{name!r} is not {of} name", hint="Give a short text without '/': what is kept is bound to it"
        )


def check_parallelism(parallelism: Any, of: str) -> None:
    if parallelism is not None and (not isinstance(parallelism, int) or parallelism < 1):
        raise QueryDefinitionError(f"{of} has parallelism {parallelism}")


@dataclass(frozen=True, slots=True)
class Binding:
    """What binds an operator to its state, and how it is to run."""

    name: str
    version: str = "1"
    parallelism: int | None = None
    named: bool = True  # by the user; otherwise the compiler numbers operators that share the name
    ticks: bool = False  # it has processing-time timers, which want to fire also while nothing arrives
    standby: str | None = None  # of each instance: see STANDBY; None: as the setting has it
    recovery: str | None = None  # see RecoveryKind; None: as the setting has it
    on_poison: str = "fail"  # what becomes of a record that ends every process: see POLICIES
    gathers: bool = False  # an epoch's records, which are processed at its end
    claims: Determinism = Determinism.RECORDED
    """What its functions say of themselves."""

    def __post_init__(self) -> None:
        check_name(self.name, "an operator")
        name = self.name
        if not isinstance(self.version, str):
            raise QueryDefinitionError(f"the version of {name!r} must be text, not {self.version!r}")
        check_parallelism(self.parallelism, f"operator {name!r}")
        if self.standby not in (None, *STANDBY):
            raise QueryDefinitionError(
                f"operator {name!r} has standby={self.standby!r}",
                hint="Say 'none', 'passive' (it goes from snapshot to snapshot) or 'hot' (it does as the replica does)",
            )
        if self.recovery not in (None, *(kind.value for kind in RecoveryKind)):
            raise QueryDefinitionError(
                f"operator {name!r} has recovery={self.recovery!r}",
                hint=f"Say one of {', '.join(kind.value for kind in RecoveryKind)}",
            )
        if self.on_poison not in POLICIES:
            raise QueryDefinitionError(
                f"operator {name!r} has on_poison={self.on_poison!r}",
                hint="Say 'fail' (the query ends) or 'dead_letter' (the record is passed over and kept)",
            )
        if self.gathers and self.on_poison != "fail":
            raise QueryDefinitionError(
                f"operator {name!r} has per='batch' and on_poison={self.on_poison!r}",
                hint="Which of an epoch's records ends the processes cannot be told; use per='bundle' to pass one over",
            )

    def of_functions(self, *functions: Any) -> Binding:
        """The same, with what these claim; None among them are none."""
        return replace(self, claims=claimed_by(functions))

    @classmethod
    def after(
        cls,
        what: Any,
        name: str | None,
        version: str,
        parallelism: int | None,
        *,
        ticks: bool = False,
        standby: str | None = None,
        recovery: str | None = None,
        on_poison: str = "fail",
        per: str = "bundle",
    ) -> Binding:
        """With the name given, or one after the function or class, or what else is `what`."""
        gathers = per == "batch"
        if name is not None:
            return cls(name, version, parallelism, True, ticks, standby, recovery, on_poison, gathers)
        what = innermost(what)
        derived = what if isinstance(what, str) else getattr(what, "__name__", None) or type(what).__name__
        name = derived.strip("<>") or "operator"
        return cls(name, version, parallelism, False, ticks, standby, recovery, on_poison, gathers)


class EventTime(NamedTuple):
    """The event time of a stream: its column, the delay of its watermark, and when it is idle as a whole (None: never).
    Microseconds. `inherited`: the watermark is that of the operator before, which has had rows that are dropped, or
    gives some later than others: those of joins come up to `trails` behind the latest one, if the right streams are not
    further behind. Columns that are `computed` from it say something of it, too."""

    column: str
    delay: int
    idle_after: int | None = None
    inherited: bool = False
    trails: int = 0
    computed: frozenset[str] = frozenset()
    follows: bool = False
    """Whether it is the time of the operator that gives the rows, under whatever name."""

    @property
    def delay_at_least(self) -> int:
        """Of a watermark by which no row of the stream is late that comes in time."""
        return max(self.delay, self.trails)


@dataclass(frozen=True, eq=False, slots=True)
class RightPlan:
    """The second input of an operator."""

    upstream: tuple[Upstream, ...]
    input: Any  # StructType
    key: tuple[str, ...]
    event_time: EventTime | None = None


@dataclass(frozen=True, eq=False, slots=True)
class TablePlan:
    """A table beside a stream: how it is read (a DataFrame or a PyArrow table), its columns when the query was defined,
    and how often it is read, in seconds; None: when the query starts. One with a `key` is what keys begin with: it is
    read when the query starts for the first time, and each instance has the rows of its keys."""

    read: Callable[[], Any]
    schema: pa.Schema
    every: float | None = None
    key: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class OperatorPlan:
    """An operator over the union of its upstreams, or over two inputs."""

    upstream: tuple[Upstream, ...]
    input: Any  # StructType
    key: tuple[str, ...]
    operator: OperatorFactory
    schema: Any  # StructType of the output
    binding: Binding
    event_time: EventTime | None
    # By version, to repeat what they began
    previous: Mapping[str, OperatorFactory] = field(default_factory=dict)
    side_outputs: Mapping[str, Any] = field(default_factory=dict)  # StructTypes
    right: RightPlan | None = None
    output_trails: int = (
        0  # by how much the event time of its rows may be behind its watermark, in microseconds
    )
    zone: str | None = None  # the session's, for which it was defined
    table: TablePlan | None = None
    gives_updates: bool = False  # a key's row takes the place of the one before

    @property
    def all_upstream(self) -> tuple[Upstream, ...]:
        """Of both inputs."""
        return self.upstream if self.right is None else self.upstream + self.right.upstream

    def key_for(self, upstream: Upstream) -> tuple[str, ...]:
        """By which the rows of an upstream node come to it."""
        return self.right.key if self.right is not None and self._is_right(upstream) else self.key

    def stream_time_of(self, upstream: Upstream) -> EventTime | None:
        """The event time of the stream by which an upstream node's rows come."""
        return (
            self.right.event_time if self.right is not None and self._is_right(upstream) else self.event_time
        )

    def event_time_for(self, upstream: Upstream) -> EventTime | None:
        """By which column the rows of an upstream node have event time; None: as that node has it, if it has."""
        given = self.stream_time_of(upstream)
        return None if given is None or given.inherited else given

    def hears_of_event_time(self, upstream: Upstream) -> bool:
        """Whether an upstream node says how far event time has come."""
        node = node_of(upstream)
        return self.event_time_for(upstream) is not None or (
            isinstance(node, OperatorPlan) and node.has_event_time
        )

    @property
    def has_event_time(self) -> bool:
        """Its own, or that of a node before it."""
        return any(map(self.hears_of_event_time, self.all_upstream))

    def _is_right(self, upstream: Upstream) -> bool:
        return self.right is not None and any(upstream is up for up in self.right.upstream)


PlanNode: TypeAlias = SourcePlan | OperatorPlan


@dataclass(frozen=True, slots=True)
class SideOutputPlan:
    """Rows that an operator gives beside its main output."""

    node: OperatorPlan
    output: OutputName


@dataclass(frozen=True, slots=True)
class DerivedPlan:
    """Rows that expressions make of those of an output, in the operator's replicas."""

    node: OperatorPlan
    source: OutputName
    derivation: Derivation
    schema: Any  # StructType

    @property
    def output(self) -> OutputName:
        """Of the output that it is there: of equal expressions the same, and no user's side output."""
        return OutputName(f"{self.source}/{self.derivation.digest}")


Upstream: TypeAlias = PlanNode | SideOutputPlan | DerivedPlan


def node_of(upstream: Upstream) -> PlanNode:
    return upstream.node if isinstance(upstream, SideOutputPlan | DerivedPlan) else upstream


def output_read(upstream: Upstream) -> OutputName:
    """Which output of the node is read, one that is derived under its own name."""
    return upstream.output if isinstance(upstream, SideOutputPlan | DerivedPlan) else MAIN


def base_output(upstream: Upstream) -> OutputName:
    """Which output that the operator gives itself is read, whether or not through expressions."""
    return upstream.source if isinstance(upstream, DerivedPlan) else output_read(upstream)


def schema_of(upstream: Upstream) -> Any:
    """StructType of the rows."""
    if isinstance(upstream, SourcePlan):
        return upstream.df.schema
    if isinstance(upstream, SideOutputPlan):
        return upstream.node.side_outputs[upstream.output]
    return upstream.schema


@dataclass(frozen=True, eq=False, slots=True)
class SinkPlan:
    """An end of the query. Only one that is alone may go without a `name`."""

    upstream: tuple[Upstream, ...]
    input: Any  # StructType
    sink: Any
    name: str | None = None
    parallelism: int | None = None
    is_back_edge: bool = False

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name, "a loop" if self.is_back_edge else "a sink")
        check_parallelism(self.parallelism, f"sink {self.name or self.sink!r}")

    @property
    def all_upstream(self) -> tuple[Upstream, ...]:
        return self.upstream

    @property
    def instances(self) -> int:
        return self.parallelism or self.sink.parallelism or 1


def waits(sender: OperatorPlan, time: EventTime) -> int | None:
    """By how much rows with this event time may be behind the watermark of the operator that gives them, in
    microseconds. None where it is another time: the operators before go by columns of other names, or by none."""
    if not sender.has_event_time:
        return None
    nodes = [node for node in in_order((sender,)) if isinstance(node, OperatorPlan)]
    before = [node.event_time for node in nodes] + [
        node.right.event_time for node in nodes if node.right is not None
    ]
    delays = [
        known.delay
        for known in before
        if known is not None
        and (time.follows or time.column == known.column or time.column in known.computed)
    ]
    return max(0, time.delay - min(delays)) if delays else None


def in_order(roots: tuple[Upstream, ...]) -> list[PlanNode]:
    """Every node once, upstream before downstream."""
    found: list[PlanNode] = []

    def visit(node: PlanNode) -> None:
        if any(node is known for known in found):
            return
        if isinstance(node, OperatorPlan):
            for upstream in node.all_upstream:
                visit(node_of(upstream))
        found.append(node)

    for root in roots:
        visit(node_of(root))
    return found
