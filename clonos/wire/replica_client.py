"""The driver's side of having replicas run on another host: one service, asked over one channel.

A refusal is an error that says which service refused and why; a service that cannot be reached is `Unreachable`, since
the driver goes on without it for the time being.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import grpc

from clonos.errors import ClonosError, ConfigurationError, ProtocolError, StorageUnavailable, Unauthenticated
from clonos.wire._gen import replicas_pb2, replicas_pb2_grpc
from clonos.wire.boundary import bearer
from clonos.wire.replica_service import VERSION, Granted, LeaseEnded, Wanted
from clonos.wire.strikes import FaultCommand, NoProcess
from clonos.wire.tls import Tls, channel

HOST_SECONDS: Final = 90.0
_SECONDS: Final = 5.0


class Unreachable(StorageUnavailable):
    """The service does not answer."""


_REFUSALS: Final[dict[grpc.StatusCode, type[ClonosError]]] = {
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.INVALID_ARGUMENT: ProtocolError,
    grpc.StatusCode.UNIMPLEMENTED: ProtocolError,
    grpc.StatusCode.INTERNAL: ProtocolError,
    grpc.StatusCode.UNKNOWN: ProtocolError,
    grpc.StatusCode.FAILED_PRECONDITION: ConfigurationError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ConfigurationError,
    grpc.StatusCode.NOT_FOUND: LeaseEnded,
}


class ReplicaClient:
    """Safe to use from several threads."""

    def __init__(self, address: str, token: str, tls: Tls | None = None) -> None:
        self.address = address
        self._token = token
        options = [("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 2000)]
        self._channel = channel(address, tls, options)
        self._stub: Any = replicas_pb2_grpc.ReplicasStub(self._channel)  # type: ignore[no-untyped-call]

    def host(self, wanted: Wanted) -> Granted:
        request = replicas_pb2.HostRequest(
            version=VERSION,
            query=wanted.query,
            history=wanted.history,
            instances=wanted.instances,
            spec=wanted.spec,
            environment=wanted.environment,
            modules=wanted.modules,
            port=wanted.port,
            membership=wanted.membership,
        )
        return _granted(self._call("Host", request, HOST_SECONDS))

    def renew(self, query: str, lease: int, heard: int) -> Granted:
        """`heard`: the last answer that has come."""
        request = replicas_pb2.Lease(version=VERSION, query=query, lease=lease, heard=heard)
        return _granted(self._call("Renew", request, _SECONDS))

    def release(self, query: str, lease: int) -> None:
        self._call("Release", replicas_pb2.Lease(version=VERSION, query=query, lease=lease), HOST_SECONDS)

    def describe(self) -> dict[str, Any]:
        reply = self._call("Describe", replicas_pb2.DescribeRequest(version=VERSION), _SECONDS)
        return dict(json.loads(reply.json))

    def strike(self, query: str, command: FaultCommand, name: str) -> Iterator[str]:
        """What is done there, while it is done; what is stopped goes on when this is closed."""
        request = replicas_pb2.StrikeRequest(
            version=VERSION,
            query=query,
            kind=command.kind.value,
            role=command.role.value,
            node=command.node,
            instance=command.instance,
            seconds=command.seconds,
            factor=command.factor,
            name=name,
        )
        said = self._stub.Strike(
            request, timeout=command.seconds + HOST_SECONDS, metadata=bearer(self._token)
        )
        try:
            for struck in said:
                yield struck.said
        except grpc.RpcError as error:
            raise self._refused(error) from None
        finally:
            said.cancel()

    def close(self) -> None:
        self._channel.close()

    def _call(self, name: str, request: Any, seconds: float) -> Any:
        try:
            return getattr(self._stub, name)(request, timeout=seconds, metadata=bearer(self._token))
        except grpc.RpcError as error:
            raise self._refused(error) from None

    def _refused(self, error: grpc.RpcError) -> ClonosError:
        call: Any = error
        if call.code() is grpc.StatusCode.ABORTED:
            return NoProcess(call.details())
        refusal = _REFUSALS.get(call.code())
        if refusal is not None:
            return refusal(f"the replica service at {self.address} refused: {call.details()}")
        return Unreachable(f"the replica service at {self.address} cannot be reached: {call.details()}")


def _granted(said: replicas_pb2.Hosted) -> Granted:
    return Granted(said.lease, said.seconds, said.port, said.determinants, said.answer)
