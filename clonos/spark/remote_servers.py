"""What other hosts have to do with a query: replica servers that the settings name, or that executors have, and how
this host is found."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

from clonos.errors import ConfigurationError
from clonos.spark.executors import ExecutorServices
from clonos.spark.settings import PREFIX, Settings
from clonos.wire.boundary import read_token
from clonos.wire.tls import Tls
from clonos_standby.cluster.leased_server import RemoteServers
from clonos_standby.server.metrics_place import MetricsPlace

TOKEN_FILE = "executors.token"
_TLS_SETTINGS = f"{PREFIX}tls.ca, {PREFIX}tls.cert and {PREFIX}tls.key"


def remote_servers(settings: Settings, *, spread: bool) -> RemoteServers:
    """The replica services of the configuration, and how other hosts are talked to: those of the services, and, where
    tasks are `spread`, theirs. Raises ConfigurationError."""
    tls = _tls(settings)
    if not settings.replica_servers or settings.on_executors:
        return RemoteServers(tls=tls if spread else None)
    if not settings.replica_token_file:
        raise ConfigurationError(
            f"{PREFIX}replica.servers names services, and there is no {PREFIX}replica.token.file",
            hint="Name the file with the token that the services were started with",
        )
    return RemoteServers(
        services=settings.replica_servers,
        service_token=read_token(Path(settings.replica_token_file)),
        token_file=os.path.abspath(settings.replica_token_file),
        tls=tls,
    )


def metrics_place(settings: Settings) -> MetricsPlace | None:
    """Where the first replica server has its page of metrics. Raises ConfigurationError."""
    if settings.metrics_port is None:
        return None
    return MetricsPlace.of(
        settings.metrics_host,
        settings.metrics_port,
        settings.metrics_token_file,
        _tls(settings),
        f"{PREFIX}metrics.token.file",
    )


def _tls(settings: Settings) -> Tls | None:
    return Tls.of(settings.tls_ca, settings.tls_cert, settings.tls_key, _TLS_SETTINGS)


def executors_servers(remote: RemoteServers, services: ExecutorServices, data: str) -> RemoteServers:
    """The services that executors have now. Their token is left where the commands of an operator find it."""
    path = os.path.join(data, TOKEN_FILE)
    if services.token != remote.service_token:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(services.token)
    return replace(remote, services=services.places(), service_token=services.token, token_file=path)


def reached_at(settings: Settings, driver_host: str) -> str:
    """Where other hosts find this one: as Spark's executors do, if there are any, else by its address on the way to the
    first of the remote servers."""
    found = settings.replica_host or driver_host
    if found or not settings.replica_servers or settings.on_executors:
        return found or "127.0.0.1"
    host, _, port = settings.replica_servers[0].rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigurationError(
            f"there is no way to {host}: {error}", hint=f"Correct {PREFIX}replica.servers"
        ) from None
