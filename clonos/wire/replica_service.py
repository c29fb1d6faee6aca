"""The service's side of having replicas run on another host: what crosses the boundary, checked.

What it amounts to is not decided here: the service is given as a `Hosting`. Its refusals become codes that the driver
can tell apart, and nothing that a caller sends makes it answer otherwise than with one of them.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc

from clonos.errors import CheckpointMismatch, ClonosError, ConfigurationError, StorageUnavailable
from clonos.wire._gen import replicas_pb2, replicas_pb2_grpc
from clonos.wire.boundary import abort, bind, check_caller
from clonos.wire.strikes import FaultCommand, Kind, NoProcess, Role
from clonos.wire.tls import Tls

VERSION: Final = 1
MAX_REQUEST: Final = 64 * 1024 * 1024  # a spec holds the functions of a query, with what they enclose
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a driver asks for."""

    query: str
    history: int
    instances: int
    spec: bytes
    environment: Mapping[str, str]
    modules: Mapping[str, str]
    port: int = 0
    membership: str = ""


@dataclass(frozen=True, slots=True)
class Granted:
    """What it gets: a lease, and the ports where its replica server and determinant service are. `answer` counts what
    was said under this lease (`protocol.roles.lease`)."""

    lease: int
    seconds: float
    port: int
    determinants: int
    answer: int = 0


class NoRoom(ClonosError):
    """The service runs as much as it may."""


class LeaseEnded(ClonosError):
    """The lease has run out, or another driver has taken over."""


class Hosting(Protocol):
    """Called from several threads at once."""

    def host(self, wanted: Wanted) -> Granted: ...
    def renew(self, query: str, lease: int, heard: int) -> Granted: ...
    def release(self, query: str, lease: int) -> None: ...
    def describe(self) -> dict[str, Any]: ...

    def strike(self, query: str, command: FaultCommand, name: str, gone: Callable[[], bool]) -> Iterator[str]:
        """What is done, while it is done, until `gone`."""
        ...


_CODES: Final = (
    (NoProcess, grpc.StatusCode.ABORTED),
    (NoRoom, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (LeaseEnded, grpc.StatusCode.NOT_FOUND),
    (StorageUnavailable, grpc.StatusCode.UNAVAILABLE),
    (ConfigurationError, grpc.StatusCode.FAILED_PRECONDITION),
    (CheckpointMismatch, grpc.StatusCode.FAILED_PRECONDITION),  # of two that share logs
)


class _Servicer(replicas_pb2_grpc.ReplicasServicer):
    def __init__(self, hosting: Hosting, token: str) -> None:
        self._hosting = hosting
        self._token = token

    def Host(self, request: replicas_pb2.HostRequest, context: Any) -> replicas_pb2.Hosted:
        self._check(request, context)
        if not _NAME.fullmatch(request.query):
            abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"{request.query!r} is not the id of a query")
        if request.port > 65_535:
            abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"{request.port} is not a port")
        if request.membership and not _NAME.fullmatch(request.membership):
            abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"{request.membership!r} is not a membership")
        wanted = Wanted(
            request.query,
            request.history,
            request.instances,
            request.spec,
            dict(request.environment),
            dict(request.modules),
            request.port,
            request.membership,
        )
        return _hosted(self._done(context, lambda: self._hosting.host(wanted)))

    def Renew(self, request: replicas_pb2.Lease, context: Any) -> replicas_pb2.Hosted:
        self._check(request, context)
        return _hosted(
            self._done(context, lambda: self._hosting.renew(request.query, request.lease, request.heard))
        )

    def Release(self, request: replicas_pb2.Lease, context: Any) -> replicas_pb2.Released:
        self._check(request, context)
        self._done(context, lambda: self._hosting.release(request.query, request.lease))
        return replicas_pb2.Released()

    def Strike(self, request: replicas_pb2.StrikeRequest, context: Any) -> Iterator[replicas_pb2.Struck]:
        self._check(request, context)
        try:
            kind, role = Kind(request.kind), Role(request.role)
        except ValueError as error:
            abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"a strike cannot be read: {error}")
        command = FaultCommand(
            kind=kind,
            role=role,
            node=request.node,
            instance=request.instance,
            seconds=request.seconds,
            factor=request.factor,
        )
        gone = threading.Event()
        context.add_callback(gone.set)
        said = self._hosting.strike(request.query, command, request.name, gone.is_set)
        while (text := self._done(context, lambda: next(said, None))) is not None:
            yield replicas_pb2.Struck(said=text)

    def Describe(self, request: replicas_pb2.DescribeRequest, context: Any) -> replicas_pb2.Described:
        self._check(request, context)
        return replicas_pb2.Described(json=json.dumps(self._done(context, self._hosting.describe)))

    def _check(self, request: Any, context: Any) -> None:
        check_caller(context, self._token, "service", request.version, VERSION)

    @staticmethod
    def _done(context: Any, what: Callable[[], Any]) -> Any:
        try:
            return what()
        except ClonosError as error:
            code = next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
            abort(context, code, str(error))


def _hosted(granted: Granted) -> replicas_pb2.Hosted:
    return replicas_pb2.Hosted(
        lease=granted.lease,
        seconds=granted.seconds,
        port=granted.port,
        determinants=granted.determinants,
        answer=granted.answer,
    )


class ReplicaService:
    """The running gRPC server."""

    def __init__(self, hosting: Hosting, token: str, host: str, port: int, tls: Tls | None = None) -> None:
        options = [("grpc.max_receive_message_length", MAX_REQUEST), ("grpc.so_reuseport", 0)]
        self._server = grpc.server(
            ThreadPoolExecutor(8, thread_name_prefix="replicas"), options=options, maximum_concurrent_rpcs=64
        )
        add: Any = replicas_pb2_grpc.add_ReplicasServicer_to_server
        add(_Servicer(hosting, token), self._server)
        bound = bind(self._server, host, port, tls, "the service")
        if port and bound != port:
            self._server.stop(0)
            raise ConfigurationError(f"the service cannot listen at {host}:{port}: the port is taken")
        self.address = f"{host}:{bound}"
        self._server.start()

    def stop(self, grace: float = 0.5) -> None:
        self._server.stop(grace).wait()
