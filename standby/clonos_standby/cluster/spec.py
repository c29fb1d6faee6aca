"""What a replica is told about the query: the query spec file, and one node's part of it.

The driver writes the file when the query starts; it is msgpack, versioned, and opaque to the supervisor except for the
token. A node's part holds the user's function and is pickled by cloudpickle, as Spark itself ships functions; it is
never a stored format: a new driver writes a new one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import cloudpickle
import pyarrow as pa

from clonos.errors import ConfigurationError, ProtocolError
from clonos.protocol.engine.channel_watermarks import EventInput
from clonos.protocol.ids import NO_OUTPUT, NodeId, OutputNumber
from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.protocol.recovery.choice import PolicyChoice
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.side_output import MAIN, OutputName
from clonos.protocol.versions.programs import Programs
from clonos.protocol.versions.upgrade import Schedule
from clonos.storage.object_store import Options
from clonos.wire.tls import Tls
from clonos_standby.cluster.spec_file import VERSION, read_document
from clonos_standby.server.log import LogFormat
from clonos_standby.server.metrics_place import MetricsPlace

EventColumn: TypeAlias = tuple[int, int]
"""A column of event time, and the delay of its watermark in microseconds."""


class RouteKind(enum.Enum):
    KEY = "key"
    INSTANCE = "instance"  # everything of one instance to one destination


@dataclass(frozen=True, slots=True)
class Route:
    """How an operator's rows find the instances of a node that reads them."""

    kind: RouteKind
    parallelism: int
    columns: tuple[int, ...] = ()
    output: OutputName = MAIN
    has_event_time: bool = False  # the reader is told how far event time has come
    event_time: EventColumn | None = None  # by which column; None: as the operator has it
    trails: int = 0  # by how much rows may be behind the operator's own watermark, in microseconds
    waits: int | None = None  # the same where it goes by the column; None: that is another time


@dataclass(frozen=True, slots=True)
class RightInput:
    """The second input of an operator: its schema, the columns of its key, and the nodes that feed it."""

    schema: pa.Schema
    key: tuple[int, ...]
    upstream: frozenset[int]
    event_time: EventColumn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One operator or sink, as its replicas need it."""

    number: int
    name: str
    input: pa.Schema
    zone: str = "UTC"
    # operators
    operator: Callable[[], Any] | None = None
    key: tuple[int, ...] = ()
    right: RightInput | None = None
    output: pa.Schema | None = None
    side_outputs: Mapping[OutputName, pa.Schema] = field(default_factory=dict)
    # Outputs that expressions make of the others, as `operator` gives them
    derived: Mapping[OutputName, pa.Schema] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()  # by reader, in the order of their numbers
    depth: int = FULL
    recording: bool = True
    policy: PolicyChoice = field(default_factory=PolicyChoice)
    event_time: EventColumn | None = None
    event_inputs: tuple[EventInput, ...] = ()  # the nodes that say how far event time has come
    version: str = "1"
    # By version, to repeat what they began
    previous: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    schedule: Schedule | None = None  # which version runs which epoch; None: this one all
    dead_letters: bool = False  # a record that kills every process is passed over and kept
    # sinks
    sink: Any = None

    @property
    def recovery(self) -> RecoveryKind:
        return self.policy.kind

    def schema_from(self, upstream: NodeId) -> pa.Schema:
        """Of what another node sends it."""
        return self.right.schema if self.right is not None and upstream in self.right.upstream else self.input

    @property
    def versions(self) -> Schedule:
        """Which of them runs which epoch."""
        return self.schedule or Schedule.always(self.version)

    def programs(self) -> Programs:
        """An operator of its own, of the versions that there are."""
        assert self.operator is not None
        return Programs(
            self.name, self.versions, self.version, {**self.previous, self.version: self.operator}
        )

    @property
    def outputs(self) -> dict[OutputName, pa.Schema]:
        """Of an operator, the main output, the side outputs, and those that are derived from them."""
        assert self.output is not None
        return {MAIN: self.output, **self.side_outputs, **self.derived}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """What of the query's settings a replica uses."""

    snapshot_interval: float = 10.0
    snapshot_work: float = 0.1
    recovery_deadline: float = 120.0
    function_deadline: float = 300.0
    state_cache: int = 200_000
    window: int = 4
    window_bytes: int = 16 << 20
    bundle_rows: int = 4096
    bundle_bytes: int = 1 << 20
    round_interval: float = 1.0  # seconds, of checkpoints where steps are not repeated
    intercept: bool = False  # functions' own clocks and random generators are recorded
    archive_keep: float = 0.0  # seconds for which epochs can be repeated; 0: none is archived
    archive_bytes: int | None = None  # of an instance's segments, at most
    archive_key_file: str = ""  # with keys that encrypt what is archived; on each host
    archive_lineage: bool = False  # it is recorded how many rows each call gives


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySpec:
    """The whole file."""

    query: str
    token: str
    checkpoint: str
    data: str
    home: str = ""  # what the servers on this host have in common; the data directory unless it is said
    driver_pids: tuple[int, ...] = ()
    settings: ReplicaSettings = field(default_factory=ReplicaSettings)
    nodes: dict[int, bytes] = field(default_factory=dict)
    determinants: tuple[str, ...] = ()  # further determinant services, the driver's for sink logs
    servers: int = 0  # replica servers on this host, each with a determinant service
    left_behind: tuple[str, ...] = ()  # folders with the logs of servers that are not started any more
    may_have_moved: bool = False  # an instance may have run on another server (`roles.instance_moves`)
    told: bool = False  # the driver says where determinant services are, since they are on several hosts
    faults: str = ""  # scripted faults, JSON
    names: dict[int, str] = field(default_factory=dict)  # of operators and sinks, for status and metrics
    metrics: MetricsPlace | None = None  # the page of the first replica server
    output_number_floor: OutputNumber = NO_OUTPUT  # rows up to here belong to a history that was given up
    damage_accepted: bool = (
        False  # the history was given up, and the user has chosen to go on over what is damaged
    )
    listen: str = "127.0.0.1"  # where the determinant service of this host is bound
    tls: Tls | None = None  # what this host shows to others, and whom it trusts
    log_format: LogFormat = LogFormat.TEXT
    stores: Mapping[str, Options] = field(default_factory=dict)  # what the driver knows of object stores

    def __post_init__(self) -> None:
        if not self.home:
            object.__setattr__(self, "home", self.data)

    def node(self, number: int) -> NodeSpec:
        raw = self.nodes.get(number)
        if raw is None:
            raise ProtocolError(f"the query has no node {number}")
        spec: NodeSpec = cloudpickle.loads(raw)
        return spec

    def to_document(self) -> dict[str, Any]:
        """The msgpack map that the file holds."""
        return {
            "version": VERSION,
            "query": self.query,
            "token": self.token,
            "checkpoint": self.checkpoint,
            "data": self.data,
            "home": self.home,
            "driver_pids": list(self.driver_pids),
            "settings": {name: getattr(self.settings, name) for name in ReplicaSettings.__dataclass_fields__},
            "nodes": self.nodes,
            "determinants": list(self.determinants),
            "servers": self.servers,
            "left_behind": list(self.left_behind),
            "may_have_moved": self.may_have_moved,
            "told": self.told,
            "faults": self.faults,
            "names": self.names,
            "metrics": self.metrics.to_dict() if self.metrics is not None else None,
            "numbers_from": self.output_number_floor,
            "damage_accepted": self.damage_accepted,
            "listen": self.listen,
            "tls": self.tls.to_dict() if self.tls is not None else None,
            "log_format": self.log_format.value,
            "stores": self.stores,
        }


def load(path: str) -> QuerySpec:
    """Read a spec file. Raises StorageUnavailable where it cannot be read, ConfigurationError where it is not one."""
    said = read_document(path)
    try:
        return QuerySpec(
            query=said["query"],
            token=said["token"],
            checkpoint=said["checkpoint"],
            data=said["data"],
            home=said.get("home", ""),
            driver_pids=tuple(said.get("driver_pids", ())),
            settings=ReplicaSettings(**said["settings"]),
            nodes=said["nodes"],
            determinants=tuple(said["determinants"]),
            servers=said.get("servers", 0),
            left_behind=tuple(said.get("left_behind", ())),
            may_have_moved=said.get("may_have_moved", False),
            told=said.get("told", False),
            faults=said.get("faults", ""),
            names=said.get("names", {}),
            metrics=MetricsPlace.from_dict(said.get("metrics")),
            output_number_floor=OutputNumber(said.get("numbers_from", NO_OUTPUT)),
            damage_accepted=said.get("damage_accepted", False),
            listen=said.get("listen", "127.0.0.1"),
            tls=Tls.from_dict(said.get("tls")),
            log_format=LogFormat(said.get("log_format", "text")),
            stores=said.get("stores", {}),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{path} is not a query spec: {error}") from error
