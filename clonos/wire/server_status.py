"""What a replica server answers when it is asked how it stands, and what that comes to for all servers of a query.

It goes over the wire as one JSON object with these names. Times are seconds since 1970, sizes bytes. A later release
may add a field and takes none away: people who operate a query read them with programs of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, cast

from clonos.errors import ProtocolError
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, InstanceId, NodeId


class ReplicaStatus(TypedDict):
    """A replica that serves an instance. A spare process serves none."""

    node: NodeId
    instance: InstanceId
    pid: int
    at_end: Epoch | None
    """The epoch at whose end it stands, where it may go on from memory."""
    busy: Epoch | None
    """The epoch that it runs."""
    epoch: Epoch | None
    generation: Generation | None
    standby: bool
    follows: bool
    """Whether a hot standby has come as far as its primary's log."""
    fence: str | None
    dying: str | None
    """Why it is being killed."""
    stopped: bool
    uptime: float
    resident: int | None
    records: int
    log_bytes: int | None
    done: dict[str, float]
    """Figures of all processes of this instance since the server started."""


class FailureReport(TypedDict):
    """Why a replica or a conduit has failed its task."""

    at: float
    generation: Generation
    node: NodeId | None
    """None of a process that served no instance yet."""
    instance: InstanceId | None
    epoch: NotRequired[Epoch]
    """Where a conduit has reported it."""
    error: str
    message: str


class _Processes(TypedDict):
    """What the supervisor of a server knows beside its replicas."""

    pid: int
    started: float
    generation: Generation
    resident: int | None
    spares: list[int]
    waiting: int
    """Connections that wait for a replica."""
    round_at: float | None
    """When the last round of checkpoints was complete; None where there was none, or there are no rounds."""
    deaths: int
    failures: list[FailureReport]
    recoveries: list[dict[str, Any]]
    recent_deaths: list[dict[str, Any]]


class _Addresses(TypedDict):
    grpc: str | None
    """Of the determinant service."""
    grpc_pid: int | None
    metrics: str | None
    """Where its page of metrics is; of a server on another host, that of its replica service."""


class SupervisorStatus(_Processes):
    """What the supervisor of a server knows."""

    replicas: list[ReplicaStatus]


class ServerStatus(SupervisorStatus, _Addresses):
    """The whole answer of a server."""


class PlacedStatus(ServerStatus):
    """The answer, with the replica service that runs the server; None on the driver's host."""

    place: str | None


class PlacedReplica(ReplicaStatus):
    """A replica, with the number of its server and the replica service that runs it."""

    server: int
    place: str | None


class OtherServer(TypedDict):
    """A server beside the first one."""

    pid: int
    grpc_pid: int | None
    started: float
    resident: int | None
    place: str | None
    metrics: str | None


class ServersStatus(_Processes, _Addresses):
    """All servers of a query: the first one's answer, and from all of them what there are several of."""

    replicas: list[PlacedReplica]
    others: list[OtherServer]


class QueryStatus(ServersStatus):
    """What `causal_status()` of a query returns."""

    committed: Epoch
    query: str


def parse_status(said: Mapping[str, Any], what: str) -> ServerStatus:
    """Raises ProtocolError where a field is missing; fields of a later release are kept."""
    missing = ServerStatus.__required_keys__ - said.keys()
    if missing:
        raise ProtocolError(f"{what}: the status lacks {', '.join(sorted(missing))}")
    return cast(ServerStatus, dict(said))


def placed(status: ServerStatus, place: str | None) -> PlacedStatus:
    """The answer of a server that this replica service runs."""
    return {**status, "place": place}


def merged(first: PlacedStatus, *others: PlacedStatus) -> ServersStatus:
    """The status of the first server, with what there are several of from all."""
    each = (first, *others)
    return {
        "pid": first["pid"],
        "started": first["started"],
        "generation": first["generation"],
        "replicas": [
            {**replica, "server": number, "place": status["place"]}
            for number, status in enumerate(each)
            for replica in status["replicas"]
        ],
        "resident": first["resident"],
        "spares": [spare for status in each for spare in status["spares"]],
        "waiting": sum(status["waiting"] for status in each),
        "round_at": first["round_at"],
        "deaths": sum(status["deaths"] for status in each),
        "failures": sorted(
            (failure for status in each for failure in status["failures"]), key=lambda failure: failure["at"]
        ),
        "recoveries": [recovery for status in each for recovery in status["recoveries"]],
        "recent_deaths": [death for status in each for death in status["recent_deaths"]],
        "grpc": first["grpc"],
        "grpc_pid": first["grpc_pid"],
        "metrics": first["metrics"],
        "others": [
            {
                "pid": other["pid"],
                "grpc_pid": other["grpc_pid"],
                "started": other["started"],
                "resident": other["resident"],
                "place": other["place"],
                "metrics": other["metrics"],
            }
            for other in others
        ],
    }


def without_processes(status: QueryStatus) -> QueryStatus:
    """What stays to be said of a query whose processes have ended."""
    return {
        **status,
        "resident": None,
        "replicas": [],
        "spares": [],
        "others": [],
        "waiting": 0,
        "grpc": None,
        "grpc_pid": None,
        "metrics": None,
    }
